"""How long a message takes through a streaming query, topic to topic, at a steady rate.

The publisher puts the time into each message, the query copies it to another topic exactly once,
under the default trigger, and a reader of that topic looks at the clock.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Any

import flintmq
from flintmq.daemon.process import loop_factory

from .jobs import VALUE_BYTES, Jobs

PER_SECOND = 1000
WARM_UP_SECONDS = 8.0
MEASURED_SECONDS = 20.0
PATIENCE_SECONDS = 120.0
FROM, TO = "latency-in", "latency-out"


def latencies(jobs: Jobs, url: str, seconds: float = MEASURED_SECONDS) -> dict[str, float]:
    """Percentiles in milliseconds, and how long a micro-batch took."""
    with flintmq.connect_sync(url) as mq:
        mq.create_topic(FROM)
        mq.create_topic(TO)
    checkpoint = jobs.new_folder()
    source = jobs.spark.readStream.format("flintmq").schema("key binary, value binary")
    query = (
        source.option("servers", url).option("subscribe", FROM)
        .option("startingOffsets", "earliest").load()
        .writeStream.format("flintmq").option("servers", url).option("topic", TO)
        .option("checkpointLocation", checkpoint).start()
    )  # fmt: skip
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            taken = runner.run(_measure(url, WARM_UP_SECONDS + seconds))
        durations = sorted(
            progress["durationMs"]["triggerExecution"]
            for progress in query.recentProgress
            if progress["numInputRows"]
        )
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
        with flintmq.connect_sync(url) as mq:
            mq.delete_topic(FROM)
            mq.delete_topic(TO)
    return {
        "p50 ms": _percentile(taken, 0.50),
        "p95 ms": _percentile(taken, 0.95),
        "p99 ms": _percentile(taken, 0.99),
        "micro-batch p50 ms": float(durations[len(durations) // 2]),
        "messages": float(len(taken)),
    }


async def _measure(url: str, seconds: float) -> list[float]:
    """Sorted latencies in milliseconds, of everything but the warm-up."""
    total = int(seconds * PER_SECOND)
    async with (
        flintmq.connect(url) as mq,
        flintmq.connect(url) as other,
        other.reader(TO, start="earliest") as reader,
    ):
        # The query has started when a first message has come through it.
        await mq.publish(FROM, _stamped())
        await _arrivals(reader, 1)
        publishing = asyncio.ensure_future(_publish(mq, total))
        try:
            taken = await _arrivals(reader, total)
        finally:
            await publishing
    return sorted(taken[int(WARM_UP_SECONDS * PER_SECOND) :])


async def _publish(mq: Any, total: int) -> None:
    async with mq.publisher(FROM) as publisher:
        start = time.monotonic()
        sent = 0
        while sent < total:
            due = min(total, int((time.monotonic() - start) * PER_SECOND) + 1)
            for _ in range(sent, due):
                publisher.send(_stamped())
            sent = due
            await asyncio.sleep(0.001)
        await publisher.flush()


def _stamped() -> bytes:
    return b"%020d" % time.time_ns() + b"x" * (VALUE_BYTES - 20)


async def _arrivals(reader: Any, total: int) -> list[float]:
    taken: list[float] = []
    while len(taken) < total:
        values = (await reader.read_batch(10_000, timeout=PATIENCE_SECONDS)).values
        if not len(values):
            raise AssertionError(f"{len(taken):,} messages arrived of {total:,}")
        now = time.time_ns()
        taken.extend((now - int(value[:20])) / 1e6 for value in values)
    return taken


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
