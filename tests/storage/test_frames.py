"""Frames: the bytes as they are drawn, and nothing that is not whole passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.batch.checksum import crc32c
from flintmq.errors import Corrupt, InvalidRequest
from flintmq.fsync_policy import ALWAYS, FsyncPolicy
from flintmq.storage.filesystem import Buffer
from flintmq.storage.frames import (
    ENTRY,
    FRAME_BYTES,
    ONE_RUN,
    RESTART,
    FileSeed,
    JournalFrame,
    Record,
    RecordRun,
    begins_frame,
    encode,
    frame_at,
    joined,
    seal,
)

PLACE = FileSeed(generation=3, salt=0x1122334455667788)


def sealed(
    records: list[Record], *, number: int = 9, durable: int = 8, place: FileSeed = PLACE
) -> bytes:
    lot = encode(records)
    frame = seal(lot.buffers, lot.runs, place, number=number, durable=durable)
    return b"".join(frame)


def opened(data: bytes, place: FileSeed = PLACE) -> JournalFrame | None:
    return frame_at(memoryview(data), 0, place, 0)


GOLDEN_ONE_RUN = (
    "8877665544332211"  # salt
    "50000000"  # length
    "03687ba7"  # checksum
    "0900000000000000"  # number
    "0800000000000000"  # durable mark
    "02000000"  # count
    "01000000"  # flags: one run
    "02000000" "00000000" "0500000000000000" "0700000000000000" "0300000000000000"
    "6162630000000000"
    "02000000" "00000000" "0500000000000000" "0800000000000000" "0800000000000000"
    "6465666768696a6b"
)  # fmt: skip


def checksum_as_described(data: bytes) -> bytes:
    """Of the generation, then of the frame without the checksum."""
    return crc32c((3).to_bytes(8, "little") + data[:12] + data[16:]).to_bytes(4, "little")


def test_a_frame_is_written_as_it_is_drawn() -> None:
    data = sealed([Record(2, 5, 7, (b"abc",)), Record(2, 5, 8, (b"defg", b"hijk"))])

    assert data.hex() == GOLDEN_ONE_RUN
    assert data[12:16] == checksum_as_described(data)


def test_an_empty_frame_is_written_as_it_is_drawn() -> None:
    data = sealed([])

    assert len(data) == FRAME_BYTES
    assert data[:12].hex() == "887766554433221100000000"
    assert data[12:16] == checksum_as_described(data)
    assert data[16:].hex() == "090000000000000008000000000000000000000000000000"


def test_records_of_several_groups_are_no_single_run() -> None:
    frame = opened(sealed([Record(2, 5, 7, (b"",)), Record(3, 5, 8, (b"",))]))

    assert frame is not None
    assert not frame.flags & ONE_RUN
    assert frame.runs() == [RecordRun(2, 5, 7, 1, ENTRY), RecordRun(3, 5, 8, 1, ENTRY)]


payloads = st.lists(st.binary(max_size=40), max_size=3).map(tuple)
records = st.lists(
    st.builds(
        Record,
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
        st.integers(1, 2**64 - 2),
        payloads,
        st.sampled_from([ENTRY, RESTART]),
    ),
    max_size=8,
)


@given(records)
def test_what_goes_in_comes_out(records: list[Record]) -> None:
    frame = opened(sealed(records) + b"behind")

    assert frame is not None
    assert frame.end % 8 == 0
    assert [(r.group, r.term, r.index, bytes(r.payload), r.kind) for r in frame.records()] == [
        (r.group, r.term, r.index, bytes(r.payload), r.kind) for r in records
    ]
    assert frame.runs() == joined([RecordRun(r.group, r.term, r.index, 1, r.kind) for r in records])


def test_consecutive_records_are_one_run_and_a_restart_stays_alone() -> None:
    runs = [
        RecordRun(1, 1, 5, 2, ENTRY),
        RecordRun(1, 1, 7, 1, ENTRY),
        RecordRun(1, 1, 8, 1, RESTART),
    ]
    runs += [RecordRun(1, 1, 9, 1, ENTRY), RecordRun(1, 2, 10, 1, ENTRY)]

    assert [(run.index, run.count) for run in joined(runs)] == [(5, 3), (8, 1), (9, 1), (10, 1)]


def test_large_buffers_are_not_copied() -> None:
    large = memoryview(bytes(100_000))
    lot = encode([Record(1, 1, 1, (b"small", large, b"small"))])

    frame: list[Buffer] = seal(lot.buffers, lot.runs, PLACE, number=1, durable=0)

    assert any(part is large for part in frame)
    assert len(frame) == 4


def test_every_changed_byte_is_noticed() -> None:
    data = sealed([Record(2, 5, 7, (b"abc",)), Record(2, 5, 8, (b"defghijk",))])
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            assert opened(bytes(changed)) is None, f"bit {bit} of byte {position}"


def test_a_frame_cut_short_is_none() -> None:
    data = sealed([Record(2, 5, 7, (b"abc",))])

    assert all(opened(data[:size]) is None for size in range(len(data)))
    assert begins_frame(memoryview(data), 0, PLACE) == len(data)


def test_a_frame_of_another_generation_or_salt_is_none() -> None:
    data = sealed([Record(2, 5, 7, (b"abc",))])

    assert opened(data) is not None
    assert opened(data, FileSeed(4, PLACE.salt)) is None
    assert opened(data, FileSeed(3, PLACE.salt + 1)) is None


@pytest.mark.parametrize(
    ("body", "count", "why"),
    [
        (bytes(16), 1, "ends inside a record"),
        (bytes(24) + (9).to_bytes(8, "little"), 1, "ends inside a record"),
        (bytes(4) + b"\x07" + bytes(27), 1, "unknown kind 7"),
        (bytes(40), 1, "behind its last record"),
    ],
)
def test_records_that_do_not_add_up_are_told(body: bytes, count: int, why: str) -> None:
    frame = JournalFrame(0, 1, 0, count, 0, memoryview(body))

    with pytest.raises(Corrupt, match=why):
        list(frame.records())


def test_more_than_a_frame_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.storage.frames.FRAME_BODY_BYTES_MAX", 100)

    with pytest.raises(InvalidRequest, match="too many for one write"):
        encode([Record(1, 1, 1, (bytes(100),))])


# --- the fsync policy


@pytest.mark.parametrize("text", ["always", "never", "every_n:100", "interval:20"])
def test_policies_are_read_and_written_alike(text: str) -> None:
    assert str(FsyncPolicy.parse(text)) == text


def test_only_always_acknowledges_after_the_sync() -> None:
    assert FsyncPolicy.parse("always") == ALWAYS
    assert ALWAYS.acknowledges_after_sync
    assert not FsyncPolicy.parse("every_n:1").acknowledges_after_sync


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sometimes", "unknown fsync policy 'sometimes'; use always, every_n"),
        ("", "unknown"),
        ("always:1", "unknown"),
        ("every_n", "number of records from 1 to"),
        ("every_n:0", "number of records from 1 to"),
        ("every_n:-3", "number of records from 1 to"),
        ("interval:soon", "number of milliseconds from 1 to"),
        ("interval:²", "number of milliseconds from 1 to"),
    ],
)
def test_other_policies_are_refused_with_what_is_allowed(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        FsyncPolicy.parse(text)
