"""A Kafka broker beside ours, and a Spark with its connector, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flintmq.spark.java import find_java

from ..kafka_broker import kafka_broker
from .kafka_install import CONNECTOR_JARS, PYTHON, install

ROOT = Path(__file__).parent.parent.parent


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
    with (
        kafka_broker(folder) as broker,
        _jobs(folder, broker.servers, broker.pid, rows) as peer,
    ):
        yield peer


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
