"""A set of offsets at about a bit each, in which ranges are cheap.

Offsets are cut into chunks of 4,096; a chunk with something in it is one Python int used as a
bitmap (bit n: the chunk's n-th offset). All full chunks share one int, so a full range of ten
million costs a dict entry for each 4,096.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, compress, islice

from ..group_model import Ranges
from .ranges import append_range, count_in

SHIFT = 12
CHUNK = 1 << SHIFT
LAST = CHUNK - 1
FULL = (1 << CHUNK) - 1

ONES = re.compile("1+")
ZEROS = b"0" * CHUNK
BIT_OF = bytes(byte == ord("1") for byte in range(256))
"""From the text of a bitmap to its bits, for bytes.translate."""

SHORT = 64
SHORT_ONES = b"1" * SHORT
"""A range as short as this is written into the text of a bitmap; a longer one has its own."""

FEW = 6
"""So many ranges are added one by one; for more, whole bitmaps are made first."""

REMEMBERED_MAX = 1_024
"""Masks of longer lists are not remembered: they would be kept for nothing."""

Masks = list[tuple[int, int]]
"""Chunks by number, and which of their bits are meant."""

Chunks = list[tuple[int, bytes]]
"""A set as it is stored: each chunk's number and bitmap, little-endian; empty for a full one."""


class OffsetSet:
    """Invariant: no chunk is empty, and a full one is `FULL` itself."""

    __slots__ = ("_chunks", "_count", "_order")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._chunks: dict[int, int] = {}
        self._count = 0
        # A heap of chunk numbers, made when the lowest is asked for. It has every chunk, and
        # perhaps some that are gone.
        self._order: list[int] | None = None
        for start, stop in ranges:
            self.add_range(start, stop)

    def __len__(self) -> int:
        return self._count

    @property
    def count(self) -> int:
        return self._count

    def __contains__(self, offset: int) -> bool:
        chunk = self._chunks.get(offset >> SHIFT)
        return chunk is not None and bool(chunk >> (offset & LAST) & 1)

    # --- adding and removing

    def add_range(self, start: int, stop: int) -> int:
        """How many of them are new."""
        if stop <= start:
            return 0
        low, high = start >> SHIFT, (stop - 1) >> SHIFT
        if low == high:
            return self._add(low, ((1 << (stop - start)) - 1) << (start & LAST))
        added = self._add(low, FULL >> (start & LAST) << (start & LAST))
        for number in range(low + 1, high):
            added += self._add(number, FULL)
        return added + self._add(high, FULL >> (LAST - ((stop - 1) & LAST)))

    def add_ranges(self, ranges: Ranges) -> int:
        if len(ranges) == 1:
            return self.add_range(*ranges[0])
        if len(ranges) <= FEW:
            return sum([self.add_range(start, stop) for start, stop in ranges])
        return sum([self._add(number, mask) for number, mask in _masks_of(ranges)])

    def add_many(self, offsets: Iterable[int]) -> int:
        return self.add_ranges([(offset, offset + 1) for offset in offsets])

    def remove_range(self, start: int, stop: int) -> int:
        """How many of them were there."""
        if stop <= start or not self._count:
            return 0
        low, high = start >> SHIFT, (stop - 1) >> SHIFT
        if low == high:
            return self._remove(low, ((1 << (stop - start)) - 1) << (start & LAST))
        removed = self._remove(low, FULL >> (start & LAST) << (start & LAST))
        for number in self._numbers(low + 1, high):
            removed += self._remove(number, FULL)
        return removed + self._remove(high, FULL >> (LAST - ((stop - 1) & LAST)))

    def remove_ranges(self, ranges: Ranges) -> int:
        if not self._count:
            return 0
        if len(ranges) == 1:
            return self.remove_range(*ranges[0])
        if len(ranges) <= FEW:
            return sum([self.remove_range(start, stop) for start, stop in ranges])
        return sum([self._remove(number, mask) for number, mask in _masks_of(ranges)])

    def take_ranges(self, ranges: Ranges) -> Ranges:
        """Remove them; which were there, in the order given."""
        if len(ranges) == 1:  # mostly all of it is there, in one chunk
            start, stop = ranges[0]
            mask = ((1 << (stop - start)) - 1) << (start & LAST)
            if self._chunks.get(start >> SHIFT, 0) & mask == mask <= FULL:
                self._remove(start >> SHIFT, mask)
                return [(start, stop)]
        before = self._chunks.copy()
        removed = self.remove_ranges(ranges)
        if not removed:
            return []
        if removed == count_in(ranges):
            return list(ranges)
        were = OffsetSet()
        were._chunks, were._count = before, 1
        return [run for start, stop in ranges for run in were.present(start, stop)]

    def discard_before(self, offset: int) -> int:
        """Forget what is below; how many there were."""
        removed = 0
        while self._count:
            number = self._lowest_number()
            if number >= offset >> SHIFT:
                if number == offset >> SHIFT and offset & LAST:
                    removed += self._remove(number, (1 << (offset & LAST)) - 1)
                break
            removed += self._remove(number, FULL)
        return removed

    def clear(self) -> None:
        self._chunks.clear()
        self._count, self._order = 0, None

    def _add(self, number: int, mask: int) -> int:
        chunk = self._chunks.get(number)
        if chunk is None:
            self._chunks[number] = FULL if mask == FULL else mask
            added = mask.bit_count()
            if self._order is not None:
                heappush(self._order, number)
                if len(self._order) > 2 * len(self._chunks) + 16:
                    self._order = None
        elif chunk is FULL:
            return 0
        else:
            merged = chunk | mask
            added = merged.bit_count() - chunk.bit_count()
            self._chunks[number] = FULL if merged == FULL else merged
        self._count += added
        return added

    def _remove(self, number: int, mask: int) -> int:
        chunk = self._chunks.get(number)
        if chunk is None:
            return 0
        common = chunk & mask
        if common == chunk:
            del self._chunks[number]
            if not self._chunks:
                self._order = None
        elif common:
            self._chunks[number] = chunk ^ common
        else:
            return 0
        removed = common.bit_count()
        self._count -= removed
        return removed

    # --- looking

    def first(self) -> int | None:
        """The lowest offset."""
        if not self._count:
            return None
        number = self._lowest_number()
        chunk = self._chunks[number]
        return (number << SHIFT) + (chunk & -chunk).bit_length() - 1

    def end(self) -> int:
        """The offset behind the highest; 0 for an empty set."""
        if not self._count:
            return 0
        number = max(self._chunks)
        return (number << SHIFT) + self._chunks[number].bit_length()

    def bitmap(self, number: int) -> int:
        """The bits of one chunk."""
        return self._chunks.get(number, 0)

    def first_missing(self, offset: int) -> int:
        """The first offset from this one on that is not in the set."""
        chunks = self._chunks
        number, place = offset >> SHIFT, offset & LAST
        while (chunk := chunks.get(number)) is not None:
            if chunk is not FULL:
                above = chunk >> place
                # Adding one turns the run of ones at the bottom into zeros: the lowest bit that
                # differs upwards is the first zero.
                run = (~above & (above + 1)).bit_length() - 1
                if place + run < CHUNK:
                    return (number << SHIFT) + place + run
            number, place = number + 1, 0
        return (number << SHIFT) + place

    def missing(self, start: int, stop: int) -> Ranges:
        """What of a range is not in the set."""
        if not self._count:
            return [(start, stop)] if start < stop else []
        runs: Ranges = []
        while start < stop:
            number = start >> SHIFT
            end = min(stop, (number + 1) << SHIFT)
            chunk = self._chunks.get(number)
            if chunk is None:
                append_range(runs, start, end)
            elif chunk is not FULL:
                free = ~chunk >> (start & LAST) & ((1 << (end - start)) - 1)
                for first, last in _runs(free, start):
                    append_range(runs, first, last)
            start = end
        return runs

    def present(self, start: int, stop: int) -> Ranges:
        """What of a range is in the set."""
        runs: Ranges = []
        if not self._count or stop <= start:
            return runs
        for number in sorted(self._numbers(start >> SHIFT, ((stop - 1) >> SHIFT) + 1)):
            low = max(start, number << SHIFT)
            high = min(stop, (number + 1) << SHIFT)
            bits = self._chunks[number] >> (low & LAST) & ((1 << (high - low)) - 1)
            for first, last in _runs(bits, low):
                append_range(runs, first, last)
        return runs

    def ranges(self) -> Ranges:
        runs: Ranges = []
        for number in sorted(self._chunks):
            for first, last in _runs(self._chunks[number], number << SHIFT):
                append_range(runs, first, last)
        return runs

    def lowest(self, wanted: int) -> list[int]:
        """The lowest offsets, ascending."""
        found: list[int] = []
        if not self._count or wanted <= 0:
            return found
        # Mostly the lowest chunk has enough.
        first = self._lowest_number()
        for number in chain((first,), _others(self._chunks, first)):
            found.extend(
                islice(_offsets(self._chunks[number], number << SHIFT), wanted - len(found))
            )
            if len(found) >= wanted:
                break
        return found

    def count_before(self, offset: int) -> int:
        """How many there are below an offset."""
        last = offset >> SHIFT
        count = sum([chunk.bit_count() for number, chunk in self._chunks.items() if number < last])
        return count + (self._chunks.get(last, 0) & ((1 << (offset & LAST)) - 1)).bit_count()

    def take_lowest(self, wanted: int, before: int | None = None) -> Ranges:
        """Take out the lowest offsets, as many as are wanted and lie before an offset."""
        taken: Ranges = []
        while wanted > 0 and self._count:
            number = self._lowest_number()
            base = number << SHIFT
            chunk = self._chunks[number]
            if before is not None and before < base + CHUNK:
                if before <= base:
                    break
                chunk &= (1 << (before - base)) - 1
                if not chunk:
                    break
            cut = base
            for first, last in _runs(chunk, base):
                cut = min(last, first + wanted)
                append_range(taken, first, cut)
                wanted -= cut - first
                if not wanted:
                    break
            self._remove(number, (1 << (cut - base)) - 1)
        return taken

    def _lowest_number(self) -> int:
        order = self._order
        if order is None:
            if len(self._chunks) == 1:
                return next(iter(self._chunks))
            order = self._order = list(self._chunks)
            heapify(order)
        while order[0] not in self._chunks:
            heappop(order)
        return order[0]

    def _numbers(self, low: int, high: int) -> list[int]:
        """The chunks of a stretch, whichever is shorter to go through."""
        if high - low < len(self._chunks):
            return [number for number in range(low, high) if number in self._chunks]
        return [number for number in self._chunks if low <= number < high]

    # --- storing

    def copy(self) -> OffsetSet:
        """As it is now. A chunk that changes is another int."""
        made = OffsetSet()
        made._chunks, made._count = self._chunks.copy(), self._count
        return made

    def to_chunks(self) -> Chunks:
        return [
            (
                number,
                b"" if chunk is FULL else chunk.to_bytes((chunk.bit_length() + 7) // 8, "little"),
            )
            for number, chunk in sorted(self._chunks.items())
        ]

    def add_chunks(self, chunks: Iterable[tuple[int, bytes]]) -> int:
        """Add a set as it is stored; how many are new."""
        return sum(
            [
                self._add(number, int.from_bytes(bits, "little") if bits else FULL)
                for number, bits in chunks
            ]
        )

    @classmethod
    def from_chunks(cls, chunks: Iterable[tuple[int, bytes]]) -> OffsetSet:
        whole = cls()
        whole.add_chunks(chunks)
        return whole


def _runs(bits: int, base: int) -> Iterator[tuple[int, int]]:
    """The runs of ones in a bitmap, from the lowest on."""
    if not bits:
        return
    low = (bits & -bits).bit_length() - 1
    above = bits >> low
    if above & (above + 1) == 0:
        yield base + low, base + low + above.bit_length()
        return
    # Python finds runs in text faster than in an int. The last character is the lowest bit.
    for run in ONES.finditer(bin(above)[:1:-1]):
        yield base + low + run.start(), base + low + run.end()


# The masks that were made last. On its way through a queue the same list is asked for half a dozen
# times in a row, and making masks is most of the work.
_last: tuple[Ranges, Masks] = ([], [])


def _offsets(bits: int, base: int) -> Iterator[int]:
    """The offsets of a bitmap, from the lowest on."""
    low = (bits & -bits).bit_length() - 1
    flags = bin(bits >> low)[:1:-1].encode().translate(BIT_OF)
    return compress(range(base + low, base + low + len(flags)), flags)


def _masks_of(ranges: Ranges) -> Masks:
    """Many ranges as bitmaps of chunks."""
    global _last
    known, masks = _last
    if known != ranges:
        masks = _make_masks(ranges)
        if len(ranges) <= REMEMBERED_MAX:
            _last = (list(ranges), masks)
    return masks


def _make_masks(ranges: Ranges) -> Masks:
    texts: dict[int, bytearray] = {}
    masks: Masks = []
    current, top, text = -1, 0, bytearray()
    for start, stop in ranges:
        number, count = start >> SHIFT, stop - start
        if count == 1 or (count <= SHORT and stop <= (number + 1) << SHIFT):
            if number != current:
                current, top = number, (number << SHIFT) + CHUNK
                found = texts.get(number)
                text = texts[number] = bytearray(ZEROS) if found is None else found
            if count == 1:
                text[top - stop] = 49
            else:
                text[top - stop : top - start] = SHORT_ONES[:count]
        else:
            while start < stop:
                end = min(stop, (number + 1) << SHIFT)
                masks.append((number, ((1 << (end - start)) - 1) << (start & LAST)))
                start, number = end, number + 1
    masks.extend([(number, int(text, 2)) for number, text in texts.items()])
    return masks


def _others(chunks: dict[int, int], first: int) -> Iterator[int]:
    """The numbers but the first, ascending; sorted only if they are asked for."""
    yield from (number for number in sorted(chunks) if number != first)
