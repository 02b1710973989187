"""The bytes of a record batch: what was written once is read for ever, and written the same.

The samples under `golden` are never made anew. A change that does not match them is a new version
of the format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from flintmq.batch import (
    DELIVER_AT,
    EXPIRY,
    PRODUCER,
    RELATIVE,
    UNSTAMPED,
    BatchBuilder,
    RecordBatch,
    decode_all,
)
from flintmq.batch.format import HEADER_BYTES, KNOWN_COLUMNS
from flintmq.errors import Corrupt, InvalidRequest, MessageTooLarge, UnsupportedFormat
from tests.batch.samples import (
    EVERY_COLUMN,
    NOW,
    Row,
    built,
    every_column,
    meant,
    resealed,
    rows_of,
    times_of,
)

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Sample:
    rows: list[Row]
    times: list[int] | None = None
    compression: str = "none"
    producer: str | None = None
    base_sequence: int = 0
    base_offset: int = UNSTAMPED
    append_time: int = 0

    @property
    def meaning(self) -> list[Row]:
        """The rows with times in place of durations, if they have an append time."""
        return [meant(row, self.append_time) for row in self.rows]

    def batch(self) -> RecordBatch:
        batch = built(self.rows, self.times).seal(
            compression=self.compression, producer=self.producer, base_sequence=self.base_sequence
        )
        batch.stamp(self.base_offset, self.append_time)
        return batch


TIMES = [NOW + 10 * row for row in range(len(EVERY_COLUMN))]
DURATIONS = [
    Row(b"at once, for ever"),
    Row(b"gone in half a minute", expiry=-30_000),
    Row(b"gone at a time, due in a second", expiry=NOW + 60_000, deliver_at=-1_000),
    Row(b"due at a time", deliver_at=NOW + 5_000),
]
EVERYTHING = Sample(
    EVERY_COLUMN,
    times=TIMES,
    producer="producer-1",
    base_sequence=99,
    base_offset=1_000,
    append_time=NOW,
)
SAMPLES = {
    "one-row": Sample([Row(b"hello")]),
    "plain-unstamped": Sample([Row(b"one"), Row(b""), Row(b"three")]),
    "plain-stamped": Sample(
        [Row(b"four"), Row(b"five"), Row(b"nine")], base_offset=2**40, append_time=NOW
    ),
    "producer": Sample([Row(b"x")], producer="größer", base_sequence=2**64 - 1),
    "text-only": Sample(
        [
            Row(b"1", key="a", headers={"h": "v"}, content_type="text/plain"),
            Row(b"2", key="", headers={"h": "w", "i": ""}, content_type="text/plain"),
        ],
        base_offset=7,
        append_time=NOW,
    ),
    "priorities": Sample([Row(b"low"), Row(b"high", priority=7)], base_offset=0, append_time=NOW),
    "durations-unstamped": Sample(DURATIONS, producer="producer-1", base_sequence=5),
    "durations-stamped": Sample(DURATIONS, base_offset=40, append_time=NOW),
    "every-column": EVERYTHING,
    "every-column-lz4": Sample(**(vars(EVERYTHING) | {"compression": "lz4"})),
    "every-column-zstd": Sample(**(vars(EVERYTHING) | {"compression": "zstd"})),
}
UNCOMPRESSED = [name for name, sample in SAMPLES.items() if sample.compression == "none"]


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_batch_written_long_ago_decodes_to_the_same_rows(name: str) -> None:
    sample = SAMPLES[name]

    batch = RecordBatch.decode(golden(name))

    assert rows_of(batch) == sample.meaning
    assert list(batch.values()) == [row.value for row in sample.rows]
    assert times_of(batch) == (sample.times or [sample.append_time] * len(sample.rows))
    assert batch.base_offset == sample.base_offset
    assert batch.append_time == sample.append_time
    assert batch.producer == sample.producer
    assert batch.base_sequence == sample.base_sequence


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_the_same_rows_encode_to_the_very_same_bytes(name: str) -> None:
    assert SAMPLES[name].batch().encode().hex() == golden(name).hex()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_decoded_batch_encodes_to_the_bytes_it_came_from(name: str) -> None:
    batch = RecordBatch.decode(golden(name))

    assert batch.encode() == golden(name)
    assert batch.header() + bytes(batch.body) == golden(name)
    assert batch.byte_length == len(golden(name))


def test_the_samples_use_every_column_and_every_flag() -> None:
    batches = [RecordBatch.decode(golden(name)) for name in SAMPLES]

    assert RecordBatch.decode(golden("every-column")).columns == KNOWN_COLUMNS & ~RELATIVE
    assert any(batch.columns & RELATIVE for batch in batches)
    assert {batch.compression for batch in batches} == {0, 1, 2}
    assert {batch.base_offset == UNSTAMPED for batch in batches} == {True, False}


def test_the_smallest_batch_is_as_drawn() -> None:
    data = BatchBuilder.of([b"hello"]).seal().encode()

    assert data[:4] == b"FMQB"
    assert data[4:8] == bytes([1, 1, 0, 0])  # version, CRC32C, no compression, zero
    columns, rows, control, payload, raw = struct.unpack_from("<IIIII", data, 8)
    assert (columns, rows, control, payload, raw) == (0, 1, 0, 16, 16)
    assert struct.unpack_from("<Qqq", data, 32) == (0, -1, 0)  # sequence, offset, time
    assert struct.unpack_from("<I", data, 56) == (0,)
    assert data[64:] == struct.pack("<ii", 0, 5) + b"hello\0\0\0"
    # Both checksums by the book: bit by bit, over what the drawing says they cover.
    assert struct.unpack_from("<I", data, 28) == (
        crc32c_by_the_book(data[:28] + data[32:40] + data[64:]),
    )
    assert struct.unpack_from("<I", data, 60) == (crc32c_by_the_book(data[:60]),)


def test_durations_are_below_zero_and_no_stamp_changes_them() -> None:
    for name in ("durations-unstamped", "durations-stamped"):
        data = golden(name)
        assert struct.unpack_from("<I", data, 8)[0] & ~PRODUCER == EXPIRY | DELIVER_AT | RELATIVE
        assert struct.unpack_from("<8q", data, HEADER_BYTES) == (
            *(0, -30_000, NOW + 60_000, 0),
            *(0, 0, -1_000, NOW + 5_000),
        )


def test_durations_beside_rows_of_several_append_times_are_refused() -> None:
    data = every_column().encode()

    with pytest.raises(Corrupt, match="more than one time"):
        RecordBatch.decode(resealed(data, columns=KNOWN_COLUMNS))


def crc32c_by_the_book(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize("name", SAMPLES)
def test_a_batch_fills_whole_words_so_that_columns_stay_aligned(name: str) -> None:
    batch = RecordBatch.decode(golden(name))

    assert batch.byte_length % 8 == 0
    assert batch.control_length % 8 == 0
    assert batch.raw_length % 8 == 0


def test_stamping_changes_the_header_only() -> None:
    batch = every_column()
    before = batch.encode()
    batch.stamp(5, NOW + 1)
    after = batch.encode()

    changed = [at for at in range(len(before)) if before[at] != after[at]]
    assert changed
    assert all(40 <= at < 56 or 60 <= at < 64 for at in changed)
    assert RecordBatch.decode(after).base_offset == 5


def test_a_batch_can_be_decoded_from_any_buffer_at_any_place() -> None:
    data = every_column().encode()

    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert rows_of(RecordBatch.decode(buffer)) == EVERY_COLUMN
    batch, end = RecordBatch.decode_from(b"abc" + data + b"more", 3)
    assert rows_of(batch) == EVERY_COLUMN
    assert end == 3 + len(data)


def test_batches_one_behind_the_other_are_decoded_one_by_one() -> None:
    names = list(SAMPLES)
    data = b"".join(golden(name) for name in names)

    found = list(decode_all(data))

    assert [rows_of(batch) for batch in found] == [SAMPLES[name].meaning for name in names]
    assert list(decode_all(b"")) == []


def test_bytes_behind_a_batch_are_refused_by_decode() -> None:
    with pytest.raises(Corrupt, match="followed by 8 more"):
        RecordBatch.decode(every_column().encode() + bytes(8))


def test_a_newer_version_is_told_apart_from_damage() -> None:
    data = every_column().encode()

    for newer in ({"version": 2}, {"checksum": 2}, {"compression": 3}, {"columns": 1 << 15}):
        with pytest.raises(UnsupportedFormat):
            RecordBatch.decode(resealed(data, **newer))
    for reserved in ({"zero": 1}, {"zeros": 1}):
        with pytest.raises(UnsupportedFormat):
            RecordBatch.decode(resealed(data, **reserved))


def test_a_batch_larger_than_the_reader_allows_is_refused_before_it_is_opened() -> None:
    data = built([Row(bytes(10_000))]).seal(compression="zstd").encode()

    assert len(data) < 200
    with pytest.raises(MessageTooLarge, match="raw_bytes_max allows 1,000"):
        RecordBatch.decode(data, raw_bytes_max=1_000)


def test_a_body_checked_before_is_not_checked_again_when_told_so() -> None:
    data = bytearray(every_column().encode())
    data[-1] ^= 1

    with pytest.raises(Corrupt):
        RecordBatch.decode(data)
    assert RecordBatch.decode(data, verify=False).row_count == len(EVERY_COLUMN)


def test_a_batch_needs_a_row() -> None:
    with pytest.raises(InvalidRequest, match="at least one row"):
        BatchBuilder().seal()


def test_an_unknown_compression_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="known are none, lz4, zstd"):
        BatchBuilder.of([b"a"]).seal(compression="brotli")


def test_only_control_columns_make_a_batch_other_than_plain() -> None:
    assert built([Row(b"x", key="k", headers={"a": "b"}, content_type="t")]).seal().is_plain
    assert not built([Row(b"x", priority=1)]).seal().is_plain
    assert not built([Row(b"x", expiry=1)]).seal().is_plain
    assert not built([Row(b"x", deliver_at=1)]).seal().is_plain


def test_the_header_is_sixty_four_bytes() -> None:
    assert HEADER_BYTES == 64


def test_a_batch_tells_about_itself_in_one_line() -> None:
    batch = every_column("lz4")

    assert repr(batch) == (
        f"RecordBatch(rows=5, base_offset=1000, bytes={batch.byte_length}, compression='lz4')"
    )
