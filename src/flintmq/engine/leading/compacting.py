"""Compaction of a topic with `compact="key"`: which messages are not the last of their key.

Who leads looks through the log behind those who publish, and remembers the newest offset of every
key: some 200 bytes a key, and nothing on the disk. What a newer message has superseded goes by a
command (`Compact`) once there is about as much of it as there are keys, so that the log never has
much more than twice the state. Queue groups come first: nothing goes that one of them has not
passed. A message without a key stays.

A tombstone (an empty value) is the last of its key like any other. It goes itself after
`TOMBSTONE_SECONDS`: time enough for everybody who follows the topic to see it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from ...batch import RowSource, empty_rows, keys_of
from ...clock import Timer
from ...errors import Corrupt, FlintError
from ...groups.offset_set import FULL, LAST, SHIFT, ZEROS, Chunks, OffsetSet
from ...loop.pace import Allowance, pace
from ...storage.loading import NotLoaded
from ..commands import Compact

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
        self._last: dict[bytes | None, int] = {}
        """The newest offset of every key, as far as it was looked."""
        self._tombstones: dict[bytes, int] = {}
        """Of those, the ones with an empty value, oldest first."""
        self._looked = self._log.first_offset
        self._dead: defaultdict[int, list[int]] = defaultdict(list)
        """Superseded, and not dropped yet: by chunks, as an OffsetSet has them."""
        self._dead_count = 0
        self._due: list[int] = []
        """The chunks that are being dropped, the last first."""

    def configured(self) -> None:
        is_on = self._topic.options.compact is not None
        if is_on != self.is_on:
            self.end()
            self.is_on = is_on
            if is_on:
                self.appended()

    def appended(self) -> None:
        """There is more to look at."""
        if not self._is_scheduled and self._log.next_offset - self._looked >= LOOK_ROWS:
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
        if is_more or self._log.next_offset - self._looked >= LOOK_ROWS:
            self._schedule()

    # --- looking

    def _look(self, allowance: Allowance) -> None:
        """Go on through the log, as far as this turn allows. Raises NotLoaded."""
        log = self._log
        while self._looked < log.next_offset:
            gone = self._topic.state.discarded
            looked = max(self._looked, log.first_offset)
            if gone is not None:
                looked = min(gone.first_missing(looked), log.next_offset)
            self._looked = looked
            if looked == log.next_offset:
                break
            try:
                source, row, stop = log.locate_nowait(looked, AHEAD_BYTES)
            except Corrupt as error:
                self._looked = max(looked + 1, error.next_offset or 0)
                continue
            stop = min(stop, row + SOME_ROWS)
            self._look_at(source, row, stop, gone)
            self._looked += stop - row
            if allowance.is_over():
                break

    def _look_at(self, source: RowSource, start: int, stop: int, gone: OffsetSet | None) -> None:
        keys = keys_of(source, start, stop)
        base = source.base_offset + start
        if gone is not None:
            for first, behind in gone.present(base, base + len(keys)):
                keys[first - base : behind - base] = [None] * (behind - first)
        newest = dict(zip(keys, range(base, base + len(keys)), strict=True))
        has_keyless = newest.pop(None, None) is not None
        self._supersede(newest, keys if has_keyless else None, base, base + len(keys))
        empty = empty_rows(source, start, stop) if newest else []
        if self._tombstones or empty:
            self._note_tombstones(keys, {row - start for row in empty}, base)

    def _supersede(
        self,
        newest: dict[bytes | None, int],
        keys: list[bytes | None] | None,
        base: int,
        behind: int,
    ) -> None:
        """These are the newest of their keys, in a range of offsets. `keys` says which are in the
        range, where some messages have none."""
        last, dead = self._last, self._dead
        gone = [old for old in map(last.get, newest) if old is not None]
        if len(newest) < behind - base:  # a key comes more than once
            others = set(range(base, behind)).difference(newest.values())
            if keys is not None:
                others = {offset for offset in others if keys[offset - base] is not None}
            gone += others
        for old in gone:
            dead[old >> SHIFT].append(old)
        self._dead_count += len(gone)
        last.update(newest)

    def _note_tombstones(self, keys: list[bytes | None], empty: set[int], base: int) -> None:
        tombstones = self._tombstones
        for row, key in enumerate(keys):
            if key is not None:
                tombstones.pop(key, None)
                if row in empty:
                    tombstones[key] = base + row
        if tombstones and self._timer is None:
            self._arm()

    async def state(self) -> tuple[OffsetSet, int]:
        """The offsets of the last message of every key, tombstones left out, and the end of the log
        as of which that is so."""
        while self._looked < self._log.next_offset:
            try:
                self._look(pace().begin())
            except NotLoaded as missing:
                await missing.load.wait()
                continue
            await asyncio.sleep(0)
        end = self._looked
        offsets = list(self._last.values())  # in this very step
        tombstones = set(self._tombstones.values())
        found = OffsetSet()
        for at in range(0, len(offsets), COMMAND_ROWS):
            some = sorted(offsets[at : at + COMMAND_ROWS])
            found.add_many([one for one in some if one not in tombstones])
            await asyncio.sleep(0)
        return found, end

    # --- dropping

    def _drop(self) -> bool:
        """Drop a part of what is superseded, if there is enough; whether there is more to drop."""
        topic, proposer = self._topic, self._topic.proposer
        if not self._due:
            if self._dead_count < max(DROP_ROWS_MIN, len(self._last)):
                return False
            self._due = sorted(self._dead, reverse=True)
        if proposer.failure is not None or proposer.is_full:
            self._due.clear()  # what comes next begins anew
            return False
        floor = min((group.floor for group in topic.state.groups.values()), default=self._looked)
        dropped: Chunks = []
        count = 0
        while self._due and count < COMMAND_ROWS:
            number = self._due.pop()
            if number << SHIFT >= floor:
                self._due.clear()  # a queue group has not come so far
                break
            offsets = self._dead.pop(number, [])
            if (number + 1) << SHIFT > floor:
                kept = [offset for offset in offsets if offset >= floor]
                offsets = [offset for offset in offsets if offset < floor]
                if kept:
                    self._dead[number] = kept
            if offsets:
                dropped.append((number, _bitmap(offsets)))
                count += len(offsets)
        if dropped:
            self._dead_count -= count
            proposer.propose(Compact(topic.id, self._looked, dropped))
        return bool(self._due)

    def _arm(self) -> None:
        """For the oldest tombstone."""
        offset = next(iter(self._tombstones.values()))
        topic, age = self._topic, 0.0
        if offset >= self._log.first_offset:
            try:
                source, row, _ = self._log.outline(offset, waits=False)
                age = (topic.clock.now_ms() - source.time(row)) / 1000
            except NotLoaded:
                pass  # it is younger than it could be, and stays a little longer
        wait = max(0.01, TOMBSTONE_SECONDS - age)
        self._timer = topic.clock.call_later(wait, topic.guarded(self._bury))

    def _bury(self) -> None:
        """Drop tombstones whose time is over; then sleep until the next is due."""
        self._timer = None
        topic, log = self._topic, self._log
        due_ms = topic.clock.now_ms() - TOMBSTONE_SECONDS * 1000
        for key, offset in list(self._tombstones.items())[:COMMAND_ROWS]:
            if offset >= log.first_offset:
                try:
                    source, row, _ = log.outline(offset, waits=False)
                except NotLoaded as missing:
                    missing.load.then(topic.guarded(self._bury))
                    return
                if source.time(row) > due_ms:
                    break
                self._dead[offset >> SHIFT].append(offset)
                self._dead_count += 1
            del self._tombstones[key], self._last[key]
        self._due = sorted(self._dead, reverse=True)
        if self._due and not self._is_scheduled:
            self._schedule()
        if self._tombstones and self._timer is None:
            self._arm()


def _bitmap(offsets: list[int]) -> bytes:
    """Offsets of one chunk as an OffsetSet stores them."""
    text = bytearray(ZEROS)
    for offset in offsets:
        text[LAST - (offset & LAST)] = 49
    bits = int(text, 2)
    return b"" if bits == FULL else bits.to_bytes((bits.bit_length() + 7) // 8, "little")
