"""From single messages to a record batch, and from batches to parts and wholes of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any, TypeVar

from ..errors import InvalidRequest
from .columns import binary_parts, headers_length, text_or_bytes_parts, utf8_length
from .compression import compress_payload
from .few_rows import plain_batch
from .format import (
    COMPRESSIONS,
    CONTENT_TYPES,
    DELIVER_AT,
    EXPIRY,
    HEADER_KINDS,
    HEADERS,
    KEY_HASH,
    KEY_KINDS,
    KEYS,
    NOT_PLAIN,
    OBJECTS,
    PRIORITY,
    PRODUCER,
    RELATIVE,
    TIMES,
    TYPES_VARY,
    U32,
    U32_PAIR,
    UNSTAMPED,
    Buffer,
    HeaderValue,
    Key,
    RowSource,
    key_hash,
    moment,
    pad,
)
from .record_batch import LostBatch, RecordBatch

Item = TypeVar("Item")


class BatchBuilder:
    """Rows that are still being gathered. Appending costs a few hundred nanoseconds.

    Values stay the very objects that were appended, until `seal` lays them out as columns. Every
    other column is sparse: a row that does not use it costs nothing.

    Invariant: rows are only ever added at the end, so a range of rows, once there, never changes.
    """

    __slots__ = (
        "_common_type", "_extras", "_values", "append_time", "base_offset", "byte_count", "columns",
        "times",
    )  # fmt: skip

    def __init__(self, base_offset: int = UNSTAMPED, *, objects: bool = False) -> None:
        self._values: list[Any] = []
        self._extras: _Extras | None = None
        self._common_type: str | None = None  # of every row that has no type of its own in _extras
        self.columns = OBJECTS if objects else 0
        self.byte_count = 0
        self.base_offset = base_offset
        self.append_time = 0
        self.times: list[int] | None = None

    @classmethod
    def of(cls, values: list[bytes], content_type: str | None = None) -> BatchBuilder:
        """The rows of a list of values, which the builder takes over."""
        builder = cls()
        builder._values = values
        builder.byte_count = sum(map(len, values))
        if content_type:
            builder._common_type = content_type
            builder.columns = CONTENT_TYPES
        return builder

    @classmethod
    def of_objects(cls, values: list[Any]) -> BatchBuilder:
        """Rows of objects by reference: they are never laid out as bytes."""
        builder = cls(objects=True)
        builder._values = values
        return builder

    @property
    def row_count(self) -> int:
        return len(self._values)

    @property
    def is_plain(self) -> bool:
        return not self.columns & NOT_PLAIN

    @property
    def has_keys(self) -> bool:
        return bool(self.columns & KEYS)

    def empty_like(self) -> BatchBuilder:
        """A builder for rows of the same kind: bytes, or objects."""
        return BatchBuilder(objects=bool(self.columns & OBJECTS))

    def append(self, value: bytes) -> None:
        """Add one message that is nothing but its value."""
        self.byte_count += len(value)
        if self._common_type is not None:
            self._note_type(len(self._values), None)
        self._values.append(value)

    def append_typed(self, value: bytes, content_type: str | None) -> None:
        """Add one message that is nothing but its value and content type."""
        self.byte_count += len(value)
        if content_type != self._common_type:
            self._note_type(len(self._values), content_type)
        self._values.append(value)

    def _note_type(self, row: int, content_type: str | None) -> None:
        """Row `row`, the next one, has this content type."""
        if content_type == self._common_type:
            return
        self.columns |= CONTENT_TYPES
        if row == 0:
            self._common_type = content_type
            return
        if self._extras is None:
            self._extras = _Extras()
        self._extras.content_types[row] = content_type or ""

    def append_row(
        self,
        value: Any,
        *,
        key: Key | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        expiry: int = 0,
        deliver_at: int = 0,
        content_type: str | None = None,
    ) -> None:
        """Add one message: bytes, or any object where these are rows of objects. Expiry and
        deliver-at are milliseconds since 1970; below 0, so many milliseconds after the append."""
        # What can fail comes first: a row that is refused leaves nothing behind.
        size = 0 if self.columns & OBJECTS else len(value)
        if key is not None:
            size += utf8_length(key)
        entries = dict(headers) if headers else None
        if entries:
            size += headers_length(entries)
        row = len(self._values)
        extras = self._extras
        if extras is None:
            extras = self._extras = _Extras()
        if key is not None:
            extras.keys[row] = key
            self.columns |= KEYS | KEY_HASH
        if entries:
            extras.headers[row] = entries
            self.columns |= HEADERS
        if priority:
            extras.priorities[row] = priority
            self.columns |= PRIORITY
        if expiry:
            extras.expiries[row] = expiry
            self.columns |= EXPIRY
        if deliver_at:
            extras.deliver_ats[row] = deliver_at
            self.columns |= DELIVER_AT
        if expiry < 0 or deliver_at < 0:
            self.columns |= RELATIVE
        if content_type != self._common_type:
            self._note_type(row, content_type)
        self._values.append(value)
        self.byte_count += size

    def set_columns(
        self,
        *,
        keys: Sequence[Key | None] = (),
        headers: Sequence[dict[str, HeaderValue] | None] = (),
        priorities: Sequence[int | None] = (),
        expiries: Sequence[int | None] = (),
        deliver_ats: Sequence[int | None] = (),
    ) -> None:
        """Give all rows at once what they have beside their values; None and 0 are nothing."""
        if not (keys or headers or priorities or expiries or deliver_ats):
            return
        if self._extras is None:
            self._extras = _Extras()
        extras = self._extras
        extras.keys = {row: key for row, key in enumerate(keys) if key is not None}
        extras.headers = {row: entries for row, entries in enumerate(headers) if entries}
        extras.priorities = {row: number for row, number in enumerate(priorities) if number}
        extras.expiries = {row: time for row, time in enumerate(expiries) if time}
        extras.deliver_ats = {row: time for row, time in enumerate(deliver_ats) if time}
        self.byte_count += sum(map(utf8_length, extras.keys.values()))
        self.byte_count += sum(map(headers_length, extras.headers.values()))
        for column, bits in (
            (extras.keys, KEYS | KEY_HASH),
            (extras.headers, HEADERS),
            (extras.priorities, PRIORITY),
            (extras.expiries, EXPIRY),
            (extras.deliver_ats, DELIVER_AT),
        ):
            if column:
                self.columns |= bits
        for times in (extras.expiries, extras.deliver_ats):
            if times and min(times.values()) < 0:
                self.columns |= RELATIVE

    def set_content_types(self, types: Sequence[str | None]) -> None:
        """Give all rows at once their content types."""
        for row, content_type in enumerate(types):
            self._note_type(row, content_type)

    def extend(self, rows: RowSource, start: int, stop: int) -> None:
        """Add a range of rows of another batch, with the times they have there.

        Where they have an append time, their expiry and deliver-at are times from now on."""
        if start >= stop:
            return
        at = len(self._values)
        self._note_times(rows, at, start, stop)
        common = rows.common_content_type()
        if not at and common:
            self._note_type(0, common)
        if not rows.columns & ~(TIMES | PRODUCER | CONTENT_TYPES | OBJECTS) and common == (
            self._common_type or ""
        ):
            values = rows.values(start, stop)
            self._values.extend(values)
            self.byte_count += 0 if self.columns & OBJECTS else sum(map(len, values))
            return
        for row, value in enumerate(rows.values(start, stop), start):
            self.append_of(rows, row, value)

    def append_of(self, rows: RowSource, row: int, value: Any) -> None:
        """Add a row of another batch; its value is known."""
        self.append_row(
            value,
            key=rows.key(row),
            headers=rows.headers(row),
            priority=rows.priority(row),
            expiry=rows.expiry(row),
            deliver_at=rows.deliver_at(row),
            content_type=rows.content_type(row),
        )

    def extend_at(self, rows: BatchBuilder, time: int) -> None:
        """Add all rows of another builder as appended at `time`; 0 is not yet."""
        values = self._values
        at = len(values)
        count = len(rows._values)
        if not at:
            self.append_time = time
        if self.times is not None or time != self.append_time:
            self._times_until(at).extend(repeat(time, count))
        if not at:
            self._common_type = rows._common_type
        elif rows._common_type != self._common_type:
            for row in range(count):
                self._note_type(at + row, rows._common_type)
        self._values.extend(rows._values)
        self.byte_count += rows.byte_count
        columns = rows.columns & ~TIMES
        if rows._extras is not None:
            if self._extras is None:
                self._extras = _Extras()
            self._extras.extend(rows._extras, at)
            if columns & RELATIVE and time:
                self._extras.count_from(range(at, at + count), lambda row: time)
                columns &= ~RELATIVE
        self.columns |= columns

    def append_at(self, value: bytes, time: int, content_type: str | None = None) -> None:
        """Add one message that is nothing but its value and content type, as appended at `time`."""
        row, times = len(self._values), self.times
        if not row:
            self.append_time = time
        elif times is not None and len(times) == row:
            times.append(time)
        elif times is not None or time != self.append_time:
            self._times_until(row).append(time)
        self.byte_count += len(value)
        if content_type != self._common_type:
            self._note_type(row, content_type)
        self._values.append(value)

    def _note_times(self, rows: RowSource, at: int, start: int, stop: int) -> None:
        first = rows.time(start)
        if not at:
            self.append_time = first
        uniform = not rows.columns & TIMES
        if self.times is None and uniform and first == self.append_time:
            return
        self._times_until(at).extend(
            repeat(first, stop - start) if uniform else map(rows.time, range(start, stop))
        )

    def _times_until(self, row: int) -> list[int]:
        """The times of all rows before `row`; those appended one by one have the append time."""
        times = self.times
        if times is None:
            times = self.times = []
            self.columns |= TIMES
        if len(times) < row:
            times.extend(repeat(self.append_time, row - len(times)))
        return times

    # --- the rows so far, as a RowSource

    def values(self, start: int = 0, stop: int | None = None) -> list[Any]:
        return self._values[start:stop]

    def value(self, row: int) -> Any:
        return self._values[row]

    def key(self, row: int) -> Key | None:
        return self._extras.keys.get(row) if self._extras else None

    def headers(self, row: int) -> dict[str, HeaderValue]:
        return dict(self._extras.headers.get(row, ())) if self._extras else {}

    def content_type(self, row: int) -> str | None:
        if self._extras is None:
            return self._common_type
        return self._extras.content_types.get(row, self._common_type) or None

    def common_content_type(self) -> str | None:
        if self._extras is not None and self._extras.content_types:
            return None
        return self._common_type or ""

    def priority(self, row: int) -> int:
        return self._extras.priorities.get(row, 0) if self._extras else 0

    def expiry(self, row: int) -> int:
        return moment(self._extras.expiries.get(row, 0), self.time(row)) if self._extras else 0

    def deliver_at(self, row: int) -> int:
        return moment(self._extras.deliver_ats.get(row, 0), self.time(row)) if self._extras else 0

    def key_hash(self, row: int) -> int:
        key = self.key(row)
        return 0 if key is None else key_hash(key)

    def time(self, row: int) -> int:
        times = self.times
        return self.append_time if times is None or row >= len(times) else times[row]

    def size(self, start: int, stop: int) -> int:
        size = 0 if self.columns & OBJECTS else sum(map(len, self._values[start:stop]))
        if self._extras:
            size += self._extras.size(start, stop)
        return size

    # --- from rows to columns

    def seal(
        self, *, compression: str = "none", producer: str | None = None, base_sequence: int = 0
    ) -> RecordBatch:
        """Lay the rows out as a record batch. The builder itself stays as it is."""
        rows = len(self._values)
        if rows == 0:
            raise InvalidRequest("a record batch needs at least one row")
        if self.columns & OBJECTS:
            raise InvalidRequest("objects have no bytes; they exist in memory only")
        times = None if self.times is None else self._times_until(rows)
        if times is not None and times.count(self.append_time) == rows:
            times = None
        if times is not None and self.columns & RELATIVE:
            if not all(times):
                raise InvalidRequest("rows with and without an append time do not go together")
            assert self._extras is not None
            self._extras.count_from(range(rows), times.__getitem__)
            self.columns &= ~RELATIVE
        columns = self.columns & ~TIMES
        control = b""
        payload = binary_parts(self._values)
        if self._extras is not None or self._common_type is not None:
            extras = self._extras or _Extras()
            control = extras.control(rows, columns)
            columns |= extras.payload(rows, columns, self._common_type, payload)
        if producer is not None:
            control += producer_column(producer)
            columns |= PRODUCER
        if times is not None:
            payload.append(array("q", times).tobytes())
            columns |= TIMES
        if compression == "none":
            body = b"".join((control, *payload))
            raw_length = payload_length = len(body) - len(control)
        else:
            raw = b"".join(payload)
            stored = compress_payload(compression, raw)
            raw_length, payload_length = len(raw), len(stored)
            body = b"".join((control, stored, bytes(-payload_length & 7)))
        return RecordBatch(
            columns=columns,
            row_count=rows,
            body=body,
            control_length=len(control),
            payload_length=payload_length,
            raw_length=raw_length,
            compression=COMPRESSIONS[compression],
            base_sequence=base_sequence,
            base_offset=self.base_offset,
            append_time=self.append_time,
            producer=producer,
            size=self.byte_count if compression == "none" else -1,
        )

    def cut(self, start: int, stop: int) -> RecordBatch:
        """Some of the rows as a batch, with the offsets and times they have here."""
        base = self.base_offset
        part = BatchBuilder(UNSTAMPED if base == UNSTAMPED else base + start)
        if self._extras is not None or self.columns & OBJECTS:
            part.extend(self, start, stop)
            return part.seal()
        values = self._values[start:stop]
        time = self.time(start)
        if stop - start == 1 and not self._common_type:
            batch = plain_batch(values)
            batch.stamp(part.base_offset, time)
            return batch
        part._values, part.byte_count = values, sum(map(len, values))
        part.columns, part._common_type = self.columns & ~TIMES, self._common_type
        part.append_time = time
        if self.times is not None and start < len(self.times):
            times = self._times_until(len(self._values))[start:stop]
            if times.count(time) != len(times):
                part.times = times
        return part.seal()


class _Extras:
    """The columns beside the values, by row, for the rows that have them."""

    __slots__ = ("content_types", "deliver_ats", "expiries", "headers", "keys", "priorities")

    def __init__(self) -> None:
        self.keys: dict[int, Key] = {}
        self.headers: dict[int, dict[str, HeaderValue]] = {}
        self.priorities: dict[int, int] = {}
        self.expiries: dict[int, int] = {}
        self.deliver_ats: dict[int, int] = {}
        self.content_types: dict[int, str] = {}

    def extend(self, other: _Extras, at: int) -> None:
        _shift(self.keys, other.keys, at)
        _shift(self.headers, other.headers, at)
        _shift(self.priorities, other.priorities, at)
        _shift(self.expiries, other.expiries, at)
        _shift(self.deliver_ats, other.deliver_ats, at)
        _shift(self.content_types, other.content_types, at)

    def count_from(self, rows: range, time_of: Callable[[int], int]) -> None:
        """Durations of these rows become times."""
        for column in (self.expiries, self.deliver_ats):
            for row in rows:
                if (entry := column.get(row, 0)) < 0:
                    column[row] = moment(entry, time_of(row))

    def size(self, start: int, stop: int) -> int:
        rows = range(start, stop)
        size = sum(utf8_length(self.keys[row]) for row in rows if row in self.keys)
        return size + sum(headers_length(self.headers[row]) for row in rows if row in self.headers)

    def control(self, rows: int, columns: int) -> bytes:
        parts: list[bytes] = []
        if columns & PRIORITY:
            parts.append(pad(bytes(map(self.priorities.get, range(rows), repeat(0)))))
        if columns & EXPIRY:
            parts.append(array("q", map(self.expiries.get, range(rows), repeat(0))).tobytes())
        if columns & DELIVER_AT:
            parts.append(array("q", map(self.deliver_ats.get, range(rows), repeat(0))).tobytes())
        if columns & KEY_HASH:
            keys = self.keys
            hashes = array("I", (key_hash(keys[row]) if row in keys else 0 for row in range(rows)))
            parts.append(pad(hashes.tobytes()))
        return b"".join(parts)

    def payload(self, rows: int, columns: int, common: str | None, parts: list[Buffer]) -> int:
        """Add the columns behind the values to `parts`; the bits that qualify them."""
        bits = 0
        keys = [self.keys.get(row) for row in range(rows)] if columns & KEYS else None
        if keys is not None and text_or_bytes_parts(keys, parts):
            bits |= KEY_KINDS
        if columns & HEADERS and self._header_parts(rows, parts):
            bits |= HEADER_KINDS
        if columns & CONTENT_TYPES and self._content_type_parts(rows, common, parts):
            bits |= TYPES_VARY
        return bits

    def _header_parts(self, rows: int, parts: list[Buffer]) -> bool:
        by_row = [self.headers.get(row, {}) for row in range(rows)]
        parts.append(pad(array("i", accumulate(map(len, by_row), initial=0)).tobytes()))
        parts.extend(binary_parts([name.encode() for entries in by_row for name in entries]))
        return text_or_bytes_parts([v for entries in by_row for v in entries.values()], parts)

    def _content_type_parts(self, rows: int, common: str | None, parts: list[Buffer]) -> bool:
        distinct = set(self.content_types.values())
        if len(self.content_types) < rows:
            distinct.add(common or "")
        vary = len(distinct) > 1 or "" in distinct
        names = ["", *sorted(distinct - {""})] if vary else list(distinct)
        parts.append(U32_PAIR.pack(len(names), 0))
        parts.extend(binary_parts([name.encode() for name in names]))
        if vary:
            entry_of = {name: entry for entry, name in enumerate(names)}
            type_of = self.content_types.get
            entries = array("i", (entry_of[type_of(row, common or "")] for row in range(rows)))
            parts.append(pad(entries.tobytes()))
        return vary


@lru_cache(maxsize=64)
def producer_column(producer: str) -> bytes:
    """The same for every batch of a connection."""
    name = producer.encode()
    return pad(U32.pack(len(name)) + name)


def concat(batches: Sequence[RecordBatch], compression: str = "none") -> RecordBatch:
    """One batch of all the rows, in order. Stamped batches must follow each other without a gap.

    Durations of stamped batches become times: each counts from the append of its own batch.

    Producer ids and sequences are not kept: they have done their work when rows are joined.
    """
    if not batches:
        raise InvalidRequest("concat needs at least one batch")
    first = batches[0]
    expected = first.base_offset
    builder = BatchBuilder(base_offset=first.base_offset)
    for batch in batches:
        if batch.base_offset != expected:
            raise InvalidRequest(
                f"concat: offset {batch.base_offset} does not follow on; expected {expected}"
            )
        if expected != UNSTAMPED:
            expected += batch.row_count
        builder.extend(batch, 0, batch.row_count)
    return builder.seal(compression=compression)


def lost_rows(count: int, size: int = 0) -> LostBatch:
    """What stands for rows that are damaged, of about their size."""
    rows = BatchBuilder()
    value = bytes(size // count)
    for _ in range(count):
        rows.append(value)
    batch = rows.seal()
    return LostBatch(
        columns=batch.columns,
        row_count=count,
        body=batch.body,
        control_length=batch.control_length,
        payload_length=batch.payload_length,
        raw_length=batch.raw_length,
        body_checksum=batch.body_checksum ^ 1,
    )


def absolute(batch: RecordBatch, append_time: int) -> RecordBatch:
    """The same rows with times in place of durations, for who does not know of RELATIVE.

    The payload stays as it is.
    """
    if not batch.columns & RELATIVE:
        return batch
    length = batch.control_length
    control = bytearray(batch.body[:length])
    for column in (EXPIRY, DELIVER_AT):
        if batch.columns & column:
            at = batch.control_offset(column)
            entries = batch.control_column(column).cast("q").tolist()
            times = array("q", (moment(entry, append_time) for entry in entries))
            control[at : at + 8 * len(times)] = times.tobytes()
    return RecordBatch(
        columns=batch.columns & ~RELATIVE,
        row_count=batch.row_count,
        body=b"".join((control, batch.body[length:])),
        control_length=length,
        payload_length=batch.payload_length,
        raw_length=batch.raw_length,
        compression=batch.compression,
        base_sequence=batch.base_sequence,
        base_offset=batch.base_offset,
        append_time=batch.append_time,
    )


def _shift(column: dict[int, Item], other: dict[int, Item], at: int) -> None:
    """Take in the entries of another column, `at` rows further down."""
    if other:
        column.update((at + row, item) for row, item in other.items())
