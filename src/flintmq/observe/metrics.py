"""Counters that also know how fast they grow, and histograms. Pure: the caller brings the time."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import accumulate

WINDOW_MS = 10_000
_MARK_MS = 1_000


class Meter:
    """A total, and its rate over the last ten seconds or so.

    Adding is one addition and one comparison; a mark is kept once a second.
    """

    __slots__ = ("_marks", "_next_mark_ms", "size", "total")

    def __init__(self) -> None:
        self.total = 0
        self.size = 0
        """A second total, such as the bytes of what is counted."""
        self._marks: deque[tuple[int, int, int]] = deque()
        self._next_mark_ms = 0

    def add(self, count: int, now_ms: int, size: int = 0) -> None:
        if now_ms >= self._next_mark_ms:
            self._mark(now_ms)
        self.total += count
        self.size += size

    @property
    def is_marked(self) -> bool:
        """Whether there is a time to count from."""
        return bool(self._marks)

    def per_second(self, now_ms: int) -> float:
        """What was added within the window, per second of it."""
        return self._rates(now_ms)[0]

    def size_per_second(self, now_ms: int) -> float:
        """The same of the second total."""
        return self._rates(now_ms)[1]

    def _rates(self, now_ms: int) -> tuple[float, float]:
        self._forget(now_ms)
        if not self._marks:
            return 0.0, 0.0
        since_ms, total, size = self._marks[0]
        elapsed_ms = max(now_ms - since_ms, _MARK_MS)
        return (self.total - total) * 1000 / elapsed_ms, (self.size - size) * 1000 / elapsed_ms

    def _mark(self, now_ms: int) -> None:
        self._forget(now_ms)
        self._marks.append((now_ms, self.total, self.size))
        self._next_mark_ms = now_ms + _MARK_MS

    def _forget(self, now_ms: int) -> None:
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= now_ms - WINDOW_MS:
            marks.popleft()
        if len(marks) == 1 and marks[0][0] <= now_ms - WINDOW_MS:
            # Nothing was added for a while: what came with the last mark has left the window.
            marks.clear()
            self._next_mark_ms = 0


PUBLISH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""From what a quick disk takes to what nobody should have to wait."""

DISK_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
)  # fmt: skip

LONG_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """How often a value was at most each of some bounds.

    An observation is a search among a dozen bounds and two additions. One thread observes; another
    may read at any time, and sees whole counts.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each interval by itself; the last is that beyond every bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Histogram) -> None:
        assert self.bounds == other.bounds, "only histograms of one kind can be added up"
        self.counts = [
            ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.total += other.total

    def cumulative(self) -> list[int]:
        """How many were at most each bound; the last is how many there were."""
        return list(accumulate(self.counts))
