"""A million delayed messages: publishing them, what they cost while they wait, and how late they
come."""

from __future__ import annotations

import heapq
import random
import time
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

import flintmq
from flintmq.model import Seconds

from ..disks import data_directory
from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import WrongResult
from .memory import resident_bytes
from .queue_drain import GROUP, PUBLISHED, SIZE, TOPIC

WAITING = 1_000_000
DUE = 5_000
DUE_SECONDS = 2.0
AHEAD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Workload:
    durable: bool

    async def run(self, settings: Settings) -> Figures:
        if not self.durable:
            async with flintmq.connect("memory://") as mq:
                return await self._measure(mq, settings)
        with data_directory() as directory:
            async with flintmq.connect(f"file://{directory}/data") as mq:
                return await self._measure(mq, settings)

    async def _measure(self, mq: flintmq.Client, settings: Settings) -> Figures:
        count = settings.pick(WAITING, 5_000)
        await mq.poll(TOPIC, GROUP)
        plain = await self._grown(mq, "plain", count, delayed=False)
        start = perf_counter()
        grown = await self._grown(mq, TOPIC, count, delayed=True)
        published = count / (perf_counter() - start)
        stats = await mq.group_stats(TOPIC, GROUP)
        if stats.delayed != count or stats.ready:
            raise WrongResult(f"{stats.delayed:,} of {count:,} are delayed")
        late = await self._late(mq, settings)
        return {
            "published": published,
            "each": grown / count,
            "more": (grown - plain) / count,
            "late": median(late) * 1e3,
            "late_99": quantiles(late, n=100)[98] * 1e3,
            "latest": max(late) * 1e3,
        }

    async def _grown(self, mq: flintmq.Client, topic: str, count: int, *, delayed: bool) -> int:
        """Hours from now, in no order."""
        chance = random.Random(1)
        values = [b"%0*d" % (SIZE, number) for number in range(PUBLISHED)]
        before = resident_bytes()
        for _ in range(count // PUBLISHED):
            delays: list[Seconds | None] | None = None
            if delayed:
                delays = [3600 + chance.random() * 36_000 for _ in values]
            await mq.publish_batch(topic, values, delay=delays)
        return resident_bytes() - before

    async def _late(self, mq: flintmq.Client, settings: Settings) -> list[float]:
        """Some that are due soon, among the million: how long after their time a poll has them."""
        chance = random.Random(2)
        count = settings.pick(DUE, 200)
        first = time.time() + settings.pick(AHEAD_SECONDS, 0.1)
        due = [first + chance.random() * settings.pick(DUE_SECONDS, 0.2) for _ in range(count)]
        await mq.publish_batch(TOPIC, [b"%.6f" % moment for moment in due], at=list(due))
        late: list[float] = []
        while len(late) < count:
            messages = await mq.poll(TOPIC, GROUP, wait=10)
            now = time.time()
            late += [now - float(value) for value in messages.values]
            await messages.ack()
            if not messages:
                raise WrongResult(f"{len(late):,} of {count:,} came")
        return late


async def bare(settings: Settings) -> Figures:
    """A heap of tuples."""
    chance, heap = random.Random(1), list[tuple[float, int]]()
    count, before = settings.pick(WAITING, 5_000), resident_bytes()
    start = perf_counter()
    for number in range(count):
        heapq.heappush(heap, (3600 + chance.random() * 36_000, number))
    took = perf_counter() - start
    return {"bare": count / took, "bare_each": (resident_bytes() - before) / len(heap)}


SCENARIO = Scenario(
    title="a million messages that wait for hours, and 5,000 that are due within two seconds",
    columns=(
        Column("published", "published/s", "rate"),
        Column("bare", "heap/s", "rate"),
        Column("each", "B each", "bytes"),
        Column("more", "B more", "bytes"),
        Column("bare_each", "heap, B", "bytes"),
        Column("late", "late ms", "times"),
        Column("late_99", "99 %", "times"),
        Column("latest", "latest", "times"),
    ),
    every_loop=False,
    cases={
        "memory": Case(Workload(durable=False).run, bare),
        "file": Case(Workload(durable=True).run, bare),
    },
    notes=(
        "late: from its time until a poll that waits has it, in milliseconds; each poll is acked "
        "before the next, on file after a sync. B each: resident memory, of 16 byte values; B "
        "more: than messages without a delay. heap: a bare heapq of tuples.",
    ),
)
