"""The record batch: the one form in which messages travel, rest and are analysed.

Pure: bytes in, columns out, and back. Nothing here reads a clock, a socket or a disk.

    byte  0        4    5     6     7     8          12          16          20          24
          +--------+----+-----+-----+-----+----------+-----------+-----------+-----------+
          | "FMQB" | ver| sum | cmp | 0   | columns  | rows      | control   | payload   |
          +--------+----+-----+-----+-----+----------+-----------+-----------+-----------+
    byte 24            28              32                40                48
          +------------+---------------+-----------------+-----------------+
          | raw payload| body checksum | base sequence   | base offset     |
          +------------+---------------+-----------------+-----------------+
    byte 48            56          60                 64
          +------------+-----------+------------------+-----------+-----------+---------+
          | append time| 0         | header checksum  | control   | payload   | padding |
          +------------+-----------+------------------+-----------+-----------+---------+

All numbers are little-endian. `ver` is 1. `sum` names the checksum: 1 is CRC32C. `cmp` names the
compression of the payload: 0 none, 1 lz4 (one block), 2 zstd (one frame). `columns` is a bit set
(the names below). `control`, `payload` and `raw payload` are lengths in bytes; the payload's as
stored, the raw payload's before compression. Sequence is u64; offset and time are i64, the time in
milliseconds since 1970. A batch that no broker has stamped has offset -1 and time 0.

The body (control, payload, zeros up to a multiple of 8) and the header fields a producer decides
(bytes 0 to 28 and the base sequence) are under the body checksum, made once by the producer. Bytes
0 to 60 are under the header checksum, made anew by whoever stamps offset and time.

Columns follow each other in the order of their bits, each starting on a multiple of 8, zeros
between. An i32 offsets column has one entry more than it has items and begins with 0 (Arrow's
`binary` layout); `text kinds` say of each item 0 absent, 1 bytes, 2 text.

    control   PRIORITY       u8 per row
              EXPIRY         i64 per row, ms since 1970; 0 is never (see RELATIVE)
              DELIVER_AT     i64 per row, ms since 1970; 0 is at once (see RELATIVE)
              KEY_HASH       u32 per row; 0 is no key (see `key_hash`)
              PRODUCER       u32 length, then the producer's id in UTF-8
    payload   (always)       values: i32 offsets, data
              KEYS           i32 offsets, data; with KEY_KINDS text kinds per row, else all are text
              HEADERS        i32 entries before each row, names as offsets and data, values as
                             offsets and data; with HEADER_KINDS text kinds per entry, else text
              CONTENT_TYPES  u32 count, u32 zero, the distinct types as offsets and data; with
                             TYPES_VARY an i32 per row into them where entry 0 is "" for none,
                             else one type holds for every row
              TIMES          i64 per row, ms since 1970, where rows differ from the append time

RELATIVE is a flag among the bits, without a column: entries of EXPIRY and DELIVER_AT that are below
0 count from the append time, -30000 for 30 s after it. So a duration means the same whatever the
producer's clock says, and the bytes under the body checksum are the same each time they are sent.
Entries above 0 are times in every batch, and both kinds may be side by side. A batch with RELATIVE
has no TIMES: where rows of several append times are joined, durations become times. A batch without
the flag has no entry below 0; those of older producers are of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Protocol

from .checksum import crc32c

MAGIC = b"FMQB"
VERSION = 1
CRC32C = 1
HEADER = Struct("<4sBBBBIIIIIIQqqII")
HEADER_BYTES = HEADER.size
HEADER_CHECKED = Struct("<4sBBBBIIIIIIQqqI")  # all but the header checksum
PRODUCER_DECIDES = Struct("<4sBBBBIIIIIQ")  # what the body checksum also covers
U32 = Struct("<I")
I32 = Struct("<i")
I32_PAIR = Struct("<ii")
U32_PAIR = Struct("<II")

UNSTAMPED = -1
"""The base offset of a batch that no broker has taken in yet."""

COLUMN_BYTES_MAX = 2**31 - 1
"""What one column can hold: its offsets are 32-bit. A publisher splits long before that."""

RAW_BYTES_MAX = 1 << 30
"""What `decode` lets a compressed payload grow to unless told otherwise."""

# columns of the control section
PRIORITY = 1 << 0
EXPIRY = 1 << 1
DELIVER_AT = 1 << 2
KEY_HASH = 1 << 3
PRODUCER = 1 << 4
RELATIVE = 1 << 5
# columns of the payload section, and what qualifies them
KEYS = 1 << 8
KEY_KINDS = 1 << 9
HEADERS = 1 << 10
HEADER_KINDS = 1 << 11
CONTENT_TYPES = 1 << 12
TYPES_VARY = 1 << 13
TIMES = 1 << 14
KNOWN_COLUMNS = 0b0111_1111_0011_1111
NOT_PLAIN = PRIORITY | EXPIRY | DELIVER_AT

ABSENT, BYTES, TEXT = 0, 1, 2

COMPRESSIONS = {"none": 0, "lz4": 1, "zstd": 2}
COMPRESSION_NAMES = {code: name for name, code in COMPRESSIONS.items()}

OBJECTS = 1 << 30
"""Rows of a builder whose values are objects, not bytes: in memory only, never written."""

Key = str | bytes
HeaderValue = str | bytes
Buffer = bytes | memoryview


def key_hash(key: Key) -> int:
    """A u32 that is never 0, the same in every process and version; it routes and orders by key.

    The CRC32C of the key's UTF-8 bytes, spread by a multiplication: (crc * 0x9E3779B97F4A7C15
    mod 2**64) >> 32, and 1 where that gives 0.
    """
    data = key.encode() if isinstance(key, str) else key
    return (crc32c(data) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 32 or 1


class RowSource(Protocol):
    """Rows that can be looked at one by one: a finished batch, or one still being built."""

    base_offset: int

    @property
    def row_count(self) -> int: ...
    @property
    def columns(self) -> int: ...
    def value(self, row: int) -> Any: ...
    def values(self, start: int, stop: int) -> Sequence[Any]: ...
    def key(self, row: int) -> Key | None: ...
    def headers(self, row: int) -> dict[str, HeaderValue]: ...
    def content_type(self, row: int) -> str | None: ...
    def common_content_type(self) -> str | None:
        """The content type all rows share, "" where none has one; None where they differ."""
        ...

    def priority(self, row: int) -> int: ...
    def expiry(self, row: int) -> int:
        """When a row expires, in ms since 1970; 0 is never. Of rows that have no append time yet,
        a duration is still one: below 0, so many ms after the append."""
        ...

    def deliver_at(self, row: int) -> int:
        """When a row is due, in the same way; 0 is at once."""
        ...

    def key_hash(self, row: int) -> int: ...
    def time(self, row: int) -> int: ...
    def size(self, start: int, stop: int) -> int: ...


def moment(entry: int, append_time: int) -> int:
    """What an entry of EXPIRY or DELIVER_AT means for a row appended at that time; 0 is not yet."""
    return append_time - entry if entry < 0 and append_time else entry


def padded(length: int) -> int:
    return (length + 7) & ~7


def pad(data: bytes) -> bytes:
    return data + bytes(-len(data) & 7)


def control_width(column: int) -> int:
    return {PRIORITY: 1, EXPIRY: 8, DELIVER_AT: 8, KEY_HASH: 4}[column]


def control_size(columns: int, rows: int) -> int:
    """The bytes of the control columns of fixed width."""
    size = 0
    if columns & PRIORITY:
        size += padded(rows)
    if columns & EXPIRY:
        size += 8 * rows
    if columns & DELIVER_AT:
        size += 8 * rows
    if columns & KEY_HASH:
        size += padded(4 * rows)
    return size
