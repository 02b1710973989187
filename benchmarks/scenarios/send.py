"""`publisher.send`: no await and no future per message."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from time import perf_counter

import flintmq
from flintmq.batch import BatchBuilder

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import SIZES, distinct_values, flow, read_values

FLUSH_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class Workload:
    size: int
    count: int
    readers: int

    async def run(self, settings: Settings) -> Figures:
        count = settings.pick(self.count, 2_000)
        async with flintmq.connect("memory://") as mq:
            await self._round(mq, "warm-up", count // 10)
            return await self._round(mq, "measured", count)

    async def _round(self, mq: flintmq.Client, topic: str, count: int) -> Figures:
        await mq.create_topic(topic, retention_bytes=None)
        values = distinct_values(self.size, 10_000)
        readers = [await mq.reader(topic) for _ in range(self.readers)]
        took = await flow(
            [_send(mq, topic, values, count)],
            [read_values(reader, count, self.size, 1000) for reader in readers],
        )
        await mq.delete_topic(topic)
        figures = {"sent": count / took.published}
        if self.readers:
            figures["delivered"] = count * self.readers / took.delivered
        return figures

    async def bare(self, settings: Settings) -> Figures:
        count = settings.pick(self.count, 2_000)
        values = distinct_values(self.size, 10_000)
        _append(values, count // 10)
        return {"bare": count / _append(values, count)}


async def _send(mq: flintmq.Client, topic: str, values: Sequence[bytes], count: int) -> None:
    async with mq.publisher(topic) as publisher:
        for start in range(0, count, FLUSH_EVERY):
            for value in islice(cycle(values), min(FLUSH_EVERY, count - start)):
                publisher.send(value)
            await publisher.flush()


def _append(values: Sequence[bytes], count: int) -> float:
    """The same without a broker: append to a builder, lay it out at 1000 rows."""
    gc.collect()
    kept = []
    start = perf_counter()
    rows = BatchBuilder()
    for value in islice(cycle(values), count):
        rows.append(value)
        if rows.row_count >= 1000:
            kept.append(rows.seal())
            rows = BatchBuilder()
    return perf_counter() - start


def case(workload: Workload) -> Case:
    return Case(workload.run, workload.bare)


SCENARIO = Scenario(
    title=f"publisher.send, flushed every {FLUSH_EVERY:,}",
    columns=(
        Column("sent", "sent/s", "rate", with_range=True),
        Column("delivered", "delivered/s", "rate"),
        Column("bare", "bare builder/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("sent", "bare")),
    ),
    cases={
        f"{label}, {'no reader' if not readers else 'one reader, values'}": case(
            Workload(SIZES[label], count, readers)
        )
        for label, count in (("100 B", 500_000), ("1 KiB", 200_000))
        for readers in (0, 1)
    },
    notes=(
        "sent/s: until the last flush returned, everything acknowledged; with a reader its work "
        "happens in between. bare builder: append to a BatchBuilder, seal at 1000 rows, keep.",
    ),
)
