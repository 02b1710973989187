"""The manifest: its bytes; damage is refused and never taken for an empty one."""

from __future__ import annotations

from itertools import product
from math import prod

import msgspec
import pytest

from flintmq.batch.checksum import crc32c
from flintmq.errors import Corrupt, StorageFull, UnsupportedFormat
from flintmq.model import TopicOptions
from flintmq.storage import manifest as manifest_module
from flintmq.storage.manifest import (
    COPY_NAME,
    NAME,
    CursorState,
    Manifest,
    ManifestStore,
    TopicRecord,
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
        TopicRecord(
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
    for more in range(0, 2_000, 7):
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


# --- a base and changes after it


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every manifest is one that is not written whole each time."""
    monkeypatch.setattr(manifest_module, "WHOLE_BYTES_MAX", 0)


def state(id: int, next: int = 0, *files: int) -> TopicRecord:
    sections = [Section(f"segments/{file}.seg", 0, next, 0, 0, 1) for file in files]
    return TopicRecord(id, f"topic-{id}", OPTIONS, 0, next, 0, sections, [], [])


STEPS: list[tuple[list[TopicRecord], set[int]]] = [
    ([state(id, 1, 1) for id in range(1, 9)], set()),
    ([state(2, 5, 1, 2)], set()),
    ([state(9, 1, 2)], {3}),
    ([], set()),
    ([state(2, 6, 3), state(10, 1)], {4, 9}),
    ([state(id, 7, 4) for id in (1, 5, 6)], set()),
    ([state(5, 8, 5)], {11}),
]


def write_step(store: ManifestStore, number: int) -> None:
    changed, deleted = STEPS[number]
    head = Manifest(checkpoint=number + 1, next_file=max(store.head.next_file, number + 1))
    store.write(head, changed, deleted, [])


def after_step(count: int) -> dict[int, TopicRecord]:
    topics: dict[int, TopicRecord] = {}
    for changed, deleted in STEPS[:count]:
        topics = {id: one for id, one in topics.items() if id not in deleted}
        topics |= {one.id: one for one in changed}
    return topics


def is_as_after(manifest: Manifest | None, count: int) -> bool:
    if manifest is None:
        return count == 0
    topics = {topic.id: topic for topic in manifest.topics}
    return manifest.checkpoint == count and topics == after_step(count)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("reopens", [False, True])
def test_what_has_changed_is_added_and_a_new_base_written_when_that_outgrows_it(
    reopens: bool,
) -> None:
    disk = SimulatedFileSystem()
    store = ManifestStore(disk)
    bases = set()
    for number in range(len(STEPS)):
        before = store.files()
        write_step(store, number)
        assert is_as_after(read_manifest(disk.crash("nothing")), number + 1)
        assert read_manifest(disk, COPY_NAME) == read_manifest(disk)
        assert store.files() == store.whole().files()
        assert store.head.obsolete == sorted(before - store.files())
        bases.add(disk.contents(NAME))
        assert len([name for name in disk.list() if name.startswith("manifest.changes-")]) == 2
        if reopens:
            store = ManifestStore(disk.crash("nothing"))
            store.open()
            disk = store._filesystem  # type: ignore[assignment]
    assert 1 < len(bases) < len(STEPS)
    assert disk.open_files == 0


@pytest.mark.slow
@pytest.mark.usefixtures("large")
def test_after_any_power_cut_the_last_checkpoint_holds_or_the_one_before() -> None:
    whole = SimulatedFileSystem()
    store = ManifestStore(whole)
    calls = [whole.call_count]
    for number in range(len(STEPS)):
        write_step(store, number)
        calls.append(whole.call_count)
    for number in range(len(STEPS)):
        for stop in range(calls[number + 1] - calls[number]):
            disk = SimulatedFileSystem()
            store = ManifestStore(disk)
            for earlier in range(number):
                write_step(store, earlier)
            disk.stop_after(stop)
            with pytest.raises(Crashed):
                write_step(store, number)
            counts = disk.unsynced()
            assert prod(counts) <= 512
            for keep in product(*(range(count) for count in counts)):
                again = disk.crash(keep)
                found = read_manifest(again)
                assert is_as_after(found, number) or is_as_after(found, number + 1)
                # and goes on from there
                store_after = ManifestStore(again)
                store_after.open()
                begun = store_after.head.checkpoint
                for later in range(begun, min(begun + 2, len(STEPS))):
                    write_step(store_after, later)
                    assert is_as_after(read_manifest(again.crash("nothing")), later + 1)


@pytest.mark.slow
@pytest.mark.usefixtures("large")
def test_damage_to_the_changes_is_made_good_by_the_copy_or_refused() -> None:
    disk = SimulatedFileSystem()
    store = ManifestStore(disk)
    for number in range(4):
        write_step(store, number)
    (name,) = [
        n for n in disk.list() if n.startswith("manifest.changes-") and not n.endswith(".copy")
    ]
    for position in range(len(disk.contents(name))):
        damaged = disk.crash("nothing")
        damaged.flip(name, position, 0x10)
        assert is_as_after(read_manifest(damaged), 4)
        damaged.flip(name + ".copy", position, 0x10)
        try:
            found = read_manifest(damaged)
        except Corrupt:
            continue
        last = is_as_after(found, 3)  # it looks as if the last was never whole
        assert last or is_as_after(found, 4)  # or what is damaged has no meaning
    for missing in (name, COPY_NAME, name + ".copy"):
        damaged = disk.crash("nothing")
        damaged.remove(missing)
        if missing == name:
            with pytest.raises(Corrupt):
                read_manifest(damaged)
            continue
        again = ManifestStore(damaged)
        again.open()
        base = damaged.contents(NAME)
        write_step(again, 4)
        assert damaged.contents(NAME) != base  # a new one, with a copy again
        assert is_as_after(read_manifest(damaged, COPY_NAME), 5)


@pytest.mark.usefixtures("large")
def test_a_change_for_which_there_is_no_room_leaves_everything_as_it_was() -> None:
    outcomes = set()
    for more in range(0, 1_500, 13):
        disk = SimulatedFileSystem()
        store = ManifestStore(disk)
        write_step(store, 0)
        files = store.files()
        disk.size_max = sum(len(disk.contents(name)) for name in disk.list()) + more
        try:
            write_step(store, 1)
        except StorageFull:
            assert is_as_after(read_manifest(disk.crash("nothing")), 1)
            assert store.files() == files
            outcomes.add("full")
        else:
            assert is_as_after(read_manifest(disk.crash("nothing")), 2)
            outcomes.add("copied" if disk.exists(COPY_NAME) else "not copied")
        disk.size_max = None
        for number in range(store.head.checkpoint, len(STEPS)):
            write_step(store, number)
        assert is_as_after(read_manifest(disk.crash("nothing")), len(STEPS))
        assert read_manifest(disk, COPY_NAME) == read_manifest(disk)
    assert outcomes == {"full", "not copied", "copied"}


def test_a_small_manifest_is_of_version_1_and_a_large_one_of_version_2() -> None:
    disk = SimulatedFileSystem()
    store = ManifestStore(disk)
    store.write(Manifest(1), [state(1)], set(), [])
    assert disk.contents(NAME)[8] == 1
    store.write(Manifest(2), [state(id) for id in range(1_500)], set(), [])
    assert disk.contents(NAME)[8] == 2
    size = len(disk.contents(NAME))
    store.write(Manifest(3), [state(7, 3)], set(), [])
    assert len(disk.contents(NAME)) == size
    (changes,) = [
        n for n in disk.list() if n.startswith("manifest.changes-") and not n.endswith(".copy")
    ]
    assert len(disk.contents(changes)) < 1_000
    assert {t.id: t.next_offset for t in read_manifest(disk).topics}[7] == 3  # type: ignore[union-attr]
