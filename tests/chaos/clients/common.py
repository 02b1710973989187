"""What all client processes of a chaos run share: their broker, their story, their dice."""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import flintmq
from flintmq.clock import SystemClock
from flintmq.rows import Message, Rows

from ..checker.content import name_of, value_of
from ..story import Story

JOBS, KEYED = "jobs", "keyed"
GROUPS = {JOBS: "workers", KEYED: "keepers"}
EVENTS, VAULT, ONCE, RING, BRIEF = "events", "vault", "once", "ring", "brief"
LEDGERS = ("ledger-a", "ledger-b")
RING_COUNT = 300
SIZES = (8, 40, 200, 1500)
TIMEOUT_SECONDS = 20.0


class SkewedClock(SystemClock):
    """A client's clock that is wrong by so many seconds; time passes as everywhere."""

    def __init__(self, seconds: float) -> None:
        self._skew_ms = round(seconds * 1000)

    def now_ms(self) -> int:
        return super().now_ms() + self._skew_ms


@dataclass
class Worker:
    mq: flintmq.Client
    story: Story
    chance: random.Random
    done: asyncio.Event
    is_skewed: bool = False
    _number: int = field(default=0)

    def names(self, count: int) -> list[str]:
        first, self._number = self._number, self._number + count
        return [f"{self.story.worker}-{first + at}" for at in range(count)]

    async def pause(self, seconds: float) -> None:
        """Up to twice so long, or until the run ends."""
        try:
            await asyncio.wait_for(self.done.wait(), seconds * 2 * self.chance.random())
        except TimeoutError:
            return

    async def publish(
        self,
        topic: str,
        names: list[str],
        call: Callable[[list[bytes]], Awaitable[flintmq.Receipt | None]],
        *,
        how: str,
        **facts: Any,
    ) -> flintmq.Receipt | None:
        """Tell, publish, tell. None if it failed, or has no receipt of its own."""
        size = self.chance.choice(SIZES)
        return await self.publish_sized(topic, names, size, call, how=how, **facts)

    async def publish_sized(
        self,
        topic: str,
        names: list[str],
        size: int,
        call: Callable[[list[bytes]], Awaitable[flintmq.Receipt | None]],
        *,
        how: str,
        **facts: Any,
    ) -> flintmq.Receipt | None:
        op = self.story.next_op()
        self.story.tell("publish", op=op, topic=topic, names=names, size=size, how=how, **facts)
        try:
            receipt = await call([value_of(name, size) for name in names])
        except flintmq.FlintError as error:
            self.failed(op, error)
            return None
        offset, count, duplicate = None, len(names), False
        if receipt is not None:
            offset, count, duplicate = receipt.offset, receipt.count, receipt.duplicate
        self.story.tell("published", op=op, offset=offset, count=count, duplicate=duplicate)
        return receipt

    async def change(self, verb: str, topic: str, call: Awaitable[Any], **facts: Any) -> Any:
        """A change of a topic; None if it failed."""
        op = self.story.next_op()
        self.story.tell("change", op=op, verb=verb, topic=topic, **facts)
        try:
            result = await call
        except flintmq.FlintError as error:
            self.failed(op, error)
            return None
        told = result if isinstance(result, int) else None
        self.story.tell("changed", op=op, result=told)
        return True if result is None else result

    def failed(self, op: str, error: BaseException) -> None:
        self.story.tell("failed", op=op, error=type(error).__name__, text=str(error)[:200])


def row_of(message: Message) -> list[Any]:
    value = bytes(message.value)
    return [message.offset, name_of(value), zlib.crc32(value), message.key, message.priority]


def rows_of(messages: Iterable[Message]) -> list[list[Any]]:
    return [row_of(message) for message in messages]


def connect(url: str, skew: float = 0.0, timeout: float = TIMEOUT_SECONDS) -> flintmq.Client:
    clock = SkewedClock(skew) if skew else None
    return flintmq.connect(url, timeout=timeout, clock=clock)


@asynccontextmanager
async def connected(url: str, skew: float = 0.0) -> AsyncIterator[flintmq.Client]:
    """Tried until there is a broker."""
    give_up = time.monotonic() + 120
    while True:
        mq = connect(url, skew)
        try:
            await mq
            break
        except flintmq.FlintError:
            await mq.close()
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.2)
    try:
        yield mq
    finally:
        await mq.close()


async def until_done(worker: Worker, life: Callable[[], Awaitable[None]]) -> None:
    """Live one life after another: what raises (a topic that went, a broker that is away for too
    long) ends a life, and not the run."""
    while not worker.done.is_set():
        try:
            await life()
        except flintmq.FlintError as error:
            worker.story.tell("life_ends", error=type(error).__name__, text=str(error)[:200])
            await asyncio.sleep(0.1)


def damaged_range(error: flintmq.Corrupt, position: int, end: int) -> tuple[int, int]:
    """The offsets that an error is about; up to the end where it does not say."""
    first, behind = getattr(error, "first_offset", None), getattr(error, "next_offset", None)
    return (position if first is None else first), (end if behind is None else behind)


async def read_past_damage(reader: flintmq.Reader, most: int, seconds: float) -> Rows:
    """As `read_batch`; where the disk was damaged it goes on behind that. What the disk could only
    not read may be there after the next start: then it raises."""
    while True:
        try:
            return await reader.read_batch(most, timeout=seconds)
        except flintmq.Corrupt as error:
            behind = getattr(error, "next_offset", None)
            if behind is None or not error.is_proven:
                raise
            await reader.seek(behind)
