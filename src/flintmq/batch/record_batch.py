"""A finished batch: header fields and columns that are decoded when asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ..errors import Corrupt, MessageTooLarge, UnsupportedFormat
from .checksum import crc32c
from .columns import (
    WIDTH_UNKNOWN,
    Layout,
    common_width,
    item_at,
    span,
    split,
    text,
    text_or_bytes,
    unpack_equal,
    walk,
)
from .compression import decompress_payload
from .format import (
    COMPRESSION_NAMES,
    COMPRESSIONS,
    CONTENT_TYPES,
    CRC32C,
    DELIVER_AT,
    EXPIRY,
    HEADER,
    HEADER_BYTES,
    HEADER_CHECKED,
    HEADERS,
    I32,
    I32_PAIR,
    KEY_HASH,
    KEYS,
    KNOWN_COLUMNS,
    MAGIC,
    NOT_PLAIN,
    PRIORITY,
    PRODUCER,
    PRODUCER_DECIDES,
    RAW_BYTES_MAX,
    RELATIVE,
    TIMES,
    TYPES_VARY,
    U32,
    UNSTAMPED,
    VERSION,
    Buffer,
    HeaderValue,
    Key,
    control_size,
    control_width,
    moment,
    padded,
)


class RecordBatch:
    """A finished batch: parsed header fields over a body that is never touched again.

    Columns are decoded when asked for. `stamp` is the only change a batch ever sees.
    """

    __slots__ = (
        "_body_checksum",
        "_decoded",
        "_last_row",
        "_layout",
        "_producer",
        "_raw",
        "_size",
        "_width",
        "append_time",
        "base_offset",
        "base_sequence",
        "body",
        "cache",
        "columns",
        "compression",
        "control_length",
        "payload_length",
        "raw_length",
        "row_count",
    )

    def __init__(
        self,
        *,
        columns: int,
        row_count: int,
        body: Buffer,
        control_length: int,
        payload_length: int,
        raw_length: int,
        compression: int = 0,
        base_sequence: int = 0,
        base_offset: int = UNSTAMPED,
        append_time: int = 0,
        body_checksum: int | None = None,
        producer: str | None = None,
        size: int = -1,
    ) -> None:
        """`producer` and `size`, of all rows, where they are known already: what the body says."""
        self.columns = columns
        self.row_count = row_count
        self.body = body
        self.control_length = control_length
        self.payload_length = payload_length
        self.raw_length = raw_length
        self.compression = compression
        self.base_sequence = base_sequence
        self.base_offset = base_offset
        self.append_time = append_time
        self._body_checksum = body_checksum
        self._raw: Buffer | None = None
        self._layout: Layout | None = None
        self._width = WIDTH_UNKNOWN
        self._last_row = -1
        self._size = size
        self._producer = producer
        self._decoded: tuple[bytes, ...] | None = None
        self.cache: DecodeCache | None = None

    # --- bytes

    @classmethod
    def decode(
        cls, buffer: Buffer | bytearray, *, verify: bool = True, raw_bytes_max: int = RAW_BYTES_MAX
    ) -> RecordBatch:
        """The one batch that fills `buffer` exactly. Raises Corrupt or UnsupportedFormat."""
        batch, end = cls.decode_from(buffer, 0, verify=verify, raw_bytes_max=raw_bytes_max)
        if end != len(buffer):
            raise Corrupt(
                f"a record batch of {end:,} bytes is followed by {len(buffer) - end:,} more"
            )
        return batch

    @classmethod
    def decode_from(
        cls,
        buffer: Buffer | bytearray,
        position: int,
        *,
        verify: bool = True,
        raw_bytes_max: int = RAW_BYTES_MAX,
    ) -> tuple[RecordBatch, int]:
        """The batch that starts at `position`, and where it ends. Bodies are not copied.

        `verify=False` leaves out the body checksum, for bytes that were checked before.
        """
        if len(buffer) - position < HEADER_BYTES:
            raise Corrupt(
                f"a record batch header is {HEADER_BYTES} bytes; {len(buffer) - position} are there"
            )
        (
            magic, version, checksum, compression, zero, columns, row_count, control_length,
            payload_length, raw_length, body_checksum, base_sequence, base_offset, append_time,
            zeros, header_checksum,
        ) = HEADER.unpack_from(buffer, position)  # fmt: skip
        if magic != MAGIC:
            raise Corrupt(f"a record batch begins with {MAGIC!r}, not {magic!r}")
        if version != VERSION or checksum != CRC32C:
            raise UnsupportedFormat(
                f"record batch version {version}, checksum {checksum}; "
                f"this FlintMQ reads version {VERSION}, checksum {CRC32C}"
            )
        view = memoryview(buffer)
        if crc32c(view[position : position + HEADER_BYTES - 4]) != header_checksum:
            raise Corrupt("the header of a record batch does not match its checksum")
        if columns & ~KNOWN_COLUMNS or compression not in COMPRESSION_NAMES or zero or zeros:
            raise UnsupportedFormat(
                f"record batch with columns {columns:#x}, compression {compression}; "
                "a newer FlintMQ wrote it"
            )
        start = position + HEADER_BYTES
        end = start + control_length + padded(payload_length)
        if end > len(buffer):
            raise Corrupt(f"a record batch needs {end - position:,} bytes; it was cut short")
        _check_lengths(
            row_count,
            columns,
            control_length,
            payload_length,
            raw_length,
            compression,
            base_offset,
        )
        if raw_length > raw_bytes_max:
            raise MessageTooLarge("a record batch", raw_length, raw_bytes_max, "raw_bytes_max")
        batch = cls(
            columns=columns,
            row_count=row_count,
            body=view[start:end].toreadonly(),
            control_length=control_length,
            payload_length=payload_length,
            raw_length=raw_length,
            compression=compression,
            base_sequence=base_sequence,
            base_offset=base_offset,
            append_time=append_time,
            body_checksum=body_checksum,
        )
        if verify and batch._checksum_of_body() != body_checksum:
            raise Corrupt(
                f"the body of a record batch ({row_count:,} rows, base offset {base_offset}) "
                "does not match its checksum"
            )
        batch._check_control()
        return batch, end

    def header(self) -> bytes:
        checked = HEADER_CHECKED.pack(
            MAGIC, VERSION, CRC32C, self.compression, 0, self.columns, self.row_count,
            self.control_length, self.payload_length, self.raw_length, self.body_checksum,
            self.base_sequence, self.base_offset, self.append_time, 0,
        )  # fmt: skip
        return checked + U32.pack(crc32c(checked))

    def encode(self) -> bytes:
        """Header and body in one piece. Writers that can, send `header()` and `body` apart."""
        return b"".join((self.header(), self.body))

    @property
    def byte_length(self) -> int:
        return HEADER_BYTES + len(self.body)

    @property
    def body_checksum(self) -> int:
        if self._body_checksum is None:
            self._body_checksum = self._checksum_of_body()
        return self._body_checksum

    def _checksum_of_body(self) -> int:
        decided = PRODUCER_DECIDES.pack(
            MAGIC, VERSION, CRC32C, self.compression, 0, self.columns, self.row_count,
            self.control_length, self.payload_length, self.raw_length, self.base_sequence,
        )  # fmt: skip
        return crc32c(self.body, crc32c(decided))

    def stamp(self, base_offset: int, append_time: int) -> None:
        """Give the rows their place in a topic. Rows and body stay as they are."""
        self.base_offset, self.append_time = base_offset, append_time

    # --- control

    @property
    def is_plain(self) -> bool:
        """No control column but the key hash: queues treat such rows as a range of offsets."""
        return not self.columns & NOT_PLAIN

    @property
    def producer(self) -> str | None:
        if not self.columns & PRODUCER:
            return None
        if self._producer is None:  # asked for several times on the way of every publish
            at = control_size(self.columns, self.row_count)
            (length,) = U32.unpack_from(self.body, at)
            self._producer = text(self.body[at + 4 : at + 4 + length])
        return self._producer

    def priority(self, row: int) -> int:
        return self.body[row] if self.columns & PRIORITY else 0

    def expiry(self, row: int) -> int:
        if not self.columns & EXPIRY:
            return 0
        entry: int = self._control_i64(EXPIRY)[row]
        return entry if entry >= 0 else moment(entry, self.append_time)

    def deliver_at(self, row: int) -> int:
        if not self.columns & DELIVER_AT:
            return 0
        entry: int = self._control_i64(DELIVER_AT)[row]
        return entry if entry >= 0 else moment(entry, self.append_time)

    def key_hash(self, row: int) -> int:
        if not self.columns & KEY_HASH:
            return 0
        return int(self.control_column(KEY_HASH).cast("I")[row])

    def control_column(self, column: int) -> memoryview:
        """The raw bytes of one control column, without a copy."""
        at = self.control_offset(column)
        return memoryview(self.body)[at : at + control_width(column) * self.row_count]

    def control_offset(self, column: int) -> int:
        """Where in the body one control column begins."""
        return control_size(self.columns & (column - 1), self.row_count)

    def _control_i64(self, column: int) -> memoryview:
        return self.control_column(column).cast("q")

    def _check_control(self) -> None:
        fixed = control_size(self.columns, self.row_count)
        expected = fixed
        if self.columns & PRODUCER:
            if self.control_length < fixed + 4:
                raise Corrupt("the control section of a record batch is shorter than its columns")
            (length,) = U32.unpack_from(self.body, fixed)
            expected = fixed + padded(4 + length)
        if expected != self.control_length:
            raise Corrupt(
                f"the control section of a record batch is {self.control_length:,} bytes; "
                f"its columns need {expected:,}"
            )

    # --- payload

    def payload(self) -> tuple[Buffer, Layout]:
        """The raw payload, opened if it is compressed, and where its columns lie."""
        layout = self._layout
        if layout is None:
            if self.compression:
                compressed = self.body[
                    self.control_length : self.control_length + self.payload_length
                ]
                self._raw = decompress_payload(self.compression, compressed, self.raw_length)
                layout = walk(self._raw, 0, self.raw_length, self.row_count, self.columns)
            else:
                self._raw = self.body
                layout = walk(
                    self.body, self.control_length, self.raw_length, self.row_count, self.columns
                )
            self._layout = layout
            if self.compression and self.cache is not None:
                self.cache.keep_open(self)
        assert self._raw is not None
        return self._raw, layout

    def values(self, start: int = 0, stop: int | None = None) -> tuple[bytes, ...]:
        """The values of a range of rows. What was decoded shortly before is not decoded again."""
        if stop is None:
            stop = self.row_count
        decoded = self._decoded
        if decoded is not None:
            return decoded if stop - start == self.row_count else decoded[start:stop]
        raw, layout = self.payload()
        if self._width == WIDTH_UNKNOWN:
            self._width = common_width(raw, layout.values, self.row_count)
        if self._width >= 0:
            values = unpack_equal(raw, layout.values.data, self._width, start, stop)
        else:
            values = tuple(split(raw, layout.values, start, stop))
        if self.cache is not None and stop - start == self.row_count:
            self.cache.keep(self, values)
        return values

    def remember(self, values: tuple[bytes, ...]) -> None:
        """Keep the decoded values at hand; whoever calls this bounds how many batches do so."""
        self._decoded = values

    def forget(self) -> None:
        """Drop what was decoded; the next reader decodes again."""
        self._decoded = None
        if self.compression:
            self._raw = self._layout = None

    def value(self, row: int) -> bytes:
        if self._decoded is not None:
            return self._decoded[row]
        previous, self._last_row = self._last_row, row
        if row and row == previous + 1 and self.raw_length <= _AT_ONCE_BYTES_MAX:
            # Somebody goes through the rows one by one: decode them all in one go, if they can
            # be kept; to decode them all anew for every row would be far worse than one by one.
            if self.cache is None:
                self._decoded = self.values()
                return self._decoded[row]
            if self.cache.has_room_for(self):
                return self.values()[row]
        raw, layout = self.payload()
        return item_at(raw, layout.values, row)

    def key(self, row: int) -> Key | None:
        if not self.columns & KEYS:
            return None
        raw, layout = self.payload()
        return text_or_bytes(raw, layout.keys, layout.key_kinds, row)

    def headers(self, row: int) -> dict[str, HeaderValue]:
        if not self.columns & HEADERS:
            return {}
        raw, layout = self.payload()
        first, last = I32_PAIR.unpack_from(raw, layout.header_rows + 4 * row)
        _check_entries(first, last, layout)
        entries = {}
        for entry in range(first, last):
            value = text_or_bytes(raw, layout.header_values, layout.header_kinds, entry)
            if value is None:
                raise Corrupt("a header in a record batch has a name and no value")
            entries[text(item_at(raw, layout.header_names, entry))] = value
        return entries

    def content_type(self, row: int) -> str | None:
        if not self.columns & CONTENT_TYPES:
            return None
        raw, layout = self.payload()
        entry = 0
        if self.columns & TYPES_VARY:
            (entry,) = I32.unpack_from(raw, layout.type_rows + 4 * row)
            if not 0 <= entry < layout.type_count:
                raise Corrupt(f"content type {entry} of {layout.type_count:,} in a record batch")
        return text(item_at(raw, layout.types, entry)) or None

    def common_content_type(self) -> str | None:
        if not self.columns & CONTENT_TYPES:
            return ""
        return None if self.columns & TYPES_VARY else self.content_type(0) or ""

    def time(self, row: int) -> int:
        if not self.columns & TIMES:
            return self.append_time
        raw, layout = self.payload()
        return int(memoryview(raw)[layout.times : layout.times + 8 * self.row_count].cast("q")[row])

    def size(self, start: int, stop: int) -> int:
        """The bytes a range of rows counts for: values, keys, headers.

        A compressed batch counts as stored, spread evenly over its rows, so that counting never
        opens a payload.
        """
        if stop - start == self.row_count and self._size >= 0:
            return self._size  # asked for several times on the way of every publish
        if self.compression:
            length = self.payload_length
            return length * stop // self.row_count - length * start // self.row_count
        raw, layout = self.payload()
        size = span(raw, layout.values, start, stop)
        if self.columns & KEYS:
            size += span(raw, layout.keys, start, stop)
        if self.columns & HEADERS:
            (first,) = I32.unpack_from(raw, layout.header_rows + 4 * start)
            (last,) = I32.unpack_from(raw, layout.header_rows + 4 * stop)
            _check_entries(first, last, layout)
            size += span(raw, layout.header_names, first, last)
            size += span(raw, layout.header_values, first, last)
        if stop - start == self.row_count:
            self._size = size
        return size

    def __repr__(self) -> str:
        compression = COMPRESSION_NAMES[self.compression]
        return (
            f"RecordBatch(rows={self.row_count}, base_offset={self.base_offset}, "
            f"bytes={self.byte_length}, compression={compression!r})"
        )


class LostBatch(RecordBatch):
    """Stands for rows that are damaged. Its checksum is wrong: they stay so where it is written to,
    and it is joined with no other."""

    __slots__ = ()


def twin_of(batch: RecordBatch) -> RecordBatch:
    """Another header over the same body, with what is decoded of it so far; in no cache."""
    twin = (LostBatch if isinstance(batch, LostBatch) else RecordBatch)(
        columns=batch.columns,
        row_count=batch.row_count,
        body=batch.body,
        control_length=batch.control_length,
        payload_length=batch.payload_length,
        raw_length=batch.raw_length,
        compression=batch.compression,
        base_sequence=batch.base_sequence,
        base_offset=batch.base_offset,
        append_time=batch.append_time,
        body_checksum=batch._body_checksum,
    )
    twin._raw, twin._layout, twin._decoded = batch._raw, batch._layout, batch._decoded
    twin._width, twin._last_row = batch._width, batch._last_row
    twin._size, twin._producer = batch._size, batch._producer
    return twin


def _check_entries(first: int, last: int, layout: Layout) -> None:
    if not 0 <= first <= last <= layout.header_count:
        raise Corrupt("the rows of the headers of a record batch are out of order")


_OFFSET_MAX = 2**63 - 1


def _check_lengths(
    rows: int,
    columns: int,
    control: int,
    payload: int,
    raw: int,
    compression: int,
    base_offset: int,
) -> None:
    """What a header may say, checked before anything of that size is allocated."""
    if rows == 0:
        raise Corrupt("a record batch has no rows")
    if not UNSTAMPED <= base_offset <= _OFFSET_MAX - rows:
        raise Corrupt(f"a record batch of {rows:,} rows cannot begin at offset {base_offset}")
    if not compression and raw != payload:
        raise Corrupt(f"an uncompressed payload is {payload:,} bytes and claims {raw:,}")
    if columns & RELATIVE and columns & TIMES:
        raise Corrupt("a record batch has durations, and more than one time they may count from")
    if control & 7 or control < control_size(columns, rows) or raw < 4 * (rows + 1):
        raise Corrupt(f"a record batch of {rows:,} rows does not fit its sections")
    if compression == COMPRESSIONS["lz4"] and raw > 255 * payload + 64:
        raise Corrupt(f"{payload:,} bytes of lz4 cannot hold {raw:,}")


def decode_all(buffer: Buffer | bytearray, *, verify: bool = True) -> Iterator[RecordBatch]:
    """Every batch of a buffer that holds nothing but whole batches, one behind the other."""
    position = 0
    while position < len(buffer):
        batch, position = RecordBatch.decode_from(buffer, position, verify=verify)
        yield batch


_AT_ONCE_BYTES_MAX = 1 << 20  # larger ones are taken apart value by value unless asked for whole


class DecodeCache:
    """What was decoded of the batches read or published last, so that several readers share it.

    Bounded in bytes over all topics of a broker; the oldest are forgotten first. The payload that
    was decompressed last stays open even if it alone is over the bound: its rows are being read.
    """

    def __init__(self, bytes_max: int) -> None:
        self._held: OrderedDict[RecordBatch, int] = OrderedDict()
        self._bytes_max = bytes_max
        self.byte_count = 0
        """What the batches hold beside the bytes they are stored in."""

    def has_room_for(self, batch: RecordBatch) -> bool:
        return _decoded_bytes(batch) <= self._bytes_max

    def keep(self, batch: RecordBatch, values: tuple[bytes, ...]) -> None:
        """Hold the values of all rows, unless they alone are over the bound."""
        cost = _decoded_bytes(batch)
        if cost <= self._bytes_max:
            batch.remember(values)
            self._hold(batch, cost)

    def keep_open(self, batch: RecordBatch) -> None:
        """Hold a payload that has just been decompressed."""
        self._hold(batch, batch.raw_length)

    def _hold(self, batch: RecordBatch, cost: int) -> None:
        held = self._held
        self.byte_count += cost - held.pop(batch, 0)
        held[batch] = cost
        while self.byte_count > self._bytes_max and len(held) > 1:
            oldest, cost = held.popitem(last=False)
            oldest.forget()
            self.byte_count -= cost


def _decoded_bytes(batch: RecordBatch) -> int:
    """What the values of all rows cost in memory, and the payload that was opened for them."""
    copies = 2 if batch.compression else 1
    return copies * batch.raw_length + 48 * batch.row_count
