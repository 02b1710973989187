"""A Kafka broker beside ours, and a Spark with its connector, in processes of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flintmq.spark.java import find_java

from .kafka_install import BROKER_JARS, CONNECTOR_JARS, PYTHON, install

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 60.0
HEAP = "1g"

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=4194304
log.segment.delete.delay.ms=0
"""


class Kafka:
    """What the benchmark asks of the peer: one job at a time."""

    def __init__(self, process: subprocess.Popen[str], answer: dict[str, Any]) -> None:
        self._process = process
        self.version: str = answer["version"]
        self.job_names: list[str] = answer["jobs"]

    def do(self, job: str) -> dict[str, Any]:
        """The figures of a job; `error` where it failed."""
        return _ask(self._process, {"job": job})


@contextmanager
def kafka(folder: Path, rows: int) -> Iterator[Kafka]:
    """Everything of Kafka, installed where it is not, started, and ended at the end."""
    install()
    with _broker(folder) as (servers, broker), _jobs(folder, servers, broker, rows) as peer:
        yield peer


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[str, int]]:
    java = [str(find_java().executable), f"-Xmx{HEAP}", f"-Xms{HEAP}", "-cp", f"{BROKER_JARS}/*"]
    port, controller = _free_port(), _free_port()
    settings = folder / "kafka.properties"
    data = folder / "kafka-data"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, data=data))
    name = str(uuid.uuid4())
    formatted = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if formatted.returncode:
        raise RuntimeError(f"Kafka could not be set up: {formatted.stderr.strip()[-300:]}")
    with (folder / "kafka.log").open("w") as log:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _wait_for(port, process)
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _jobs(folder: Path, servers: str, broker: int, rows: int) -> Iterator[Kafka]:
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
    environment |= {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": str(PYTHON)}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    with (folder / "kafka-jobs.log").open("w") as log:
        process = subprocess.Popen(
            [str(PYTHON), "-m", "benchmarks.spark.kafka_jobs"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            text=True,
        )  # fmt: skip
        try:
            order = {
                "jars": f"{CONNECTOR_JARS}/*",
                "folder": str(folder),
                "rows": rows,
                "servers": servers,
                "broker": broker,
            }
            yield Kafka(process, _ask(process, order))
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _ask(process: subprocess.Popen[str], question: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(question), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the Spark with Kafka's connector has ended; kafka-jobs.log says why")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError("Kafka did not start; kafka.log says why")
