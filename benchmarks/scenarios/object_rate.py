"""Topics of objects in batches of 100, every object touched; beside lists of references alone."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from time import perf_counter

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import STALL_SECONDS, TURNS, Work, WrongResult, flow

ROWS = 100
BATCHES = 20_000
KEPT = 1_000
"""Batches that a topic keeps by default: 100,000 objects."""


class Order:
    __slots__ = ("amount", "id")

    def __init__(self, id: int) -> None:
        self.id, self.amount = id, 1


def batches() -> list[list[Order]]:
    orders = [Order(number) for number in range(100 * ROWS)]
    return [orders[start : start + ROWS] for start in range(0, len(orders), ROWS)]


@dataclass(frozen=True, slots=True)
class Workload:
    readers: int
    messages: bool = False

    async def run(self, settings: Settings) -> Figures:
        count = settings.pick(BATCHES, 20)
        async with flintmq.connect("memory://") as mq:
            await self._round(mq, "warm-up", max(1, count // 10))
            return await self._round(mq, "measured", count)

    async def _round(self, mq: flintmq.Client, topic: str, count: int) -> Figures:
        await mq.create_topic(topic, format="object")
        readers = [await mq.reader(topic) for _ in range(self.readers)]
        took = await flow(
            [self._publish(mq, topic, batches(), count)],
            [self._read(reader, count * ROWS) for reader in readers],
        )
        await mq.delete_topic(topic)
        return {
            "published": count * ROWS / took.published,
            "delivered": count * ROWS * self.readers / took.delivered,
        }

    async def _publish(
        self, mq: flintmq.Client, topic: str, orders: Sequence[list[Order]], count: int
    ) -> None:
        for batch in islice(cycle(orders), count):
            await mq.publish_batch(topic, batch)

    def _read(self, reader: flintmq.Reader, count: int) -> Work:
        return touch_messages(reader, count) if self.messages else touch_values(reader, count)

    async def bare(self, settings: Settings) -> Figures:
        count = settings.pick(BATCHES, 20)
        bare_references(max(1, count // 10), self.readers)
        return {"bare": count * ROWS * self.readers / bare_references(count, self.readers)}


async def touch_values(reader: flintmq.Reader, count: int) -> None:
    seen = total = 0
    while seen < count:
        values = (await reader.read_batch(ROWS, STALL_SECONDS)).values
        if not values:
            break
        for order in values:
            total += order.amount
        seen += len(values)
    _check(seen, total, count)


async def touch_messages(reader: flintmq.Reader, count: int) -> None:
    seen = total = 0
    while seen < count:
        rows = await reader.read_batch(ROWS, STALL_SECONDS)
        if not rows:
            break
        for message in rows:
            total += message.value.amount
        seen += len(rows)
    _check(seen, total, count)


def _check(seen: int, total: int, count: int) -> None:
    if (seen, total) != (count, count):
        raise WrongResult(f"{seen:,} objects of {count:,}, {total:,} of them touched")


def bare_references(count: int, readers: int) -> float:
    """Lists of references copied, kept and gone through, a run of them at a time: seconds."""
    orders = batches()
    kept: deque[list[Order]] = deque(maxlen=KEPT)
    total = 0
    gc.collect()
    start = perf_counter()
    source = islice(cycle(orders), count)
    while fresh := [list(batch) for batch in islice(source, TURNS)]:
        kept.extend(fresh)
        for _ in range(readers):
            for batch in fresh:
                for order in batch:
                    total += order.amount
    took = perf_counter() - start
    _check(total, total, count * ROWS * readers)
    return took


def case(workload: Workload) -> Case:
    return Case(workload.run, workload.bare)


SCENARIO = Scenario(
    title="objects by reference in batches of 100, every object touched",
    columns=(
        Column("published", "published/s", "rate"),
        Column("delivered", "delivered/s", "rate", with_range=True),
        Column("bare", "bare lists/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("delivered", "bare")),
    ),
    cases={
        "1 reader, values": case(Workload(1)),
        "3 readers, values": case(Workload(3)),
        "1 reader, messages": case(Workload(1, messages=True)),
    },
    notes=(
        "bare lists: each list of 100 references copied, kept, and gone through once per reader; "
        "no broker, no offsets, nobody to wake. Touched: one attribute of each is added up.",
    ),
)
