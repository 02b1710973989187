"""The jobs on a Kafka topic, in an environment of their own; `kafka.py` starts it.

Reads what to do from stdin, a JSON object on each line, and answers with the figures on stdout.
Needs PySpark and the standard library alone.
"""

from __future__ import annotations

import itertools
import json
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from ..meters import Parties, measured, wait_quiet
from .jobs import Job, Jobs, Table, reason

TOPIC = "rows"
PRODUCER = {"kafka.acks": "all", "kafka.linger.ms": "5", "kafka.batch.size": "1048576"}
"""Larger batches than the producer makes by itself: they serve Kafka better, read and written."""


class KafkaJobs:
    def __init__(self, spark: Any, jobs: Jobs, servers: str, broker: int) -> None:
        self._spark, self._jobs, self._broker = spark, jobs, broker
        self._servers = {"kafka.bootstrap.servers": servers}
        self._numbers = itertools.count()
        properties = spark._jvm.java.util.Properties()
        properties.put("bootstrap.servers", servers)
        self._admin = spark._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)

    def create(self, topic: str, *, flushed: bool = False) -> None:
        java = self._spark._jvm
        new = java.org.apache.kafka.clients.admin.NewTopic(topic, 1, 1)
        if flushed:
            new = new.configs({"flush.messages": "1"})
        self._admin.createTopics([new]).all().get()

    def fill(self) -> int:
        self.create(TOPIC)
        rows = self._jobs.write("kafka", {**self._servers, **PRODUCER, "topic": TOPIC})
        wait_quiet(self._broker)
        return rows

    def jobs(self) -> dict[str, Job]:
        table = Table("kafka", {**self._servers, "subscribe": TOPIC, "startingOffsets": "earliest"})
        limited = Table("kafka", {**table.options, "maxOffsetsPerTrigger": "1000000"})
        jobs = self._jobs
        return {
            "fill": self.fill,
            "batch read": lambda: jobs.read(table),
            "batch read, count and sum": lambda: jobs.count(table),
            "stream read": lambda: jobs.stream(limited),
        }

    def write_jobs(self) -> dict[str, tuple[Job, Job]]:
        return {
            "batch write, not synced": self._write(flushed=False),
            "batch write, synced": self._write(flushed=True),
            "stream write, not synced": self._write(flushed=False, streams=True),
            "stream write, synced": self._write(flushed=True, streams=True),
        }

    def _write(self, *, flushed: bool, streams: bool = False) -> tuple[Job, Job]:
        topics: list[str] = []

        def write() -> int:
            topics.append(f"written-{next(self._numbers)}")
            self.create(topics[-1], flushed=flushed)
            work = self._jobs.stream_write if streams else self._jobs.write
            return work("kafka", {**self._servers, **PRODUCER, "topic": topics[-1]})

        def check() -> int:
            table = Table("kafka", {**self._servers, "subscribe": topics[-1]})
            count = self._jobs.count(table)
            self._admin.deleteTopics([topics[-1]]).all().get()
            wait_quiet(self._broker)
            return count

        return write, check


def session(jars: str) -> Any:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("kafka")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraClassPath", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def main(said: TextIO, answers: TextIO) -> None:
    order = json.loads(said.readline())
    spark = session(order["jars"])
    spark.sparkContext.setLogLevel("ERROR")
    jobs = Jobs(spark, Path(order["folder"]), order["rows"])
    kafka = KafkaJobs(spark, jobs, order["servers"], order["broker"])
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    parties = Parties(jvm, order["broker"])
    all_jobs = kafka.jobs()
    write_jobs = kafka.write_jobs()
    _answer(answers, {"version": spark.version, "jobs": [*all_jobs, *write_jobs]})
    for line in said:
        name = json.loads(line)["job"]
        try:
            if name in write_jobs:
                write, check = write_jobs[name]
                figures = measured(parties, write)
                check()
            else:
                figures = measured(parties, all_jobs[name])
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            _answer(answers, {"error": reason(error)})
        else:
            _answer(answers, figures)
    spark.stop()


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
