"""What tests of Spark and of pipelines share: one session for all of them, and a broker process.

They run as on a machine where no Java is installed: the one from PyPI serves. FLINTMQ_TEST_MASTER
runs the same tests elsewhere, as scripts/test-spark-cluster does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.client.blocking.client import BlockingClient

# Other masters: see cluster.py
MASTER = os.environ.get("FLINTMQ_TEST_MASTER", "local[2,4]")
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The first compiler will do for tests, and the simplest collector."""
os.environ.setdefault("SPARK_SUBMIT_OPTS", LIGHT_JAVA)  # of programs that tests start, too
TUNED: dict[str, str | int] = {
    "spark.executor.extraJavaOptions": LIGHT_JAVA,
    "spark.sql.shuffle.partitions": 2,
    "spark.task.maxFailures": 4,
    # Only masters with executors of their own run second copies of tasks that take long.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
}
if MASTER.startswith("spark://"):
    TUNED |= {"spark.cores.max": 2, "spark.driver.host": "127.0.0.1"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for the session is a test of Spark. tests/conftest.py has all of those run by one
    process of pytest-xdist: sessions are heavy. Drivers that are killed are apart."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


def path_without_java(directory: Path) -> str:
    """PATH as it is, but for every java on it."""
    parts = []
    for number, part in enumerate(os.environ.get("PATH", "").split(os.pathsep)):
        if not os.path.exists(os.path.join(part, "java")):
            parts.append(part)
            continue
        copy = directory / str(number)
        copy.mkdir(parents=True)
        for entry in os.scandir(part):
            if not entry.name.startswith("java"):
                (copy / entry.name).symlink_to(entry.path)
        parts.append(str(copy))
    return os.pathsep.join(parts)


@pytest.fixture(scope="session")
def environment_without_java(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = path_without_java(tmp_path_factory.mktemp("path"))
    return environment


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark writes down everything that happens."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(environment_without_java: dict[str, str], event_log: Path) -> Iterator[Any]:
    """The one session. It stays for all tests; streams are stopped after each."""
    import flintmq.spark

    config = TUNED | {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("PATH", environment_without_java["PATH"])
        session = flintmq.spark.session(MASTER, app_name="tests", config=config, log_level="OFF")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def no_stream_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


class BrokerProcess:
    """`flintmq serve` as a process of its own, which can be killed and started again."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory, self._arguments = directory, arguments
        self._process: subprocess.Popen[str] | None = None
        self.listen = "127.0.0.1:0"
        self.said = ""
        """Where it says that it is."""

    @property
    def url(self) -> str:
        return f"flint://{self.listen}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> BrokerProcess:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(self.directory)),
                *("--listen", self.listen, *self._arguments),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.said = line = self._process.stdout.readline()
        assert "ready at " in line, f"the broker is not ready: {line!r}"
        self.listen = line.split("ready at flint://")[1].split(",")[0].strip()
        return self

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.send_signal(number)
        self._process.wait(60)
        self._process.stdout.close()
        self._process = None


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests that do not harm it; each uses topics of its own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    process.stop()


@pytest.fixture
def mq(broker: BrokerProcess) -> Iterator[BlockingClient]:
    with flintmq.connect_sync(broker.url) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"t.{name}"


def everything(mq: BlockingClient, topic: str) -> list[Any]:
    """All that a topic has right now: what the broker says, no guess after a moment's silence."""
    found: list[Any] = []
    with mq.reader(topic) as reader:
        while rows := reader.read_batch(100_000, timeout=0):
            found += rows
    return found
