"""A filesystem in memory that loses power, tears writes, fills up and fails, as a test wants it.

What a disk does that a directory of files in a test does not:

- What was written and not synced may be lost, in any subset of its 512-byte sectors, and a sector
  that was written several times may hold any of its versions.
- What was created, renamed or removed is undone unless the directory was synced, each by itself.
- A sync that fails leaves the pages clean: the data can be read, later syncs succeed, and it is not
  on the disk.

    disk = SimulatedFileSystem()
    disk.stop_after(17)                      # everything behind the 17th change raises Crashed
    with pytest.raises(Crashed):
        work(disk)
    work_again(disk.crash(Random(seed)))     # the same disk after the power came back
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from ..errors import DataDirectoryInUse, StorageFailed, StorageFull
from ..storage.filesystem import Buffer, FileSystem, directory_of

SECTOR_BYTES = 512

Keep = Literal["nothing", "everything"] | Random | Sequence[int] | Callable[[int], int]
"""What survives a crash. Wherever there are k possible states, oldest first, one is chosen: the
oldest, the newest, by chance, by a list of numbers in the order of `unsynced()` (0 behind its end),
or by a function of k."""


class Crashed(BaseException):
    """The power is gone. Not an Exception: no handler takes it for an error it can deal with."""


@dataclass(frozen=True, slots=True)
class DiskCall:
    """A change that was asked for: its operation and the name of the file or directory."""

    operation: str
    name: str


@dataclass(slots=True)
class _DiskFault:
    operation: str
    name: str
    countdown: int
    error_number: int
    times: int


@dataclass(slots=True)
class _Inode:
    """A file: what programs see, what is on the disk, and what is on its way."""

    name: str
    """The last name it was given: a file that is renamed while it is open is known by the new."""
    seen: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    sectors: dict[int, list[bytes]] = field(default_factory=dict)
    """The versions of each sector since the last sync, oldest first."""
    cuts: list[int] = field(default_factory=list)
    """The lengths it was given by truncate since the last sync."""

    def write(self, data: bytes, position: int) -> None:
        if position > len(self.seen):
            self.seen += bytes(position - len(self.seen))
        end = position + len(data)
        self.seen[position:end] = data
        for sector in range(position // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            at = sector * SECTOR_BYTES
            self.sectors.setdefault(sector, []).append(bytes(self.seen[at : at + SECTOR_BYTES]))

    def truncate(self, size: int) -> None:
        if size < len(self.seen):
            del self.seen[size:]
            for sector in [s for s in self.sectors if s * SECTOR_BYTES >= size]:
                del self.sectors[sector]
            if size // SECTOR_BYTES in self.sectors:
                at = size // SECTOR_BYTES * SECTOR_BYTES
                self.sectors[size // SECTOR_BYTES] = [bytes(self.seen[at:size])]
        else:
            self.seen += bytes(size - len(self.seen))
        self.cuts.append(size)

    def sync(self) -> None:
        size = len(self.seen)
        if self.cuts:
            del self.disk[min(self.cuts) :]
        self.disk += bytes(max(0, size - len(self.disk)))
        for sector, versions in self.sectors.items():
            at = sector * SECTOR_BYTES
            self.disk[at : at + len(versions[-1])] = versions[-1]
        del self.disk[size:]
        self.sectors.clear()
        self.cuts.clear()

    def fail_sync(self) -> None:
        self.sectors.clear()
        self.cuts.clear()

    def reread(self) -> None:
        self.seen = bytearray(self.disk)

    def choices(self) -> list[int]:
        counts = [len(self.cuts) + 1] if self.cuts else []
        return counts + [len(self.sectors[sector]) + 1 for sector in sorted(self.sectors)]

    def after_crash(self, choose: Callable[[int], int]) -> _Inode:
        content = bytearray(self.disk)
        if self.cuts:
            chosen = choose(len(self.cuts) + 1)
            if chosen:
                size = self.cuts[chosen - 1]
                del content[min(self.cuts[:chosen]) :]
                content += bytes(max(0, size - len(content)))
        for sector in sorted(self.sectors):
            versions = self.sectors[sector]
            chosen = choose(len(versions) + 1)
            if chosen:
                data, at = versions[chosen - 1], sector * SECTOR_BYTES
                content += bytes(max(0, at - len(content)))
                content[at : at + len(data)] = data
        return _Inode(self.name, bytearray(content), content)


@dataclass(frozen=True, slots=True)
class _NameChange:
    """Something that happened to the names in a directory and is not synced."""

    directory: str
    name: str
    inode: _Inode | None
    """What the name stands for now; None if it is gone."""
    old_name: str | None = None
    """The name it had before, which is gone in the same step."""


class SimulatedFileSystem:
    """A disk for tests. All faults are set by the test; without any it simply works.

    `on_sync` is called in every sync, before it takes effect: a slow disk is one whose hook waits.
    """

    def __init__(self, *, size_max: int | None = None) -> None:
        self.size_max = size_max
        """The room on the disk, in bytes; None lifts the limit."""
        self.calls: list[DiskCall] = []
        """Every change that was asked for, including the one that found the power gone."""
        self.on_sync: Callable[[str], object] | None = None
        self._lock = threading.RLock()
        self._seen: dict[str, _Inode] = {}
        self._disk: dict[str, _Inode] = {}
        self._directories = {""}
        self._disk_directories = {""}
        self._changes: list[_NameChange] = []
        self._faults: list[_DiskFault] = []
        self._stop_after: int | None = None
        self._locks: dict[str, int] = {}
        self._open_files = 0

    # --- what a test does to it

    @property
    def call_count(self) -> int:
        """How many changes were asked for: create, pwritev, truncate, sync, rename and so on."""
        return len(self.calls)

    @property
    def open_files(self) -> int:
        return self._open_files

    def stop_after(self, calls: int) -> None:
        """Let so many more changes happen; everything after them raises Crashed."""
        self._stop_after = len(self.calls) + calls

    def fail(
        self,
        operation: str,
        *,
        on_call: int = 1,
        name: str = "",
        error: int = errno.EIO,
        times: int = 1,
    ) -> None:
        """Let the n-th next call of an operation on files whose name contains `name` fail."""
        self._faults.append(_DiskFault(operation, name, on_call, error, times))

    def heal(self) -> None:
        """Forget the faults that were set."""
        self._faults.clear()

    def unsynced(self) -> list[int]:
        """The number of possible states of each thing that a crash leaves to chance, in order."""
        counts = [2] * len(self._changes)
        for inode in self._inodes():
            counts += inode.choices()
        return counts

    def crash(self, keep: Keep = "nothing") -> SimulatedFileSystem:
        """The disk as it is found when the power is back. This one stays as it is."""
        choose = _chooser(keep)
        names, directories = dict(self._disk), set(self._disk_directories)
        for change in self._changes:
            if choose(2):
                _apply(change, names, directories)
        after = SimulatedFileSystem(size_max=self.size_max)
        states = {id(inode): inode.after_crash(choose) for inode in self._inodes()}
        after._directories = {name for name in directories if _is_reachable(name, directories)}
        after._disk_directories = set(after._directories)
        for name, inode in names.items():
            if directory_of(name) in after._directories:
                after._seen[name] = after._disk[name] = states[id(inode)]
                after._seen[name].name = name
        return after

    def end_process(self) -> None:
        """The process is gone and the machine is not: its locks are free, what it wrote is seen by
        the next one, and what it did not sync is still not on the disk."""
        self._stop_after = None
        self._locks.clear()

    def flip(self, name: str, position: int, bits: int = 0xFF) -> None:
        """Damage a byte, on the disk and in memory and on the way between them."""
        inode = self._seen[name]
        inode.seen[position] ^= bits
        at = position % SECTOR_BYTES
        versions = inode.sectors.get(position // SECTOR_BYTES, [])
        for number, version in enumerate(versions):
            if at < len(version):
                damaged = bytes([version[at] ^ bits])
                versions[number] = version[:at] + damaged + version[at + 1 :]
        if position < len(inode.disk):
            inode.disk[position] ^= bits

    def contents(self, name: str) -> bytes:
        """What programs see in a file."""
        return bytes(self._seen[name].seen)

    def _inodes(self) -> list[_Inode]:
        """Every file that has a name or may have one after a crash, in a fixed order."""
        found: dict[int, _Inode] = {}
        for names in (self._disk, self._seen):
            for name in sorted(names):
                found.setdefault(id(names[name]), names[name])
        for change in self._changes:
            if change.inode is not None:
                found.setdefault(id(change.inode), change.inode)
        return list(found.values())

    # --- FileSystem

    def create(self, name: str) -> SimulatedFile:
        with self._lock:
            self._change("create", name)
            self._need_directory("create", name)
            if name in self._seen:
                raise StorageFailed("create", name, os.strerror(errno.EEXIST))
            inode = _Inode(name)
            self._seen[name] = inode
            self._changes.append(_NameChange(directory_of(name), name, inode))
            return SimulatedFile(self, inode, writable=True)

    def open(self, name: str, *, writable: bool = False) -> SimulatedFile:
        with self._lock:
            self._look("open", name)
            return SimulatedFile(self, self._find("open", name), writable=writable)

    def exists(self, name: str) -> bool:
        self._look("exists", name)
        return name in self._seen or name in self._directories

    def list(self, directory: str = "") -> list[str]:
        with self._lock:
            self._look("list", directory)
            if directory not in self._directories:
                raise StorageFailed("list", directory, os.strerror(errno.ENOENT))
            below = [*self._seen, *(name for name in self._directories if name)]
            return sorted(n.rpartition("/")[2] for n in below if directory_of(n) == directory)

    def make_directory(self, name: str) -> None:
        with self._lock:
            self._change("make_directory", name)
            parts = name.split("/")
            for depth in range(1, len(parts) + 1):
                path = "/".join(parts[:depth])
                if path not in self._directories:
                    self._directories.add(path)
                    self._changes.append(_NameChange(directory_of(path), path + "/", None))

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            self._change("rename", old)
            inode = self._find("rename", old)
            self._need_directory("rename", new)
            del self._seen[old]
            self._seen[new] = inode
            inode.name = new
            self._changes.append(_NameChange(directory_of(new), new, inode, old))

    def remove(self, name: str) -> None:
        with self._lock:
            self._change("remove", name)
            self._find("remove", name)
            del self._seen[name]
            self._changes.append(_NameChange(directory_of(name), name, None))

    def remove_directory(self, name: str) -> None:
        with self._lock:
            self._change("remove_directory", name)
            if self.list(name):
                raise StorageFailed("remove", name, os.strerror(errno.ENOTEMPTY))
            self._directories.discard(name)
            self._changes.append(_NameChange(directory_of(name), "", None, name + "/"))

    def sync_directory(self, directory: str = "") -> None:
        self._wait_for_sync(directory)
        with self._lock:
            self._change("sync_directory", directory)
            rest: list[_NameChange] = []
            for change in self._changes:
                if change.directory == directory:
                    _apply(change, self._disk, self._disk_directories)
                else:
                    rest.append(change)
            self._changes = rest

    def size_of(self, name: str) -> int:
        with self._lock:
            self._look("size_of", name)
            return len(self._find("measure", name).seen)

    def free_bytes(self) -> int:
        self._look("free_bytes", "")
        return 1 << 40 if self.size_max is None else max(0, self.size_max - self._used())

    def link(self, name: str, target: FileSystem, target_name: str) -> bool:
        with self._lock:
            if target is not self:
                return False
            self._change("link", target_name)
            inode = self._find("link", name)
            self._seen[target_name] = inode
            self._changes.append(_NameChange(directory_of(target_name), target_name, inode))
            return True

    def lock(self, name: str) -> SimulatedLock:
        with self._lock:
            self._look("lock", name)
            if name in self._locks:
                raise DataDirectoryInUse(self.describe(directory_of(name)), self._locks[name])
            self._locks[name] = os.getpid()
            return SimulatedLock(self._locks, name)

    def describe(self, name: str = "") -> str:
        return f"simulated:/{name}"

    # --- inside

    def _change(self, operation: str, name: str) -> None:
        self.calls.append(DiskCall(operation, name))
        self._look(operation, name)

    def _look(self, operation: str, name: str) -> None:
        if self._stop_after is not None and len(self.calls) > self._stop_after:
            raise Crashed(f"the power went before {operation} of {name!r}")
        for fault in self._faults:
            if fault.operation == operation and fault.name in name and fault.times:
                fault.countdown -= 1
                if fault.countdown <= 0:
                    fault.times -= 1
                    if fault.error_number == errno.ENOSPC and "sync" not in operation:
                        raise StorageFull(self.describe(name), os.strerror(errno.ENOSPC))
                    cause = os.strerror(fault.error_number)
                    raise StorageFailed(operation, self.describe(name), cause) from OSError(
                        fault.error_number, cause
                    )

    def _wait_for_sync(self, name: str) -> None:
        if self.on_sync is not None:
            self.on_sync(name)

    def _find(self, operation: str, name: str) -> _Inode:
        inode = self._seen.get(name)
        if inode is None:
            raise StorageFailed(operation, self.describe(name), os.strerror(errno.ENOENT))
        return inode

    def _need_directory(self, operation: str, name: str) -> None:
        if directory_of(name) not in self._directories:
            raise StorageFailed(operation, self.describe(name), os.strerror(errno.ENOENT))

    def _used(self) -> int:
        return sum(len(inode.seen) for inode in {id(i): i for i in self._seen.values()}.values())

    def _need_room(self, name: str, inode: _Inode, size: int) -> None:
        more = size - len(inode.seen)
        if self.size_max is not None and more > 0 and self._used() + more > self.size_max:
            raise StorageFull(self.describe(name), os.strerror(errno.ENOSPC))


class SimulatedFile:
    def __init__(self, disk: SimulatedFileSystem, inode: _Inode, *, writable: bool) -> None:
        self._disk, self._inode, self._writable = disk, inode, writable
        self._is_open = True
        disk._open_files += 1

    @property
    def name(self) -> str:
        return self._disk.describe(self._path)

    @property
    def _path(self) -> str:
        return self._inode.name

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        with self._disk._lock:
            self._begin_change("pwritev")
            data = b"".join(buffers)
            self._disk._need_room(self._path, self._inode, position + len(data))
            self._inode.write(data, position)

    def pread(self, length: int, position: int) -> bytes:
        with self._disk._lock:
            assert self._is_open, f"{self.name} is open"
            self._disk._look("pread", self._path)
            return bytes(self._inode.seen[position : position + length])

    def pread_cached(self, into: memoryview, position: int) -> bool:
        """This disk is always asked."""
        return False

    def size(self) -> int:
        self._disk._look("size", self._path)
        return len(self._inode.seen)

    def truncate(self, size: int) -> None:
        with self._disk._lock:
            self._begin_change("truncate")
            self._disk._need_room(self._path, self._inode, size)
            self._inode.truncate(size)

    def sync(self) -> None:
        self._sync("sync")

    def sync_all(self) -> None:
        self._sync("sync_all")

    def _sync(self, operation: str) -> None:
        self._disk._wait_for_sync(self._path)
        with self._disk._lock:
            try:
                assert self._is_open, f"{self.name} is open"
                self._disk._change(operation, self._path)
            except StorageFailed:
                self._inode.fail_sync()
                raise
            self._inode.sync()

    def reread(self) -> None:
        self._sync("sync_all")
        with self._disk._lock:
            self._inode.reread()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._disk._open_files -= 1

    def _begin_change(self, operation: str) -> None:
        assert self._is_open, f"{self.name} is open"
        if not self._writable:
            raise StorageFailed(operation, self.name, os.strerror(errno.EBADF))
        self._disk._change(operation, self._path)


class SimulatedLock:
    def __init__(self, locks: dict[str, int], name: str) -> None:
        self._locks, self._name = locks, name

    def release(self) -> None:
        self._locks.pop(self._name, None)


def _apply(change: _NameChange, names: dict[str, _Inode], directories: set[str]) -> None:
    if change.old_name is not None:
        if change.old_name.endswith("/"):
            directories.discard(change.old_name[:-1])
            return
        # What was renamed may have been made in the same breath; the rename brings it along.
        names.pop(change.old_name, None)
    if change.name.endswith("/"):
        directories.add(change.name[:-1])
    elif change.inode is not None:
        names[change.name] = change.inode
    else:
        names.pop(change.name, None)


def _is_reachable(name: str, directories: set[str]) -> bool:
    while name:
        name = directory_of(name)
        if name not in directories:
            return False
    return True


def _chooser(keep: Keep) -> Callable[[int], int]:
    if keep == "nothing":
        return lambda count: 0
    if keep == "everything":
        return lambda count: count - 1
    if isinstance(keep, Random):
        return keep.randrange
    if callable(keep):
        return keep
    chosen = iter([int(number) for number in keep])
    return lambda count: next(chosen, 0)
