"""Messages whose time has not come: ordered by when they are due. Pure.

What is stored is known by its offset, at a few bytes each; what is not (QoS 0) is held as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush

from ...batch import RowSource
from ...groups.delay_wheel import DelayWheel
from ...groups.offset_set import OffsetSet

Stored = tuple[int, int]
"""Offset and priority."""

Unstored = tuple[RowSource, int]

_ADDED_MAX = 4096


class Delays:
    """What is due next. Of equal times, what is stored comes first, and each in its order."""

    def __init__(self) -> None:
        self._wheel = DelayWheel()
        self._offsets = OffsetSet()
        self._added = array("q")  # to it, a few thousand at a time
        self._heap: list[tuple[int, int, Unstored]] = []
        self._counter = 0

    def add(self, due_ms: int, offset: int, priority: int) -> None:
        self._wheel.add(due_ms, offset, priority)
        self._added.append(offset)
        if len(self._added) == _ADDED_MAX:
            self._all_offsets()

    def add_unstored(self, due_ms: int, rows: RowSource, row: int) -> None:
        self._counter += 1
        heappush(self._heap, (due_ms, self._counter, (rows, row)))

    @property
    def stored(self) -> int:
        return len(self._wheel)

    @property
    def unstored(self) -> int:
        return len(self._heap)

    def forget_before(self, offset: int) -> None:
        """Leave out the stored ones that are no longer there."""
        self._wheel.forget_before(offset)
        self._all_offsets().discard_before(offset)

    def count_from(self, offset: int) -> int:
        """How many of the stored ones wait from an offset on."""
        offsets = self._all_offsets()
        return len(offsets) - offsets.count_before(offset) if offsets else 0

    def discard(self, offsets: Sequence[int]) -> None:
        """Take back offsets that wait here."""
        self._wheel.discard(offsets)
        self._all_offsets().remove_ranges([(offset, offset + 1) for offset in offsets])

    def next_due_ms(self) -> int | None:
        stored = self._wheel.next_due_ms()
        if not self._heap:
            return stored
        unstored = self._heap[0][0]
        return unstored if stored is None else min(stored, unstored)

    def take_due(self, now_ms: int) -> list[Stored | Unstored]:
        """What is due, in its order."""
        due: list[Stored | Unstored] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due += self._take_stored(self._heap[0][0])
            due.append(heappop(self._heap)[2])
        due += self._take_stored(now_ms)
        return due

    def _take_stored(self, now_ms: int) -> list[Stored]:
        due = self._wheel.take_due(now_ms)
        if due:
            self._all_offsets().remove_ranges([(offset, offset + 1) for offset, _ in due])
        return due

    def _all_offsets(self) -> OffsetSet:
        if self._added:
            self._offsets.add_many(self._added)
            del self._added[:]
        return self._offsets
