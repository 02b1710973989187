"""A publisher a hundred times faster than its reader, for `--seconds`: memory must not grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

import psutil

import flintmq
from flintmq.model import Overflow

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import MIB

LIMIT = 10_000
ROWS = 100
READS_PER_SECOND = 2_000
FASTER = 100
OVERFLOWS: tuple[Overflow, ...] = ("drop_oldest", "drop_new", "block", "reject")


def fresh_values(number: int) -> list[bytes]:
    """A batch of objects that nobody else holds: memory that is not let go must show."""
    return [b"%0100d" % row for row in range(number * ROWS, (number + 1) * ROWS)]


@dataclass(frozen=True, slots=True)
class Workload:
    live: bool
    overflow: Overflow

    async def run(self, settings: Settings) -> Figures:
        async with flintmq.connect("memory://") as mq, self._consumer(mq) as consumer:
            # What the broker keeps decoded is bounded, but fills slowly at a reader's pace: fill it
            # before, so that growth is growth.
            for number in range(settings.pick(2_000, 20)):
                await mq.publish_batch("warm-up", fresh_values(number))
            await mq.delete_topic("warm-up")
            return await Race(mq, consumer, settings.seconds).run()

    @asynccontextmanager
    async def _consumer(self, mq: flintmq.Client) -> AsyncIterator[flintmq.Reader | flintmq.Feed]:
        if self.live:
            await mq.create_topic("race", retention_count=LIMIT)
            async with mq.live("race", capacity=LIMIT, overflow=self.overflow) as feed:
                yield feed
        else:
            await mq.create_topic("race", retention_count=LIMIT, overflow=self.overflow)
            async with mq.reader("race") as reader:
                yield reader


class Race:
    """Both keep to a schedule: so many messages by now. A publisher that is held back is late."""

    def __init__(
        self, mq: flintmq.Client, consumer: flintmq.Reader | flintmq.Feed, seconds: float
    ) -> None:
        self._mq, self._consumer, self._seconds = mq, consumer, seconds
        self._offered = self._refused = self._read = 0
        self._start = perf_counter()

    async def run(self) -> Figures:
        process = psutil.Process()
        async with asyncio.TaskGroup() as running:
            publishing = running.create_task(self._publish())
            reading = running.create_task(self._consume())
            await asyncio.sleep(self._seconds / 10)
            early = process.memory_info().rss
            await asyncio.sleep(self._seconds - self._elapsed())
            late = process.memory_info().rss
            elapsed = self._elapsed()
            publishing.cancel()
            reading.cancel()
        return {
            "offered": self._offered / elapsed,
            "refused": self._refused / elapsed,
            "read": self._read / elapsed,
            "rss_early": early / MIB,
            "rss_late": late / MIB,
            "growth": (late - early) / MIB,
        }

    def _elapsed(self) -> float:
        return perf_counter() - self._start

    async def _publish(self) -> None:
        number = 0
        while True:
            while self._offered < READS_PER_SECOND * FASTER * self._elapsed():
                number += 1
                self._offered += ROWS
                try:
                    await self._mq.publish_batch("race", fresh_values(number))
                except (flintmq.TopicFull, flintmq.QueueFull):
                    self._refused += ROWS
            await asyncio.sleep(0.001)

    async def _consume(self) -> None:
        while True:
            due = int(READS_PER_SECOND * self._elapsed()) - self._read
            if due > 0:
                self._read += len((await self._consumer.read_batch(due)).values)
            await asyncio.sleep(0.01)


def case(live: bool, overflow: Overflow) -> Case:
    return Case(Workload(live, overflow).run)


SCENARIO = Scenario(
    title=f"a publisher {FASTER} times faster than its reader; limit {LIMIT:,} messages",
    columns=(
        Column("offered", "offered/s", "rate"),
        Column("refused", "refused/s", "rate"),
        Column("read", "read/s", "rate"),
        Column("rss_early", "RSS at 10%", "MiB"),
        Column("rss_late", "at end", "MiB"),
        Column("growth", "growth", "MiB", with_range=True),
    ),
    cases={
        f"{'live queue' if live else 'topic'}, {overflow}": case(live, overflow)
        for live in (False, True)
        for overflow in OVERFLOWS
    },
    notes=(
        "offered: what the publisher handed in; under block it is held back to the reader's pace. "
        "refused: TopicFull or QueueFull raised. RSS in MiB; --seconds says how long (default 3).",
    ),
    every_loop=False,
)
