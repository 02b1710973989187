"""Segments: files of record batches that never change once they are written.

A segment holds one section for each topic it has messages of: a large topic has segments of its
own, thousands of small ones share one. A reader needs the file and nothing else.

    0            8                                    data end                     file end - 48
    +------------+------------------------------------+--------+---------+---------+
    | "FMQSEG1\\0" | record batches, one behind another | index  | control | trailer |
    +------------+------------------------------------+--------+---------+---------+

    index entry (64 bytes, one for each batch, in file order):
        topic u64, base offset i64, first time i64, last time i64, position u64, length u64,
        size u64, rows u32, columns u32

    control: of each batch that has a priority, expiry or deliver-at column, in file order, its
        control columns of fixed width once more (see batch/format.py); durations in them count
        from the first time in the index, which is the batch's append time

    trailer (48 bytes): "FMQSEGT\\0", version u32, checksum id u32, entries u64, data end u64,
        CRC32C of the data u32, of the index u32, of control u32, CRC32C of the trailer u32

Numbers are little-endian. `size` is what the batch counts for in bytes (see RecordBatch.size);
`columns` are its column bits. Who looks for priorities, expiries and delays reads `control`, and
no payload.
"""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from ..batch import HoleBatch, LostBatch, RecordBatch, hole
from ..batch.checksum import crc32c
from ..batch.format import (
    DELIVER_AT,
    EXPIRY,
    KEY_HASH,
    NOT_PLAIN,
    PRIORITY,
    RELATIVE,
    control_size,
)
from ..errors import Corrupt, FlintError, StorageFailed, UnsupportedFormat
from .filesystem import Creates, File, Opens

MAGIC = b"FMQSEG1\0"
TRAILER_MAGIC = b"FMQSEGT\0"
VERSION = 1
CRC32C = 1
_ENTRY = Struct("<QqqqQQQII")
_TRAILER = Struct("<8sIIQQIIII")
_TRAILER_CHECKED = Struct("<8sIIQQIII")
_WRITE_BYTES = 1 << 20
_RUN_MAX = 256
CONTROL_COLUMNS = PRIORITY | EXPIRY | DELIVER_AT | KEY_HASH | RELATIVE


HIDDEN_TOPIC = 0
"""No topic has this id: under it lies what was staged and not yet committed."""


class BatchEntry(NamedTuple):
    """One batch in a segment."""

    topic: int
    base: int
    first_time: int
    last_time: int
    position: int
    length: int
    size: int
    rows: int
    columns: int

    @property
    def next(self) -> int:
        return self.base + self.rows


class Section(NamedTuple):
    """A topic's part of a segment: what a manifest needs to know of it."""

    file: str
    base: int
    next: int
    first_time: int
    last_time: int
    size: int
    columns: int = 0
    """The column bits of all its batches."""


class SegmentWriter:
    """Writes one segment. Nothing of it counts before `seal` has returned."""

    def __init__(self, filesystem: Creates, name: str) -> None:
        self.name = name
        self._file: File = filesystem.create(name)
        self._entries: list[BatchEntry] = []
        self._pending: list[bytes | memoryview] = [MAGIC]
        self._pending_bytes = len(MAGIC)
        self._position = 0
        self._checksum = 0
        self._control: list[bytes] = []

    @property
    def size(self) -> int:
        return self._position + self._pending_bytes

    def add(self, topic: int, batch: RecordBatch) -> None:
        """Append a stamped batch. The batches of a topic come in order, without a gap."""
        at = self._position + self._pending_bytes
        last = batch.row_count - 1
        self._entries.append(
            BatchEntry(
                topic,
                batch.base_offset,
                batch.time(0),
                batch.time(last),
                at,
                batch.byte_length,
                batch.size(0, batch.row_count),
                batch.row_count,
                batch.columns,
            )
        )
        length = _control_bytes(batch.columns, batch.row_count)
        if length:
            self._control.append(bytes(batch.body[:length]))
        self._pending += (batch.header(), batch.body)
        self._pending_bytes += batch.byte_length
        if self._pending_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        for buffer in self._pending:
            self._checksum = crc32c(buffer, self._checksum)
        self._file.pwritev(self._pending, self._position)
        self._position += self._pending_bytes
        self._pending, self._pending_bytes = [], 0

    def seal(self) -> list[tuple[int, Section]]:
        """Finish and sync the file; the sections it holds, by topic id.

        The file's name is durable only after its directory was synced too.
        """
        self._write()
        index = b"".join(_ENTRY.pack(*entry) for entry in self._entries)
        control = b"".join(self._control)
        checked = _TRAILER_CHECKED.pack(
            TRAILER_MAGIC, VERSION, CRC32C, len(self._entries), self._position, self._checksum,
            crc32c(index), crc32c(control),
        )  # fmt: skip
        trailer = checked + crc32c(checked).to_bytes(4, "little")
        self._file.pwritev([index, control, trailer], self._position)
        self._file.sync_all()
        self._file.close()
        return list(sections(self.name, self._entries).items())

    def abandon(self) -> None:
        self._file.close()


def _control_bytes(columns: int, rows: int) -> int:
    """What a batch has in the control part: nothing where queues treat it as a range of offsets."""
    return control_size(columns, rows) if columns & NOT_PLAIN else 0


def sections(file: str, entries: Iterable[BatchEntry]) -> dict[int, Section]:
    found: dict[int, Section] = {}
    for entry in entries:
        known = found.get(entry.topic)
        if known is None:
            found[entry.topic] = Section(
                file, entry.base, entry.next, entry.first_time, entry.last_time, entry.size,
                entry.columns,
            )  # fmt: skip
        else:
            found[entry.topic] = known._replace(
                next=entry.next,
                last_time=entry.last_time,
                size=known.size + entry.size,
                columns=known.columns | entry.columns,
            )
    return found


class Trailer(NamedTuple):
    """What a segment says of itself."""

    size: int
    entries: int
    data_end: int
    data_checksum: int
    index_checksum: int
    control_checksum: int

    @property
    def behind_index(self) -> int:
        return self.data_end + self.entries * _ENTRY.size

    def parts(self) -> list[tuple[int, int, int]]:
        """Data, index and control: where each begins and ends, and its checksum."""
        behind_control = self.size - _TRAILER.size
        return [
            (0, self.data_end, self.data_checksum),
            (self.data_end, self.behind_index, self.index_checksum),
            (self.behind_index, behind_control, self.control_checksum),
        ]


def read_trailer(file: File, name: str) -> Trailer:
    """The trailer of a segment. Raises Corrupt, or UnsupportedFormat."""
    size = file.size()
    if size < len(MAGIC) + _TRAILER.size:
        raise _corrupt(name, f"is {size:,} bytes; it was cut short")
    data = file.pread(_TRAILER.size, size - _TRAILER.size)
    if len(data) < _TRAILER.size:
        raise _corrupt(name, "was cut short")
    magic, version, checksum_id, *fields, checksum = _TRAILER.unpack(data)
    if magic != TRAILER_MAGIC or crc32c(data[: _TRAILER_CHECKED.size]) != checksum:
        raise _corrupt(name, "has no valid trailer")
    if version != VERSION or checksum_id != CRC32C:
        raise UnsupportedFormat(
            f"segment {name} has version {version}, checksum {checksum_id}; "
            f"this FlintMQ reads version {VERSION}, checksum {CRC32C}"
        )
    trailer = Trailer(size, *fields)
    if trailer.behind_index + _TRAILER.size > size:
        raise _corrupt(name, "does not have the length its trailer says")
    return trailer


class Segment:
    """A sealed segment, open for reading. The index is read when it is first needed."""

    def __init__(self, filesystem: Opens, name: str) -> None:
        self.name = name
        self._file: File = filesystem.open(name)
        self._by_topic: dict[int, list[BatchEntry]] = {}
        self._bases: dict[int, list[int]] = {}
        self._data_end = 0
        self._data_checksum = 0
        self._control = (0, 0, 0)
        self._control_at: dict[int, tuple[int, int]] = {}
        self._control_is_good: bool | None = None
        try:
            self._read_index()
        except BaseException:
            self._file.close()
            raise

    def _read_index(self) -> None:
        trailer = read_trailer(self._file, self.name)
        size, data_end, count = trailer.size, trailer.data_end, trailer.entries
        behind_index = trailer.behind_index
        index = self._file.pread(count * _ENTRY.size, data_end)
        if crc32c(index) != trailer.index_checksum:
            raise self._corrupt("has a damaged index")
        control_bytes = 0
        for fields in _ENTRY.iter_unpack(index):
            entry = BatchEntry(*fields)
            self._by_topic.setdefault(entry.topic, []).append(entry)
            self._bases.setdefault(entry.topic, []).append(entry.base)
            length = _control_bytes(entry.columns, entry.rows)
            if length:
                self._control_at[entry.position] = (behind_index + control_bytes, length)
                control_bytes += length
        if behind_index + control_bytes + _TRAILER.size != size:
            raise self._corrupt("does not have the length its trailer says")
        self._data_end, self._data_checksum = data_end, trailer.data_checksum
        self._control = (behind_index, control_bytes, trailer.control_checksum)

    def topics(self) -> list[int]:
        return list(self._by_topic)

    def entries(self, topic: int) -> list[BatchEntry]:
        return self._by_topic.get(topic, [])

    def all_entries(self) -> list[BatchEntry]:
        return [entry for entries in self._by_topic.values() for entry in entries]

    def entry_at(self, topic: int, offset: int) -> BatchEntry:
        """The batch that holds an offset."""
        return self._by_topic[topic][bisect_right(self._bases[topic], offset) - 1]

    def between(self, topic: int, start: int, stop: int) -> list[BatchEntry]:
        """The batches of a topic from one that begins at `start` up to one that ends at `stop`."""
        entries, bases = self._by_topic.get(topic, []), self._bases.get(topic, [])
        found = entries[bisect_left(bases, start) : bisect_left(bases, stop)]
        if not found or found[0].base != start or found[-1].next != stop:
            raise self._corrupt(f"does not hold offsets {start} to {stop - 1} as it should")
        return found

    def entry_or_hole(self, topic: int, offset: int, section: Section) -> BatchEntry | HoleBatch:
        """The batch that holds an offset, or the hole that compaction has left there."""
        entries = self._by_topic[topic]
        at = bisect_right(self._bases[topic], offset)
        first, time = section.base, section.first_time
        if at:
            before = entries[at - 1]
            if offset < before.next:
                return before
            first, time = max(first, before.next), max(time, before.last_time)
        stop = min(section.next, entries[at].base if at < len(entries) else section.next)
        return hole(first, stop - first, time)

    def run(
        self, topic: int, base: int, bytes_max: int, *, is_control: bool = False
    ) -> list[BatchEntry]:
        """The batches of a topic from a base offset on, or those of them that have control columns:
        up to `bytes_max` bytes, but at least one."""
        first = bisect_left(self._bases[topic], base)
        size = 0
        run: list[BatchEntry] = []
        for entry in self._by_topic[topic][first : first + _RUN_MAX]:
            length = entry.length
            if is_control:
                length = self._control_at.get(entry.position, (0, 0))[1]
            size += length
            if run and size > bytes_max:
                break
            if length:
                run.append(entry)
        return run

    def entry_at_time(self, topic: int, time_ms: int) -> BatchEntry | None:
        """The first batch with a message of `time_ms` or later."""
        entries = self._by_topic[topic]
        at = bisect_left(entries, time_ms, key=lambda entry: entry.last_time)
        return entries[at] if at < len(entries) else None

    def read(self, entry: BatchEntry) -> RecordBatch:
        """A batch, its checksums verified."""
        return self._decoded(entry, self._file.pread(entry.length, entry.position))

    def read_cached(self, entry: BatchEntry, scratch: bytearray) -> RecordBatch | None:
        """The same if the system has it in memory, and it is good."""
        data = memoryview(scratch)[: entry.length]
        try:
            is_there = self._file.pread_cached(data, entry.position)
            return self._decoded(entry, bytes(data)) if is_there else None
        except Corrupt:  # reported when a thread reads it
            return None

    def _decoded(self, entry: BatchEntry, data: bytes) -> RecordBatch:
        try:
            batch = RecordBatch.decode(data)
        except UnsupportedFormat:
            raise
        except Corrupt as error:
            raise self._corrupt(f"at byte {entry.position:,}: {error}") from error
        if batch.base_offset != entry.base or batch.row_count != entry.rows:
            raise self._corrupt(
                f"at byte {entry.position:,} holds another batch than its index says"
            )
        return batch

    def read_control(self, entry: BatchEntry) -> RecordBatch | None:
        """The control columns of a batch, as a batch without values; None if it has none of them.

        Nothing of the payload is read.
        """
        place = self._control_at.get(entry.position)
        if place is None:
            return None
        self._check_control()
        control = self._file.pread(place[1], place[0])
        return RecordBatch(
            columns=entry.columns & CONTROL_COLUMNS,
            row_count=entry.rows,
            body=control,
            control_length=len(control),
            payload_length=0,
            raw_length=0,
            base_offset=entry.base,
            append_time=entry.first_time,
        )

    def _check_control(self) -> None:
        if self._control_is_good is None:
            position, length, checksum = self._control
            self._control_is_good = crc32c(self._file.pread(length, position)) == checksum
        if not self._control_is_good:
            raise self._corrupt("has damaged control columns")

    def verify(self) -> None:
        """Check the whole file: the data against the trailer's checksum. Raises Corrupt."""
        self._check_control()
        checksum = 0
        for position in range(0, self._data_end, _WRITE_BYTES):
            length = min(_WRITE_BYTES, self._data_end - position)
            checksum = crc32c(self._file.pread(length, position), checksum)
        if checksum != self._data_checksum:
            raise self._corrupt("does not match its checksum")

    def close(self) -> None:
        self._file.close()

    def _corrupt(self, what: str) -> Corrupt:
        return _corrupt(self.name, what)


def _corrupt(name: str, what: str) -> Corrupt:
    return Corrupt(
        f"segment {name} {what}; `flintmq log repair` can save what is readable, "
        "or restore a backup"
    )


def cause_of(error: FlintError) -> str:
    """The text of an error without its remedy."""
    return str(error).partition(";")[0]


_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_damage(error: FlintError) -> bool:
    """Whether what could not be read is damaged, as far as reading can tell: not where it is of
    another version, or the process has too many files open."""
    if isinstance(error, StorageFailed):
        cause = error.__cause__
        return not (isinstance(cause, OSError) and cause.errno in _PASSING)
    return isinstance(error, Corrupt) and not isinstance(error, UnsupportedFormat)


def joined(batches: Iterable[RecordBatch], rows_max: int, bytes_max: int) -> Iterator[RecordBatch]:
    """The same messages in fewer batches: runs of small plain ones become one, others stay. Where
    compaction has taken messages, a run ends."""
    from ..batch import concat

    run: list[RecordBatch] = []
    rows = size = expected = 0
    for batch in batches:
        small = batch.is_plain and not batch.compression and batch.row_count < rows_max // 2
        small = small and not isinstance(batch, LostBatch)
        if run and (
            not small
            or batch.base_offset != expected
            or rows + batch.row_count > rows_max
            or size + batch.byte_length > bytes_max
        ):
            yield concat(run) if len(run) > 1 else run[0]
            run, rows, size = [], 0, 0
        if small:
            run.append(batch)
            rows += batch.row_count
            size += batch.byte_length
            expected = batch.base_offset + batch.row_count
        else:
            yield batch
    if run:
        yield concat(run) if len(run) > 1 else run[0]
