"""What the messages of a topic count for in bytes, by offset, without looking at them. Pure.

Retention by bytes is decided where commands are applied, so it must come out alike on every
replica, be the messages in memory there, in other segments, or on a disk that is damaged. So sizes
are kept by the topic itself, and no file is asked for them.

They are kept as marks: an offset, and the bytes of everything before it. A mark is set where bytes
and messages together pass the next multiple of `step`, which doubles when there would be more than
`MARKS_MAX` of them; between two marks every message counts alike. So a topic of few messages counts
exactly, and one of many to about 1/256 of what it holds, in 8 KiB of memory at most.

Always true: the first mark is at or before the first offset, and what is counted follows from the
batches that were appended and the offsets that were dropped to, and from nothing else. A change of
the constants changes what is dropped by commands of the past: they belong to the format.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

MARKS_MAX = 512
BATCH_MARKS_MAX = 16
"""How many marks one batch gets at most: finding one takes a search."""


class Sizes:
    def __init__(self) -> None:
        self._offsets = array("q", [0])
        self._bytes = array("q", [0])
        self._step = 1
        self._due = 1
        self._marks_max = MARKS_MAX
        self._batch_marks_max = BATCH_MARKS_MAX
        self.next = 0
        self.total = 0
        """The bytes of everything that was ever appended."""

    def append(self, rows: int, size: int, size_to: Callable[[int, int], int]) -> None:
        """Count a batch; `size_to(0, n)` is what its first n rows count for."""
        base, before = self.next, self.total
        end = base + rows + before + size
        self.next, self.total = base + rows, before + size
        if end < self._due:
            return
        while end - self._offsets[0] - self._bytes[0] > self._step * self._marks_max:
            self._double()
        at_least = (rows + size) // self._batch_marks_max if rows > self._batch_marks_max else 0
        due = self._due
        while due <= end:
            row, part = rows, size
            if due < end and rows > 1:
                missing = due - base - before
                row = bisect_left(range(rows), missing, key=lambda row: row + size_to(0, row))
                part = size if row == rows else size_to(0, row)
            self._offsets.append(base + row)
            self._bytes.append(before + part)
            passed = base + row + before + part
            self._due = (passed // self._step + 1) * self._step
            due = max(self._due, passed + at_least)

    def append_evenly(self, rows: int, size: int) -> None:
        """Count rows that count alike: a mark at their end is enough."""
        self.next, self.total = self.next + rows, self.total + size
        end = self.next + self.total
        if end < self._due:
            return
        while end - self._offsets[0] - self._bytes[0] > self._step * self._marks_max:
            self._double()
        if end >= self._due:
            self._offsets.append(self.next)
            self._bytes.append(self.total)
            self._due = (end // self._step + 1) * self._step

    def _double(self) -> None:
        self._step *= 2
        offsets, counts, step = self._offsets, self._bytes, self._step
        kept = [0]
        for at in range(1, len(offsets)):
            last = offsets[kept[-1]] + counts[kept[-1]]
            if (offsets[at] + counts[at]) // step > last // step:
                kept.append(at)
        self._offsets = array("q", [offsets[at] for at in kept])
        self._bytes = array("q", [counts[at] for at in kept])
        self._due = ((self._offsets[-1] + self._bytes[-1]) // step + 1) * step

    def before(self, offset: int) -> int:
        """The bytes of everything before an offset that is not dropped yet."""
        if offset >= self.next:
            return self.total
        at = bisect_right(self._offsets, offset) - 1
        first, counted = self._offsets[at], self._bytes[at]
        behind, then = self._mark_at(at + 1)
        return counted + (then - counted) * (offset - first) // (behind - first)

    def freeing(self, first: int, wanted: int) -> int:
        """The lowest offset before which, from `first` on, at least `wanted` bytes lie."""
        target = self.before(first) + wanted
        if wanted <= 0 or target > self.total:
            return first if wanted <= 0 else self.next
        at = bisect_left(self._bytes, target)
        behind, then = self._mark_at(at)
        start, counted = self._mark_at(at - 1) if at else (behind, then)
        if then == counted:
            return behind
        return start - (counted - target) * (behind - start) // (then - counted)

    def drop_to(self, offset: int) -> None:
        """Everything before an offset is asked for no more."""
        if offset >= self.next:
            self._offsets, self._bytes = array("q", [self.next]), array("q", [self.total])
            self._step, self._due = 1, self.next + self.total + 1
            return
        at = bisect_right(self._offsets, offset) - 1
        if at > 0:
            del self._offsets[:at], self._bytes[:at]

    def _mark_at(self, at: int) -> tuple[int, int]:
        if at < len(self._offsets):
            return self._offsets[at], self._bytes[at]
        return self.next, self.total

    # --- over restarts

    def snapshot(self) -> list[int]:
        """For a manifest: the step, where the next mark is due, then offset and bytes of the
        first mark, and of each behind it and of the end the differences to the one before."""
        marks = [*zip(self._offsets, self._bytes, strict=True), (self.next, self.total)]
        found = [self._step, self._due]
        known = (0, 0)
        for mark in marks:
            found += (mark[0] - known[0], mark[1] - known[1])
            known = mark
        return found

    def restore(self, snapshot: Sequence[int]) -> None:
        self._step, self._due = snapshot[:2]
        self._offsets, self._bytes = array("q"), array("q")
        offset = counted = 0
        for at in range(2, len(snapshot), 2):
            offset, counted = offset + snapshot[at], counted + snapshot[at + 1]
            self._offsets.append(offset)
            self._bytes.append(counted)
        self.next, self.total = self._offsets.pop(), self._bytes.pop()

    def begin_exact(self, offset: int) -> None:
        """Begin at an offset, with a mark for every message until `bound`: so what a journal of a
        version without marks says is applied as it was then."""
        self.next, self.total = offset, 0
        self.drop_to(offset)
        self._marks_max = self._batch_marks_max = sys.maxsize

    def bound(self) -> None:
        self._marks_max, self._batch_marks_max = MARKS_MAX, BATCH_MARKS_MAX
        held = self.next + self.total - self._offsets[0] - self._bytes[0]
        while held > self._step * self._marks_max:
            self._double()
