"""The newest offset of every key, and which messages that leaves behind. Pure.

A look at a message costs one entry in a dict: what it supersedes is not written down. That is found
later, for many messages at once (`Superseded`): whatever has a key, is there, and is not the newest
of its key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from ...group_model import Ranges
from ...groups.offset_set import CHUNK, FULL, LAST, SHIFT, ZEROS, Chunks, OffsetSet

PIECE = 8192
"""What is looked at between two looks at the clock."""

RECENT_ROWS = 8
"""For each key, so many offsets have a mark."""

LOOKS = 64
"""Chunks with nothing to drop that are looked at between two looks at the clock."""

DENSE = 24
"""So many offsets of a chunk make a bitmap by way of text."""


class LastOfKeys:
    """Invariant: `last` and `keyless` are about offsets before `looked`; `row_count` is the sum of
    `rows_in`."""

    def __init__(self, looked: int) -> None:
        self.looked = looked
        self.last: dict[bytes | None, int] = {}
        """The newest offset of every key."""
        self.tombstones: dict[bytes | None, int] = {}
        """Of those, the ones with an empty value, oldest first."""
        self.keyless = OffsetSet()
        """What has no key, or cannot be read, and stays."""
        self.rows_in: dict[int, int] = {}
        """How many messages with a key each chunk of offsets has left, where it has any."""
        self.row_count = 0

    @property
    def superseded_count(self) -> int:
        return self.row_count - len(self.last)

    def add(
        self,
        keys: Sequence[bytes | None],
        base: int,
        empty: Sequence[int],
        *,
        all_have_keys: bool,
        gone: Ranges,
    ) -> None:
        """Messages from offset `base` on, by their keys. `empty` has those without a value, and
        `gone` the offsets that were dropped before."""
        behind = base + len(keys)
        offsets = range(base, behind)
        if all_have_keys and not gone:
            self.last.update(zip(keys, offsets, strict=True))
            self._count(base, behind)
        else:
            self._add_some(keys, base, gone)
        self.looked = behind
        tombstones, last = self.tombstones, self.last
        if tombstones:
            for back in [key for key in keys if key in tombstones]:
                tombstones.pop(back, None)
        for row in empty:
            key = keys[row]
            if key is not None and last.get(key) == base + row:
                tombstones[key] = base + row

    def _add_some(self, keys: Sequence[bytes | None], base: int, gone: Ranges) -> None:
        there = list(keys)
        for first, behind in gone:
            there[first - base : behind - base] = [None] * (behind - first)
        kept = [row for row, key in enumerate(there) if key is not None]
        self.last.update((there[row], base + row) for row in kept)
        at = 0
        while at < len(kept):
            number = (base + kept[at]) >> SHIFT
            stop = at
            while stop < len(kept) and (base + kept[stop]) >> SHIFT == number:
                stop += 1
            self.rows_in[number] = self.rows_in.get(number, 0) + stop - at
            at = stop
        self.row_count += len(kept)
        dropped = OffsetSet(gone)
        self.keyless.add_many(
            base + row for row, key in enumerate(keys) if key is None and base + row not in dropped
        )

    def _count(self, base: int, behind: int) -> None:
        rows_in = self.rows_in
        self.row_count += behind - base
        while base < behind:
            number = base >> SHIFT
            stop = min(behind, (number + 1) << SHIFT)
            rows_in[number] = rows_in.get(number, 0) + stop - base
            base = stop

    def pass_over(self, behind: int) -> None:
        """What cannot be read stays as it is."""
        self.keyless.add_range(self.looked, behind)
        self.looked = behind

    def dropped(self, offsets: OffsetSet) -> None:
        for number in [number for number, _ in offsets.to_chunks()]:
            count = offsets.bitmap(number).bit_count()
            self.set_count(number, max(0, self.rows_in.get(number, 0) - count))

    def set_count(self, number: int, count: int) -> None:
        """A chunk has so many messages left that have a key."""
        self.row_count += count - self.rows_in.pop(number, 0)
        if count:
            self.rows_in[number] = count

    def forget_before(self, offset: int) -> None:
        """The log begins there now."""
        for number in [number for number in self.rows_in if (number + 1) << SHIFT <= offset]:
            self.set_count(number, 0)
        self.keyless.discard_before(offset)


class Superseded:
    """Finds what is not the newest of its key, as of when this was made, chunk by chunk."""

    def __init__(self, keys: LastOfKeys) -> None:
        self._keys = keys
        self._end = keys.looked
        self._unsorted = list(keys.last.values())  # in this very step
        # Most of the newest lie near the end: there a mark for each offset, the last first.
        chunks = len(self._unsorted) * RECENT_ROWS // CHUNK + 1
        self._top = (((self._end >> SHIFT) + 1) << SHIFT) - 1
        self._recent = max(0, self._top + 1 - (chunks << SHIFT))
        self._marks = bytearray(b"0") * (self._top + 1 - self._recent)
        self._older: dict[int, list[int]] = defaultdict(list)
        self._chunks: list[int] | None = None
        """What is still to be looked at, the last first."""

    @property
    def is_done(self) -> bool:
        return self._chunks is not None and not self._chunks

    def take(
        self,
        first: int,
        floor: int,
        gone: OffsetSet | None,
        wanted: int,
        is_over: Callable[[], bool],
    ) -> tuple[Chunks, int]:
        """The next that can be dropped, from offset `first` on and before `floor`, and how many
        they are: about as many as are wanted, or fewer where the time is over."""
        found: Chunks = []
        count = 0
        if self._chunks is None:
            if not self._sort(is_over):
                return found, count
            self._keys.forget_before(first)
            self._chunks = sorted(self._keys.rows_in, reverse=True)
        chunks, stop, looks = self._chunks, min(floor, self._end), 0
        while chunks and count < wanted:
            number = chunks.pop()
            if number << SHIFT >= stop:
                chunks.clear()
                break
            looks += 1
            if dead := self._dead_in(number, first, stop, gone):
                found.append((number, b"" if dead == FULL else _stored(dead)))
                count += dead.bit_count()
                looks += LOOKS
            if looks >= LOOKS:
                if is_over():
                    break
                looks = 0
        return found, count

    def _sort(self, is_over: Callable[[], bool]) -> bool:
        """Put the newest to their chunks, until the time is over; whether all of it is done."""
        unsorted, recent, older = self._unsorted, self._recent, self._older
        marks, top = self._marks, self._top
        while unsorted:
            for offset in unsorted[-PIECE:]:
                if offset >= recent:
                    marks[top - offset] = 49
                else:
                    older[offset >> SHIFT].append(offset)
            del unsorted[-PIECE:]
            if unsorted and is_over():
                return False
        return True

    def _dead_in(self, number: int, first: int, stop: int, gone: OffsetSet | None) -> int:
        keys, base = self._keys, number << SHIFT
        newest = self._newest_in(number)
        if newest.bit_count() == keys.rows_in.get(number, 0) and base >= first:
            return 0  # as mostly, where keys change seldom
        present = _between(base, first, keys.looked) & ~keys.keyless.bitmap(number)
        if gone is not None:
            present &= ~gone.bitmap(number)
        dead = present & _between(base, first, stop) & ~newest
        keys.set_count(number, (present ^ dead).bit_count())
        return dead

    def _newest_in(self, number: int) -> int:
        base = number << SHIFT
        if base < self._recent:
            return bitmap(self._older.pop(number, ()))
        behind = self._top - base + 1
        return int(self._marks[behind - CHUNK : behind], 2)


def _between(base: int, start: int, stop: int) -> int:
    """Of the chunk at `base`, the offsets of a range as a bitmap."""
    low, high = max(start - base, 0), min(stop - base, CHUNK)
    return 0 if high <= low else ((1 << (high - low)) - 1) << low


def bitmap(offsets: Sequence[int]) -> int:
    """Offsets of one chunk as bits."""
    if len(offsets) < DENSE:
        bits = 0
        for offset in offsets:
            bits |= 1 << (offset & LAST)
        return bits
    text = bytearray(ZEROS)
    for offset in offsets:
        text[LAST - (offset & LAST)] = 49
    return int(text, 2)


def _stored(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
