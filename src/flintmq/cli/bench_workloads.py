"""What `flintmq bench` does to a broker: publish, read, both, a queue, one message at a time.

A message begins with the time it was sent, in nanoseconds of this machine's monotonic clock, which
publishers and subscribers share, in one process or in several. Nothing here waits for ever: a
subscriber gives up some seconds after the last message, and reports how many are missing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from time import perf_counter, perf_counter_ns
from typing import Any

from ..client.client import Client
from ..model import Receipt
from .latencies import Latencies

STAMP = 8
_stamp_of = itemgetter(slice(0, STAMP))
PATIENCE = 5.0
LOOK = 0.05
REST = 0.001
GROUP = "bench"
READ = 1000


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """How much, how large, by how many."""

    workload: str
    publishers: int
    subscribers: int
    topics: Sequence[str]
    messages: int
    size: int
    batch: int
    qos: int
    in_flight: int
    duration: float | None
    first: int = 0
    """The number of our first publisher and subscriber; of several processes, each has its own."""
    step: int = 1

    def topic_of(self, number: int) -> str:
        return self.topics[(self.first + number * self.step) % len(self.topics)]

    def share(self, process: int, processes: int) -> BenchPlan:
        """The part of one process: every so many-th publisher and subscriber, and their messages.

        Where there are more processes than publishers, those without one publish nothing.
        """
        publishers = len(range(process, self.publishers, processes))
        before = sum(len(range(one, self.publishers, processes)) for one in range(process))
        until = self.messages * (before + publishers) // self.publishers
        return replace(
            self,
            publishers=publishers,
            subscribers=len(range(process, self.subscribers, processes)),
            messages=until - self.messages * before // self.publishers,
            first=process,
            step=processes,
        )


class Side:
    """What publishers, or subscribers, have done together."""

    def __init__(self) -> None:
        self.count = 0
        self.times = Latencies()
        self.first = self.last = 0.0
        """When the first message was begun with, and when the last was done."""

    def begin(self) -> None:
        self.first = self.first or perf_counter()

    def add(self, count: int) -> None:
        self.count += count
        self.last = perf_counter()

    def merge(self, other: Side) -> None:
        self.count += other.count
        self.times.merge(other.times)
        self.first = min(filter(None, (self.first, other.first)), default=0.0)
        self.last = max(self.last, other.last)

    @property
    def seconds(self) -> float:
        return max(1e-9, self.last - self.first)


class BenchRun:
    """One run of a workload, and what came of it."""

    def __init__(
        self,
        plan: BenchPlan,
        tell: Callable[[int], None],
        meet: Callable[[Counter[str]], Awaitable[Counter[str]]] | None = None,
    ) -> None:
        self.plan, self._tell = plan, tell
        self._meet = meet
        """Of several processes: waits for the others, and returns what all have published."""
        self.published, self.received = Side(), Side()
        self.by_topic: Counter[str] = Counter()
        self.lost = 0
        self.durability = ""
        self.processes = 1
        self._filler = bytes(max(0, plan.size - STAMP))
        self._left = plan.messages
        self._end = 0.0
        self._is_over = False

    # --- publishing

    def value(self, now: int) -> bytes:
        return now.to_bytes(STAMP, "big") + self._filler

    def take(self) -> int:
        """How many to publish next; 0 when it is enough."""
        plan = self.plan
        if plan.duration is not None:
            return plan.batch if perf_counter() < self._end else 0
        count = min(plan.batch, self._left)
        self._left -= count
        return count

    async def ready(self) -> None:
        """Wait until all subscribers are connected; publishing starts after that."""
        if self._meet is not None:
            await self._meet(Counter())

    async def over(self) -> None:
        """Everything is published, by us and by the others."""
        if self._meet is not None:
            self.by_topic = await self._meet(self.by_topic)
        self._is_over = True

    async def publish(self, mqs: Sequence[Client]) -> None:
        plan = self.plan
        await self.ready()
        self._end = perf_counter() + (plan.duration or 0.0)
        self.published.begin()
        if plan.workload != "sub":
            self.received.begin()
        lanes = [
            self._lane(mq, plan.topic_of(number))
            for number, mq in enumerate(mqs)
            for _ in range(plan.in_flight)
        ]
        await _all(lanes)
        await self.over()

    async def _lane(self, mq: Client, topic: str) -> None:
        side, qos = self.published, self.plan.qos
        while count := self.take():
            began = perf_counter_ns()
            value = self.value(began)[: self.plan.size]
            if count == 1:
                receipt: Receipt = await mq.publish(topic, value, qos=qos)
            else:
                receipt = await mq.publish_batch(topic, [value] * count, qos=qos)
            side.times.add(perf_counter_ns() - began, count)
            side.add(count)
            self._note(topic, receipt, count)

    def _note(self, topic: str, receipt: Receipt, count: int) -> None:
        self.durability = receipt.durability
        self.by_topic[topic] += count
        if self.plan.workload != "sub":
            self._tell(self.published.count)

    # --- receiving

    def got(self, values: Sequence[bytes], *, timed: bool = True) -> None:
        if not values:
            return
        now = perf_counter_ns()
        if timed:
            for stamp, count in Counter(map(_stamp_of, values)).items():
                self.received.times.add(now - int.from_bytes(stamp, "big"), count)
        self.received.add(len(values))

    async def receive(self, topic: str, take: Callable[[], Awaitable[int]], lost: Any) -> None:
        """Take until everything published there has come, or nothing more comes."""
        count, last = 0, perf_counter()
        while True:
            got = await take()
            if got:
                count, last = count + got, perf_counter()
            if not self._is_over:
                continue
            missing = self.by_topic[topic] - count - lost()
            if missing <= 0 or perf_counter() - last > PATIENCE:
                self.lost += max(0, missing) + lost()
                return

    def subscribers(self, mqs: Sequence[Client]) -> list[tuple[Client, str]]:
        return [(mq, self.plan.topic_of(number)) for number, mq in enumerate(mqs)]


async def _all(work: Sequence[Any]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for one in work:
            tasks.create_task(one)


async def run_pub(run: BenchRun, ours: Sequence[Client], theirs: Sequence[Client]) -> None:
    await run.publish(ours)


async def run_sub(run: BenchRun, ours: Sequence[Client], theirs: Sequence[Client]) -> None:
    """Fill the topics first; then every subscriber reads all of one from its beginning."""
    await run.publish(ours)
    run.received.begin()
    total = sum(run.by_topic[topic] for _, topic in run.subscribers(theirs))

    async def read(mq: Client, topic: str) -> None:
        async with mq.reader(topic) as reader:

            async def take() -> int:
                rows = await reader.read_batch(READ, timeout=LOOK)
                run.got(rows.values, timed=False)
                run._tell(round(run.received.count / max(1, total) * run.plan.messages))
                return len(rows)

            await run.receive(topic, take, lambda: reader.missed)

    await _all([read(mq, topic) for mq, topic in run.subscribers(theirs)])


@asynccontextmanager
async def _streams(
    run: BenchRun, theirs: Sequence[Client]
) -> AsyncIterator[list[tuple[str, Any, Callable[[], int]]]]:
    """A stream for every subscriber, open before the first message: live at QoS 0, else stored."""
    async with AsyncExitStack() as stack:
        found: list[tuple[str, Any, Callable[[], int]]] = []
        for mq, topic in run.subscribers(theirs):
            if run.plan.qos == 0:
                feed = await stack.enter_async_context(
                    mq.live(topic, capacity=10_000, overflow="block")
                )
                found.append((topic, feed, partial(getattr, feed, "dropped")))
            else:
                reader = await stack.enter_async_context(mq.reader(topic, start="latest"))
                found.append((topic, reader, partial(getattr, reader, "missed")))
        yield found


async def run_pubsub(run: BenchRun, ours: Sequence[Client], theirs: Sequence[Client]) -> None:
    async with _streams(run, theirs) as streams:

        async def read(topic: str, stream: Any, lost: Callable[[], int]) -> None:
            async def take() -> int:
                rows = await stream.read_batch(READ, timeout=LOOK)
                run.got(rows.values)
                return len(rows)

            await run.receive(topic, take, lost)

        await _all([run.publish(ours), *(read(*stream) for stream in streams)])


async def run_queue(run: BenchRun, ours: Sequence[Client], theirs: Sequence[Client]) -> None:
    """Members of one group for each topic share its messages; each is acknowledged."""

    async def work(mq: Client, topic: str) -> None:
        last = perf_counter()
        while True:
            found = await mq.poll(topic, GROUP, max(run.plan.batch, 256), wait=LOOK)
            if found:
                await mq.ack(found)
                run.got(found.values)
                last = perf_counter()
            if not run._is_over:
                continue
            if found:
                continue
            # Others may have the rest, here or in another process.
            lag = (await mq.group_stats(topic, GROUP)).lag
            if lag == 0 or perf_counter() - last > PATIENCE:
                return

    await _all([run.publish(ours), *(work(mq, topic) for mq, topic in run.subscribers(theirs))])


def lost_in_queues(run: BenchRun) -> int:
    """What was published to topics that have members, and was handed to none of them."""
    plan = run.plan
    had = {plan.topic_of(number) for number in range(plan.subscribers)}
    return max(0, sum(run.by_topic[topic] for topic in had) - run.received.count)


async def run_latency(run: BenchRun, ours: Sequence[Client], theirs: Sequence[Client]) -> None:
    """One message at a time, after a rest: how long until it is safe, until it is there."""
    run._end = perf_counter() + (run.plan.duration or 0.0)
    async with _streams(run, theirs[:1]) as [(topic, stream, _)]:
        run.published.begin()
        run.received.begin()

        async def publish(value: bytes, began: int) -> None:
            receipt = await ours[0].publish(topic, value, qos=run.plan.qos)
            run.published.times.add(perf_counter_ns() - began)
            run.published.add(1)
            run._note(topic, receipt, 1)

        while run.take():
            await asyncio.sleep(REST)
            began = perf_counter_ns()
            sent = asyncio.ensure_future(publish(run.value(began), began))
            try:
                message = await stream.read(timeout=PATIENCE)
            finally:
                await sent
            if message is None:
                run.lost += 1
            else:
                run.got([message.value])


WORKLOADS: dict[str, Callable[[BenchRun, Sequence[Client], Sequence[Client]], Awaitable[None]]] = {
    "pub": run_pub,
    "sub": run_sub,
    "pubsub": run_pubsub,
    "latency": run_latency,
    "queue": run_queue,
}
