"""A backlog that one group drains: by polls of 256, and by a subscription."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import flintmq

from ..disks import data_directory
from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import MIB, STALL_SECONDS, TURNS, WrongResult
from .memory import resident_bytes

SIZE = 16
PUBLISHED = 1000
POLLED = 256
PREFETCH = 1024
TOPIC, GROUP = "backlog", "workers"
JOURNAL_BYTES = 64 << 20
_ZEROS = bytes(1 << 20)

Form = Literal["poll", "batches", "each"]
"""poll(256) and ack; a subscription read by batches of 256; one by one, an ack each."""


@dataclass(frozen=True, slots=True)
class Workload:
    form: Form
    backlog: int
    durable: bool = False
    priorities: bool = False

    @property
    def memory_bytes(self) -> int:
        return self.backlog * 64 if self.backlog > 1_000_000 else 0

    def count(self, settings: Settings) -> int:
        return min(self.backlog, settings.pick(self.backlog, 2_000))

    # --- ours

    async def run(self, settings: Settings) -> Figures:
        count = self.count(settings)
        async with self._connected() as mq:
            await mq.create_topic(TOPIC, retention_bytes=None)
            async with Drain(self, mq) as drain:
                drained = taken = 0.0
                before = resident_bytes()
                start = perf_counter()
                await self._publish(mq, count)
                published = count / (perf_counter() - start)
                grown = resident_bytes() - before
                start = perf_counter()
                first_ones = await mq.poll(TOPIC, GROUP, max=POLLED)
                first = perf_counter() - start
                await first_ones.ack()
                left = count - len(first_ones)
                while True:
                    some, took = await drain.run(left, settings.seconds - taken)
                    drained, taken = drained + some, taken + took
                    if taken >= settings.seconds or count >= 1_000_000 or settings.quick:
                        break
                    await self._publish(mq, count)
                    left = count
                left = (await mq.group_stats(TOPIC, GROUP)).lag
                stored = (await mq.topic_stats(TOPIC)).next_offset
                drained_all = drained + len(first_ones)
                if left + drained_all != stored:
                    raise WrongResult(f"{drained_all:,} of {stored:,} settled, {left:,} left")
        return {
            "published": published,
            "drained": drained / taken,
            "grown": grown / MIB,
            "first": first,
        }

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[flintmq.Client]:
        if not self.durable:
            async with flintmq.connect("memory://") as mq:
                yield mq
        else:
            with data_directory() as directory:
                async with flintmq.connect(f"file://{directory}/data") as mq:
                    yield mq

    async def _publish(self, mq: flintmq.Client, count: int) -> None:
        values = [b"%0*d" % (SIZE, number) for number in range(PUBLISHED)]
        priority: int | list[int] = 0
        if self.priorities:
            priority = [number % 8 for number in range(PUBLISHED)]
        under_way: set[asyncio.Task[object]] = set()
        for _ in range(count // PUBLISHED):
            if not self.durable:
                await mq.publish_batch(TOPIC, values, priority=priority)
                continue
            work = mq.publish_batch(TOPIC, values, priority=priority)
            under_way.add(asyncio.ensure_future(work))
            if len(under_way) == 16:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        if under_way:
            await asyncio.wait(under_way)
        gc.collect()

    # --- a bare loop of the same shape

    async def bare(self, settings: Settings) -> Figures:
        """Lists and dicts: a slice is taken, leased, looked at and let go; the journal is a file
        of zeros that is written at each take, and written and synced at each settle."""
        count = self.count(settings)
        values = [b"%0*d" % (SIZE, number) for number in range(PUBLISHED)]
        lanes = 8 if self.priorities else 1
        lists = [(values * (count // PUBLISHED))[lane::lanes] for lane in range(lanes)]
        rows = 1 if self.form == "each" else POLLED
        leases: dict[int, tuple[int, int, int, float]] = {}
        done = total = token = 0
        with _journal(self.durable) as journal:
            start = perf_counter()
            stop = start + settings.seconds
            while perf_counter() < stop and (not settings.quick or not done):
                for lane in reversed(lists):
                    for at in range(0, len(lane), rows):
                        token += 1
                        batch = lane[at : at + rows]
                        leases[token] = (lane is lists[0], at, at + rows, start + 30.0)
                        journal.write()
                        for value in batch:
                            total += len(value)
                        journal.write_and_sync()
                        del leases[token]
                        done += len(batch)
                        if token % TURNS == 0:
                            await asyncio.sleep(0)
                            if perf_counter() >= stop:
                                break
                    if perf_counter() >= stop:
                        break
            took = perf_counter() - start
        if total != done * SIZE:
            raise WrongResult(f"{total:,} bytes of {done:,} messages")
        return {"bare": done / took}


class Drain:
    """A member of the group, which takes and settles for a while."""

    def __init__(self, workload: Workload, mq: flintmq.Client) -> None:
        self._form, self._mq = workload.form, mq
        self._concurrency = 64 if workload.durable else 1
        self._stop = 0.0
        self._wanted = self.settled = self.total = 0

    async def __aenter__(self) -> Drain:
        await self._mq.poll(TOPIC, GROUP, max=1)  # the group begins here
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run(self, count: int, seconds: float) -> tuple[int, float]:
        """How many were settled, and in what time: at most so many, and for so long."""
        self._wanted, self.settled, start = count, 0, perf_counter()
        self._stop = start + max(0.05, seconds)
        await (self._poll() if self._form == "poll" else self._subscribe())
        return self.settled, perf_counter() - start

    async def _poll(self) -> None:
        while self.settled < self._wanted and perf_counter() < self._stop:
            messages = await self._mq.poll(TOPIC, GROUP, max=POLLED)
            for value in messages.values:
                self.total += len(value)
            await messages.ack()
            self.settled += len(messages)

    async def _subscribe(self) -> None:
        prefetch = PREFETCH if self._form == "batches" or self._concurrency > 1 else None
        async with self._mq.subscribe(TOPIC, GROUP, prefetch=prefetch) as deliveries:
            if self._form == "batches":
                while self.settled < self._wanted and perf_counter() < self._stop:
                    messages = await deliveries.read_batch(POLLED, STALL_SECONDS)
                    for value in messages.values:
                        self.total += len(value)
                    await messages.ack()
                    self.settled += len(messages)
            else:
                await asyncio.gather(*(self._each(deliveries) for _ in range(self._concurrency)))

    async def _each(self, deliveries: flintmq.Subscription) -> None:
        while self._wanted and perf_counter() < self._stop:
            self._wanted -= 1
            message = await deliveries.read(STALL_SECONDS)
            if message is None:
                raise WrongResult("a message did not come")
            self.total += len(message.value)
            await message.ack()
            self.settled += 1


class _Nothing:
    def write(self) -> None:
        pass

    def write_and_sync(self) -> None:
        pass


class _Journal:
    """A file of zeros, and records as small as those of a take and a settle."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._position = descriptor, 0
        self._record = bytes(range(96))

    def write(self) -> None:
        os.pwrite(self._descriptor, self._record, self._position)
        self._position = (self._position + len(self._record)) % (JOURNAL_BYTES - 96)

    def write_and_sync(self) -> None:
        self.write()
        os.fdatasync(self._descriptor)


@contextmanager
def _journal(durable: bool) -> Iterator[_Journal | _Nothing]:
    if not durable:
        yield _Nothing()
        return
    with data_directory() as directory:
        descriptor = os.open(directory / "bare", os.O_RDWR | os.O_CREAT)
        try:
            for position in range(0, JOURNAL_BYTES, len(_ZEROS)):
                os.pwrite(descriptor, _ZEROS, position)
            os.fsync(descriptor)
            yield _Journal(descriptor)
        finally:
            os.close(descriptor)


SMALL, LARGE = 20_000, 10_000_000


def _case(workload: Workload) -> Case:
    return Case(workload.run, workload.bare, memory_bytes=workload.memory_bytes)


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for durable in (False, True):
        where = "file" if durable else "memory"
        for backlog, name in ((SMALL, "20 k"), (LARGE, "10 M")):
            for priorities, kind in ((False, "plain"), (True, "i % 8")):
                forms: tuple[Form, ...] = ("poll", "batches", "each")
                for form in forms if backlog == SMALL else forms[:1]:
                    workload = Workload(form, backlog, durable, priorities)
                    cases[f"{where}, {name} {kind}, {form}"] = _case(workload)
    return cases


SCENARIO = Scenario(
    every_loop=False,
    title="a backlog of 16 B messages taken and acked by one group: messages per second",
    columns=(
        Column("drained", "drained/s", "rate"),
        Column("bare", "bare/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("drained", "bare")),
        Column("published", "published/s", "rate"),
        Column("grown", "MiB", "MiB"),
        Column("first", "first s", "seconds"),
    ),
    cases=_cases(),
    notes=(
        "poll: poll(256), ack of all. batches: a subscription that takes 1,024 ahead, read by 256. "
        "each: one by one, an ack each; on file 64 of them side by side, so that they share syncs. "
        "Of ten million, as many as the time allows are drained. MiB: resident, by the backlog. "
        "first s: the first poll takes a backlog into the lanes, in steps.",
        "bare: slices of lists (one for each priority), a dict of leases; on file a pwrite for "
        "each take, a pwrite and an fdatasync for each settle, one after the other.",
        "published by publish_batch of 1,000 with fsync=always, on file 16 at a time.",
    ),
)
