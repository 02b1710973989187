"""What a topic of many partitions costs a micro-batch: planning, committing, reading.

    python -m benchmarks.spark.width --partitions 1 100 1000

The same rows in each topic. Planning and commit are those of the streaming reader that Spark calls,
without Spark around it; the read is a batch read in Spark, with its tasks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flintmq
import flintmq.spark
from flintmq.spark.source import FlintDataSource

from .flint import flint_broker

ROWS = 53_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-width-") as temporary,
        flint_broker(Path(temporary)) as broker,
    ):
        spark = flintmq.spark.session("local[2]")
        for partitions in given.partitions:
            filled(broker.url, partitions, given.rows)
            found.append(measured(spark, broker.url, partitions, given.rows, given.rounds))
            print(", ".join(f"{name} {value}" for name, value in found[-1].items()), flush=True)
        spark.stop()
    print(json.dumps(found))


def name_of(partitions: int) -> str:
    return f"wide{partitions}"


def filled(url: str, partitions: int, rows: int) -> None:
    topic = name_of(partitions)
    with flintmq.connect_sync(url) as mq:
        mq.create_topic(topic, partitions=partitions)
        for start in range(0, rows, 10_000):
            part = range(start, min(rows, start + 10_000))
            mq.publish_batch(topic, [b"%0100d" % row for row in part], key=[str(r) for r in part])


def measured(spark: Any, url: str, partitions: int, rows: int, rounds: int) -> dict[str, Any]:
    topic = name_of(partitions)
    options = {"servers": url, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("flintmq").options(**options).load()
    counted = frame.selectExpr("count(value)")
    seconds: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        result = work(*arguments)
        seconds.setdefault(what, []).append(time.perf_counter() - began)
        return result

    tasks = 0
    for number in range(rounds):
        given = {**options, "group": f"width{number}"}
        reader: Any = FlintDataSource(given).streamReader(frame.schema)
        start = reader.initialOffset()
        end = timed("latestOffset", reader.latestOffset, start, reader.getDefaultReadLimit())
        tasks = len(timed("plan", reader.partitions, start, end))
        timed("commit", reader.commit, end)
        count = timed("read", counted.collect)[0][0]
        assert count == rows, f"{count} rows of {rows}"
    middle = {what: round(statistics.median(all), 4) for what, all in seconds.items()}
    planning = sum(middle[what] for what in ("latestOffset", "plan", "commit"))
    return {
        "partitions": partitions,
        "tasks": tasks,
        **middle,
        "planning and commit": round(planning, 4),
    }


if __name__ == "__main__":
    main()
