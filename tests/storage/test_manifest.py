"""The manifest: its bytes; damage is refused and never taken for an empty one."""

from __future__ import annotations

from itertools import product
from math import prod

import msgspec
import pytest

from flintmq.batch.checksum import crc32c
from flintmq.errors import Corrupt, StorageFull, UnsupportedFormat
from flintmq.model import TopicOptions
from flintmq.storage.manifest import (
    NAME,
    CursorState,
    Manifest,
    TopicState,
    read_manifest,
    write_manifest,
)
from flintmq.storage.segments import Section
from flintmq.testing import Crashed, SimulatedFileSystem

OPTIONS = TopicOptions(storage="durable", retention_count=5)
MANIFEST = Manifest(
    checkpoint=41,
    position=17,
    last_topic_id=9,
    next_file=4,
    topics=[
        TopicState(
            9, "orders", OPTIONS, 3, 12, 1_000,
            [Section("segments/0000000000000003.seg", 0, 12, 900, 1_000, 240, 2)],
            [CursorState("billing", 0, 7), CursorState("audit", 4, None)],
            [("p", [[[2**64 - 1, 1, 11]], [[2**64 - 1, 1]]])],
        )
    ],
    obsolete=["segments/0000000000000001.seg"],
)  # fmt: skip


def written(manifest: Manifest = MANIFEST) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    write_manifest(disk, manifest)
    return disk


def test_a_manifest_reads_back_as_it_was_written() -> None:
    disk = written()

    assert read_manifest(disk.crash("nothing")) == MANIFEST
    assert disk.open_files == 0


def test_the_bytes_of_a_manifest_are_these() -> None:
    data = written(Manifest()).contents(NAME)

    content = msgspec.msgpack.encode(Manifest())
    assert data[:12].hex() == "464d514d414e310001000000"
    assert data[12:16] == crc32c(content).to_bytes(4, "little")
    assert data[16:24] == len(content).to_bytes(8, "little")
    assert data[24:] == content


def test_a_directory_without_a_manifest_has_none() -> None:
    assert read_manifest(SimulatedFileSystem()) is None


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_any_damaged_byte_is_refused(bits: int) -> None:
    disk = written()
    for position in range(len(disk.contents(NAME))):
        damaged = disk.crash("nothing")
        damaged.flip(NAME, position, bits)
        with pytest.raises(Corrupt):
            read_manifest(damaged)


def test_a_manifest_that_was_cut_short_or_grew_is_refused() -> None:
    disk = written()
    size = len(disk.contents(NAME))
    for length in [*range(size), size + 1]:
        cut = disk.crash("nothing")
        file = cut.open(NAME, writable=True)
        file.truncate(length)
        file.close()
        with pytest.raises(Corrupt):
            read_manifest(cut)


@pytest.mark.parametrize("content", [b"", b"\xc0", b"\x93\x01\x02\x03", b"\x81\xa1x"])
def test_a_whole_file_with_another_content_is_of_another_version(content: bytes) -> None:
    disk = SimulatedFileSystem()
    file = disk.create(NAME)
    header = b"FMQMAN1\0" + bytes([1, 0, 0, 0]) + crc32c(content).to_bytes(4, "little")
    file.pwritev([header + len(content).to_bytes(8, "little") + content], 0)
    with pytest.raises(UnsupportedFormat):
        read_manifest(disk)


def test_after_any_power_cut_there_is_the_old_or_the_new_one() -> None:
    older = Manifest(checkpoint=1)
    whole = written(older)
    before = whole.call_count
    write_manifest(whole, MANIFEST)
    for calls in range(whole.call_count - before):
        disk = written(older)
        disk.stop_after(calls)
        with pytest.raises(Crashed):
            write_manifest(disk, MANIFEST)
        counts = disk.unsynced()
        assert prod(counts) <= 256
        for keep in product(*(range(count) for count in counts)):
            assert read_manifest(disk.crash(keep)) in (older, MANIFEST)


def test_a_full_disk_leaves_the_old_one_or_has_the_new_one() -> None:
    whole = written(Manifest(checkpoint=1))
    room = sum(len(whole.contents(name)) for name in whole.list())
    outcomes = set()
    for more in range(0, 1_000, 7):
        disk = written(Manifest(checkpoint=1))
        disk.size_max = room + more
        try:
            write_manifest(disk, MANIFEST)
        except StorageFull:
            assert read_manifest(disk.crash("nothing")) == Manifest(checkpoint=1)
            outcomes.add("full")
        else:
            assert read_manifest(disk.crash("nothing")) == MANIFEST
            outcomes.add("copied" if disk.exists("manifest.copy") else "not copied")
    assert outcomes == {"full", "not copied", "copied"}
