"""Where `sub` reads messages from, and what happens to those that were printed, or were not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ..client.client import Client
from ..client.delivery import settle_messages
from ..client.grips import RELEASE
from ..client.reader import Reader
from ..errors import InvalidRequest
from ..group_model import LEASE_SECONDS
from ..model import Start
from ..rows import Message
from .durations import Last

FIRST_BATCH, BATCH_MAX = 16, 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages, and for how long."""

    topic: str
    group: str | None
    reader: str | None
    live: bool
    start: Start | Last | None
    filter: str | None
    count: int | None
    follow: bool
    timeout: float | None

    @property
    def patience(self) -> float | None:
        """How long to wait for the next message; None: for ever."""
        if self.timeout is not None:
            return self.timeout
        return None if self.follow or self.live else 0.0


class MessageSource(Protocol):
    is_settling: bool
    """Whether printing settles a message: then no more is requested than will be printed soon."""

    async def take(self, most: int, timeout: float | None) -> Sequence[Message]:
        """Up to `most` messages, waiting up to `timeout`; empty if there are none."""
        ...

    async def settle(self, messages: Sequence[Message]) -> None:
        """These messages were printed."""

    async def give_back(self, messages: Sequence[Message]) -> None:
        """These messages were not printed."""

    async def keep(self, messages: Sequence[Message]) -> None:
        """These messages are still being printed."""


@asynccontextmanager
async def opened(mq: Client, wanted: Wanted) -> AsyncIterator[MessageSource]:
    start: Start | dict[int, int] | None
    if isinstance(wanted.start, Last):
        start = await _newest(mq, wanted, wanted.start.count)
    else:
        start = wanted.start
    if wanted.group is not None:
        yield OfGroup(mq, wanted, wanted.group, start)
    elif wanted.live:
        async with mq.live(wanted.topic, filter=wanted.filter, capacity=10_000) as feed:
            yield OfAnybody(feed)
    else:
        async with mq.reader(
            wanted.topic,
            name=wanted.reader,
            start="earliest" if isinstance(start, dict) else start,
            filter=wanted.filter,
        ) as reader:
            if isinstance(wanted.start, Last) and start is not None:
                await reader.seek(start)
            yield OfReader(reader) if wanted.reader else OfAnybody(reader)


async def _newest(mq: Client, wanted: Wanted, count: int) -> int | dict[int, int]:
    """Where the last N messages start, by partition: those published last over all partitions."""
    stats = await mq.topic_stats(wanted.topic)
    if not stats.partitions:
        return max(stats.first_offset, stats.next_offset - count)
    if wanted.group is not None:
        raise InvalidRequest(
            f"{wanted.topic} has partitions, so a group cannot start at an offset; use a "
            "time such as --from -5m"
        )
    ends = {number: part.next_offset for number, part in enumerate(stats.partitions)}
    found: list[Message] = []
    for number, part in enumerate(stats.partitions):
        first = max(part.first_offset, part.next_offset - count)
        async with mq.reader(f"{wanted.topic}/{number}", start=first) as reader:
            left = part.next_offset - first
            while left > 0 and (rows := await reader.read_batch(min(left, BATCH_MAX), timeout=0)):
                found += rows
                left -= len(rows)
    for message in sorted(found, key=lambda message: message.timestamp)[-count:]:
        offset = message.offset or 0
        ends[message.partition] = min(ends[message.partition], offset)
    return ends


class OfAnybody:
    """An anonymous reader, or a live subscription: reading changes nothing."""

    is_settling = False

    def __init__(self, source: Any) -> None:
        self._source = source

    async def take(self, most: int, timeout: float | None) -> Sequence[Message]:
        found: Sequence[Message] = await self._source.read_batch(most, timeout=timeout)
        return found

    async def settle(self, messages: Sequence[Message]) -> None:
        await asyncio.sleep(0)

    async def give_back(self, messages: Sequence[Message]) -> None:
        """Nothing to return: no lease was taken."""

    async def keep(self, messages: Sequence[Message]) -> None:
        """Nothing to extend: no lease was taken."""


class OfReader(OfAnybody):
    """A named reader, which advances past the messages that were printed."""

    is_settling = True

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._reader = reader

    async def settle(self, messages: Sequence[Message]) -> None:
        last = {message.partition: message for message in messages}
        for message in last.values():
            await self._reader.commit(message)


class OfGroup:
    """A member of a queue group: printed messages are acknowledged."""

    is_settling = True

    def __init__(self, mq: Client, wanted: Wanted, group: str, start: Any) -> None:
        self._mq, self._wanted, self._group, self._start = mq, wanted, group, start

    async def take(self, most: int, timeout: float | None) -> Sequence[Message]:
        while True:
            found = await self._mq.poll(
                self._wanted.topic,
                self._group,
                most,
                wait=3600.0 if timeout is None else timeout,
                start=self._start,
                filter=self._wanted.filter,
            )
            if found or timeout is not None:
                return found

    async def settle(self, messages: Any) -> None:
        await self._mq.ack(messages)

    async def give_back(self, messages: Any) -> None:
        await settle_messages(messages, RELEASE)

    async def keep(self, messages: Any) -> None:
        await asyncio.gather(*(message.extend(LEASE_SECONDS) for message in messages))
