"""How often messages were delivered, where that is more often than never.

A byte each, in chunks of 64, so that a million that failed together stay small, and one that fails
alone does too. The few that came to 255 and more have an entry of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..group_model import Ranges

SHIFT = 6
CHUNK = 1 << SHIFT
LAST = CHUNK - 1
NOTHING = bytes(CHUNK)
MANY = 255
"""Stands for a count that is kept elsewhere."""

PLUS_ONE = bytes(min(byte + 1, MANY) for byte in range(256))


class DeliveryCounts:
    __slots__ = ("_chunks", "_many")

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}
        self._many: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __getitem__(self, offset: int) -> int:
        chunk = self._chunks.get(offset >> SHIFT)
        if chunk is None:
            return 0
        count = chunk[offset & LAST]
        return count if count < MANY else self._many[offset]

    def counted(self, ranges: Ranges) -> dict[int, int]:
        """Those of the offsets that have a count, with it."""
        found: dict[int, int] = {}
        chunks = self._chunks
        for start, stop in ranges if chunks else ():
            for number in self._numbers(start, stop):
                chunk = chunks.get(number)
                if chunk is not None:
                    base = number << SHIFT
                    for offset in range(max(start, base), min(stop, base + CHUNK)):
                        if chunk[offset - base]:
                            found[offset] = self[offset]
        return found

    def add_one(self, ranges: Ranges) -> None:
        for start, stop in ranges:
            for number, low, high in _pieces(start, stop):
                chunk = self._chunks.get(number)
                if chunk is None:
                    chunk = self._chunks[number] = bytearray(NOTHING)
                piece = chunk[low:high]
                chunk[low:high] = piece.translate(PLUS_ONE)
                if max(piece) >= MANY - 1:
                    base = number << SHIFT
                    for place in range(low, high):
                        if chunk[place] == MANY:
                            many = self._many.get(base + place, MANY - 1)
                            self._many[base + place] = many + 1

    def take_one(self, ranges: Ranges) -> None:
        """Count one delivery less."""
        for offset, count in self.counted(ranges).items():
            self.set(offset, offset + 1, count - 1)

    def set(self, start: int, stop: int, count: int) -> None:
        if count == 0:
            self.forget(start, stop)
            return
        self.forget(start, stop)
        byte = bytes([min(count, MANY)])
        for number, low, high in _pieces(start, stop):
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = bytearray(NOTHING)
            chunk[low:high] = byte * (high - low)
        if count >= MANY:
            self._many.update(dict.fromkeys(range(start, stop), count))

    def forget(self, start: int, stop: int) -> None:
        chunks = self._chunks
        for number in self._numbers(start, stop):
            chunk = chunks.get(number)
            if chunk is None:
                continue
            base = number << SHIFT
            low, high = max(start - base, 0), min(stop - base, CHUNK)
            if self._many and MANY in chunk[low:high]:
                for place in range(low, high):
                    self._many.pop(base + place, None)
            chunk[low:high] = bytes(high - low)
            if chunk == NOTHING:
                del chunks[number]

    def forget_all(self, ranges: Ranges) -> None:
        if self._chunks:
            for start, stop in ranges:
                self.forget(start, stop)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Every count as (start, stop, count), ascending."""
        begin, end, same = 0, 0, 0
        for number in sorted(self._chunks):
            base = number << SHIFT
            for place, byte in enumerate(bytes(self._chunks[number])):
                if not byte:
                    continue
                offset = base + place
                count = byte if byte < MANY else self._many[offset]
                if offset == end and count == same:
                    end += 1
                    continue
                if same:
                    yield begin, end, same
                begin, end, same = offset, offset + 1, count
        if same:
            yield begin, end, same

    def copy(self) -> DeliveryCounts:
        twin = DeliveryCounts()
        twin._chunks = {number: bytearray(chunk) for number, chunk in self._chunks.items()}
        twin._many = dict(self._many)
        return twin

    def clear(self) -> None:
        self._chunks.clear()
        self._many.clear()

    def _numbers(self, start: int, stop: int) -> list[int] | range:
        """The chunks of a stretch, whichever is shorter to go through."""
        if stop <= start:
            return []
        low, high = start >> SHIFT, ((stop - 1) >> SHIFT) + 1
        if high - low <= len(self._chunks) + 1:
            return range(low, high)
        return sorted(number for number in self._chunks if low <= number < high)


def _pieces(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """A range by chunks: the chunk's number, and from where to where in it."""
    while start < stop:
        number = start >> SHIFT
        end = min(stop, (number + 1) << SHIFT)
        yield number, start & LAST, end - (number << SHIFT)
        start = end
