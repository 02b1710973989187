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
        self._flying: dict[str, dict[int, tuple[int, T]]] = {}
        """By producer and first sequence: how many are on their way, and who answers for them."""
        self._ends: dict[str, int] = {}
        """By producer: behind the highest of those."""
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

    def place_rows(self, count: int, size: int, now_ms: int) -> int:
        """Where so many rows go, which count for so much: the offset of the first."""
        offset = self._next
        self._next = offset + count
        if now_ms > self._last_time:
            self._last_time = now_ms
        self._bytes += size
        return offset

    def known(self, producer: str, sequence: int, count: int) -> T | int | None:
        """Who answers for a publish with just these sequences, or the offset that it went to; None
        if they are new. See Window.find."""
        # Who counts up, as producers do, is beyond all that is on its way: nothing to look for.
        if sequence < self._ends.get(producer, 0):
            for first, (length, item) in self._flying[producer].items():
                if first < sequence + count and sequence < first + length:
                    if (first, length) == (sequence, count):
                        return item
                    raise overlap(sequence, count)
        return self._state.producers.find(producer, sequence, count)

    def known_head(self, producer: str, sequence: int, count: int) -> tuple[T | int | None, int]:
        """As `known`, where the end of a publish may have been dropped: also how many were not."""
        length, item = self._flying.get(producer, {}).get(sequence, (0, None))
        if item is not None and length <= count:
            return item, length
        length = min(self._state.producers.known_from(producer, sequence), count) or count
        return self.known(producer, sequence, length), length

    def is_proposed(self, size: int) -> None:
        """What was placed counts for so much."""
        self._bytes += size

    def propose(self, batch: RecordBatch, now_ms: int, item: T) -> int:
        """Give a batch its place, the offset that is returned; `item` answers for it."""
        offset, count = self._next, batch.row_count
        self._next, self._last_time = offset + count, max(now_ms, self._last_time)
        batch.stamp(offset, self._last_time)
        self._bytes += batch.size(0, count)
        if batch.columns & PRODUCER:
            self.expect(batch.producer or "", batch.base_sequence, count, item)
        return offset

    def expect(self, producer: str, first: int, count: int, item: T) -> None:
        """Sequences of a producer are on their way; `item` answers for them."""
        flying = self._flying.get(producer)
        if flying is None:
            self._flying[producer] = {first: (count, item)}
            self._ends[producer] = first + count
        else:
            flying[first] = (count, item)
            self._ends[producer] = max(self._ends[producer], first + count)

    def applied(self, producer: str | None, first: int, size: int) -> None:
        self._bytes = max(0, self._bytes - size)
        if producer is not None:
            flying = self._flying.get(producer)
            if flying is not None:
                flying.pop(first, None)
                if not flying:
                    del self._flying[producer], self._ends[producer]

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
