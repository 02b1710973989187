"""The filesystem: everything written or an error, told in our words."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.errors import DataDirectoryInUse, StorageFailed, StorageFull
from flintmq.storage.filesystem import (
    FileSystem,
    LocalFileSystem,
    copy_file,
    directory_of,
    read_file,
    replace_file,
)
from flintmq.testing import SimulatedFileSystem


@pytest.fixture(params=["local", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    """Both have to keep the same promises, or the tests on the simulated one say nothing."""
    return LocalFileSystem(tmp_path / "data") if request.param == "local" else SimulatedFileSystem()


@pytest.fixture
def local(tmp_path: Path) -> LocalFileSystem:
    return LocalFileSystem(tmp_path / "data")


# --- both of them


def test_what_was_written_is_read(disk: FileSystem) -> None:
    file = disk.create("file")
    file.pwritev([b"hello ", memoryview(b"world")], 0)
    file.pwritev([b"W"], 6)
    file.sync()
    file.sync_all()
    file.reread()

    assert file.pread(100, 0) == b"hello World"
    assert file.pread(3, 6) == b"Wor"
    assert file.pread(3, 11) == b""
    assert file.size() == disk.size_of("file") == 11
    file.close()
    file.close()
    assert read_file(disk, "file") == b"hello World"


def test_a_write_behind_the_end_leaves_zeros_between(disk: FileSystem) -> None:
    file = disk.create("file")
    file.pwritev([b"x"], 5)

    assert file.pread(100, 0) == b"\0\0\0\0\0x"


def test_more_buffers_than_the_system_takes_at_once_are_all_written(disk: FileSystem) -> None:
    buffers = [b"%04d" % number for number in range(5000)]
    file = disk.create("file")
    file.pwritev(buffers, 3)

    assert file.pread(30_000, 3) == b"".join(buffers)


def test_truncate_cuts_and_lengthens(disk: FileSystem) -> None:
    file = disk.create("file")
    file.pwritev([b"abcdef"], 0)
    file.truncate(3)
    file.truncate(5)

    assert file.pread(100, 0) == b"abc\0\0"


def test_a_file_is_made_once(disk: FileSystem) -> None:
    disk.create("file").close()

    with pytest.raises(StorageFailed, match="exists"):
        disk.create("file")


@pytest.mark.parametrize(
    "call",
    [
        lambda disk: disk.open("missing"),
        lambda disk: disk.remove("missing"),
        lambda disk: disk.rename("missing", "other"),
        lambda disk: disk.size_of("missing"),
        lambda disk: disk.list("missing"),
        lambda disk: disk.create("missing/file"),
    ],
)
def test_what_is_not_there_is_told_with_its_name(
    disk: FileSystem, call: Callable[[FileSystem], object]
) -> None:
    with pytest.raises(StorageFailed, match=r"missing.*No such file or directory"):
        call(disk)


def test_a_file_opened_for_reading_takes_no_writes(disk: FileSystem) -> None:
    disk.create("file").close()
    file = disk.open("file")

    with pytest.raises(StorageFailed):
        file.pwritev([b"x"], 0)
    file.close()


def test_names_in_directories(disk: FileSystem) -> None:
    disk.make_directory("a/b")
    disk.make_directory("a/b")
    disk.create("a/b/two").close()
    disk.create("a/b/one").close()
    disk.create("a/file").close()
    for directory in ("a/b", "a", ""):
        disk.sync_directory(directory)

    assert disk.list("a/b") == ["one", "two"]
    assert disk.list("a") == ["b", "file"]
    assert disk.list() == ["a"]
    assert disk.exists("a/b")
    assert disk.exists("a/b/one")
    disk.rename("a/b/one", "a/b/two")
    assert disk.list("a/b") == ["two"]
    disk.remove("a/b/two")
    disk.remove_directory("a/b")
    assert not disk.exists("a/b")
    assert disk.list("a") == ["file"]
    assert directory_of("a/b/one") == "a/b"


def test_replacing_a_file_leaves_the_new_one_alone(disk: FileSystem) -> None:
    disk.make_directory("a")
    replace_file(disk, "a/file", [b"one"])
    disk.create("a/file.tmp").close()  # left by a crash
    replace_file(disk, "a/file", [b"two", b"!"])

    assert read_file(disk, "a/file") == b"two!"
    assert disk.list("a") == ["file"]


def test_copies_and_links_hold_the_same_bytes(disk: FileSystem) -> None:
    content = os.urandom(2_500_000)
    replace_file(disk, "file", [content])
    copy_file(disk, "file", disk, "copy")
    copy_file(disk, "file", disk, "part", bytes_max=1_500_000)

    assert disk.link("file", disk, "link")
    assert read_file(disk, "copy") == read_file(disk, "link") == content
    assert read_file(disk, "part") == content[:1_500_000]


def test_a_link_to_another_kind_of_filesystem_is_impossible(local: LocalFileSystem) -> None:
    replace_file(local, "file", [b"x"])
    simulated = SimulatedFileSystem()

    assert not local.link("file", simulated, "file")
    copy_file(local, "file", simulated, "file")
    assert not simulated.link("file", local, "other")
    assert not local.link("missing", local, "other")


def test_there_is_free_room(disk: FileSystem) -> None:
    assert disk.free_bytes() > 0


def test_a_second_lock_names_the_holder(disk: FileSystem) -> None:
    lock = disk.lock("lock")

    with pytest.raises(DataDirectoryInUse) as told:
        disk.lock("lock")

    assert told.value.pid == os.getpid()
    assert str(os.getpid()) in str(told.value)
    lock.release()
    lock.release()
    disk.lock("lock").release()


# --- the real one


def test_the_lock_of_another_process_names_it_and_ends_with_it(local: LocalFileSystem) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from flintmq.storage.filesystem import LocalFileSystem\n"
        "lock = LocalFileSystem(Path(sys.argv[1])).lock('lock')\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(local.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DataDirectoryInUse) as told:
            local.lock("lock")
        assert told.value.pid == other.pid
        other.send_signal(signal.SIGKILL)
        other.wait()
        local.lock("lock").release()


def test_a_lock_file_without_a_pid_still_locks(local: LocalFileSystem) -> None:
    lock = local.lock("lock")
    (local.root / "lock").write_text("?")

    with pytest.raises(DataDirectoryInUse, match="another process"):
        local.lock("lock")
    lock.release()


def test_short_writes_are_finished(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real(fd, b"".join(parts)[:5], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:7], at))
    file = local.create("file")
    file.pwritev([b"0123456789", b"abcdefghij" * 3], 2)

    assert file.pread(100, 2) == b"0123456789" + b"abcdefghij" * 3


def test_short_reads_are_finished(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(local, "file", [b"0123456789"])
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real(fd, min(length, 3), at))

    assert read_file(local, "file") == b"0123456789"
    assert local.open("file").pread(100, 4) == b"456789"


def raising(number: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT"])
def test_a_full_disk_is_told_as_full_when_writing(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import errno

    file = local.create("file")
    monkeypatch.setattr(os, "pwritev", raising(getattr(errno, name)))

    with pytest.raises(StorageFull) as told:
        file.pwritev([b"x"], 0)

    assert told.value.file.endswith("data/file")
    assert "free some space" in str(told.value)


@pytest.mark.parametrize("number", [5, 28])
def test_a_sync_that_fails_is_a_failure_even_if_the_disk_is_full(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = local.create("file")
    monkeypatch.setattr(os, "fdatasync", raising(number))
    monkeypatch.setattr(os, "fsync", raising(number))

    for call in (file.sync, file.sync_all, file.reread, local.sync_directory):
        with pytest.raises(StorageFailed) as told:
            call()
        assert told.value.operation == "sync"


def test_a_file_over_the_limit_of_the_process_is_a_failure_with_its_cause(
    local: LocalFileSystem,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = local.create("file")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StorageFailed, match="File too large"):
            file.pwritev([bytes(5000)], 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_the_root_is_made_if_need_be_and_may_not_be_a_file(tmp_path: Path) -> None:
    LocalFileSystem(tmp_path / "a" / "b").create("file").close()
    assert (tmp_path / "a" / "b" / "file").exists()

    with pytest.raises(StorageFailed):
        LocalFileSystem(tmp_path / "a" / "b" / "file")
