"""What a million retained messages of 100 bytes cost, by the process's resident memory.

Values are made on the fly and let go, so that what stays is what the broker keeps.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

import psutil

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import MIB

SIZE = 100


def resident_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def value_of(number: int) -> bytes:
    return b"%0100d" % number


@dataclass(frozen=True, slots=True)
class Workload:
    rows: int
    read: bool = False

    async def run(self, settings: Settings) -> Figures:
        count = settings.pick(1_000_000, 5_000)
        async with flintmq.connect("memory://") as mq:
            await self._publish(mq, "warm-up", 1_000)
            before = resident_bytes()
            await self._publish(mq, "kept", count)
            if self.read:
                async with mq.reader("kept") as reader:
                    while rows := reader.read_batch_nowait(1000):
                        assert len(rows.values) == len(rows)
                    del rows
            grown = resident_bytes() - before
            assert (await mq.topic_stats("kept")).message_count == count
        return _figures(grown, count)

    async def _publish(self, mq: flintmq.Client, topic: str, count: int) -> None:
        if self.rows == 1:
            for number in range(count):
                await mq.publish(topic, value_of(number))
        else:
            for start in range(0, count, self.rows):
                await mq.publish_batch(topic, map(value_of, range(start, start + self.rows)))


async def bare(settings: Settings) -> Figures:
    count = settings.pick(1_000_000, 5_000)
    before = resident_bytes()
    kept = [value_of(number) for number in range(count)]
    grown = resident_bytes() - before
    return {"bare": grown / (len(kept) * SIZE)}


def _figures(grown: int, count: int) -> Figures:
    return {
        "grown": grown / MIB,
        "per_message": grown / count,
        "x_payload": grown / (count * SIZE),
    }


SCENARIO = Scenario(
    title="resident memory of a million retained 100 B messages",
    columns=(
        Column("grown", "MiB", "MiB"),
        Column("per_message", "bytes each", "bytes"),
        Column("x_payload", "x payload", "times", with_range=True),
        Column("bare", "bare list, x payload", "times"),
    ),
    cases={
        "in batches of 1000": Case(Workload(1000).run, bare),
        "in batches of 100": Case(Workload(100).run, bare),
        "singly": Case(Workload(1).run, bare),
        "in batches of 100, read once": Case(Workload(100, read=True).run, bare),
        "singly, read once": Case(Workload(1, read=True).run, bare),
    },
    every_loop=False,
)
