"""The frame of a client process: `python -m benchmarks.peers.driving` with a Job as JSON.

Each measurement has a process of its own, in the environment of its client. It prints one JSON
object. Clocks are the system's monotonic one, which processes of one machine share.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import cycle, islice
from time import monotonic

from ..meters import family, processor_seconds
from .job import AHEAD_MAX, QUIET_SECONDS, Job, Progress, latencies

Figures = dict[str, float]
LIVE_BURST = 64
OPEN_LOOP_SHARE = 3
"""An open loop takes so many times as long as finding the capacity: p99.9 needs many."""


class Driver(ABC):
    """What is asked of a client. What it cannot do is not asked: the table of modes knows."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._values = cycle(job.values())
        self.next_value = self._values.__next__
        self._server = [one for pid in job.servers for one in family(pid)]

    def server_seconds(self) -> float:
        """Of the processors, so far."""
        return processor_seconds(self._server)

    @property
    def value(self) -> bytes:
        """Another one each time."""
        return self.next_value()

    def values(self, count: int) -> list[bytes]:
        return list(islice(self._values, count))

    async def in_flight(
        self,
        tasks: int,
        call: Callable[[], Awaitable[int]],
        gathered: Callable[[int], Awaitable[int]] | None = None,
    ) -> Figures:
        """Calls for some seconds; in an open loop only to find the capacity, half of which comes.

        `gathered` is for a client that blocks: one call for all that is due.
        """
        if self.job.role == "open loop":
            return await self._open_loop(tasks, call, gathered)
        before = self.server_seconds()
        figures = await in_flight(tasks, self.job.seconds, call)
        return {**figures, "server s": self.server_seconds() - before}

    async def _open_loop(
        self,
        tasks: int,
        call: Callable[[], Awaitable[int]],
        gathered: Callable[[int], Awaitable[int]] | None,
    ) -> Figures:
        closed = await in_flight(tasks, self.job.seconds, call)
        rate = closed["count"] / closed["seconds"] / 2
        count = max(1, int(rate * self.job.seconds * OPEN_LOOP_SHARE))
        before = self.server_seconds()
        taken = await on_schedule(rate, count, call, gathered)
        spent = self.server_seconds() - before
        earlier = closed["count"] + closed["warm"]
        return {**latencies(taken), "offered": rate, "server s": spent, "warm": earlier}

    @abstractmethod
    async def publish(self) -> Figures:
        """Publish for some seconds, so many in flight and acknowledged; see that all are there."""

    @abstractmethod
    async def batches(self) -> Figures:
        """The same, in batches."""

    @abstractmethod
    async def consume(self) -> Figures:
        """Publish `count`, then take and acknowledge them all; only the second is timed."""

    async def drain(self) -> Figures:
        """The same with one loop, of messages of the job's variety."""
        raise NotImplementedError

    async def parked(self) -> Figures:
        """Each message goes to every one of many groups, which all wait for it."""
        raise NotImplementedError

    @abstractmethod
    async def latency(self) -> Figures:
        """From before the call to the consumer's code, one at a time; stored, or live."""

    @abstractmethod
    async def live_publish(self, pace: Pace) -> None:
        """Publish for some seconds at most once, no further ahead than the pace says."""

    @abstractmethod
    async def live_listen(self, ears: Ears) -> None:
        """Open the subscriptions, then hand each arrival to its ear until there are no more."""


class Pace:
    """When the publisher of a fan-out may go on."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self._progress = progress
        self._end = 0.0
        self._seconds = job.seconds
        self.start = 0.0
        self.sent = 0

    async def may_send(self, count: int) -> bool:
        """Wait until `count` more may be sent; False when it is enough."""
        if not self.start:
            self.start = monotonic()
            self._end = self.start + self._seconds
        while self.sent + count - self._progress.heard() > AHEAD_MAX:
            if monotonic() > self._end + QUIET_SECONDS:
                return False
            await asyncio.sleep(0.0005)
        if monotonic() >= self._end:
            return False
        self.sent += count
        return True


class Ears:
    """What the listeners of a fan-out have got."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self._counts = [0] * job.subscribers
        self._progress = progress
        self._expected: int | None = None
        self.last = monotonic()

    def heard(self, ear: int, count: int = 1) -> None:
        self._counts[ear] += count
        # Every 32nd is enough for the pace, and spares a client that hears one by one.
        if count > 1 or not self._counts[ear] & 31:
            self._progress.tell(min(self._counts))
        self.last = monotonic()

    def expect(self, count: int) -> None:
        self._expected = count * len(self._counts)

    @property
    def total(self) -> int:
        return sum(self._counts)

    def is_done(self) -> bool:
        """All are there; or nothing has come for so long that nothing will."""
        if self._expected is None:
            return False
        return self.total >= self._expected or monotonic() > self.last + QUIET_SECONDS

    def ready(self) -> None:
        """Everything is subscribed: the publisher may begin."""
        print("ready", flush=True)

    async def wait_done(self) -> None:
        while not self.is_done():
            self._progress.tell(min(self._counts))
            await asyncio.sleep(0.005)


async def in_flight(tasks: int, seconds: float, call: Callable[[], Awaitable[int]]) -> Figures:
    """So many tasks, each awaiting its acknowledgements, for some seconds. Calls tell how many."""
    warm = sum([await call() for _ in range(3)])
    done = 0
    start = monotonic()
    end = start + seconds

    async def work() -> None:
        nonlocal done
        while monotonic() < end:
            count = await call()  # apart: others add to it while we wait
            done += count

    await asyncio.gather(*(work() for _ in range(tasks)))
    return {"count": float(done), "seconds": monotonic() - start, "warm": float(warm)}


async def on_schedule(
    rate: float,
    count: int,
    call: Callable[[], Awaitable[int]],
    gathered: Callable[[int], Awaitable[int]] | None = None,
) -> list[float]:
    """Calls at moments fixed beforehand; seconds of each, from its moment on.

    Who stalls is not spared: what comes due meanwhile has waited already when it is sent.
    """
    taken: list[float] = []
    under_way: set[asyncio.Future[None]] = set()

    async def one(due: float) -> None:
        await call()
        taken.append(monotonic() - due)

    start, sent = monotonic(), 0
    while sent < count:
        arrived = min(count, int((monotonic() - start) * rate) + 1)
        moments = [start + number / rate for number in range(sent, arrived)]
        sent = arrived
        if gathered is None:
            for due in moments:
                task = asyncio.ensure_future(one(due))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        elif moments:
            await gathered(len(moments))
            now = monotonic()
            taken += [now - due for due in moments]
        # Timers are too coarse for this: the client polls its sockets until the next is due.
        await asyncio.sleep(0)
    await asyncio.gather(*under_way)
    return taken


def driver_of(job: Job) -> Driver:
    module = importlib.import_module(f".drivers.{job.peer}", __package__)
    driver: Driver = module.DRIVER(job)
    return driver


async def execute(job: Job) -> Figures:
    driver = driver_of(job)
    gc.collect()
    match job.role:
        case "publish" | "open loop":
            return await driver.publish()
        case "batches":
            return await driver.batches()
        case "consume":
            return await driver.consume()
        case "latency":
            return await driver.latency()
        case "drain":
            return await driver.drain()
        case "parked":
            return await driver.parked()
        case "live publish":
            progress = Progress(job.progress)
            pace = Pace(job, progress)
            await driver.live_publish(pace)
            return {"start": pace.start, "count": float(pace.sent)}
        case "live listen":
            progress = Progress(job.progress)
            ears = Ears(job, progress)
            # The count comes when the publisher is done; a thread can wait for it.
            threading.Thread(target=_take_count, args=(ears,), daemon=True).start()
            await driver.live_listen(ears)
            return {"delivered": float(ears.total), "last": ears.last}
        case "echo":
            raise AssertionError("the echo is a server: peers/echo.py")


def _take_count(ears: Ears) -> None:
    with suppress(ValueError):
        ears.expect(int(sys.stdin.readline()))


def loop_factory(job: Job) -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop, but for nats-py's plain publish and subscribe, which are faster without."""
    if job.peer == "nats" and job.role in ("live publish", "live listen"):
        return asyncio.new_event_loop
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def main() -> None:
    job = Job.from_json(sys.argv[1])
    with asyncio.Runner(loop_factory=loop_factory(job)) as runner:
        figures = runner.run(execute(job))
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
