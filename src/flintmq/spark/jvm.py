"""The Java process that Spark runs in: started without a shell, and ended with this process.

PySpark runs a shell script that starts a Java to find out how to start a Java. This is a second
faster, needs no shell, and works with Javas that lack the vector module.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..errors import SparkUnavailable
from .java import VECTOR_MODULE, Java

START_SECONDS = 180.0
END_SECONDS = 15.0

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# The options of Spark's own launcher, without the vector module.
OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
"""Of the module java.base."""
OPTIONS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
]


class Jvm:
    """A running Java. It ends when its standard input is closed: with this process at the latest,
    however that ends."""

    def __init__(
        self, process: subprocess.Popen[bytes], directory: Path, log_file: Path | None = None
    ) -> None:
        self._process, self._directory, self._log_file = process, directory, log_file
        self.port, self.secret = 0, ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def wait_ready(self, told: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not told.exists():
            if not self.is_alive():
                where = "above" if self._log_file is None else f"in {self._log_file}"
                raise SparkUnavailable(
                    f"Java ended with status {self._process.returncode} before Spark was ready; "
                    f"see its output {where}"
                )
            if time.monotonic() > deadline:
                raise SparkUnavailable(f"Spark was not ready within {START_SECONDS:.0f} seconds")
            time.sleep(0.02)
        facts = told.read_bytes()
        self.port, length = struct.unpack_from(">ii", facts)
        self.secret = facts[8 : 8 + length].decode()


def start_jvm(
    java: Java,
    spark_home: Path,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    log_file: Path | None = None,
) -> Jvm:
    """Start a Java with a Spark driver that waits for calls of this process.

    Its output and that of its workers goes where this process prints, or is appended to `log_file`.
    """
    directory = Path(tempfile.mkdtemp(prefix="flintmq-spark-"))
    told = directory / "told"
    # Settings may hold secrets, and all users of a machine can read command lines.
    settings_file = directory / "settings"
    settings_file.touch(mode=0o600)
    settings_file.write_text("".join(f"{_escaped(k)}={_escaped(v)}\n" for k, v in settings.items()))
    command = [
        str(java.executable),
        *OPTIONS,
        f"-Xmx{settings.get('spark.driver.memory', '1g')}",
        *shlex.split(settings.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        *shlex.split(environment.get("SPARK_SUBMIT_OPTS", "")),  # as spark-submit does
        *("-cp", _class_path(spark_home, settings, environment)),
        "org.apache.spark.deploy.SparkSubmit",
        *("--properties-file", str(settings_file), "--load-spark-defaults"),
        "pyspark-shell",
    ]
    with nullcontext() if log_file is None else log_file.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={
                **environment,
                "JAVA_HOME": str(java.home if java.has_vector_module else shim(java, directory)),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
            },
            start_new_session=True,  # Ctrl-C is for the program, which then ends Spark
        )
    jvm = Jvm(process, directory, log_file)
    try:
        jvm.wait_ready(told)
    except BaseException:
        jvm.end()
        raise
    told.unlink()
    settings_file.unlink()
    return jvm


def _class_path(
    spark_home: Path, settings: Mapping[str, str], environment: Mapping[str, str]
) -> str:
    parts = [
        settings.get("spark.driver.extraClassPath", ""),
        environment.get("SPARK_CONF_DIR", ""),
        str(spark_home / "jars" / "*"),
        environment.get("HADOOP_CONF_DIR", ""),
    ]
    return os.pathsep.join(part for part in parts if part)


def shim(java: Java, directory: Path) -> Path:
    """A JAVA_HOME for a Java without the vector module: its `java` drops that option, which Spark
    passes to executors."""
    script = directory / "java-home" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    script.chmod(0o755)
    return script.parent.parent


def _escaped(text: Any) -> str:
    """For Java's property files: everything but letters and digits as its code."""
    units = str(text).encode("utf-16-be")
    return "".join(
        chr(unit) if 48 <= unit <= 57 or 65 <= unit <= 90 or 97 <= unit <= 122 else f"\\u{unit:04x}"
        for unit in struct.unpack(f">{len(units) // 2}H", units)
    )
