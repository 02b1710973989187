"""The simulated disk loses what a disk may lose, and nothing else."""

from __future__ import annotations

import errno
import threading
from itertools import product
from random import Random

import pytest

from flintmq.errors import StorageFailed, StorageFull
from flintmq.storage.filesystem import FileSystem, read_file
from flintmq.testing import Crashed, SimulatedFileSystem
from flintmq.testing.simulated_filesystem import SECTOR_BYTES, SimulatedFile


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def stored(disk: SimulatedFileSystem, name: str = "file", content: bytes = b"") -> SimulatedFile:
    """A file that is on the disk with its name."""
    file = disk.create(name)
    file.pwritev([content], 0)
    file.sync()
    disk.sync_directory()
    return file


def outcomes(disk: SimulatedFileSystem, name: str = "file") -> set[bytes]:
    """Everything a file may hold after a crash."""
    return {
        disk.crash(choices).contents(name)
        for choices in product(*(range(count) for count in disk.unsynced()))
    }


def test_it_is_a_filesystem(disk: SimulatedFileSystem) -> None:
    filesystem: FileSystem = disk

    assert filesystem.list() == []


def test_what_was_synced_with_its_name_survives(disk: SimulatedFileSystem) -> None:
    stored(disk, content=b"safe")

    assert disk.unsynced() == []
    assert read_file(disk.crash(), "file") == b"safe"


def test_what_was_not_synced_may_be_lost_or_kept(disk: SimulatedFileSystem) -> None:
    stored(disk, content=b"old").pwritev([b"new"], 0)

    assert outcomes(disk) == {b"old", b"new"}
    assert disk.crash("nothing").contents("file") == b"old"
    assert disk.crash("everything").contents("file") == b"new"
    assert disk.contents("file") == b"new"


def test_sectors_are_lost_one_by_one_and_never_in_part(disk: SimulatedFileSystem) -> None:
    one, two, three = (letter * SECTOR_BYTES for letter in (b"a", b"b", b"c"))
    blank = bytes(SECTOR_BYTES)
    stored(disk).pwritev([one, two, three], 0)

    assert outcomes(disk) == {
        b"",
        one,
        blank + two,
        one + two,
        blank + blank + three,
        one + blank + three,
        blank + two + three,
        one + two + three,
    }


def test_a_sector_written_twice_may_hold_either_version(disk: SimulatedFileSystem) -> None:
    file = stored(disk, content=b"....")
    file.pwritev([b"A"], 0)
    file.pwritev([b"B"], 1)

    assert outcomes(disk) == {b"....", b"A...", b"AB.."}


def test_a_truncate_may_be_lost(disk: SimulatedFileSystem) -> None:
    stored(disk, content=b"abcdef").truncate(2)

    assert outcomes(disk) == {b"abcdef", b"ab"}


def test_a_truncate_that_was_synced_stays(disk: SimulatedFileSystem) -> None:
    file = stored(disk, content=b"abcdef")
    file.truncate(2)
    file.truncate(4)
    file.sync()

    assert outcomes(disk) == {b"ab\0\0"}


def test_names_need_a_sync_of_their_directory(disk: SimulatedFileSystem) -> None:
    file = disk.create("file")
    file.pwritev([b"data"], 0)
    file.sync()

    assert disk.crash("nothing").list() == []
    assert disk.crash("everything").contents("file") == b"data"
    disk.sync_directory()
    assert disk.crash("nothing").contents("file") == b"data"


def test_each_rename_and_removal_is_lost_by_itself(disk: SimulatedFileSystem) -> None:
    stored(disk, "a", b"a")
    stored(disk, "b", b"b")
    disk.rename("a", "c")
    disk.remove("b")

    found = {tuple(disk.crash(choices).list()) for choices in product(range(2), repeat=2)}

    assert found == {("a", "b"), ("a",), ("b", "c"), ("c",)}
    assert disk.list() == ["c"]


def test_a_rename_in_place_of_a_file_leaves_one_of_them(disk: SimulatedFileSystem) -> None:
    stored(disk, "file", b"old")
    stored(disk, "new", b"new")
    disk.rename("new", "file")

    assert disk.crash("nothing").contents("file") == b"old"
    assert disk.crash("nothing").contents("new") == b"new"
    assert disk.crash("everything").list() == ["file"]
    assert disk.crash("everything").contents("file") == b"new"


def test_a_directory_that_was_not_synced_takes_its_files_with_it(
    disk: SimulatedFileSystem,
) -> None:
    disk.make_directory("a/b")
    disk.create("a/b/file").sync()
    disk.sync_directory("a/b")

    assert disk.crash().list() == []
    disk.sync_directory("")
    assert disk.crash().list("a") == []
    disk.sync_directory("a")
    assert disk.crash().list("a/b") == ["file"]


def test_a_removed_directory_may_come_back(disk: SimulatedFileSystem) -> None:
    disk.make_directory("a")
    disk.sync_directory()
    disk.remove_directory("a")

    assert disk.list() == []
    assert disk.crash("nothing").list() == ["a"]
    assert disk.crash("everything").list() == []


def test_the_same_seed_gives_the_same_disk(disk: SimulatedFileSystem) -> None:
    stored(disk).pwritev([bytes([number]) * SECTOR_BYTES for number in range(64)], 0)

    first, again = (disk.crash(Random(7)).contents("file") for _ in range(2))

    assert first == again
    assert len({disk.crash(Random(seed)).contents("file") for seed in range(8)}) == 8


def test_the_power_goes_after_so_many_changes_and_stays_away(disk: SimulatedFileSystem) -> None:
    file = stored(disk, content=b"old")
    disk.stop_after(1)
    file.pwritev([b"new"], 0)

    for _ in range(2):
        with pytest.raises(Crashed):
            file.sync()
    with pytest.raises(Crashed):
        file.pread(1, 0)
    with pytest.raises(Crashed):
        disk.list()
    file.close()
    assert outcomes(disk) == {b"old", b"new"}
    assert disk.crash().create("other")


def test_changes_are_counted_and_named(disk: SimulatedFileSystem) -> None:
    stored(disk).pread(1, 0)

    assert [(call.operation, call.name) for call in disk.calls] == [
        ("create", "file"),
        ("pwritev", "file"),
        ("sync", "file"),
        ("sync_directory", ""),
    ]
    assert disk.call_count == 4


def test_after_a_failed_sync_the_data_is_seen_and_not_on_the_disk(
    disk: SimulatedFileSystem,
) -> None:
    file = stored(disk, content=b"old")
    file.pwritev([b"new"], 0)
    disk.fail("sync")
    with pytest.raises(StorageFailed):
        file.sync()

    file.sync()

    assert file.pread(3, 0) == b"new"
    assert outcomes(disk) == {b"old"}
    file.reread()
    assert file.pread(3, 0) == b"old"


def test_a_fault_waits_for_its_call_and_its_file(disk: SimulatedFileSystem) -> None:
    one, two = disk.create("one"), disk.create("two")
    disk.fail("pwritev", on_call=2, name="two", error=errno.ENOSPC, times=2)
    one.pwritev([b"x"], 0)
    two.pwritev([b"x"], 0)
    for _ in range(2):
        one.pwritev([b"x"], 0)
        with pytest.raises(StorageFull):
            two.pwritev([b"x"], 0)
    two.pwritev([b"x"], 0)
    disk.fail("pread")
    with pytest.raises(StorageFailed, match="Input/output error"):
        one.pread(1, 0)
    disk.fail("pread")
    disk.heal()
    assert one.pread(1, 0) == b"x"


def test_room_can_be_taken_and_given_back(disk: SimulatedFileSystem) -> None:
    disk.size_max = 10
    file = disk.create("file")
    file.pwritev([b"12345678"], 0)
    with pytest.raises(StorageFull):
        file.pwritev([b"90!"], 8)
    with pytest.raises(StorageFull):
        file.truncate(11)

    assert disk.free_bytes() == 2
    file.pwritev([b"overwrite"[:8]], 0)
    disk.size_max = None
    file.pwritev([b"90!"], 8)
    assert file.size() == 11


def test_a_slow_sync_waits_for_the_test(disk: SimulatedFileSystem) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def wait(name: str) -> None:
        begun.set()
        assert go_on.wait(60)

    file = stored(disk, content=b"old")
    file.pwritev([b"new"], 0)
    disk.on_sync = wait
    thread = threading.Thread(target=file.sync)
    thread.start()
    assert begun.wait(60)

    assert file.pread(3, 0) == b"new", "others go on"
    assert disk.crash().contents("file") == b"old"
    go_on.set()
    thread.join()
    assert disk.crash().contents("file") == b"new"


def test_damage_stays_on_the_disk(disk: SimulatedFileSystem) -> None:
    file = stored(disk, content=b"abc")
    file.pwritev([b"xyz"], 3)
    disk.flip("file", 1, 0x20)
    disk.flip("file", 4, 0x20)

    assert disk.contents("file") == b"aBcxYz"
    assert outcomes(disk) == {b"aBc", b"aBcxYz"}


def test_locks_end_with_the_power(disk: SimulatedFileSystem) -> None:
    disk.lock("lock")

    disk.crash().lock("lock").release()


def test_open_files_are_counted(disk: SimulatedFileSystem) -> None:
    file = stored(disk)
    other = disk.open("file")

    assert disk.open_files == 2
    file.close()
    other.close()
    other.close()
    assert disk.open_files == 0
