"""Durable publishes with `fsync=always`: beside memory, the bare disk, SQLite and Redis."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter

import flintmq

from ..disks import bare_disk, data_directory, has_redis, redis_pipelines, sqlite_transactions
from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import MIB, WrongResult, distinct_values

SEND_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Workload:
    """`rows` are published by a call, and so many calls are under way at any moment."""

    size: int
    rows: int
    in_flight: int
    send: bool = False

    async def run(self, settings: Settings) -> Figures:
        with data_directory() as directory:
            async with flintmq.connect(f"file://{directory}/data") as mq:
                rate = await self._rate(mq, settings.seconds)
            return {"durable": rate}

    async def _rate(self, mq: flintmq.Client, seconds: float) -> float:
        await mq.create_topic("measured", retention_bytes=2048 * MIB)
        publish = self._publish(mq)
        await publish()
        gc.collect()
        start = perf_counter()
        stop = start + seconds
        done = 0

        async def go_on() -> None:
            nonlocal done
            while perf_counter() < stop or not done:
                await publish()
                done += self.rows

        await asyncio.gather(*(go_on() for _ in range(self.in_flight)))
        took = perf_counter() - start
        stored = (await mq.topic_stats("measured")).next_offset
        if stored != done + self.rows:
            raise WrongResult(f"{stored:,} stored, {done + self.rows:,} acknowledged")
        return done / took

    def _publish(self, mq: flintmq.Client) -> Callable[[], Awaitable[object]]:
        values = self._values()
        if self.send:
            publisher = mq.publisher("measured")

            async def send() -> None:
                for value in values:
                    publisher.send(value)
                await publisher.flush()

            return send
        if self.rows == 1:
            one = cycle(values)
            return lambda: mq.publish("measured", next(one))
        return lambda: mq.publish_batch("measured", values)

    def _values(self) -> list[bytes]:
        return distinct_values(self.size, 4 if self.size == MIB else max(self.rows, 100))

    async def bare(self, settings: Settings) -> Figures:
        seconds, values = settings.seconds / 2, self._values()[: self.rows]
        write_bytes = self.size * self.rows * self.in_flight
        figures = {
            "bare": bare_disk(
                write_bytes, seconds, file_bytes=settings.pick(64 * MIB, MIB)
            ) * self.rows * self.in_flight,
            "sqlite": sqlite_transactions(values, seconds) * self.rows,
        }  # fmt: skip
        async with flintmq.connect("memory://") as mq:
            figures["memory"] = await self._rate(mq, min(seconds, 1.0))
        if has_redis():
            pipeline = values * self.in_flight
            figures["redis"] = redis_pipelines(pipeline, seconds) * len(pipeline)
        return figures


WORKLOADS = {
    "1 in flight": Workload(100, 1, 1),
    "64 in flight": Workload(100, 1, 64),
    "512 in flight": Workload(100, 1, 512),
    "100s, 1 in flight": Workload(100, 100, 1),
    "100s, 64 in flight": Workload(100, 100, 64),
    "publisher.send": Workload(100, SEND_ROWS, 1, send=True),
    "1 MiB, 1 in flight": Workload(MIB, 1, 1),
    "1 MiB, 8 in flight": Workload(MIB, 1, 8),
}

_REDIS = (Column("redis", "Redis/s", "rate"),) if has_redis() else ()

SCENARIO = Scenario(
    title="durable publishes, acknowledged after a sync: messages per second",
    columns=(
        Column("durable", "durable/s", "rate", with_range=True),
        Column("memory", "memory/s", "rate"),
        Column("bare", "bare/s", "rate"),
        Column("sqlite", "SQLite/s", "rate"),
        *_REDIS,
        Column("x_sqlite", "x SQLite", "times", ratio_of=("durable", "sqlite")),
    ),
    cases={label: Case(workload.run, workload.bare) for label, workload in WORKLOADS.items()},
    notes=(
        "100s: batches of 100. bare: pwrite of everything in flight, then fdatasync, on a file of "
        "zeros. SQLite: WAL, synchronous=FULL, a transaction for each call; callers cannot share "
        "a sync. "
        f"publisher.send: flushed every {SEND_ROWS:,}.",
        "Redis: XADD with appendfsync always, everything in flight as one pipeline."
        if has_redis()
        else "Redis: NOT MEASURED, there is no redis-server here.",
    ),
)
