"""The filesystem as a parameter: the only module that touches the disk.

Names are relative to the root of the filesystem, with "/" between their parts. Whatever the
operating system refuses becomes a FlintError here, at the border: a full disk as StorageFull,
everything else as StorageFailed. `flintmq.testing.SimulatedFileSystem` is the one that loses
power, tears sectors and fails on request.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from ..errors import DataDirectoryInUse, StorageFailed, StorageFull

Buffer = bytes | memoryview

_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""Linux alone can read without asking the disk."""

COPY_BYTES = 1 << 20
BLOCK_BYTES = 4096
"""What a disk reads or cannot read as a whole."""
_IOV_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
_FULL = (errno.ENOSPC, errno.EDQUOT)


class File(Protocol):
    """An open file. Positions and lengths are in bytes; memoryviews must be of single bytes."""

    @property
    def name(self) -> str: ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one behind the other, or raise: then any part may be written."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def pread_cached(self, into: memoryview, position: int) -> bool:
        """Fill the buffer, if the system has all of that in memory; False if the disk would have
        to be asked, or that is not known."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""

    def sync(self) -> None:
        """Put the data on the disk (fdatasync). If this fails, it must not be tried again."""

    def sync_all(self) -> None:
        """Put the data and everything about the file on the disk (fsync)."""

    def reread(self) -> None:
        """Sync, then read from the disk what is read from now on, as far as the system allows.

        After a failed sync the pages of a file pass for clean while the disk has other bytes, also
        in the next process. Who opens a file to find out what is on the disk calls this first.
        """

    def close(self) -> None: ...


class Opens(Protocol):
    """Where files can be read."""

    def open(self, name: str) -> File: ...


class Creates(Protocol):
    """Where files can be written."""

    def create(self, name: str) -> File: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    """Directories and files. Nothing about a name is durable before its directory is synced."""

    def create(self, name: str) -> File:
        """A new, empty file, writable. A file of that name must not exist."""
        ...

    def open(self, name: str, *, writable: bool = False) -> File: ...

    def exists(self, name: str) -> bool: ...

    def list(self, directory: str = "") -> list[str]:
        """The names in a directory, without the directory, sorted."""
        ...

    def make_directory(self, name: str) -> None:
        """Make a directory and those above it; fine if it is there. Durable as any other name."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, in place of whatever had it."""

    def remove(self, name: str) -> None: ...

    def remove_directory(self, name: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, directory: str = "") -> None:
        """Put the names in a directory on the disk: what was created, renamed and removed."""

    def size_of(self, name: str) -> int: ...

    def free_bytes(self) -> int:
        """The room that is left on the disk for us."""
        ...

    def link(self, name: str, target: FileSystem, target_name: str) -> bool:
        """Give a file a second name, also under another root; False where that is impossible."""
        ...

    def lock(self, name: str) -> FileLock:
        """Take a lock file for this process, or raise DataDirectoryInUse with the holder's pid."""
        ...

    def describe(self, name: str = "") -> str:
        """The name as a person can find it: with the root, for texts."""
        ...


def replace_file(filesystem: FileSystem, name: str, buffers: Sequence[Buffer]) -> None:
    """Put a small file in place of the one of that name: durable, and whole at any moment."""
    beside = name + ".tmp"
    if filesystem.exists(beside):
        filesystem.remove(beside)
    file = filesystem.create(beside)
    try:
        file.pwritev(buffers, 0)
        file.sync_all()
    except StorageFull:
        filesystem.remove(beside)  # else it would keep what room there is
        raise
    finally:
        file.close()
    filesystem.rename(beside, name)
    filesystem.sync_directory(directory_of(name))


def read_file(filesystem: FileSystem, name: str) -> bytes:
    with closing(filesystem.open(name)) as file:
        return file.pread(file.size(), 0)


def copy_file(
    source: FileSystem,
    name: str,
    target: FileSystem,
    target_name: str,
    *,
    bytes_max: int = -1,
    around_damage: bool = False,
) -> None:
    """Copy a file, or its first `bytes_max` bytes, and sync the copy, but not its directory.

    With `around_damage`, what the disk cannot read is zeros in the copy, whose checksums tell.
    """
    with closing(source.open(name)) as reading, closing(target.create(target_name)) as writing:
        left = reading.size() if bytes_max < 0 else bytes_max
        position = 0
        read = _read_around if around_damage else _read
        while left > 0 and (data := read(reading, min(left, COPY_BYTES), position)):
            writing.pwritev([data], position)
            position += len(data)
            left -= len(data)
        writing.sync_all()


def _read(file: File, length: int, position: int) -> bytes:
    return file.pread(length, position)


def _read_around(file: File, length: int, position: int) -> bytes:
    try:
        return file.pread(length, position)
    except StorageFailed:
        if length <= BLOCK_BYTES:
            return bytes(length)
    blocks = range(position, position + length, BLOCK_BYTES)
    end = position + length
    return b"".join(_read_around(file, min(BLOCK_BYTES, end - at), at) for at in blocks)


def directory_of(name: str) -> str:
    return name.rpartition("/")[0]


def bytes_in(buffers: Sequence[Buffer]) -> int:
    return sum(map(len, buffers))


class LocalFileSystem:
    """The files below one directory of this machine, which is made if need be."""

    def __init__(self, root: Path) -> None:
        self.root, self._path = root, str(root)
        with _told("make", str(root)):
            if not root.is_dir():
                root.mkdir(parents=True, exist_ok=True)
                _sync_path(root.parent)

    def create(self, name: str) -> LocalFile:
        return self._open("create", name, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def create_private(self, name: str) -> LocalFile:
        """One that only its owner may read, from the first moment on. Made by root, it belongs to
        the owner of the directory: else the broker could not read it."""
        with _told("create", self.describe(name)):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            file = LocalFile(self.describe(name), os.open(self.describe(name), flags, 0o600))
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            file.give_to_owner_of(self.root)
        return file

    def open(self, name: str, *, writable: bool = False) -> LocalFile:
        return self._open("open", name, os.O_RDWR if writable else os.O_RDONLY)

    def exists(self, name: str) -> bool:
        return os.path.exists(self.describe(name))

    def list(self, directory: str = "") -> list[str]:
        with _told("list", self.describe(directory)):
            return sorted(os.listdir(self.describe(directory)))

    def make_directory(self, name: str) -> None:
        with _told("make", self.describe(name)):
            os.makedirs(self.describe(name), exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        with _told("rename", self.describe(old)):
            os.replace(self.describe(old), self.describe(new))

    def remove(self, name: str) -> None:
        with _told("remove", self.describe(name)):
            os.unlink(self.describe(name))

    def remove_directory(self, name: str) -> None:
        with _told("remove", self.describe(name)):
            os.rmdir(self.describe(name))

    def sync_directory(self, directory: str = "") -> None:
        with _told("sync", self.describe(directory), full=()):
            _sync_path(self.describe(directory))

    def size_of(self, name: str) -> int:
        with _told("measure", self.describe(name)):
            return os.stat(self.describe(name)).st_size

    def free_bytes(self) -> int:
        with _told("measure", self.describe()):
            room = os.statvfs(self.root)
            return room.f_bavail * room.f_frsize

    def link(self, name: str, target: FileSystem, target_name: str) -> bool:
        if not isinstance(target, LocalFileSystem):
            return False
        try:
            os.link(self.describe(name), target.describe(target_name))
        except OSError:  # another disk, or a filesystem without links: the caller copies
            return False
        return True

    def stamp(self, name: str) -> tuple[int, int, int] | None:
        """What tells one state of a file from the next without reading it; None: not there."""
        try:
            with _told("look at", self.describe(name)):
                found = os.stat(self.describe(name))
        except StorageFailed as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return found.st_ino, found.st_size, found.st_mtime_ns

    def is_read_by_others(self, name: str) -> bool:
        """Whether users beside its owner may read a file."""
        with _told("look at", self.describe(name)):
            return bool(os.stat(self.describe(name)).st_mode & 0o077)

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Wait for a lock file, and hold it: for short changes by one process after the other."""
        import fcntl

        with _told("lock", self.describe(name)):
            descriptor = os.open(self.describe(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _told("lock", self.describe(name)):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def lock(self, name: str) -> LocalLock:
        import fcntl  # not on every system; what runs in memory alone must import this module

        path = self.describe(name)
        with _told("lock", self.describe(name)):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).strip()
                os.close(descriptor)
                pid = int(holder) if holder.isdigit() else None
                raise DataDirectoryInUse(os.path.dirname(path), pid) from None
            except BaseException:
                os.close(descriptor)
                raise
        return LocalLock(descriptor)

    def describe(self, name: str = "") -> str:
        """The path of a file, as the system knows it and as errors say it."""
        return os.path.join(self._path, name) if name else self._path

    def _open(self, operation: str, name: str, flags: int) -> LocalFile:
        with _told(operation, self.describe(name)):
            descriptor = os.open(self.describe(name), flags | os.O_CLOEXEC, 0o644)
        return LocalFile(self.describe(name), descriptor)


class LocalFile:
    """A file descriptor, kept open from write to sync: a disk error is reported only once."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        with _told("write", self.name):
            for start in range(0, len(buffers), _IOV_MAX):
                part = buffers[start : start + _IOV_MAX]
                wanted = bytes_in(part)
                written = os.pwritev(self._descriptor, part, position)
                if written < wanted:
                    self._finish(b"".join(part), written, position)
                position += wanted

    def _finish(self, data: bytes, written: int, position: int) -> None:
        """Write what a short write left; the disk is nearly full, or the write very large."""
        view = memoryview(data)
        while written < len(data):
            more = os.pwrite(self._descriptor, view[written:], position + written)
            if more == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += more

    def pread(self, length: int, position: int) -> bytes:
        with _told("read", self.name):
            data = os.pread(self._descriptor, length, position)
            if 0 < len(data) < length:
                parts = [data]
                got = len(data)
                while got < length and (
                    more := os.pread(self._descriptor, length - got, position + got)
                ):
                    parts.append(more)
                    got += len(more)
                data = b"".join(parts)
            return data

    def pread_cached(self, into: memoryview, position: int) -> bool:
        if not _RWF_NOWAIT:
            return False
        try:
            return os.preadv(self._descriptor, [into], position, _RWF_NOWAIT) == len(into)
        except OSError:  # not in memory, or not known to this file system; else pread says it
            return False

    def size(self) -> int:
        with _told("measure", self.name):
            return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        with _told("cut", self.name):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        with _told("sync", self.name, full=()):
            os.fdatasync(self._descriptor)

    def sync_all(self) -> None:
        with _told("sync", self.name, full=()):
            os.fsync(self._descriptor)

    def reread(self) -> None:
        self.sync_all()
        with suppress(OSError):  # advice only
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def give_to_owner_of(self, directory: Path) -> None:
        with _told("give away", self.name):
            owner = os.stat(directory)
            os.fchown(self._descriptor, owner.st_uid, owner.st_gid)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with _told("close", self.name):
                os.close(descriptor)


class LocalLock:
    """Held until released, or until the process ends in whatever way."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            import fcntl

            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child's copy stays open
            os.close(descriptor)


class _told:
    """Translate what the operating system raises.

    A sync that finds the disk full is a failed sync: what was written may be gone, and no later
    sync will tell.
    """

    __slots__ = ("_file", "_full", "_operation")

    def __init__(self, operation: str, file: str, full: Sequence[int] = _FULL) -> None:
        self._operation, self._file, self._full = operation, file, full

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            cause = error.strerror or str(error)
            if error.errno in self._full:
                raise StorageFull(self._file, cause) from error
            raise StorageFailed(self._operation, self._file, cause) from error


def _sync_path(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
