"""Ready-made pipelines on local[2]: from a topic, beside the same query over files, in one run.

    .venv/bin/python -m benchmarks.spark.pipelines --rows 1000000
    .venv/bin/python -m benchmarks.spark.pipelines --only latency

Needs `scripts/setup test`. `archive` and `rollup` are those of examples/pipelines, run once over
all that is there, with and without the flow for rows that do not decode. Beside them, plain Spark
does the same over Parquet (typed columns, nothing to decode) and over files of JSON lines (the same
text to decode), into Parquet. `by hand` is plain Spark over the same topic, as one would write it:
`from_json`, the same query, and Spark's own Parquet sink (rows that do not decode become nulls).
The latency is from before a publish at 1,000 a second to the
rollup's result that counts the message, read from its topic; results come at every micro-batch
(`update`).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import flintmq
import flintmq.spark
from flintmq.daemon.process import loop_factory
from flintmq.pipeline.define.definition import Pipeline
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.pipeline.run.running import run, settings_of
from flintmq.pipeline.run.stopping import Stop

from ..report import machine, machine_line
from .flint import BATCH_ROWS, BATCHES_AT_ONCE, FlintBroker, flint_broker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/pipelines"
REGIONS = ("africa", "america", "asia", "europe")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FILES = 10
SCHEMA = "id bigint, region string, amount double, at timestamp"
PER_SECOND, WARM_UP_SECONDS, MEASURED_SECONDS, PATIENCE_SECONDS = 1000, 10, 30, 120

Job = Callable[[], int]


def order(number: int) -> bytes:
    """An order every 10 ms: a million of them are three hours."""
    at = BEGIN + timedelta(milliseconds=10 * number)
    text = (
        f'{{"id":{number},"region":"{REGIONS[number % 4]}","amount":{number % 1000 / 10},'
        f'"at":"{at.isoformat()}"}}'
    )
    return text.encode()


@dataclass
class Figures:
    """Rows a second, of each round, by who did what."""

    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, rate: float) -> None:
        self.rates.setdefault(name, []).append(rate)


class Throughput:
    def __init__(self, spark: Any, broker: FlintBroker, folder: Path, rows: int) -> None:
        self._spark, self._broker, self._folder, self._rows = spark, broker, folder, rows
        self._numbers = itertools.count()
        self._counts: dict[str, int] = {}

    def fill(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._publish())
        frame = self._spark.range(0, self._rows, 1, FILES).selectExpr(
            "id",
            "element_at(array('africa','america','asia','europe'), int(id % 4) + 1) as region",
            "id % 1000 / 10.0D as amount",
            f"timestamp_millis({int(BEGIN.timestamp() * 1000)} + id * 10) as at",
            "cast(id as string) as _key",
            "id as _offset",
            "current_timestamp() as _timestamp",
        )
        frame.write.parquet(str(self._folder / "parquet"))
        values = frame.selectExpr(
            "to_json(struct(id, region, amount, at), map('timeZone', 'UTC')) as value"
        )
        values.write.text(str(self._folder / "json"))

    async def _publish(self) -> None:
        starts = iter(range(0, self._rows, BATCH_ROWS))
        async with flintmq.connect(self._broker.url) as mq:

            async def work() -> None:
                for start in starts:
                    numbers = range(start, min(start + BATCH_ROWS, self._rows))
                    keys: list[Any] = [str(number) for number in numbers]
                    await mq.publish_batch("orders", [order(one) for one in numbers], key=keys)

            await asyncio.gather(*(work() for _ in range(BATCHES_AT_ONCE)))

    def jobs(self) -> dict[str, Job]:
        jobs: dict[str, Job] = {}
        for name in ("archive", "rollup"):
            jobs[f"{name}: topic"] = partial(self._ours, name, dead_letters=True)
            jobs[f"{name}: topic, no dead letters"] = partial(self._ours, name, dead_letters=False)
            jobs[f"{name}: topic, by hand"] = partial(self._theirs, name, "topic")
            jobs[f"{name}: Parquet files"] = partial(self._theirs, name, "parquet")
            jobs[f"{name}: JSON files"] = partial(self._theirs, name, "json")
        return jobs

    def _pipeline(self, name: str, place: Path) -> Pipeline:
        given = {"servers": self._broker.url, "state": str(place / "state"), "input": "orders"}
        if name == "archive":
            given |= {"directory": str(place / "files")}
        else:
            given |= {"output": f"totals-{place.name}"}
        given |= {"batch": str(max(1, 2 * self._rows // FILES))}
        return read_pipeline(EXAMPLES / f"{name}.toml", given)

    def _ours(self, name: str, *, dead_letters: bool) -> int:
        place = self._place()
        pipeline = self._pipeline(name, place)
        if not dead_letters:
            sources = {
                key: replace(one, dead_letters=None) for key, one in pipeline.sources.items()
            }
            pipeline = replace(pipeline, sources=sources)
        outcome = run(pipeline, spark=self._spark, once=True)
        flow = outcome.flows["files" if name == "archive" else "totals"]
        self._same(name, flow.rows_out)
        shutil.rmtree(place)
        return flow.rows_in

    def _theirs(self, name: str, store: str) -> int:
        place = self._place()
        (step,) = self._pipeline(name, place).steps.values()
        frame = self._stream(store)
        if name == "rollup":
            frame = frame.withWatermark("at", "10 seconds")
        frame.createOrReplaceTempView("orders")
        result = self._spark.sql(step.sql)
        writer = result.writeStream.format("parquet").option("path", str(place / "files"))
        if name == "archive":
            writer = writer.partitionBy("date", "hour")
        writer = writer.option("checkpointLocation", str(place / "state"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        self._same(name, self._spark.read.parquet(str(place / "files")).count())
        shutil.rmtree(place)
        return self._rows

    def _stream(self, store: str) -> Any:
        if store == "topic":
            reader = self._spark.readStream.format("flintmq").options(
                servers=self._broker.url, subscribe="orders", startingOffsets="earliest",
                maxOffsetsPerTrigger=str(max(1, 2 * self._rows // FILES)),
            )  # fmt: skip
            return (
                reader.load()
                .selectExpr(
                    f"from_json(cast(value as string), '{SCHEMA}') as data",
                    "cast(key as string) as _key",
                    "offset as _offset",
                    "timestamp as _timestamp",
                )
                .selectExpr("data.*", "_key", "_offset", "_timestamp")
            )
        path = str(self._folder / store)
        reader = self._spark.readStream.option("maxFilesPerTrigger", 2)
        if store == "parquet":
            more = "_key string, _offset bigint, _timestamp timestamp"
            return reader.schema(f"{SCHEMA}, {more}").parquet(path)
        decoded = flintmq.spark.from_value(reader.text(path), SCHEMA)
        return decoded.selectExpr(
            "data.*", "'' as _key", "0L as _offset", "current_timestamp() as _timestamp"
        )

    def _place(self) -> Path:
        place = self._folder / f"work-{next(self._numbers)}"
        place.mkdir()
        return place

    def _same(self, name: str, rows: int) -> None:
        """Whoever does it, the same number of rows comes out."""
        if self._counts.setdefault(name, rows) != rows:
            raise AssertionError(f"{name}: {rows:,} rows came out, and {self._counts[name]:,}")


def latency(spark: Any, broker: FlintBroker, folder: Path) -> dict[str, float]:
    """Percentiles in milliseconds of each message."""
    with flintmq.connect_sync(broker.url) as mq:
        mq.create_topic("latency-in")
        mq.create_topic("latency-out")
    given = {"servers": broker.url, "state": str(folder / "latency"), "window": "10 seconds"}
    given |= {"input": "latency-in", "output": "latency-out"}
    pipeline = read_pipeline(EXAMPLES / "rollup.toml", given)
    (step,), (sink,) = pipeline.steps.values(), pipeline.sinks.values()
    assert step.sql is not None
    counted = step.sql.replace("count(*)", "max(id) as last, count(*)", 1)
    pipeline = replace(
        pipeline,
        steps={step.name: replace(step, sql=counted)},
        sinks={sink.name: replace(sink, mode="update")},
        # Without its flow for bad rows: there are none, and it would take its turns.
        sources={n: replace(one, dead_letters=None) for n, one in pipeline.sources.items()},
    )
    stop, batches = Stop(), []

    def work() -> None:
        outcome = run(
            pipeline, spark=spark, stop=stop, on_progress=lambda one: batches.append(one.seconds)
        )
        assert outcome.ended == "stopped"

    async def both() -> list[float]:
        running = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await _measure(broker.url)
        finally:
            stop.ask()
            await running

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        taken = runner.run(both())
    return {
        **{f"p{share} ms": taken[int(share / 100 * (len(taken) - 1))] for share in (50, 95, 99)},
        "micro-batch p50 ms": median(batches) * 1000,
        "messages": float(len(taken)),
    }


async def _measure(url: str) -> list[float]:
    total = PER_SECOND * (WARM_UP_SECONDS + MEASURED_SECONDS)
    sent: list[float] = []
    taken: list[float] = []
    seen = dict.fromkeys(REGIONS, 0)
    async with (
        flintmq.connect(url) as mq,
        flintmq.connect(url) as other,
        other.reader("latency-out", start="earliest") as results,
    ):
        sent.append(time.perf_counter())
        await mq.publish("latency-in", _order_now(0))
        while not await results.read_batch(1, timeout=PATIENCE_SECONDS):
            raise AssertionError("the pipeline never gave a result")
        seen[REGIONS[0]] = 4
        publishing = asyncio.ensure_future(_publish(mq, total, sent))
        try:
            while any(last < total - 3 for last in seen.values()):
                rows = await results.read_batch(10_000, timeout=PATIENCE_SECONDS)
                if not rows:
                    raise AssertionError(f"{len(taken):,} of {total:,} messages were counted")
                now = time.perf_counter()
                for message in rows:
                    row = json.loads(message.value)
                    # Of a region, numbers go up by 4: all that are not past the last are in.
                    at = REGIONS.index(row["region"])
                    first = seen[row["region"]] or at
                    numbers = range(first, row["last"] + 1, 4)
                    taken.extend((now - sent[one]) * 1000 for one in numbers)
                    seen[row["region"]] = max(first, row["last"] + 4)
        finally:
            await publishing
    return sorted(taken[WARM_UP_SECONDS * PER_SECOND :])


async def _publish(mq: flintmq.Client, total: int, sent: list[float]) -> None:
    async with mq.publisher("latency-in") as publisher:
        start = time.perf_counter()
        while len(sent) < total:
            due = min(total, int((time.perf_counter() - start) * PER_SECOND) + 1)
            for number in range(len(sent), due):
                sent.append(time.perf_counter())
                publisher.send(_order_now(number))
            await asyncio.sleep(0.001)


def _order_now(number: int) -> bytes:
    at = datetime.now(UTC).isoformat()
    return f'{{"id":{number},"region":"{REGIONS[number % 4]}","amount":1.5,"at":"{at}"}}'.encode()


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.spark.pipelines", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up")
    parser.add_argument("--only", default="", help="jobs with this in their names")
    given = parser.parse_args()
    facts = machine()
    figures = Figures()
    through: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as name:
        folder = Path(name)
        with flint_broker(folder) as broker:
            archive = read_pipeline(EXAMPLES / "archive.toml", {})
            spark = flintmq.spark.session("local[2]", config=settings_of(archive))
            try:
                if given.only != "latency":
                    throughput = Throughput(spark, broker, folder, given.rows)
                    throughput.fill()
                    wanted = {n: j for n, j in throughput.jobs().items() if given.only in n}
                    for turn in range(given.rounds + 1):
                        for job_name, job in wanted.items():
                            print(f"round {turn}: {job_name}", file=sys.stderr)
                            start = time.perf_counter()
                            rows = job()
                            if turn:
                                figures.add(job_name, rows / (time.perf_counter() - start))
                if given.only in ("", "latency"):
                    print("latency", file=sys.stderr)
                    through = latency(spark, broker, folder)
            finally:
                spark.stop()
    print(f"{given.rows:,} orders as JSON, local[2], {machine_line(facts)}\n")
    for job_name, rates in figures.rates.items():
        kind, rate = job_name.split(":")[0], median(rates)
        ratios = [
            f"{rate / median(figures.rates[other]):>6.2f} x {said}"
            for said in ("Parquet files", "topic, by hand")
            if (other := f"{kind}: {said}") in figures.rates
        ]
        print(f"{job_name:36}{rate:>12,.0f} rows/s {' '.join(ratios)}")
    for what, figure in through.items():
        print(f"latency, {what:27}{figure:>12,.0f}")
    print(json.dumps({"machine": facts, "rates": figures.rates, "latency": through}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
