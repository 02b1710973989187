"""Batches that several tests look at, and the tools to forge them.

A row of the model is a plain object with every fact of a message; a list of them says what a batch
must hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from struct import Struct

from fastcrc.crc32 import iscsi as crc32c

from flintmq.batch import BatchBuilder, HeaderValue, Key, RecordBatch, RowSource
from flintmq.batch.format import HEADER, HEADER_BYTES, PRODUCER_DECIDES

NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Row:
    """What is expected of one row."""

    value: bytes
    key: Key | None = None
    headers: dict[str, HeaderValue] = field(default_factory=dict)
    priority: int = 0
    expiry: int = 0
    deliver_at: int = 0
    content_type: str | None = None


EVERY_COLUMN = [
    Row(b"plain"),
    Row(b"", key="text key"),
    Row(b"\x00\xff", key=b"\xff\xfe"),
    Row(
        "größer".encode(),
        key="schlüssel",
        headers={"region": "eu", "trace": b"\x80\x81", "": ""},
        priority=7,
        expiry=NOW + 60_000,
        deliver_at=NOW + 5_000,
        content_type="application/json",
    ),
    Row(b"last", headers={"region": "us"}, priority=1, content_type="text/plain"),
]


def built(rows: Iterable[Row], times: list[int] | None = None) -> BatchBuilder:
    """A builder of these rows; with `times`, as if each had been appended at its own."""
    builder = BatchBuilder()
    for index, row in enumerate(rows):
        one = BatchBuilder() if times else builder
        one.append_row(
            row.value,
            key=row.key,
            headers=row.headers,
            priority=row.priority,
            expiry=row.expiry,
            deliver_at=row.deliver_at,
            content_type=row.content_type,
        )
        if times:
            builder.extend_at(one, times[index])
    return builder


def every_column(compression: str = "none") -> RecordBatch:
    """A stamped batch in which every column, kind and flag of the format is used."""
    times = [NOW + 10 * row for row in range(len(EVERY_COLUMN))]
    batch = built(EVERY_COLUMN, times).seal(
        compression=compression, producer="producer-1", base_sequence=99
    )
    batch.stamp(1_000, NOW)
    return batch


def rows_of(source: RowSource) -> list[Row]:
    return [
        Row(
            value=source.value(row),
            key=source.key(row),
            headers=source.headers(row),
            priority=source.priority(row),
            expiry=source.expiry(row),
            deliver_at=source.deliver_at(row),
            content_type=source.content_type(row),
        )
        for row in range(source.row_count)
    ]


def meant(row: Row, append_time: int) -> Row:
    """What a row says once it is appended: durations are times then."""
    if not append_time:
        return row
    times = {
        name: append_time - entry if (entry := getattr(row, name)) < 0 else entry
        for name in ("expiry", "deliver_at")
    }
    return replace(row, **times)


def times_of(source: RowSource) -> list[int]:
    return [source.time(row) for row in range(source.row_count)]


def look_at_everything(batch: RecordBatch) -> None:
    """Read whatever can be read of a batch, in every way there is."""
    rows = batch.row_count
    _ = batch.producer
    batch.values()
    batch.forget()
    batch.values(rows // 2, rows)
    for row in range(rows - 1, -1, -1):
        batch.value(row)
    rows_of(batch)
    times_of(batch)
    batch.size(0, rows)
    for row in range(rows):
        batch.key_hash(row)
        batch.size(row, row + 1)


# --- forging: bytes that are wrong although every checksum is right

FIELDS = (
    "magic", "version", "checksum", "compression", "zero", "columns", "rows", "control",
    "payload", "raw", "body_checksum", "base_sequence", "base_offset", "append_time", "zeros",
    "header_checksum",
)  # fmt: skip
_CHECKSUM = Struct("<I")


def resealed(data: bytes | bytearray, **fields: int) -> bytes:
    """`data` with some header fields replaced and both checksums made anew."""
    header = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | fields
    decided = [header[name] for name in FIELDS if name not in NOT_UNDER_BODY_CHECKSUM]
    body = bytes(data[HEADER_BYTES:])
    if "body_checksum" not in fields:
        header["body_checksum"] = crc32c(body, crc32c(PRODUCER_DECIDES.pack(*decided)))
    packed = HEADER.pack(*header.values())[: -_CHECKSUM.size]
    return packed + _CHECKSUM.pack(crc32c(packed)) + body


NOT_UNDER_BODY_CHECKSUM = {
    "body_checksum", "base_offset", "append_time", "zeros", "header_checksum",
}  # fmt: skip


def with_i32(data: bytes, at: int, number: int) -> bytes:
    """`data` with one number of its body replaced, and valid checksums. `at` counts in the body."""
    forged = bytearray(data)
    forged[HEADER_BYTES + at : HEADER_BYTES + at + 4] = number.to_bytes(4, "little", signed=True)
    return resealed(forged)


def with_byte(data: bytes, at: int, byte: int) -> bytes:
    forged = bytearray(data)
    forged[HEADER_BYTES + at] = byte
    return resealed(forged)
