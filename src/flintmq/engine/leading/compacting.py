"""Compaction of a topic with `compact="key"`: which messages are not the last of their key.

Who leads looks through the log behind those who publish, and remembers the newest offset of every
key (`last_of_keys.py`): some 200 bytes a key, and nothing on the disk. What a newer message has
superseded goes by commands (`Compact`) once there is about as much of it as there are keys, so that
the log never has much more than twice the state. Queue groups come first: nothing goes that one of
them has not passed. A message without a key stays.

A tombstone (an empty value) is the last of its key like any other. It goes itself after
`TOMBSTONE_SECONDS`: time enough for everybody who follows the topic to see it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...batch import RowSource, all_have_keys, empty_rows, keys_of
from ...clock import Timer
from ...errors import Corrupt, FlintError
from ...groups.offset_set import OffsetSet
from ...loop.pace import Allowance, pace
from ...storage.loading import NotLoaded
from ..commands import Compact
from .last_of_keys import LastOfKeys, Superseded

if TYPE_CHECKING:
    from .topic import LeadingTopic

LOOK_ROWS = 4096
"""How far the look through the log stays behind its end."""

DROP_ROWS_MIN = 1000
"""Fewer than this are not dropped: it would not be worth a command."""

COMMAND_ROWS = 8192
"""How many messages one command drops."""

AHEAD_BYTES = 1 << 20
"""What is read from the disk at once: there may be little left in each batch."""

SOME_ROWS = 1024
"""What is looked at between two looks at the clock."""

TOMBSTONE_SECONDS = 24 * 3600.0

BURY_AGAIN_SECONDS = 60.0
"""How soon tombstones that a queue group has not passed are looked at again."""


class Compacting:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic, self._log = topic, topic.log
        self.is_on = False
        self._timer: Timer | None = None
        self._is_scheduled = False
        self._clear()
        self.is_on = topic.options.compact is not None

    def _clear(self) -> None:
        """Begin anew, with the first message."""
        self._keys = LastOfKeys(self._log.first_offset)
        self._superseded: Superseded | None = None
        """While a part of it is being dropped."""
        self._reached = self._log.first_offset
        """Up to where superseded messages have been dropped."""

    def configured(self) -> None:
        is_on = self._topic.options.compact is not None
        if is_on != self.is_on:
            self.end()
            self.is_on = is_on
            if is_on:
                self.appended()

    def appended(self) -> None:
        """There is more to look at."""
        if not self._is_scheduled and self._log.next_offset - self._keys.looked >= LOOK_ROWS:
            self._schedule()

    def end(self) -> None:
        self.is_on = False
        self._clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._topic.guarded(self._step))

    def _step(self) -> None:
        """Look at a little more, drop a little more."""
        topic = self._topic
        self._is_scheduled = False
        if not self.is_on:
            return
        try:
            self._look(pace().begin())
        except NotLoaded as missing:
            self._is_scheduled = True
            missing.load.then(topic.guarded(self._step))
            return
        except FlintError:
            return  # the disk cannot be read for now; it is tried again when more has come
        is_more = self._drop()
        if is_more or self._log.next_offset - self._keys.looked >= LOOK_ROWS:
            self._schedule()

    # --- looking

    def _look(self, allowance: Allowance) -> None:
        """Go on through the log, as far as this turn allows. Raises NotLoaded."""
        log, keys = self._log, self._keys
        while keys.looked < log.next_offset:
            gone = self._topic.state.discarded
            looked = max(keys.looked, log.first_offset)
            if gone is not None:
                looked = min(gone.first_missing(looked), log.next_offset)
            keys.looked = looked
            if looked == log.next_offset:
                break
            try:
                source, row, stop = log.locate_nowait(looked, AHEAD_BYTES)
            except Corrupt as error:
                keys.pass_over(max(looked + 1, error.next_offset or 0))
                continue
            self._look_at(source, row, min(stop, row + SOME_ROWS), gone)
            if allowance.is_over():
                break

    def _look_at(self, source: RowSource, start: int, stop: int, gone: OffsetSet | None) -> None:
        base = source.base_offset
        self._keys.add(
            keys_of(source, start, stop),
            base + start,
            [row - start for row in empty_rows(source, start, stop)],
            all_have_keys=all_have_keys(source),
            gone=[] if gone is None else gone.present(base + start, base + stop),
        )
        if self._keys.tombstones and self._timer is None:
            self._arm()

    async def state(self) -> tuple[OffsetSet, int]:
        """The offsets of the last message of every key, tombstones left out, and the end of the log
        as of which that is so."""
        keys = self._keys
        while keys.looked < self._log.next_offset:
            try:
                self._look(pace().begin())
            except NotLoaded as missing:
                await missing.load.wait()
                continue
            await asyncio.sleep(0)
        end = keys.looked
        offsets = list(keys.last.values())  # in this very step
        tombstones = set(keys.tombstones.values())
        found = OffsetSet()
        for at in range(0, len(offsets), COMMAND_ROWS):
            some = sorted(offsets[at : at + COMMAND_ROWS])
            found.add_many([one for one in some if one not in tombstones])
            await asyncio.sleep(0)
        return found, end

    # --- dropping

    def _drop(self) -> bool:
        """Drop a part of what is superseded, if there is enough; whether there is more to drop."""
        topic, proposer, keys = self._topic, self._topic.proposer, self._keys
        if proposer.failure is not None or proposer.is_full:
            self._superseded = None  # what comes next begins anew
            return False
        floor = self._floor()
        if self._superseded is None:
            enough = max(DROP_ROWS_MIN, len(keys.last))
            if keys.superseded_count < enough or floor - self._reached < enough:
                return False
            self._superseded, self._reached = Superseded(keys), floor
        dropped, _ = self._superseded.take(
            self._log.first_offset,
            floor,
            topic.state.discarded,
            COMMAND_ROWS,
            pace().begin().is_over,
        )
        if dropped:
            proposer.propose(Compact(topic.id, keys.looked, dropped))
        if self._superseded.is_done:
            self._superseded = None
        return self._superseded is not None

    def _floor(self) -> int:
        """Before it, every queue group has passed everything."""
        groups = self._topic.state.groups.values()
        return min((group.floor for group in groups), default=self._keys.looked)

    # --- tombstones

    def _arm(self, at_least: float = 0.01) -> None:
        """For the oldest tombstone."""
        topic = self._topic
        try:
            age = self._age(next(iter(self._keys.tombstones.values())))
        except NotLoaded:
            age = 0.0  # it is younger than it could be, and stays a little longer
        wait = max(at_least, TOMBSTONE_SECONDS - age)
        self._timer = topic.clock.call_later(wait, topic.guarded(self._bury))

    def _age(self, offset: int) -> float:
        """Of a message, in seconds. Raises NotLoaded."""
        if offset < self._log.first_offset:
            return TOMBSTONE_SECONDS  # it is gone already
        source, row, _ = self._log.outline(offset, waits=False)
        return (self._topic.clock.now_ms() - source.time(row)) / 1000

    def _bury(self) -> None:
        """Drop tombstones whose time is over; then sleep until the next is due."""
        self._timer = None
        topic, keys = self._topic, self._keys
        floor, proposer = self._floor(), topic.proposer
        due: list[tuple[bytes | None, int]] = []
        is_held = proposer.failure is not None or proposer.is_full
        for key, offset in list(keys.tombstones.items())[: 0 if is_held else COMMAND_ROWS]:
            try:
                if self._age(offset) < TOMBSTONE_SECONDS:
                    break
            except NotLoaded as missing:
                missing.load.then(topic.guarded(self._bury))
                return
            if offset >= floor:
                is_held = True
                break
            due.append((key, offset))
        for key, _ in due:
            del keys.tombstones[key], keys.last[key]
        there = [offset for _, offset in due if offset >= self._log.first_offset]
        if there:
            buried = OffsetSet()
            buried.add_many(there)
            keys.dropped(buried)
            proposer.propose(Compact(topic.id, keys.looked, buried.to_chunks()))
        if keys.tombstones and self._timer is None:
            self._arm(BURY_AGAIN_SECONDS if is_held else 0.01)
