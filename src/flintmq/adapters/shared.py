"""One connection of a process to a broker, for code that would open many; and what it takes from
several queues at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ..client.blocking import BlockingDeliveries, BlockingDelivery, connect_sync
from ..client.client import Client
from ..client.delivery import Deliveries
from ..client.feed import Feed
from ..client.grips import RELEASE
from ..rows import Message, Rows
from .queues import make_queue

P = ParamSpec("P")
T = TypeVar("T")

_open: dict[tuple[int, str | None, str], SharedClient] = {}
_lock = Lock()


@dataclass(eq=False)
class Inbox:
    """Where messages come from: a group of a topic, or a live feed."""

    topic: str
    group: str
    feed: Feed | None = None
    is_auto: bool = False
    """Whether a message is settled when it is handed out."""
    deliver: Callable[[Any], Any] | None = None
    """Who gets what comes."""


class Pull(NamedTuple):
    """What one consumer may take."""

    channel: Any
    queue: str
    inbox: Inbox
    max: int
    lease: float


Taken = list[tuple[Pull, Message]]


class SharedClient:
    """A blocking connection with a count of its users: the last one closes it."""

    def __init__(self, place: tuple[int, str | None, str], options: dict[str, Any]) -> None:
        self._place = place
        self.mq = connect_sync(place[1], **options)
        self.client: Client = self.mq._inner
        self._users = 0
        self.is_closed = False

    @classmethod
    def of(cls, url: str | None, options: dict[str, Any]) -> SharedClient:
        """The connection of this process. It is not shared with a child that is forked off."""
        place = (os.getpid(), url, repr(sorted(options.items())))
        with _lock:
            shared = _open.get(place)
            if shared is None:
                shared = _open[place] = cls(place, options)
            shared._users += 1
            return shared

    def leave(self) -> None:
        with _lock:
            self._users -= 1
            if self._users or self.is_closed:
                return
            self.is_closed = True
            _open.pop(self._place, None)
        self.mq.close()

    def run(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function in the loop of the connection, and wait for it."""

        async def run() -> T:
            return await asyncio.ensure_future(function(*args, **kwargs))

        return self.mq._thread.wait_for(run)

    # --- queues

    def make_queue(self, topic: str, group: str) -> None:
        self.run(make_queue, self.client, topic, group)

    def open_feed(self, topic: str) -> Inbox:
        async def open() -> Inbox:
            return Inbox(topic, "", await self.client.live(topic))

        return self.run(open)

    def close_feed(self, inbox: Inbox) -> None:
        if inbox.feed is not None:
            self.run(inbox.feed.close)

    def take(self, asked: list[Pull], wait: float) -> Taken:
        """What the first of them has, or several; waits up to `wait` seconds."""

        async def take() -> Taken:
            return [
                (one, message)
                for one, rows in await _first_of(self.client, asked, wait)
                for message in self._blocking(rows)
            ]

        return self.mq._thread.wait_for_taken(take, self._put_back)

    def _blocking(self, rows: Rows | Deliveries) -> Any:
        if isinstance(rows, Deliveries):
            return BlockingDeliveries(self.mq._thread, rows.runs)
        return rows

    def _put_back(self, taken: Taken) -> None:
        """In the loop: who asked was interrupted."""
        for _, message in taken:
            self._release(message)

    def give_back(self, message: Message) -> None:
        """Others may have it at once, and it does not count as a delivery."""
        self.mq._thread.run(self._release, message)

    def _release(self, message: Message) -> None:
        if isinstance(message, BlockingDelivery) and message._grip.fate(message.offset) is None:
            message._grip.settle_nowait(message.offset, RELEASE)


async def _first_of(
    mq: Client, asked: list[Pull], wait: float
) -> list[tuple[Pull, Rows | Deliveries]]:
    calls = [asyncio.ensure_future(_ask(mq, one, wait)) for one in asked]
    try:
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for call in calls:
            call.cancel()  # of those that had something already, nothing is lost
        await asyncio.gather(*calls, return_exceptions=True)
    found, failed = [], None
    for one, call in zip(asked, calls, strict=True):
        if call.cancelled():
            continue
        if (error := call.exception()) is not None:
            failed = error
        elif rows := call.result():
            found.append((one, rows))
    if failed is not None and not found:
        raise failed
    return found


async def _ask(mq: Client, one: Pull, wait: float) -> Rows | Deliveries:
    inbox = one.inbox
    if inbox.feed is not None:
        return await inbox.feed.read_batch(one.max, timeout=wait)
    return await mq.poll(
        inbox.topic, inbox.group, one.max, lease=one.lease, wait=wait,
        ack="auto" if inbox.is_auto else "manual",
    )  # fmt: skip
