"""A durable topic's messages: sections of sealed segments, then a tail in memory.

What the tail holds is in the journal; a checkpoint writes it to a segment and puts the section in
its place. Everything a reader asks for comes from here, whether it is in memory or on disk.

What the disk has damaged is known by its offsets: a batch, or a whole section where the index of
its segment cannot be read. Reading there raises Corrupt; everything else goes on: sizes are
kept apart (`sizes.py`), ages come from the index and from the control columns, which are in a
segment twice. Appending, dropping and counting read no disk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple, NoReturn

from ..batch import (
    BatchBuilder,
    DecodeCache,
    HoleBatch,
    RecordBatch,
    RestingRows,
)
from ..errors import Corrupt, FlintError
from .loading import ENOUGH_BATCHES, ENOUGH_BYTES, Load, NotLoaded
from .objects import is_object
from .outlines import Outlines
from .resting import resting_batch
from .segment_store import SegmentStore
from .segments import Section, Segment, cause_of, is_damage
from .sizes import Sizes
from .tail import OPEN_BYTES_MAX, OPEN_ROWS_MAX, StoredRows, Tail
from .tiered import FarSections, TieredSection

_MEASURED_BYTES = 64 << 20


class Damage(NamedTuple):
    """Messages that the disk has damaged: from `first` to before `next`."""

    first: int
    next: int
    file: str
    cause: str
    is_proven: bool = True
    """By a checksum. What the disk only could not read may be there again another time."""

    def error(self, topic: str) -> Corrupt:
        """For a caller that reads there."""
        name, _, partition = topic.partition("/")
        where = f"topic {name!r}" + (f" partition {partition}" if partition else "")
        what = f"offsets {self.first} to {self.next - 1} of {where}"
        skip = f"seek to offset {self.next} to read on behind them"
        error = Corrupt(
            f"{what} are damaged on the disk ({self.cause}); {skip}; to get them "
            "back, restore a backup; to be rid of them, purge the topic up to there, or stop the "
            "broker and run `flintmq log repair`"
            if self.is_proven
            else f"{what} could not be read from the disk ({self.cause}); check the disk and "
            f"start the broker again to have it try again, or {skip}, without them"
        )
        error.topic, error.partition = name, int(partition or 0)
        error.first_offset, error.next_offset = self.first, self.next
        error.is_proven = self.is_proven
        return error


def _ignore(damage: Damage) -> None: ...


class TopicLog:
    """The rows from `first_offset` up to `next_offset`, and how to find one.

    Invariant: sections, then tail, follow each other without a gap, and times never go back.
    """

    def __init__(
        self,
        topic: int,
        store: SegmentStore,
        cache: DecodeCache,
        *,
        name: str = "",
        on_damage: Callable[[Damage], None] = _ignore,
    ) -> None:
        self._topic, self._store = topic, store
        self._name, self._on_damage = name, on_damage
        self.damaged: list[Damage] = []
        """What is known to be damaged, in order. It is not looked at again before the next start:
        a disk takes its time to say that it cannot read."""
        self._without_index: set[str] = set()
        self.sizes = Sizes()
        self.first_offset = 0
        self.next_offset = 0
        self.byte_count = 0
        self.last_time = 0
        self.sections: list[Section] = []
        self._section_bases: list[int] = []
        self.far = FarSections()
        """What is in object storage, and may be in sections, too."""
        self._tail = Tail(cache)
        self._placed: RecordBatch | None = None
        """The last that was read of rows of a large commit."""
        outlines = Outlines(topic, store, self._tail, self)
        self.outline, self.control_at = outlines.outline, outlines.control_at
        self.delayed, self.has_expiry = outlines.delayed, outlines.has_expiry

    def restore(
        self,
        sections: list[Section],
        first_offset: int,
        next_offset: int,
        last_time: int,
        sizes: Sequence[int] = (),
    ) -> None:
        """Take up what a manifest says is there. One of an earlier version has no sizes."""
        self.sections = sections
        self._section_bases = [section.base for section in sections]
        self.first_offset, self.next_offset = first_offset, next_offset
        self.last_time = last_time
        if sizes:
            self.sizes.restore(sizes)
        else:
            self._measure(sections)
        self._count()

    def _measure(self, sections: list[Section]) -> None:
        """Find sizes by the indexes of segments; of the first batches, which the journal may still
        drop, of every message. What cannot be read counts evenly."""
        sizes = self.sizes
        sizes.begin_exact(sections[0].base if sections else self.next_offset)
        for section in sections:
            measured = 0
            with suppress(FlintError):
                for entry in self.index_of(section).entries(self._topic):
                    size_to = _evenly(entry.rows, entry.size)
                    if sizes.total < _MEASURED_BYTES and entry.next > self.first_offset:
                        with suppress(FlintError):
                            size_to = self.locate(entry.base)[0].size
                    if section.base <= entry.base < section.next:
                        sizes.append(entry.rows, entry.size, size_to)
                        measured += entry.size
            rows = section.next - sizes.next
            if rows:
                size = section.size - measured
                sizes.append(rows, size, _evenly(rows, size))
        sizes.drop_to(self.first_offset)

    def _count(self) -> None:
        self.byte_count = self.sizes.total - self.sizes.before(self.first_offset)

    # --- appending and flushing

    def append(self, rows: BatchBuilder | RecordBatch, now_ms: int = 0) -> int:
        """Add a stamped batch at the end; the offset of its first message."""
        assert isinstance(rows, RecordBatch), "the journal has batches only"
        batch = rows
        assert batch.base_offset == self.next_offset, "offsets follow each other without a gap"
        self._tail.append(batch)
        size = batch.size(0, batch.row_count)
        self.sizes.append(batch.row_count, size, batch.size)
        self.next_offset += batch.row_count
        self.byte_count += size
        self.last_time = max(self.last_time, batch.time(batch.row_count - 1))
        return batch.base_offset

    def append_evenly(self, batches: Sequence[RecordBatch | RestingRows]) -> None:
        """Add stamped batches, or what stands for them, all of whose rows count for as much."""
        begin, size = self.next_offset, 0
        for batch in batches:
            assert batch.base_offset == self.next_offset, "offsets follow each other without a gap"
            self._tail.append(batch)
            self.next_offset += batch.row_count
            size += batch.size(0, batch.row_count)
            self.last_time = max(self.last_time, batch.time(batch.row_count - 1))
        self.sizes.append_evenly(self.next_offset - begin, size)
        self.byte_count += size

    def append_value(self, value: bytes, now_ms: int) -> int:
        raise AssertionError("what is durable goes through the journal")

    def append_values(self, values: list[bytes], now_ms: int, content_type: str | None) -> None:
        """Add a few rows. Those that come one by one become a batch together."""
        if now_ms > self.last_time:
            self.last_time = now_ms
        time, offset, tail, sizes = self.last_time, self.next_offset, self._tail, self.sizes
        for value in values:
            rows = tail.open or tail.begin(offset)
            rows.append_at(value, time, content_type)
            sizes.append(1, len(value), _alone)
            self.byte_count += len(value)
            offset += 1
            if offset - rows.base_offset >= OPEN_ROWS_MAX or rows.byte_count >= OPEN_BYTES_MAX:
                tail.close()
        self.next_offset = offset

    def tail(self) -> list[RecordBatch | RestingRows]:
        """The batches that are in no segment of the topic yet, as far as they are still needed."""
        return self._tail.batches(self.first_offset)

    def resting_bytes(self) -> int:
        """Bytes of large commits that lie where they were staged."""
        tail = self._tail.all
        return sum(rows.byte_length for rows in tail if isinstance(rows, RestingRows))

    def flushed(self, section: Section, replaced: int = 0) -> None:
        """A segment now holds the tail up to the section's end, and `replaced` sections before."""
        if replaced:
            # What could not be read meanwhile was read for the segment in their place.
            self.damaged = _outside(self.damaged, self.sections[-replaced:])
            del self.sections[-replaced:], self._section_bases[-replaced:]
        self._tail.written(section.next)
        self.sections.append(section)
        self._section_bases.append(section.base)

    def compacted(self, gone: object, start: int, stop: int) -> None:
        """A checkpoint writes the sections anew, where it is worth it."""

    def rewritten(self, old: Sequence[Section], new: Section) -> None:
        """A section takes the place of others that follow each other."""
        at = bisect_left(self._section_bases, old[0].base)
        assert self.sections[at : at + len(old)] == list(old), "they change by checkpoints alone"
        self.sections[at : at + len(old)] = [new]
        self._section_bases[at : at + len(old)] = [new.base]
        self.damaged = _outside(self.damaged, old)

    def sections_to_drop(self) -> list[Section]:
        """Sections that lie wholly before the first offset."""
        return [section for section in self.sections if section.next <= self.first_offset]

    def drop_sections(self, count: int) -> None:
        """The first ones are needed no more: they are before the first offset, or in objects."""
        if self.damaged and count:
            self.damaged = _outside(self.damaged, self.sections[:count])
        del self.sections[:count], self._section_bases[:count]

    def add_object(self, section: Section, due_ms: int) -> None:
        """Object storage has this part as well."""
        self.far.add(TieredSection(section, due_ms))

    def drop_objects(self, up_to: int) -> list[str]:
        """Forget the objects that end there or before; which of them are to be removed."""
        return self.far.drop(up_to)

    # --- finding

    def locate(self, offset: int) -> tuple[StoredRows, int, int]:
        """The batch that holds `offset`, the row there, and the row behind the batch's last."""
        return self.locate_nowait(offset, waits=True)

    def locate_nowait(
        self, offset: int, ahead: int = 0, *, waits: bool = False
    ) -> tuple[StoredRows, int, int]:
        """As `locate`, but it does not wait for the disk. Raises NotLoaded where it would have to:
        then it is being read, with what lies behind it (`ahead` bytes, or what is likely needed).
        """
        if self.damaged and (known := self.damage_at(offset)) is not None:
            raise known.error(self._name)
        if self._tail.holds(offset):
            rows = self._tail.at(offset)
            if isinstance(rows, RestingRows):
                rows = self._resting(rows, offset, waits, ahead)
            return rows, offset - rows.base_offset, rows.row_count
        section = self.section_at(offset)
        entry = self.index_of(section, waits).entry_or_hole(self._topic, offset, section)
        if isinstance(entry, HoleBatch):
            return entry, offset - entry.base_offset, entry.row_count
        try:
            batch = self._store.read(section.file, entry, waits, False, ahead)
        except FlintError as error:
            self._raise_damage(error, entry.base, entry.next, section.file)
        return batch, offset - batch.base_offset, batch.row_count

    def _resting(self, rows: RestingRows, offset: int, waits: bool, ahead: int) -> RecordBatch:
        try:
            batch = resting_batch(self._store, rows, offset, waits=waits, ahead=ahead)
        except FlintError as error:
            base = rows.base_offset
            self._raise_damage(error, base, base + rows.row_count, rows.file)
        known = self._placed
        if known is None or known.body is not batch.body or known.base_offset != batch.base_offset:
            self._placed = known = batch
        return known  # with what was decoded of it

    def load(self, offset: int, *, is_further: bool = True) -> Load | None:
        """What has to be waited for before `locate` reads no disk, there and (`is_further`) a
        little further; None if nothing. Raises what keeps it from being read for now; damage is
        left to the one who reads."""
        offset, size, count = max(offset, self.first_offset), 0, 0
        try:
            while offset < self.next_offset:
                in_tail = self._tail.holds(offset)
                if in_tail and not isinstance(self._tail.at(offset), RestingRows):
                    break
                batch, _, _ = self.locate_nowait(offset)
                if not is_further:
                    break
                if in_tail or isinstance(batch, HoleBatch):
                    offset = batch.base_offset + batch.row_count
                    size += len(batch.body) if isinstance(batch, RecordBatch) else 0
                    if size >= ENOUGH_BYTES:
                        break
                    continue
                section = self.section_at(offset)
                run = self.index_of(section, False).run(
                    self._topic, batch.base_offset, ENOUGH_BYTES
                )
                run = run[: ENOUGH_BATCHES - count]
                if (lacking := self._store.first_missing(section.file, run)) is not None:
                    self.locate_nowait(lacking.base)
                offset, count = run[-1].next, count + len(run)
                size += sum(entry.length for entry in run)
                if offset < section.next or size >= ENOUGH_BYTES or count >= ENOUGH_BATCHES:
                    break
        except NotLoaded as missing:
            return missing.load
        except FlintError as error:
            if not count and not is_damage(error):
                raise  # the store raises it once
        return None

    def at_once(self) -> AbstractContextManager[None]:
        """Meanwhile whatever is asked for is read at once, if need be."""
        return self._store.at_once()

    def section_at(self, offset: int) -> Section:
        if self.far and self.is_far(offset):
            return self.far.holding(offset)
        return self.sections[bisect_right(self._section_bases, offset) - 1]

    def is_far(self, offset: int) -> bool:
        """Whether what has this offset is in object storage only."""
        return not self._tail.holds(offset) and not (
            self._section_bases and offset >= self._section_bases[0]
        )

    def all_sections(self) -> list[Section]:
        """Where the messages are, but for the tail: objects, then files."""
        far = self.far
        if not far:
            return self.sections
        bases = self._section_bases
        return [*far.before(bases[0] if bases else None), *self.sections]

    def index_of(self, section: Section, waits: bool = True) -> Segment:
        if section.file in self._without_index:
            known = self.damage_at(section.base)
            known = known or Damage(*section[1:3], section.file, "its index is lost")
            raise known.error(self._name)
        try:
            return self._store.segment(section.file, waits)
        except FlintError as error:
            if is_damage(error):
                self._without_index.add(section.file)
            self._raise_damage(error, section.base, section.next, section.file)

    def _raise_damage(self, error: FlintError, first: int, next: int, file: str) -> NoReturn:
        """What the store could not read in two attempts is damaged."""
        if not is_damage(error):
            raise error
        is_proven = isinstance(error, Corrupt)
        damage = self.note_damage(first, next, file, cause_of(error), is_proven)
        raise damage.error(self._name) from error

    def note_damage(
        self, first: int, next: int, file: str, cause: str, is_proven: bool = True
    ) -> Damage:
        """Remember that these cannot be read, and tell it once."""
        known = self.damage_at(first)
        if known is not None and known.next >= next:
            return known
        damage = Damage(first, next, file, cause, is_proven)
        # A segment whose index was read before it was damaged has had single batches in here.
        others = [other for other in self.damaged if not first <= other.first < next]
        self.damaged = sorted([*others, damage])
        self._on_damage(damage)
        return damage

    def note_lost_index(self, file: str, cause: str, is_proven: bool = True) -> None:
        """The index of a segment cannot be read: nothing of ours in it can be found."""
        for section in self.sections:
            if section.file == file and section.next > self.first_offset:
                self._without_index.add(file)
                self.note_damage(section.base, section.next, file, cause, is_proven)

    def is_damaged(self, section: Section) -> bool:
        return any(section.base <= damage.first < section.next for damage in self.damaged)

    def damage_at(self, offset: int) -> Damage | None:
        at = bisect_right(self.damaged, offset, key=lambda damage: damage.first) - 1
        return self.damaged[at] if at >= 0 and offset < self.damaged[at].next else None

    def holds(self, file: str, first: int) -> bool:
        """Whether a batch of a segment is still part of the topic."""
        return first < self.next_offset and any(
            section.file == file and section.base <= first < section.next
            for section in self.sections
            if section.next > self.first_offset
        )

    def time_of(self, offset: int) -> int:
        if self.far and self.is_far(offset):
            return self.far.holding(offset).first_time  # about: nobody waits for the network here
        batch, row, _ = self.outline(offset)
        return batch.time(row)

    def offset_at_time(self, time_ms: int, *, waits: bool = True) -> int:
        """The first offset that was appended at `time_ms` or later; in a batch that is damaged, its
        first. Unless it `waits`, it raises NotLoaded where an object has to be asked."""
        if self.first_offset == self.next_offset or self.last_time < time_ms:
            return self.next_offset
        try:
            batch = self._batch_at_time(time_ms, waits)
        except Corrupt as error:
            return max(error.first_offset or 0, self.first_offset)
        if batch is None:
            return self.next_offset
        row = bisect_left(range(batch.row_count), time_ms, key=batch.time)
        return max(batch.base_offset + row, self.first_offset)

    def _batch_at_time(self, time_ms: int, waits: bool) -> StoredRows | None:
        parts = self.all_sections()
        at = bisect_left(parts, time_ms, key=lambda section: section.last_time)
        if at < len(parts):
            waits = waits or not is_object(parts[at].file)
            entry = self.index_of(parts[at], waits).entry_at_time(self._topic, time_ms)
            if entry is not None:
                return self.locate_nowait(entry.base, waits=waits)[0]
        rows = self._tail.at_time(time_ms)
        return self.locate(rows.base_offset)[0] if isinstance(rows, RestingRows) else rows

    # --- dropping

    def drop_to(self, offset: int) -> int:
        """Move the first offset; how many messages that drops. Files go later, whole."""
        dropped = offset - self.first_offset
        if dropped <= 0:
            return 0
        self.first_offset = offset
        self.sizes.drop_to(offset)
        self._count()
        if self.damaged:
            self.damaged = [damage for damage in self.damaged if damage.next > offset]
        self._tail.drop_to(offset)
        return dropped

    def let_go(self) -> None:
        """The topic is deleted. Its memory is free a few turns later, its files at a checkpoint."""
        self.byte_count, self.first_offset = 0, self.next_offset
        self._tail.clear()

    def size_between(self, start: int, stop: int) -> int:
        """The bytes that the messages from `start` to before `stop` count for."""
        return self.sizes.before(stop) - self.sizes.before(start)

    def offset_freeing(self, bytes_wanted: int, end: int) -> int:
        """The lowest offset before which at least `bytes_wanted` bytes are stored, up to `end`."""
        return min(end, self.sizes.freeing(self.first_offset, bytes_wanted))


def _outside(damaged: list[Damage], sections: Sequence[Section]) -> list[Damage]:
    files = {section.file for section in sections}
    return [damage for damage in damaged if damage.file not in files]


def _evenly(rows: int, size: int) -> Callable[[int, int], int]:
    return lambda start, stop: size * (stop - start) // rows


def _alone(start: int, stop: int) -> int:
    raise AssertionError("of one row, nothing lies in between")
