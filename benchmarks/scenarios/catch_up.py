"""A reader that comes late: what it reads has to be decoded, as nothing of it is at hand."""

from __future__ import annotations

from dataclasses import dataclass

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import (
    Work,
    bare_codec,
    batches_of,
    distinct_values,
    flow,
    publish_batches,
    publish_singly,
    read_messages,
    read_values,
)

SIZE, ROWS = 100, 100
ROWS_AT_HAND = 400_000
"""More than a broker keeps decoded: published in between, so that no measured row is."""


@dataclass(frozen=True, slots=True)
class Workload:
    singly: bool
    objects: bool

    async def run(self, settings: Settings) -> Figures:
        count = settings.pick(400_000, 2_000)
        async with flintmq.connect("memory://") as mq:
            await self._publish(mq, "warm-up", count // 10)
            took = (await flow([self._publish(mq, "late", count)], [])).published
            await self._push_out(mq, settings.pick(ROWS_AT_HAND, 2_000))
            read = read_messages if self.objects else read_values
            async with mq.reader("late") as reader:
                reading = (await flow([read(reader, count, SIZE)], [])).published
        return {
            "published": count / took,
            "delivered": count / reading,
            "both": count / (took + reading),
        }

    def _publish(self, mq: flintmq.Client, topic: str, count: int) -> Work:
        if self.singly:
            return publish_singly(mq, topic, distinct_values(SIZE, 10_000), count)
        return publish_batches(mq, topic, batches_of(SIZE, ROWS), count // ROWS)

    async def _push_out(self, mq: flintmq.Client, count: int) -> None:
        """What was decoded last is other rows now."""
        await publish_batches(mq, "other", batches_of(SIZE, ROWS), count // ROWS)
        await mq.delete_topic("other")

    async def bare(self, settings: Settings) -> Figures:
        count = settings.pick(4_000, 20)
        batches = batches_of(SIZE, ROWS)
        bare_codec(batches, count // 10, readers=1, objects=self.objects)
        took = bare_codec(batches, count, readers=1, objects=self.objects)
        return {"bare": count * ROWS / took}


def case(workload: Workload) -> Case:
    return Case(workload.run, workload.bare)


SCENARIO = Scenario(
    title="100 B, published in batches of 100 or singly, then read in batches of 100",
    columns=(
        Column("published", "published/s", "rate"),
        Column("delivered", "read/s", "rate"),
        Column("both", "both/s", "rate", with_range=True),
        Column("bare", "bare codec/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("both", "bare")),
    ),
    cases={
        f"{way}, {shape}": case(Workload(way == "singly", shape == "messages"))
        for way in ("batches", "singly")
        for shape in ("values", "messages")
    },
    notes=(
        "both: one message published and read, 1 / (1/published + 1/read). bare codec: batches of "
        "100 laid out as columns, kept, taken apart and looped over; no broker.",
    ),
)
