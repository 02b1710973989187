"""A durable topic's messages: sections of sealed segments, then a tail in memory.

What the tail holds is in the journal; a checkpoint writes it to a segment and puts the section in
its place. Everything a reader asks for comes from here, whether it is in memory or on disk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ..batch import DELIVER_AT, NOT_PLAIN, BatchBuilder, DecodeCache, RecordBatch
from ..errors import FlintError
from .segments import BatchEntry, Section, SegmentStore


class TopicLog:
    """The rows from `first_offset` up to `next_offset`, and how to find one.

    Invariant: sections, then tail, follow each other without a gap, and times never go back.
    """

    def __init__(self, topic: int, store: SegmentStore, cache: DecodeCache) -> None:
        self._topic, self._store, self._cache = topic, store, cache
        self.first_offset = 0
        self.next_offset = 0
        self.byte_count = 0
        self.last_time = 0
        self.sections: list[Section] = []
        self._section_bases: list[int] = []
        self._tail: list[RecordBatch] = []
        self._tail_bases: list[int] = []
        self.tail_bytes = 0

    def restore(
        self, sections: list[Section], first_offset: int, next_offset: int, last_time: int
    ) -> None:
        """Take up what a manifest says is there."""
        self.sections = sections
        self._section_bases = [section.base for section in sections]
        self.first_offset, self.next_offset = first_offset, next_offset
        self.last_time = last_time
        self.byte_count = sum(section.size for section in sections)
        if sections and first_offset > sections[0].base:
            self.byte_count -= self.size_between(sections[0].base, min(first_offset, next_offset))

    # --- appending and flushing

    def append(self, batch: BatchBuilder | RecordBatch, now_ms: int = 0) -> int:
        """Add a stamped batch at the end; the offset of its first message."""
        assert isinstance(batch, RecordBatch), "the journal has batches only"
        assert batch.base_offset == self.next_offset, "offsets follow each other without a gap"
        batch.cache = self._cache
        self._tail.append(batch)
        self._tail_bases.append(batch.base_offset)
        self.tail_bytes += batch.byte_length
        self.next_offset += batch.row_count
        self.byte_count += batch.size(0, batch.row_count)
        self.last_time = max(self.last_time, batch.time(batch.row_count - 1))
        return batch.base_offset

    def append_value(self, value: bytes, now_ms: int) -> int:
        raise AssertionError("what is durable goes through the journal")

    def tail(self) -> list[RecordBatch]:
        """The batches that are in no segment yet, as far as they are still needed."""
        return [b for b in self._tail if b.base_offset + b.row_count > self.first_offset]

    def flushed(self, section: Section, replaced: int = 0) -> None:
        """A segment now holds the tail up to the section's end, and `replaced` sections before."""
        if replaced:
            del self.sections[-replaced:], self._section_bases[-replaced:]
        count = bisect_left(self._tail_bases, section.next)
        self.tail_bytes -= sum(batch.byte_length for batch in self._tail[:count])
        del self._tail[:count], self._tail_bases[:count]
        self.sections.append(section)
        self._section_bases.append(section.base)

    def sections_to_drop(self) -> list[Section]:
        """Sections that lie wholly before the first offset."""
        return [section for section in self.sections if section.next <= self.first_offset]

    def drop_sections(self, count: int) -> None:
        del self.sections[:count], self._section_bases[:count]

    # --- finding

    def locate(self, offset: int) -> tuple[RecordBatch, int, int]:
        """The batch that holds `offset`, the row there, and the row behind the batch's last."""
        if self._tail_bases and offset >= self._tail_bases[0]:
            batch = self._tail[bisect_right(self._tail_bases, offset) - 1]
        else:
            name, entry = self._entry(offset)
            batch = self._store.read(name, entry)
        return batch, offset - batch.base_offset, batch.row_count

    def locate_first(self) -> tuple[RecordBatch, int, int]:
        return self.locate(self.first_offset)

    def _entry(self, offset: int) -> tuple[str, BatchEntry]:
        section = self.sections[bisect_right(self._section_bases, offset) - 1]
        return section.file, self._store.segment(section.file).entry_at(self._topic, offset)

    def control_at(self, offset: int) -> tuple[RecordBatch | None, int, int]:
        """What holds the control columns of `offset`, its row there, and the row behind the last;
        None as the first where they are plain. No payload is read."""
        if self._tail_bases and offset >= self._tail_bases[0]:
            batch, row, stop = self.locate(offset)
            return batch if batch.columns & NOT_PLAIN else None, row, stop
        section = self.sections[bisect_right(self._section_bases, offset) - 1]
        if not section.columns & NOT_PLAIN:
            return None, offset - section.base, section.next - section.base
        segment = self._store.segment(section.file)
        entry = segment.entry_at(self._topic, offset)
        control = segment.read_control(entry) if entry.columns & NOT_PLAIN else None
        return control, offset - entry.base, entry.rows

    def delayed(self, now_ms: int) -> Iterator[tuple[int, int, int]]:
        """When messages in segments are due, their offsets and priorities, of those that are not
        due yet."""
        for section in self.sections:
            if not section.columns & DELIVER_AT:
                continue
            segment = self._store.segment(section.file)
            for entry in segment.entries(self._topic):
                control = segment.read_control(entry)
                if control is None or not control.columns & DELIVER_AT:
                    continue
                for row in range(entry.rows):
                    due_ms = control.deliver_at(row)
                    if due_ms > now_ms and entry.base + row >= self.first_offset:
                        yield due_ms, entry.base + row, control.priority(row)

    def time_of(self, offset: int) -> int:
        batch, row, _ = self.locate(offset)
        return batch.time(row)

    def offset_at_time(self, time_ms: int) -> int:
        """The first offset that was appended at `time_ms` or later."""
        if self.first_offset == self.next_offset or self.last_time < time_ms:
            return self.next_offset
        batch = self._batch_at_time(time_ms)
        if batch is None:
            return self.next_offset
        row = bisect_left(range(batch.row_count), time_ms, key=batch.time)
        return max(batch.base_offset + row, self.first_offset)

    def _batch_at_time(self, time_ms: int) -> RecordBatch | None:
        at = bisect_left(self.sections, time_ms, key=lambda section: section.last_time)
        if at < len(self.sections):
            name = self.sections[at].file
            entry = self._store.segment(name).entry_at_time(self._topic, time_ms)
            if entry is not None:
                return self._store.read(name, entry)
        at = bisect_left(self._tail, time_ms, key=lambda batch: batch.time(batch.row_count - 1))
        return self._tail[at] if at < len(self._tail) else None

    # --- dropping

    def drop_to(self, offset: int) -> int:
        """Move the first offset; how many messages that drops. Files go later, whole."""
        dropped = offset - self.first_offset
        if dropped <= 0:
            return 0
        if offset >= self.next_offset:
            self.byte_count = 0
        else:
            self.byte_count -= self.size_between(self.first_offset, offset)
        self.first_offset = offset
        count = 0
        for batch in self._tail:
            if batch.base_offset + batch.row_count > offset:
                break
            count += 1
        if count:
            self.tail_bytes -= sum(batch.byte_length for batch in self._tail[:count])
            del self._tail[:count], self._tail_bases[:count]
        return dropped

    def size_between(self, start: int, stop: int) -> int:
        """The bytes that the messages from `start` to before `stop` count for.

        Of a batch that cannot be read, its share by rows: damage is for readers to hear of, and
        keeps nobody from dropping it.
        """
        size = 0
        while start < stop:
            base, next, whole = self._extent(start)
            end = min(next, stop)
            size += whole if (start, end) == (base, next) else self._part(start, end)
            start = end
        return size

    def _part(self, start: int, end: int) -> int:
        try:
            batch, row, _ = self.locate(start)
            return batch.size(row, row + end - start)
        except FlintError:
            base, next, whole = self._extent(start)
            rows = next - base
            return whole * (end - base) // rows - whole * (start - base) // rows

    def _is_in_tail(self, offset: int) -> bool:
        return bool(self._tail_bases) and offset >= self._tail_bases[0]

    def _extent(self, offset: int) -> tuple[int, int, int]:
        """Where the batch that holds `offset` begins and ends, and what it counts for. Where a
        segment's index cannot be read, the whole section is taken for one."""
        if self._is_in_tail(offset):
            batch, _, rows = self.locate(offset)
            return batch.base_offset, batch.base_offset + rows, batch.size(0, rows)
        try:
            _, entry = self._entry(offset)
        except FlintError:
            section = self.sections[bisect_right(self._section_bases, offset) - 1]
            return section.base, section.next, section.size
        return entry.base, entry.next, entry.size

    def offset_freeing(self, bytes_wanted: int, end: int) -> int:
        """The lowest offset before which at least `bytes_wanted` bytes are stored, up to `end`."""
        offset, freed = self.first_offset, 0
        while freed < bytes_wanted and offset < end:
            _, next, _ = self._extent(offset)
            size = self.size_between(offset, next)
            if freed + size < bytes_wanted:
                freed += size
                offset = next
                continue
            ends = range(offset + 1, next + 1)
            missing = bytes_wanted - freed
            at = bisect_left(ends, missing, key=lambda end: self.size_between(offset, end))
            return min(end, ends[at])
        return min(end, offset)
