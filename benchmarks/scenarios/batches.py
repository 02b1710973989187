"""Batches of 100: one producer, one or three readers that keep up, three sizes."""

from __future__ import annotations

from dataclasses import dataclass

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import (
    MIB,
    SIZES,
    bare_codec,
    batches_of,
    flow,
    publish_batches,
    read_messages,
    read_values,
)

ROWS = 100
BATCHES = {"100 B": 4_000, "1 KiB": 2_000, "1 MiB": 20}


@dataclass(frozen=True, slots=True)
class Workload:
    size: int
    batches: int
    readers: int
    objects: bool

    async def run(self, settings: Settings) -> Figures:
        async with flintmq.connect("memory://") as mq:
            batches = self._batches(settings)
            count = self._count(settings)
            await self._round(mq, "warm-up", batches, max(1, count // 10))
            return await self._round(mq, "measured", batches, count)

    async def _round(
        self, mq: flintmq.Client, topic: str, batches: list[list[bytes]], count: int
    ) -> Figures:
        if self.size == MIB:  # all at once would be gigabytes: the producer waits for the readers
            await mq.create_topic(topic, retention_bytes=256 * MIB, overflow="block")
        messages = count * len(batches[0])
        readers = [await mq.reader(topic) for _ in range(self.readers)]
        read = read_messages if self.objects else read_values
        took = await flow(
            [publish_batches(mq, topic, batches, count)],
            [read(reader, messages, self.size) for reader in readers],
        )
        await mq.delete_topic(topic)
        return {
            "published": messages / took.published,
            "delivered": messages * self.readers / took.delivered,
        }

    async def bare(self, settings: Settings) -> Figures:
        batches, count = self._batches(settings), self._count(settings)
        bare_codec(batches, max(1, count // 10), readers=self.readers, objects=self.objects)
        took = bare_codec(batches, count, readers=self.readers, objects=self.objects)
        return {"bare": count * len(batches[0]) * self.readers / took}

    def _count(self, settings: Settings) -> int:
        return settings.pick(self.batches, 20)

    def _batches(self, settings: Settings) -> list[list[bytes]]:
        return batches_of(self.size, settings.pick(ROWS, 2) if self.size == MIB else ROWS)


def case(workload: Workload) -> Case:
    payload_bytes = workload.size * workload.batches * ROWS
    return Case(workload.run, workload.bare, memory_bytes=min(payload_bytes * 5 // 4, 512 * MIB))


SCENARIO = Scenario(
    title="publish_batch of 100, read_batch of 100, readers that keep up",
    columns=(
        Column("published", "published/s", "rate"),
        Column("delivered", "delivered/s", "rate", with_range=True),
        Column("bare", "bare codec/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("delivered", "bare")),
    ),
    cases={
        f"{label}, {readers} {'reader' if readers == 1 else 'readers'}, {shape}": case(
            Workload(size, BATCHES[label], readers, shape == "messages")
        )
        for label, size in SIZES.items()
        for readers in (1, 3)
        for shape in ("values", "messages")
    },
    notes=(
        "bare codec: each batch laid out as columns, kept, taken apart once per reader, looped "
        "over; no broker. Readers that keep up share what was decoded or published, so a broker "
        "can be faster than that; see catch_up for readers that cannot. Values over 1 KiB are "
        "kept as the objects they are: at 1 MiB the codec copies and the broker does not.",
    ),
)
