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
from time import monotonic

from ..meters import family, processor_seconds
from .job import AHEAD_MAX, QUIET_SECONDS, Job, Progress

Figures = dict[str, float]
LIVE_BURST = 64


class Driver(ABC):
    """What is asked of a client. What it cannot do is not asked: the table of modes knows."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.value = job.value()
        self._server = family(job.server) if job.server else []

    def server_seconds(self) -> float:
        """Of the processors, so far."""
        return processor_seconds(self._server)

    async def in_flight(self, tasks: int, call: Callable[[], Awaitable[int]]) -> Figures:
        before = self.server_seconds()
        figures = await in_flight(tasks, self.job.seconds, call)
        return {**figures, "server s": self.server_seconds() - before}

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


def driver_of(job: Job) -> Driver:
    module = importlib.import_module(f".drivers.{job.peer}", __package__)
    driver: Driver = module.DRIVER(job)
    return driver


async def execute(job: Job) -> Figures:
    driver = driver_of(job)
    gc.collect()
    match job.role:
        case "publish":
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
