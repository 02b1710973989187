"""Giving messages up: those that were delivered as often as they may be go to the dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...group_model import Ranges
from ...groups.lanes import END
from ...groups.ranges import offsets_in, ranges_of

if TYPE_CHECKING:
    from .queue_group import QueueGroup

_BURY_AGAIN_SECONDS = 1.0
"""How soon dead letters that could not be moved are tried again for those who wait."""


class Dead(NamedTuple):
    """A message that goes to the dead letters."""

    offset: int
    reason: str
    deliveries: int


class Burying:
    def __init__(self, group: QueueGroup) -> None:
        self._group, self._topic, self._queue = group, group.topic, group.queue
        self._at_work: set[asyncio.Task[None]] = set()

    def apart(self, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """Those that were delivered as often as they may be, and the others."""
        most = self._topic.options.max_deliveries
        if most is None:
            return [], ranges
        count_of = self._queue.count_of
        last = [offset for offset in offsets_in(ranges) if count_of(offset) >= most]
        if not last:
            return [], ranges
        known = set(last)
        return ranges_of(last), ranges_of([o for o in offsets_in(ranges) if o not in known])

    def exhausted(self, offsets: Iterable[int], how: str) -> list[Dead]:
        most, count_of = self._topic.options.max_deliveries, self._queue.count_of
        return [
            Dead(offset, f"{how} (max_deliveries={most})", count_of(offset)) for offset in offsets
        ]

    def later(self, dead: list[Dead]) -> None:
        task = asyncio.get_running_loop().create_task(self.bury(dead))
        self._at_work.add(task)
        task.add_done_callback(self._buried)

    def _buried(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled():
            task.exception()  # it was told by the log; the messages are back

    async def bury(self, dead: list[Dead]) -> None:
        try:
            await self._topic.bury(self._group, dead)
            self._group.settling.note_given_again([one.offset for one in dead], END)
            self._group.counter["dead_lettered"] += len(dead)
        except BaseException:
            if self._group.ended is None:
                self._group.settling.unfinish(ranges_of([one.offset for one in dead]))
                # Not at once: whoever waits would have it tried again and again.
                topic = self._topic
                topic.clock.call_later(_BURY_AGAIN_SECONDS, topic.guarded(self._group.wake))
            raise
