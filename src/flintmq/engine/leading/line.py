"""Publishers that wait in line, for room in a topic, in a live feed or on the disk."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING

from ...errors import FlintError, QueueFull
from ...model import Receipt
from ..deciding import Rows
from ..pending import Pending
from ..waiting import again, resolve

if TYPE_CHECKING:
    from .topic import LeadingTopic


class PublisherLine:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic = topic
        self.waiting: deque[_WaitingPublish] = deque()
        self.held_by = "topic"
        """What kept the last publisher back: the topic, a feed, or the disk."""
        self.waits: Counter[str] = Counter()

    async def publish(self, rows: Rows, qos: int, timeout: float | None) -> Receipt | Pending:
        """Wait in line until the rows can be taken in. Cancelled or timed out: nothing is done."""
        me, topic = _WaitingPublish(), self._topic
        self.waiting.append(me)
        self.waits[self.held_by] += 1
        timer = None
        if timeout == 0:
            me.is_late = True
        elif timeout is not None:
            timer = topic.clock.call_later(timeout, me.give_up)
        try:
            while True:
                if topic.ended is not None:
                    raise again(topic.ended)
                if self.waiting[0] is me:
                    receipt = topic.publish(rows, qos, first_in_line=True)
                    if receipt is not None:
                        return receipt
                if me.is_late:  # also if it was woken in the same turn, to no avail
                    raise self._why(timeout, rows.row_count)
                await me.woken
                me.woken = asyncio.get_running_loop().create_future()
        finally:
            if timer is not None:
                timer.cancel()
            self.waiting.remove(me)
            self.wake()

    def _why(self, timeout: float | None, count: int) -> FlintError:
        topic, proposer = self._topic, self._topic.proposer
        if proposer.is_full:
            return QueueFull(
                "the queue of the journal",
                proposer.queue_bytes_max,
                f"the disk is slower than the publishers, for {timeout:g} s at least",
            )
        for feed in topic.feeds:
            if feed.overflow == "block" and not feed.has_room(count):
                return QueueFull(
                    f"the live queue of {feed.pattern!r}",
                    feed.capacity,
                    f"its subscriber blocks publishers and took nothing for {timeout:g} s",
                )
        return topic.full(count, timeout)

    def wake(self) -> None:
        """Have the first who waits look again; the others follow."""
        if self.waiting:
            resolve(self.waiting[0].woken, True)

    def end(self) -> None:
        for publisher in self.waiting:
            resolve(publisher.woken, True)


class _WaitingPublish:
    """A publish that waits in line."""

    __slots__ = ("is_late", "woken")

    def __init__(self) -> None:
        self.woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.is_late = False

    def give_up(self) -> None:
        self.is_late = True
        resolve(self.woken, False)
