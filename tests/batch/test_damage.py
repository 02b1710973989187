"""Damaged and forged batches: told as Corrupt, never served, never a crash, never a huge buffer.

Damage is what a disk or a wire does: checksums find it. A forger makes valid checksums, so behind
them every length, offset, index, kind and text has to be looked at before it is believed.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, RecordBatch, decode_all, slice_batch, thin_batch
from flintmq.batch.compression import compress_payload, decompress_payload, lz4_length
from flintmq.batch.format import COMPRESSIONS as CODES
from flintmq.batch.format import HEADER_BYTES, KEY_HASH, KNOWN_COLUMNS, MAGIC, RELATIVE
from flintmq.errors import Corrupt, FlintError, UnsupportedFormat
from tests.batch.samples import (
    EVERY_COLUMN,
    Row,
    built,
    every_column,
    look_at_everything,
    resealed,
    with_byte,
    with_i32,
)

COMPRESSIONS = ["none", "lz4", "zstd"]
SMALL = 256 * 1024  # bytes; the forgeries claim a hundred times that and more


# --- damage


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_truncation_is_detected(compression: str) -> None:
    data = every_column(compression).encode()

    for length in range(len(data)):
        with pytest.raises(Corrupt):
            RecordBatch.decode(data[:length])
        with pytest.raises(Corrupt):
            RecordBatch.decode_from(data[:length], 0)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_flipped_bit_anywhere_is_detected(compression: str) -> None:
    data = bytearray(every_column(compression).encode())

    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            with pytest.raises(Corrupt):
                RecordBatch.decode(data)
            data[at] ^= 1 << bit
    assert RecordBatch.decode(data).row_count == len(EVERY_COLUMN)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_byte_turned_into_any_other_is_detected_in_the_header(compression: str) -> None:
    sound = every_column(compression).encode()

    for at in range(HEADER_BYTES):
        for byte in range(256):
            if byte != sound[at]:
                with pytest.raises(Corrupt):
                    RecordBatch.decode(sound[:at] + bytes([byte]) + sound[at + 1 :])


@given(st.sampled_from(COMPRESSIONS), st.data())
def test_a_stretch_of_other_bytes_is_detected(compression: str, data: st.DataObject) -> None:
    sound = every_column(compression).encode()
    start = data.draw(st.integers(0, len(sound) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=min(32, len(sound) - start)))
    damaged = sound[:start] + noise + sound[start + len(noise) :]

    if damaged != sound:
        with pytest.raises(Corrupt):
            RecordBatch.decode(damaged)


def test_damage_in_the_second_of_two_batches_leaves_the_first_readable() -> None:
    data = bytearray(every_column().encode() * 2)
    data[-1] ^= 1

    batches = decode_all(data)

    assert next(batches).row_count == len(EVERY_COLUMN)
    with pytest.raises(Corrupt):
        next(batches)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_our_own_errors(noise: bytes) -> None:
    for data in (noise, MAGIC + noise, MAGIC + b"\x01\x01" + noise):
        with pytest.raises(Corrupt):
            RecordBatch.decode(data)


# --- forgeries, with valid checksums


def refused(data: bytes, look: Callable[[RecordBatch], object] = look_at_everything) -> FlintError:
    """The error that decoding `data` and looking at it raises; it must allocate next to nothing."""
    tracemalloc.start()
    try:
        with pytest.raises(FlintError) as caught:
            look(RecordBatch.decode(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < SMALL, f"{peak:,} bytes were allocated for a forgery of {len(data):,}"
    return caught.value


HUGE = [2**31 - 1, 2**31, 2**32 - 1, 2**30, 10**8]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("length", HUGE)
@pytest.mark.parametrize("name", ["rows", "control", "payload", "raw"])
def test_a_forged_length_is_refused_and_not_allocated(
    name: str, length: int, compression: str
) -> None:
    data = every_column(compression).encode()

    refused(resealed(data, **{name: length}))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("name", ["rows", "control", "payload", "raw"])
def test_a_length_that_is_off_by_a_little_is_refused(name: str, compression: str) -> None:
    batch = every_column(compression)
    lengths = {
        "rows": batch.row_count,
        "control": batch.control_length,
        "payload": batch.payload_length,
        "raw": batch.raw_length,
    }
    for difference in (-lengths[name], -16, -8, -1, 1, 8, 16):
        forged = lengths[name] + difference
        if forged >= 0:
            refused(resealed(batch.encode(), **{name: forged}))


@pytest.mark.parametrize("base_offset", [-2, -(2**63), 2**63 - 1, 2**63 - 5])
def test_offsets_that_no_topic_can_hold_are_refused(base_offset: int) -> None:
    refused(resealed(every_column().encode(), base_offset=base_offset))


@pytest.mark.parametrize("columns", [1 << bit for bit in range(32)])
def test_a_column_that_is_claimed_or_denied_raises_only_our_own_errors(columns: int) -> None:
    data = every_column().encode()
    forged = resealed(data, columns=(KNOWN_COLUMNS & ~RELATIVE) ^ columns)

    if columns & KNOWN_COLUMNS:
        # Without its flag a column is in the way of the next one, or makes the sections misfit.
        assert isinstance(refused(forged), Corrupt)
    else:
        assert isinstance(refused(forged), UnsupportedFormat)


def test_a_payload_of_lz4_cannot_claim_more_than_lz4_can_hold() -> None:
    batch = built([Row(b"x" * 100)]).seal(compression="lz4")

    error = refused(resealed(batch.encode(), raw=255 * batch.payload_length + 72))

    assert "cannot hold" in str(error)


def test_a_bomb_of_lz4_is_cut_at_the_length_it_declares() -> None:
    bomb = lz4.block.compress(bytes(50_000_000), store_size=False)

    refused(compressed_forgery("lz4", bomb, raw_length=1_000))


def test_a_bomb_of_zstd_is_cut_at_the_length_it_declares() -> None:
    bomb = compress_payload("zstd", bytes(50_000_000))
    assert len(bomb) < 10_000

    refused(compressed_forgery("zstd", bomb, raw_length=1_000))


def test_a_zstd_payload_that_claims_a_gigabyte_and_holds_little_allocates_little() -> None:
    stored = compress_payload("zstd", bytes(1_000))

    refused(compressed_forgery("zstd", stored, raw_length=1 << 30))


def test_a_zstd_frame_cannot_ask_for_a_huge_window() -> None:
    # Magic, a frame without content size, window 2**27; then one empty last block.
    frame = bytes.fromhex("28b52ffd") + bytes([0x00, (27 - 10) << 3]) + bytes([0x01, 0x00, 0x00])

    error = refused(compressed_forgery("zstd", frame, raw_length=64))

    assert "too much memory" in str(error)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("stored", [b"", b"\x00", b"noise" * 20, bytes(64), b"\xff" * 64])
def test_a_payload_that_does_not_decompress_is_corrupt(compression: str, stored: bytes) -> None:
    error = refused(compressed_forgery(compression, stored, raw_length=64))

    assert isinstance(error, Corrupt)


def test_what_follows_a_zstd_frame_in_its_payload_is_refused() -> None:
    raw = struct.pack("<ii", 0, 8) + b"eight by"
    stored = compress_payload("zstd", raw)

    assert RecordBatch.decode(compressed_forgery("zstd", stored, 16)).value(0) == b"eight by"
    refused(compressed_forgery("zstd", stored + b"more", 16))
    refused(compressed_forgery("zstd", stored + stored, 16))


def compressed_forgery(compression: str, stored: bytes, raw_length: int) -> bytes:
    """A batch of one row whose payload is `stored`, with whatever it claims to open into."""
    sound = BatchBuilder.of([b"x" * 100]).seal(compression=compression)
    data = sound.header() + stored + bytes(-len(stored) & 7)
    return resealed(data, payload=len(stored), raw=raw_length)


# --- forged columns


NONSENSE = [-1, -(2**31), 2**31 - 1, 1_000, -8]

WAYS: dict[str, Callable[[RecordBatch], object]] = {
    "all values": lambda batch: batch.values(),
    "a range of values": lambda batch: batch.values(1, 4),
    "one value behind": lambda batch: batch.value(2),
    "one value before": lambda batch: batch.value(1),
    "row by row": lambda batch: [batch.value(row) for row in range(4)],
    "a slice": lambda batch: slice_batch(batch, 1, 3),
    "scattered rows": lambda batch: thin_batch(batch, [1, 3]),
    "the size of a row": lambda batch: batch.size(1, 2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nonsense", NONSENSE)
@pytest.mark.parametrize("width", [8, 0, 5])
def test_offsets_of_values_out_of_order_are_corrupt_however_they_are_read(
    way: str, nonsense: int, width: int
) -> None:
    values = [bytes(width or row) for row in range(1, 5)]
    data = BatchBuilder.of(values).seal().encode()

    assert isinstance(refused(with_i32(data, 4 * 2, nonsense), WAYS[way]), Corrupt)


def test_widths_that_overflow_an_offset_are_corrupt() -> None:
    data = BatchBuilder.of([b"12345678"] * 3).seal().encode()

    for width in (2**31 - 1, 2**30):
        refused(with_i32(data, 4, width), lambda batch: batch.values())


def test_values_that_overlap_are_corrupt() -> None:
    data = BatchBuilder.of([b"aaaa", b"bbbb", b"cccc", b"d"]).seal().encode()

    refused(with_i32(data, 4 * 2, 2), lambda batch: batch.values())


def test_a_first_offset_other_than_zero_is_corrupt() -> None:
    data = BatchBuilder.of([b"aaaa", b"bb"]).seal().encode()

    for first in (1, 4, -1, 2**31 - 1):
        refused(with_i32(data, 0, first), lambda batch: batch.value(1))


def test_a_column_that_reaches_beyond_its_payload_is_corrupt() -> None:
    data = BatchBuilder.of([b"aaaa", b"bb"]).seal().encode()

    for last in (17, 1_000, 2**31 - 1, -1):
        refused(with_i32(data, 8, last), lambda batch: batch.value(0))


def text_batch() -> RecordBatch:
    """One row, so that every column has one item: key `kk`, header `nn` = `vv`, type `tt`."""
    row = Row(b"value", key="kk", headers={"nn": "vv"}, content_type="tt")
    return built([row]).seal(producer="pp")


@pytest.mark.parametrize(
    ("word", "look"),
    [
        (b"kk", lambda batch: batch.key(0)),
        (b"nn", lambda batch: batch.headers(0)),
        (b"vv", lambda batch: batch.headers(0)),
        (b"tt", lambda batch: batch.content_type(0)),
        (b"pp", lambda batch: batch.producer),
    ],
)
def test_text_that_is_not_utf8_is_corrupt(
    word: bytes, look: Callable[[RecordBatch], object]
) -> None:
    data = text_batch().encode()
    assert data.count(word) == 1
    forged = resealed(data.replace(word, b"\xff\xfe"))

    error = refused(forged, look)

    assert isinstance(error, Corrupt)
    assert "UTF-8" in str(error)
    assert RecordBatch.decode(forged).value(0) == b"value"


def test_a_kind_nobody_knows_is_corrupt() -> None:
    batch = built([Row(b"1", key=b"a", headers={"h": b"v"}), Row(b"2")]).seal()
    data = batch.encode()
    _, layout = batch.payload()

    refused(with_byte(data, layout.key_kinds, 3), lambda batch: batch.key(0))
    refused(with_byte(data, layout.header_kinds, 255), lambda batch: batch.headers(0))


def test_a_header_without_a_value_is_corrupt() -> None:
    batch = built([Row(b"1", headers={"h": b"v"})]).seal()
    _, layout = batch.payload()

    refused(with_byte(batch.encode(), layout.header_kinds, 0), lambda batch: batch.headers(0))


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_header_rows_out_of_order_are_corrupt(nonsense: int) -> None:
    batch = built([Row(b"1", headers={"a": "1"}), Row(b"2", headers={"b": "2"})]).seal()
    _, layout = batch.payload()
    data = batch.encode()
    middle = with_i32(data, layout.header_rows + 4, nonsense)
    first = with_i32(data, layout.header_rows, nonsense)

    refused(middle, lambda batch: batch.headers(0))
    refused(middle, lambda batch: batch.headers(1))
    refused(middle, lambda batch: batch.size(0, 1))
    refused(first, lambda batch: batch.headers(0))
    refused(with_i32(data, layout.header_rows + 8, nonsense), lambda batch: batch.headers(0))


@pytest.mark.parametrize("entry", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_content_type_out_of_range_is_corrupt(entry: int) -> None:
    batch = built([Row(b"1", content_type="a"), Row(b"2", content_type="b")]).seal()
    _, layout = batch.payload()

    forged = with_i32(batch.encode(), layout.type_rows, entry)

    refused(forged, lambda batch: batch.content_type(0))
    assert RecordBatch.decode(forged).content_type(1) == "b"


@pytest.mark.parametrize("count", [-1, 0, 2, 1_000, 2**31 - 1])
def test_a_forged_count_of_content_types_is_corrupt(count: int) -> None:
    one_for_all = built([Row(b"1", content_type="a")]).seal()
    some = built([Row(b"1", content_type="a"), Row(b"2")]).seal()
    for batch in (one_for_all, some):
        _, layout = batch.payload()
        at = layout.types.offsets - 8
        if count != layout.type_count:
            refused(with_i32(batch.encode(), at, count), lambda batch: batch.content_type(0))


@pytest.mark.parametrize("length", [0, 3, 100, 2**31 - 1, -1])
def test_a_forged_length_of_the_producer_is_corrupt(length: int) -> None:
    batch = BatchBuilder.of([b"x"]).seal(producer="a producer")

    refused(with_i32(batch.encode(), 0, length), lambda batch: batch.producer)


def test_a_batch_of_no_rows_is_corrupt() -> None:
    refused(resealed(BatchBuilder.of([b""]).seal().encode(), rows=0, columns=KEY_HASH))


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_any_byte_forged_under_valid_checksums_raises_only_our_own_errors(compression: str) -> None:
    data = every_column(compression).encode()

    for at in range(len(data) - HEADER_BYTES):
        for byte in (0, 0xFF, data[HEADER_BYTES + at] ^ 0x80, data[HEADER_BYTES + at] + 1 & 0xFF):
            read_or_refused(with_byte(data, at, byte))


@given(st.data())
def test_any_numbers_forged_under_valid_checksums_raise_only_our_own_errors(
    data: st.DataObject,
) -> None:
    forged = every_column().encode()
    words = (len(forged) - HEADER_BYTES) // 4
    numbers = st.integers(-8, 64) | st.integers(-(2**31), 2**31 - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        at = 4 * data.draw(st.integers(0, words - 1))
        forged = with_i32(forged, at, data.draw(numbers))
    read_or_refused(forged)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "rows": st.integers(0, 64) | st.integers(0, 2**32 - 1),
            "control": st.integers(0, 256).map(lambda length: length & ~7),
            "payload": st.integers(0, 512),
            "raw": st.integers(0, 2**32 - 1) | st.integers(0, 512),
            "columns": st.integers(0, KNOWN_COLUMNS),
            "compression": st.integers(0, 2),
            "base_offset": st.integers(-(2**63), 2**63 - 1),
        },
    ),
    st.binary(max_size=300),
)
def test_any_header_over_any_body_raises_only_our_own_errors(
    fields: dict[str, int], body: bytes
) -> None:
    header = every_column().header()

    read_or_refused(resealed(header + body, **fields))
    read_or_refused(resealed(header + bytes(every_column().body), **fields))


def read_or_refused(data: bytes) -> None:
    with suppress(FlintError):
        look_at_everything(RecordBatch.decode(data))


# --- lz4, which takes the memory that is claimed before it looks


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 3_000)), min_size=1, max_size=40).map(
        lambda parts: b"".join(part * count for part, count in parts)
    )
)
def test_what_an_lz4_block_makes_is_known_without_making_it(raw: bytes) -> None:
    block = lz4.block.compress(raw, store_size=False)
    assert lz4_length(block, len(raw)) == len(raw)
    assert lz4_length(block, len(raw) - 1) is None
    lz4_length(block[: len(block) // 2], len(raw))  # does not raise


@pytest.mark.slow
@pytest.mark.parametrize("stored", [b"\xff" * 100_000, bytes(100_000), b"\x10x" * 50_000])
def test_a_forged_claim_of_lz4_takes_no_memory(stored: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="do not make"):
            decompress_payload(CODES["lz4"], stored, 255 * len(stored))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_an_honest_payload_of_one_byte_repeated_is_opened() -> None:
    raw = bytes(1 << 20)
    stored = compress_payload("lz4", raw)
    assert len(raw) > 200 * len(stored)
    assert decompress_payload(CODES["lz4"], stored, len(raw)) == raw
