"""What is decided and not applied yet. Who leads decides by it, and nobody else has one.

Where the log is instant nothing is ever on its way: then the view says what is applied. It is made
anew from the state whenever somebody begins to lead.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ..batch import PRODUCER, BatchBuilder, RecordBatch
from .state.producers import overlap
from .state.topic import TopicState

T = TypeVar("T")


class TopicView(Generic[T]):
    """Offsets, times, sizes and sequences of a topic, with what is on its way. T answers for a
    publish that is."""

    def __init__(self, state: TopicState) -> None:
        self._state, self._log = state, state.log
        self._next = state.log.next_offset
        self._first = state.log.first_offset
        self._last_time = state.log.last_time
        self._bytes = 0
        self.sequences: Flying[T] = Flying()
        self.gathered: BatchBuilder | None = None
        """What was placed in this turn of the event loop, and is proposed at its end."""

    @property
    def first_offset(self) -> int:
        """The first offset, once what was decided has been done."""
        return max(self._log.first_offset, self._first)

    @property
    def next_offset(self) -> int:
        return max(self._log.next_offset, self._next)

    def place(self, count: int, now_ms: int) -> tuple[int, int]:
        """Where so many rows go: the offset of the first, and the time."""
        offset, time = self._next, max(now_ms, self._last_time)
        self._next, self._last_time = offset + count, time
        return offset, time

    def on_its_way(self, size: int) -> None:
        """What was placed counts for so much."""
        self._bytes += size

    def applied(self, rows: BatchBuilder | RecordBatch, size: int) -> None:
        self._bytes = max(0, self._bytes - size)
        if rows.columns & PRODUCER:
            assert isinstance(rows, RecordBatch)
            self.sequences.remove(rows.producer or "", rows.base_sequence)

    def pass_over(self, offset: int) -> None:
        self._first = offset

    def is_passing_over(self) -> bool:
        """Whether a drop is on its way."""
        return self._first > self._log.first_offset

    def occupied(self) -> tuple[int, int]:
        """Messages and bytes that count against the limits."""
        log = self._log
        first, stored = log.first_offset, log.byte_count + self._bytes
        if self.gathered is not None:
            stored += self.gathered.byte_count
        if self._first > first:
            stored -= log.size_between(first, self._first)
            first = self._first
        return self.next_offset - first, stored


class Flying(Generic[T]):
    """Sequences that are decided and not yet applied, by producer, and who answers for each."""

    def __init__(self) -> None:
        self._by_producer: dict[str, _Ranges[T]] = {}

    def find(self, producer: str, sequence: int, count: int) -> T | None:
        """Who answers for just these sequences; None if they are new. See Window.find."""
        ranges = self._by_producer.get(producer)
        # Who counts up, as producers do, is beyond all that is on its way: nothing to look for.
        if ranges is None or sequence >= ranges.end:
            return None
        for first, (length, item) in ranges.held.items():
            if first < sequence + count and sequence < first + length:
                if (first, length) == (sequence, count):
                    return item
                raise overlap(sequence, count)
        return None

    def add(self, producer: str, sequence: int, count: int, item: T) -> None:
        ranges = self._by_producer.get(producer)
        if ranges is None:
            ranges = self._by_producer[producer] = _Ranges()
        ranges.held[sequence] = (count, item)
        ranges.end = max(ranges.end, sequence + count)

    def remove(self, producer: str, sequence: int) -> None:
        ranges = self._by_producer.get(producer)
        if ranges is not None:
            ranges.held.pop(sequence, None)
            if not ranges.held:
                del self._by_producer[producer]


class _Ranges(Generic[T]):
    __slots__ = ("end", "held")

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, T]] = {}
        self.end = 0
        """Behind the highest that was ever among them."""
