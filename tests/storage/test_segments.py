"""Segments: what they look like on the disk, and that no damage to one is ever served as data."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch import EXPIRY, KEYS, BatchBuilder, RecordBatch
from flintmq.batch.checksum import crc32c
from flintmq.errors import Corrupt, UnsupportedFormat
from flintmq.storage.segment_store import SegmentStore
from flintmq.storage.segments import BatchEntry, Segment, SegmentWriter, joined
from flintmq.testing import SimulatedFileSystem

NAME = "0000000000000001.seg"


def batch(
    base: int, *values: bytes, time: int = 1_000, expiry: int = 0, deliver_at: int = 0
) -> RecordBatch:
    rows = BatchBuilder()
    for value in values:
        rows.append_row(value, expiry=expiry, deliver_at=deliver_at)
    sealed = rows.seal()
    sealed.stamp(base, time)
    return sealed


def segment_of(*batches: tuple[int, RecordBatch]) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    writer = SegmentWriter(disk, NAME)
    for topic, rows in batches:
        writer.add(topic, rows)
    writer.seal()
    disk.sync_directory()
    return disk


def small_segment() -> SimulatedFileSystem:
    return segment_of(
        (7, batch(0, b"first", b"second")),
        (9, batch(100, b"other", time=1_001)),
        (7, batch(2, b"third", time=1_005, expiry=9_999)),
    )


def expiries(segment: Segment, entry: BatchEntry) -> list[int]:
    control = segment.read_control(entry)
    return [] if control is None else [control.expiry(row) for row in range(entry.rows)]


def read_all(
    disk: SimulatedFileSystem,
) -> list[tuple[int, int, tuple[bytes, ...], list[int]]]:
    segment = Segment(disk, NAME)
    try:
        return [
            (topic, entry.base, segment.read(entry).values(), expiries(segment, entry))
            for topic in segment.topics()
            for entry in segment.entries(topic)
        ]
    finally:
        segment.close()


def test_the_bytes_of_a_segment_are_these() -> None:
    rows = batch(5, b"abc")
    data = segment_of((3, rows)).contents(NAME)
    encoded = rows.encode()
    entry = b"".join(
        number.to_bytes(8, "little") for number in (3, 5, 1000, 1000, 8, len(encoded), 3)
    ) + bytes([1, 0, 0, 0, 0, 0, 0, 0])
    behind = 8 + len(encoded)
    trailer = (
        b"FMQSEGT\0" + bytes([1, 0, 0, 0, 1, 0, 0, 0])
        + (1).to_bytes(8, "little") + behind.to_bytes(8, "little")
        + crc32c(b"FMQSEG1\0" + encoded).to_bytes(4, "little") + crc32c(entry).to_bytes(4, "little")
        + bytes(4)
    )  # fmt: skip

    assert data[:8].hex() == "464d515345473100"
    assert data == (
        b"FMQSEG1\0" + encoded + entry + trailer + crc32c(trailer).to_bytes(4, "little")
    )


def test_control_columns_are_read_without_a_payload() -> None:
    disk = segment_of(
        (7, batch(0, b"plain")),
        (7, batch(1, b"late", b"later", deliver_at=5_000)),
        (9, batch(0, b"short", expiry=9_000)),
        (7, batch(3, b"both", expiry=8_000, deliver_at=6_000)),
    )
    segment = Segment(disk, NAME)
    plain, late, both = (segment.read_control(entry) for entry in segment.entries(7))
    (short,) = (segment.read_control(entry) for entry in segment.entries(9))
    segment.close()

    assert plain is None
    assert late is not None
    assert [late.deliver_at(row) for row in range(2)] == [5_000, 5_000]
    assert late.expiry(0) == 0
    assert short is not None
    assert short.expiry(0) == 9_000
    assert both is not None
    assert (both.base_offset, both.expiry(0), both.deliver_at(0)) == (3, 8_000, 6_000)


def test_sections_say_what_a_segment_holds_of_each_topic() -> None:
    disk = SimulatedFileSystem()
    writer = SegmentWriter(disk, NAME)
    writer.add(7, batch(0, b"first", b"second"))
    writer.add(9, batch(100, b"other", time=1_001))
    writer.add(7, batch(2, b"third", time=1_005, expiry=9_999))
    sections = dict(writer.seal())

    assert sections[7][:5] == (NAME, 0, 3, 1_000, 1_005)
    assert sections[7].size >= len(b"firstsecondthird")
    assert sections[7].columns & EXPIRY
    assert sections[9][:5] == (NAME, 100, 101, 1_001, 1_001)
    assert not sections[9].columns & EXPIRY
    assert disk.open_files == 0
    segment = Segment(disk, NAME)
    segment.verify()
    assert segment.topics() == [7, 9]
    assert segment.entry_at(7, 1).base == 0
    assert segment.entry_at(7, 2).base == 2
    by_time = segment.entry_at_time(7, 1_001)
    assert by_time is not None
    assert by_time.base == 2
    assert segment.entry_at_time(7, 1_006) is None
    segment.close()


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_any_damaged_byte_is_noticed_and_never_served(bits: int) -> None:
    whole = small_segment()
    expected = read_all(whole)
    for position in range(len(whole.contents(NAME))):
        damaged = whole.crash("everything")
        damaged.flip(NAME, position, bits)
        noticed = False
        try:
            found = read_all(damaged)
        except Corrupt:
            noticed = True
        else:
            assert found == expected  # the damage is where no reader looks
        try:
            segment = Segment(damaged, NAME)
        except Corrupt:
            noticed = True
        else:
            try:
                segment.verify()
            except Corrupt:
                noticed = True
            finally:
                segment.close()
        assert noticed, f"nobody noticed byte {position}"
        assert damaged.open_files == 0


def test_a_segment_that_was_cut_short_or_grew_is_refused() -> None:
    whole = small_segment()
    size = len(whole.contents(NAME))
    for length in [*range(size), size + 1, size + 8, size + 64]:
        cut = whole.crash("everything")
        file = cut.open(NAME, writable=True)
        file.truncate(length)
        file.close()
        with pytest.raises(Corrupt):
            read_all(cut)
        assert cut.open_files == 0


def test_a_newer_version_is_refused_as_such() -> None:
    disk = small_segment()
    data = bytearray(disk.contents(NAME))
    at = len(data) - 48
    data[at + 8] = 2
    data[-4:] = crc32c(bytes(data[at:-4])).to_bytes(4, "little")
    file = disk.open(NAME, writable=True)
    file.pwritev([bytes(data)], 0)
    file.close()

    with pytest.raises(UnsupportedFormat, match="version 2"):
        read_all(disk)


def test_the_store_keeps_few_files_open_and_forgets_what_is_removed() -> None:
    disk = SimulatedFileSystem()
    for number in range(5):
        writer = SegmentWriter(disk, f"{number}.seg")
        writer.add(1, batch(0, b"x" * 1_000, time=number))
        writer.seal()
    store = SegmentStore(disk, files_max=2, bytes_max=2_500)
    for number in [0, 1, 2, 3, 4, 0]:
        entry = store.segment(f"{number}.seg").entries(1)[0]
        assert store.read(f"{number}.seg", entry).time(0) == number
        assert disk.open_files <= 2
    store.forget("0.seg")
    disk.remove("0.seg")
    assert disk.open_files == 1
    store.close()
    assert disk.open_files == 0


row_values = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


@given(
    batches=st.lists(st.tuples(row_values, st.integers(0, 50), st.booleans(), st.booleans())),
    rows_max=st.integers(1, 12),
    bytes_max=st.integers(100, 2_000),
    base=st.integers(0, 2**40),
)
@settings(max_examples=100, deadline=None)
def test_joined_batches_hold_the_same_rows_with_their_offsets_and_times(
    batches: list[tuple[list[bytes], int, bool, bool]], rows_max: int, bytes_max: int, base: int
) -> None:
    time, offset = 10_000, base
    before: list[RecordBatch] = []
    for values, later, has_keys, has_expiry in batches:
        time += later
        rows = BatchBuilder()
        for number, value in enumerate(values):
            rows.append_row(
                value,
                key=f"k{number}" if has_keys else None,
                expiry=time + 5 if has_expiry else 0,
            )
        sealed = rows.seal()
        sealed.stamp(offset, time)
        before.append(sealed)
        offset += len(values)

    after = list(joined(before, rows_max, bytes_max))

    assert rows_of(after) == rows_of(before)
    assert len(after) <= len(before)
    for rows_before, rows_after in pairwise(after):
        assert rows_before.base_offset + rows_before.row_count == rows_after.base_offset
    assert sum(b.size(0, b.row_count) for b in after) == sum(b.size(0, b.row_count) for b in before)
    for one in after:  # what was joined reads the same after the way to the disk and back
        again = RecordBatch.decode(one.encode())
        assert rows_of([again]) == rows_of([one])
    assert all(b.columns & KEYS or not b.key(0) for b in after)


def rows_of(batches: list[RecordBatch]) -> list[tuple[int, int, bytes, object, int]]:
    return [
        (b.base_offset + row, b.time(row), b.value(row), b.key(row), b.expiry(row))
        for b in batches
        for row in range(b.row_count)
    ]
