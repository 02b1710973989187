"""Messages that live feeds get later: ordered by when they are due. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from ..batch import RowSource

Delayed = tuple[RowSource, int] | int
"""A row that is stored nowhere else (QoS 0), or the offset of one that is."""


class Delays:
    """What is due next. Equal times keep the order of publishing."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Delayed]] = []
        self._counter = 0
        self.unstored = 0

    def add(self, due_ms: int, delayed: Delayed) -> None:
        self._counter += 1
        self.unstored += not isinstance(delayed, int)
        heappush(self._heap, (due_ms, self._counter, delayed))

    @property
    def stored(self) -> int:
        return len(self._heap) - self.unstored

    def forget_before(self, offset: int) -> None:
        """Leave out the stored ones that are no longer there."""
        self._heap = [
            entry for entry in self._heap if not isinstance(entry[2], int) or entry[2] >= offset
        ]
        heapify(self._heap)

    def next_due_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[Delayed]:
        due: list[Delayed] = []
        while self._heap and self._heap[0][0] <= now_ms:
            delayed = heappop(self._heap)[2]
            self.unstored -= not isinstance(delayed, int)
            due.append(delayed)
        return due
