"""What more readers cost: the same publishes with one reader and with three, in one process."""

from __future__ import annotations

from dataclasses import dataclass

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import batches_of, flow, publish_batches, read_messages, read_values

SIZE, ROWS, READERS, ROUNDS = 100, 100, 3, 3


@dataclass(frozen=True, slots=True)
class Workload:
    objects: bool

    async def run(self, settings: Settings) -> Figures:
        count = settings.pick(2_000, 20)
        async with flintmq.connect("memory://") as mq:
            await self._seconds(mq, 1, max(1, count // 10))
            one = three = 0.0
            for _ in range(settings.pick(ROUNDS, 1)):  # in turns, so that noise hits both
                one += await self._seconds(mq, 1, count)
                three += await self._seconds(mq, READERS, count)
        messages = count * ROWS * settings.pick(ROUNDS, 1)
        return {"one": messages / one, "three": messages / three, "cost": three / one}

    async def _seconds(self, mq: flintmq.Client, readers: int, count: int) -> float:
        opened = [await mq.reader("fan") for _ in range(readers)]
        read = read_messages if self.objects else read_values
        took = await flow(
            [publish_batches(mq, "fan", batches_of(SIZE, ROWS), count)],
            [read(reader, count * ROWS, SIZE) for reader in opened],
        )
        await mq.delete_topic("fan")
        return took.delivered


SCENARIO = Scenario(
    title="100 B in batches of 100 to one reader and to three",
    columns=(
        Column("one", "published/s to 1", "rate"),
        Column("three", "published/s to 3", "rate"),
        Column("cost", "cost of 3 / cost of 1", "times", with_range=True),
    ),
    cases={
        "values": Case(Workload(objects=False).run),
        "messages": Case(Workload(objects=True).run),
    },
    notes=(
        "Rates until every reader has read everything. A cost of 3 would mean: nothing shared.",
    ),
)
