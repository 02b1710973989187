"""Leases: what was handed to whom under which token, and until when.

Pure state. What a lease that ran out still holds can be settled late, until it is granted to
another; the queue keeps track of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from ..group_model import Ranges
from .ranges import ascending, count_in, first_of, offsets_in, ranges_of, without

GIVE_UP_MAX = 1_024
"""How many messages go back in one step, when leases run out or their holder leaves: a few
milliseconds, however many fragments they are."""


class Lease:
    """What is outstanding of a grant: `ranges` as long as they are whole, `offsets` after that."""

    __slots__ = (
        "deadline", "granted_at", "holder", "is_over", "offsets", "ranges", "timer", "token",
    )  # fmt: skip

    def __init__(
        self, token: int, holder: str, granted_at: float, deadline: float, ranges: Ranges
    ) -> None:
        self.token, self.holder = token, holder
        self.granted_at, self.deadline = granted_at, deadline
        self.timer = deadline
        """The earliest entry in the heap of deadlines."""
        self.ranges = ranges if len(ranges) == 1 else ascending(ranges)
        """Ascending: so who settles all of them at once names them."""
        self.offsets: set[int] | None = None
        self.is_over = False
        """It ran out, or its holder has left."""

    def __bool__(self) -> bool:
        """Whether anything is outstanding."""
        return bool(self.ranges if self.offsets is None else self.offsets)

    def __len__(self) -> int:
        """How many messages are outstanding."""
        return count_in(self.ranges) if self.offsets is None else len(self.offsets)

    def outstanding(self) -> Ranges:
        return list(self.ranges) if self.offsets is None else ranges_of(sorted(self.offsets))

    def is_all(self, ranges: Ranges) -> bool:
        """Whether it is running, and these are all that it was granted for."""
        return self.offsets is None and not self.is_over and self.ranges == ranges

    def split(self, count: int) -> Lease:
        """Take out the first of what is outstanding, so many, as a lease of their own."""
        if self.offsets is not None:
            self.ranges, self.offsets = self.outstanding(), None
        first, rest = first_of(self.ranges, count)
        self.ranges = rest
        return Lease(self.token, self.holder, self.granted_at, self.deadline, first)

    def take(self, ranges: Ranges) -> Ranges:
        """Take out those of `ranges` that are outstanding: ascending, or the list itself if all."""
        if self.offsets is None:
            if ranges == self.ranges or (len(ranges) > 1 and ascending(ranges) == self.ranges):
                self.ranges = []
                return ranges
            if len(self.ranges) == 1 and len(ranges) == 1:
                (start, stop), (first, last) = self.ranges[0], ranges[0]
                first, last = max(start, first), min(stop, last)
                if first >= last:
                    return []
                if first == start or last == stop:
                    left = (last, stop) if first == start else (start, first)
                    self.ranges = [left] if left[0] < left[1] else []
                    return [(first, last)]
            self.offsets = set(offsets_in(self.ranges))
        offsets = self.offsets
        taken: set[int] = set()
        for start, stop in ranges:
            # A range may be much longer than the grant: go through whichever is shorter.
            if stop - start <= len(offsets):
                taken.update(offsets.intersection(range(start, stop)))
            else:
                taken.update([offset for offset in offsets if start <= offset < stop])
        offsets -= taken
        if not offsets:
            self.ranges, self.offsets = [], None  # a set that was large stays large
        return ranges_of(sorted(taken))


class LeaseInfo(NamedTuple):
    token: int
    holder: str
    granted_at: float
    deadline: float
    ranges: Ranges


class LeaseTable:
    """The leases of one group.

    A token has one lease, or several where part of a grant was extended. Those that ran out, or
    whose holder has left, stay under their token as long as anything of them can be settled late.
    """

    def __init__(self) -> None:
        self._by_token: dict[int, list[Lease]] = {}
        self._by_holder: dict[str, dict[Lease, None]] = {}
        self._left: list[Lease] = []
        """Of holders that have left, the next to be taken over last; some are done by now."""
        self._heap: list[tuple[float, int, Lease]] = []
        self._counter = 0
        self._live = 0

    def __iter__(self) -> Iterator[Lease]:
        """Those that are running."""
        for leases in self._by_token.values():
            for lease in leases:
                if not lease.is_over:
                    yield lease

    def infos(self) -> Iterator[LeaseInfo]:
        for lease in self:
            yield LeaseInfo(
                lease.token, lease.holder, lease.granted_at, lease.deadline, lease.outstanding()
            )

    def add(self, lease: Lease) -> None:
        leases = self._by_token.get(lease.token)
        if leases is None:
            self._by_token[lease.token] = [lease]
        else:
            leases.append(lease)
        held = self._by_holder.get(lease.holder)
        if held is None:
            held = self._by_holder[lease.holder] = {}
        held[lease] = None
        self._live += 1
        self._watch(lease)

    def of_token(self, token: int) -> list[Lease]:
        return self._by_token.get(token, [])

    def of_holder(self, holder: str) -> list[Lease]:
        """Those that are running."""
        return list(self._by_holder.get(holder, ()))

    def standing(self) -> list[tuple[int, Ranges]]:
        """Every token, with what can be settled under it: also where its lease ran out."""
        return [
            (token, [run for lease in leases for run in lease.outstanding()])
            for token, leases in self._by_token.items()
        ]

    def holding(self, ranges: Ranges) -> list[tuple[Lease, Ranges]]:
        """Which leases hold these offsets. Goes through all of them."""
        found = []
        for lease in self:
            held = lease.outstanding()
            common = without(held, sorted(without(held, sorted(ranges))))
            if common:
                found.append((lease, common))
        return found

    def forget_if_done(self, lease: Lease) -> None:
        """Take a lease of which nothing is outstanding off the table."""
        if lease:
            return
        leases = self._by_token[lease.token]
        if not lease.is_over:
            self._leave_home(lease)
        if len(leases) > 1:
            leases.remove(lease)
        else:
            del self._by_token[lease.token]

    def _leave_home(self, lease: Lease) -> None:
        """It is over, or done."""
        self._live -= 1
        held = self._by_holder.get(lease.holder)
        if held is not None and held.pop(lease, lease) is None and not held:
            del self._by_holder[lease.holder]

    def leave(self, holder: str) -> None:
        """It has left: `take_left` has what it held. Whoever comes by its name has nothing."""
        self._left[:0] = reversed(self._by_holder.pop(holder, {}))

    @property
    def has_left(self) -> bool:
        """Whether there is anything to take over of those who left."""
        left = self._left
        while left and (left[-1].is_over or not left[-1]):
            left.pop()
        return bool(left)

    def take_left(self, most: int) -> list[Lease]:
        """Mark leases of those who left over, of so many messages; and say which they are."""
        over: list[Lease] = []
        while most > 0 and self.has_left:
            most -= self._end(self._left[-1], most, over)
        return over

    def _end(self, lease: Lease, most: int, over: list[Lease]) -> int:
        """Mark a lease over, or a part of it; of how many messages."""
        count = len(lease)
        if count > most:
            part = lease.split(most)
            self._by_token[lease.token].append(part)
        else:
            part = lease
            self._leave_home(lease)
        part.is_over = True
        over.append(part)
        return min(count, most)

    def extend_whole(self, token: int, ranges: Ranges, holder: str, deadline: float) -> bool:
        """Extend what a token holds, if that is all of a lease of this holder."""
        for lease in self.of_token(token):
            if lease.is_all(ranges) and lease in self._by_holder.get(holder, ()):
                self.extend(lease, deadline)
                return True
        return False

    def extend(self, lease: Lease, deadline: float) -> None:
        """Have it end at another time. The heap is touched only if that is sooner."""
        lease.deadline = deadline
        if deadline < lease.timer:
            self._watch(lease)

    def next_deadline(self) -> float | None:
        heap = self._heap
        while heap:
            timer, _, lease = heap[0]
            if not lease or lease.is_over or timer != lease.timer:
                heappop(heap)  # done, or another entry counts
            elif lease.deadline > timer:
                lease.timer = lease.deadline
                heapreplace(heap, (lease.deadline, self._next(), lease))
            else:
                return timer
        return None

    def take_over(self, now: float, most: int = GIVE_UP_MAX) -> list[Lease]:
        """Mark those over whose time is up, of so many messages; and say which they are."""
        over: list[Lease] = []
        while most > 0 and (deadline := self.next_deadline()) is not None and deadline <= now:
            most -= self._end(self._heap[0][2], most, over)
        return over

    def clear(self) -> None:
        self._by_token.clear()
        self._by_holder.clear()
        self._left.clear()
        self._heap.clear()
        self._live = 0

    def _watch(self, lease: Lease) -> None:
        lease.timer = lease.deadline
        heappush(self._heap, (lease.deadline, self._next(), lease))
        if len(self._heap) > 4 * self._live + 64:
            live = [entry for entry in self._heap if entry[2] and entry[0] == entry[2].timer]
            self._heap = [entry for entry in live if not entry[2].is_over]
            heapify(self._heap)

    def _next(self) -> int:
        self._counter += 1
        return self._counter
