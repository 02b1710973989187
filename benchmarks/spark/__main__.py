"""Topics in Spark, beside Parquet, a source of tuples, and on demand Kafka, in one run on local[2].

    .venv/bin/python -m benchmarks.spark --rows 1000000
    .venv/bin/python -m benchmarks.spark --kafka           # installs Kafka under benchmarks/.peers
    .venv/bin/python -m benchmarks.spark --only "batch read" --rounds 5

Needs `scripts/setup test`. Prints one table and one JSON line. In each round every job runs once,
and those that do the same run one right after the other. The first round is told apart: it pays for
what Java and Python do once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import flintmq.spark

from ..installing import CannotInstall
from ..meters import Parties, measured, resident_bytes, wait_quiet
from ..report import machine
from .flint import BATCHED, SINGLY, FlintJobs, fill, flint_broker
from .jobs import Job, Jobs, Table, reason
from .kafka import kafka
from .latency import latencies
from .parquet import parquet_jobs, parquet_write_jobs
from .results import Results
from .tuples import TupleSource

ROWS = 5_000_000
TUPLE_ROWS_MAX = 500_000

ORDER = (
    ("flintmq", "batch read"),
    ("kafka", "batch read"),
    ("parquet", "batch read"),
    ("tuples", "batch read"),
    ("flintmq", "batch read, count and sum"),
    ("kafka", "batch read, count and sum"),
    ("parquet", "batch read, count and sum"),
    ("flintmq", "batch read, published singly"),
    ("flintmq", "count and sum, published singly"),
    ("flintmq", "direct segment read"),
    ("flintmq", "direct segment read, published singly"),
    ("flintmq", "stream read"),
    ("kafka", "stream read"),
    ("parquet", "stream read"),
    ("flintmq", "batch write, exactly once"),
    ("flintmq", "batch write, at least once"),
    ("kafka", "batch write, not synced"),
    ("kafka", "batch write, synced"),
    ("parquet", "batch write"),
    ("flintmq", "stream write, exactly once"),
    ("kafka", "stream write, not synced"),
    ("kafka", "stream write, synced"),
    ("parquet", "stream write"),
)


class Run:
    """One run of everything that was asked for."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments, self._folder = arguments, folder
        self._wanted = [one for one in ORDER if arguments.only in f"{one[0]}: {one[1]}"]
        self.results = Results(arguments.rows, arguments.rounds, machine())

    def run(self) -> None:
        arguments = self._arguments
        with ExitStack() as stack:
            broker = stack.enter_context(flint_broker(self._folder))
            for topic, unless in ((BATCHED, "-"), (SINGLY, "singly")):
                if unless == "-" or any(unless in job for _, job in self._wanted):
                    self._say(f"fills the topic that is {topic}")
                    rate = fill(broker, topic, arguments.rows)
                    self.results.facts[f"{topic}: published/s"] = round(rate)
            # A clean stop leaves everything in segments, where the direct read finds it.
            broker.stop()
            broker.start()
            self._say("starts Spark")
            spark = flintmq.spark.session("local[2]", config={"spark.driver.memory": "4g"})
            stack.callback(spark.stop)
            spark.dataSource.register(TupleSource)
            jobs = Jobs(spark, self._folder, arguments.rows)
            jobs.make_parquet()
            flint = FlintJobs(jobs, broker)
            self._checked: dict[tuple[str, str], Job] = {}
            self._jobs: dict[tuple[str, str], Job] = {}
            self._add("flintmq", flint.jobs(), flint.write_jobs())
            self._add("parquet", parquet_jobs(jobs), parquet_write_jobs(jobs))
            rows = min(arguments.rows, TUPLE_ROWS_MAX)
            few = Jobs(spark, self._folder, rows)
            table = Table("tuples", {"rows": str(rows)})
            self._add("tuples", {"batch read": lambda: few.read(table)}, {})
            self._peer = None
            if arguments.kafka:
                self._say("starts Kafka and fills its topic")
                self._peer = stack.enter_context(kafka(self._folder, arguments.rows))
                self.results.facts["kafka: pyspark"] = self._peer.version
                filled = self._peer.do("fill")
                if "error" in filled:
                    raise RuntimeError(filled["error"])
                self.results.facts["kafka: written/s"] = round(filled["rows/s"])
            jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
            parties = Parties(jvm, broker.pid)
            for number in range(arguments.rounds):
                for one in self._wanted:
                    self._once(one, number, parties)
            if arguments.only in "latency":
                self._say("latency at 1,000 messages a second")
                rounds = [latencies(jobs, broker.url) for _ in range(min(2, arguments.rounds))]
                self.results.latency = {
                    name: median(one[name] for one in rounds) for name in rounds[0]
                }
            self.results.facts["broker MiB at the end"] = resident_bytes(broker.pid) >> 20

    def _add(self, store: str, plain: dict[str, Job], writing: dict[str, tuple[Job, Job]]) -> None:
        for name, job in plain.items():
            self._jobs[store, name] = job
        for name, (job, check) in writing.items():
            self._jobs[store, name], self._checked[store, name] = job, check

    def _once(self, one: tuple[str, str], number: int, parties: Parties) -> None:
        store, name = one
        if store == "kafka" and self._peer is None:
            return
        self._say(f"round {number + 1}: {store}, {name}")
        figures: dict[str, Any]
        try:
            if store == "kafka":
                assert self._peer is not None
                figures = self._peer.do(name)
            else:
                figures = measured(parties, self._jobs[one])
                if one in self._checked:
                    self._checked[one]()
        except Exception as error:
            figures = {"error": reason(error)}
        if "error" in figures:
            self._say(f"    failed: {figures['error']}")
        self.results.add(store, name, figures)
        assert parties.broker is not None
        wait_quiet(parties.broker)

    def _say(self, text: str) -> None:
        if not self._arguments.json_only:
            print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="messages in a topic (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of which one is cold (%(default)s)")
    parser.add_argument(
        "--only", default="", help="jobs with this in their name, as in 'flintmq: '"
    )
    parser.add_argument("--kafka", action="store_true", help="Kafka beside it; installs it first")
    parser.add_argument("--json-only", action="store_true", help="just the JSON line")
    arguments = parser.parse_args()
    if arguments.rows < 10 or arguments.rounds < 1:
        parser.error("--rows is 10 or more and --rounds 1 or more")
    with tempfile.TemporaryDirectory(prefix="flintmq-spark-") as folder:
        run = Run(arguments, Path(folder))
        try:
            run.run()
        except CannotInstall as error:
            print(f"Kafka cannot be installed: {error}", file=sys.stderr)
            return 1
    if not arguments.json_only:
        print(run.results.table())
    print(run.results.json_line())
    return 1 if run.results.has_failed() else 0


if __name__ == "__main__":
    raise SystemExit(main())
