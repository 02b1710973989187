"""One `await publish` per message: one producer, one or three readers that keep up."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import (
    MIB,
    SIZES,
    bare_queues,
    distinct_values,
    flow,
    publish_singly,
    read_singly,
    read_values,
)

COUNTS = {"100 B": 60_000, "1 KiB": 60_000, "1 MiB": 20_000}


@dataclass(frozen=True, slots=True)
class Workload:
    size: int
    count: int
    readers: int
    objects: bool

    async def run(self, settings: Settings) -> Figures:
        count = settings.pick(self.count, 400)
        async with flintmq.connect("memory://") as mq:
            await self._round(mq, "warm-up", count // 10)
            return await self._round(mq, "measured", count)

    async def _round(self, mq: flintmq.Client, topic: str, count: int) -> Figures:
        if self.size == MIB:  # all at once would be gigabytes: the producer waits for the readers
            await mq.create_topic(topic, retention_bytes=256 * MIB, overflow="block")
        values = self._values()
        readers = [await mq.reader(topic) for _ in range(self.readers)]
        read = read_singly if self.objects else read_values
        took = await flow(
            [publish_singly(mq, topic, values, count)],
            [read(reader, count, self.size) for reader in readers],
        )
        await mq.delete_topic(topic)
        return {
            "published": count / took.published,
            "delivered": count * self.readers / took.delivered,
        }

    async def bare(self, settings: Settings) -> Figures:
        count = settings.pick(self.count, 400)
        values = cycle(self._values())
        await bare_queues(values.__next__, count // 10, consumers=self.readers)
        took = await bare_queues(values.__next__, count, consumers=self.readers)
        return {"bare": count * self.readers / took.delivered}

    def _values(self) -> list[bytes]:
        return distinct_values(self.size, 4 if self.size == MIB else 1_000)


def case(workload: Workload) -> Case:
    return Case(workload.run, workload.bare)


SCENARIO = Scenario(
    title="single publish; read one by one (messages) or in batches (values)",
    columns=(
        Column("published", "published/s", "rate"),
        Column("delivered", "delivered/s", "rate", with_range=True),
        Column("bare", "bare Queue/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("delivered", "bare")),
    ),
    cases={
        f"{label}, {readers} {'reader' if readers == 1 else 'readers'}, {shape}": case(
            Workload(size, COUNTS[label], readers, shape == "messages")
        )
        for label, size in SIZES.items()
        for readers in (1, 3)
        for shape in ("values", "messages")
    },
    notes=(
        "messages: one `await reader.read()` each. values: `read_batch(100)` of what was published "
        "singly. bare Queue: put_nowait and `await get()` of an asyncio.Queue per reader, kept in "
        "a list.",
    ),
)
