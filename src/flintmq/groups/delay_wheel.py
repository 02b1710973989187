"""Offsets that wait for their time: millions of them at about 8 bytes each.

Times are cut into buckets of 1,024 ms. A bucket is an array of packed numbers,

    62        53 52                        3 2        0
    +-----------+--------------------------+----------+
    | due & 1023 | offset                  | priority |
    +-----------+--------------------------+----------+

so that sorting the numbers sorts by (due, offset). A bucket is sorted once, when it is first looked
into; what is added to it afterwards goes to a small heap beside it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from .offset_set import OffsetSet

TICK_SHIFT = 10
TICK_MASK = (1 << TICK_SHIFT) - 1
DUE_SHIFT = 53
OFFSET_SHIFT = 3
OFFSET_MASK = (1 << (DUE_SHIFT - OFFSET_SHIFT)) - 1
PRIORITY_MASK = 7
PURGE_AT = 1_024
"""So many discarded entries are left lying before it is worth clearing up."""


class _Bucket:
    """The entries of one tick."""

    __slots__ = ("added", "entries", "is_sorted", "place")

    def __init__(self) -> None:
        self.entries = array("q")
        self.place = 0  # those before it were taken
        self.added: list[int] = []  # a heap: what came after sorting
        self.is_sorted = False

    def __len__(self) -> int:
        return len(self.entries) - self.place + len(self.added)

    def __iter__(self) -> Iterator[int]:
        yield from self.entries[self.place :]
        yield from self.added

    def add(self, entry: int) -> None:
        if self.is_sorted:
            heappush(self.added, entry)
        else:
            self.entries.append(entry)

    def first(self) -> int:
        if not self.is_sorted:
            self.entries = array("q", sorted(self.entries))
            self.is_sorted = True
        if self.place == len(self.entries):
            return self.added[0]
        entry = self.entries[self.place]
        return min(entry, self.added[0]) if self.added else entry

    def pop(self) -> int:
        entry = self.first()
        if self.added and self.added[0] == entry:
            return heappop(self.added)
        self.place += 1
        return entry

    def take_before(self, limit: int) -> list[int]:
        """Take out the entries below a number, ascending."""
        if not self:
            return []
        self.first()  # sorts
        cut = bisect_left(self.entries, limit, self.place)
        taken = self.entries[self.place : cut].tolist()
        self.place = cut
        if self.added and self.added[0] < limit:
            while self.added and self.added[0] < limit:
                taken.append(heappop(self.added))
            taken.sort()
        return taken


class DelayWheel:
    """What is due next. An offset may be in it once."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._ticks: list[int] = []  # a heap of the buckets' numbers
        self._count = 0
        self._discarded = OffsetSet()
        self._floor = 0
        self._purged_floor = 0

    def __len__(self) -> int:
        """How many wait. Those forgotten by `forget_before` may count for a while."""
        return self._count - len(self._discarded)

    def add(self, due_ms: int, offset: int, priority: int) -> None:
        if self._discarded and offset in self._discarded:
            self._purge()  # or else the old entry would stand for the new one
        tick = due_ms >> TICK_SHIFT
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = _Bucket()
            heappush(self._ticks, tick)
        bucket.add((due_ms & TICK_MASK) << DUE_SHIFT | offset << OFFSET_SHIFT | priority)
        self._count += 1

    def add_many(self, entries: Iterable[tuple[int, int, int]]) -> None:
        """Each is (due_ms, offset, priority)."""
        for due_ms, offset, priority in entries:
            self.add(due_ms, offset, priority)

    def next_due_ms(self) -> int | None:
        while self._ticks:
            tick = self._ticks[0]
            bucket = self._buckets[tick]
            while bucket:
                entry = bucket.first()
                if not self._is_gone(entry):
                    return tick << TICK_SHIFT | entry >> DUE_SHIFT
                self._drop(bucket)
            self._close(tick)
        return None

    def take_due(self, now_ms: int) -> list[tuple[int, int]]:
        """Take out (offset, priority) of all whose time has come, in order of (due, offset)."""
        due: list[tuple[int, int]] = []
        last_tick = now_ms >> TICK_SHIFT
        while self._ticks and self._ticks[0] <= last_tick:
            tick = self._ticks[0]
            bucket = self._buckets[tick]
            if tick < last_tick:
                entries = sorted(bucket)
            else:
                entries = bucket.take_before(((now_ms & TICK_MASK) + 1) << DUE_SHIFT)
            self._count -= len(entries)
            if tick < last_tick or not bucket:
                self._close(tick)
            if self._discarded or self._floor:
                entries = [entry for entry in entries if not self._forget_if_gone(entry)]
            due.extend(
                [(entry >> OFFSET_SHIFT & OFFSET_MASK, entry & PRIORITY_MASK) for entry in entries]
            )
            if tick >= last_tick:
                break
        return due

    def forget_before(self, offset: int) -> None:
        """The log has dropped these. Cleared up now and then: no more often than it pays."""
        self._floor = max(self._floor, offset)
        if self._floor - self._purged_floor > max(PURGE_AT, 2 * self._count):
            self._purge()

    def discard(self, offsets: Iterable[int]) -> None:
        """Take back offsets that are in the wheel."""
        self._discarded.add_many(offset for offset in offsets if offset >= self._floor)
        if len(self._discarded) > max(PURGE_AT, self._count // 2):
            self._purge()

    def items(self) -> Iterator[tuple[int, int, int]]:
        """Each as (due_ms, offset, priority), in no order."""
        for tick, bucket in self._buckets.items():
            for entry in bucket:
                if not self._is_gone(entry):
                    offset = entry >> OFFSET_SHIFT & OFFSET_MASK
                    yield tick << TICK_SHIFT | entry >> DUE_SHIFT, offset, entry & PRIORITY_MASK

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _is_gone(self, entry: int) -> bool:
        offset = entry >> OFFSET_SHIFT & OFFSET_MASK
        return offset < self._floor or offset in self._discarded

    def _forget_if_gone(self, entry: int) -> bool:
        if not self._is_gone(entry):
            return False
        offset = entry >> OFFSET_SHIFT & OFFSET_MASK
        self._discarded.remove_range(offset, offset + 1)
        return True

    def _drop(self, bucket: _Bucket) -> None:
        self._forget_if_gone(bucket.pop())
        self._count -= 1

    def _close(self, tick: int) -> None:
        heappop(self._ticks)
        del self._buckets[tick]

    def _purge(self) -> None:
        for tick, bucket in list(self._buckets.items()):
            left = [entry for entry in bucket if not self._is_gone(entry)]
            if len(left) == len(bucket):
                continue
            if left:
                bucket.entries, bucket.place, bucket.added = array("q", left), 0, []
                bucket.is_sorted = False
            else:
                del self._buckets[tick]
        self._ticks = list(self._buckets)
        heapify(self._ticks)
        self._count = sum(len(bucket) for bucket in self._buckets.values())
        self._discarded.clear()
        self._purged_floor = self._floor
