"""Counters that also know how fast they grow. Pure: the caller brings the time."""

from __future__ import annotations

from collections import deque

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
