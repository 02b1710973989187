"""Where the files of a group are. Those of group 0 are in the data directory itself; those of every
other are in `groups/<group>/`, in the same form. The journal is one for all.

    manifest  manifest.copy  segments/                group 0
    groups/1/manifest  manifest.copy  segments/       group 1
    journal/                                          all of them

What a crash leaves. The directory of a group has its name on the disk before the journal has its
first hard state: so a group that the journal knows and that has no directory was lost. The manifest
of each group is replaced in one step, and refers to segments of its own directory only; the journal
is released only as far as every group's manifest reaches. So whichever of them is new and whichever
is old, each has all it needs.
"""

from __future__ import annotations

from .filesystem import File, FileLock, FileSystem

GROUPS = "groups"


def groups_in(filesystem: FileSystem) -> list[int]:
    """The groups that have files here: 0, and those with a directory."""
    names = filesystem.list(GROUPS) if filesystem.exists(GROUPS) else []
    return [0, *sorted(int(name) for name in names if _is_group(name))]


def _is_group(name: str) -> bool:
    return name.isascii() and name.isdigit() and name[0] != "0"


def files_of(filesystem: FileSystem, group: int) -> FileSystem:
    """The files of a group, by names as those of group 0 have them."""
    return Below(filesystem, f"{GROUPS}/{group}") if group else filesystem


def path_in(files: FileSystem, name: str = "") -> str:
    """What a group's file is called in the data directory."""
    return files.path(name) if isinstance(files, Below) else name


def split(path: str) -> tuple[int, str]:
    """Whose file that is, and what the group calls it."""
    if not path.startswith(f"{GROUPS}/"):
        return 0, path
    _, group, name = path.split("/", 2)
    return int(group), name


def make_directories(filesystem: FileSystem, group: int, *directories: str) -> None:
    """Make directories of a group, durably, also where a process before us did not come to that."""
    files = files_of(filesystem, group)
    for directory in directories:
        if not files.exists(directory):
            files.make_directory(directory)
    filesystem.sync_directory("")
    if group:
        filesystem.sync_directory(GROUPS)
        files.sync_directory("")


class Below:
    """The files below one directory of a filesystem."""

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self._filesystem, self._directory = filesystem, directory

    def path(self, name: str = "") -> str:
        return f"{self._directory}/{name}" if name else self._directory

    def create(self, name: str) -> File:
        return self._filesystem.create(self.path(name))

    def open(self, name: str, *, writable: bool = False) -> File:
        return self._filesystem.open(self.path(name), writable=writable)

    def exists(self, name: str) -> bool:
        return self._filesystem.exists(self.path(name))

    def list(self, directory: str = "") -> list[str]:
        return self._filesystem.list(self.path(directory))

    def make_directory(self, name: str) -> None:
        self._filesystem.make_directory(self.path(name))

    def rename(self, old: str, new: str) -> None:
        self._filesystem.rename(self.path(old), self.path(new))

    def remove(self, name: str) -> None:
        self._filesystem.remove(self.path(name))

    def remove_directory(self, name: str) -> None:
        self._filesystem.remove_directory(self.path(name))

    def sync_directory(self, directory: str = "") -> None:
        self._filesystem.sync_directory(self.path(directory))

    def size_of(self, name: str) -> int:
        return self._filesystem.size_of(self.path(name))

    def free_bytes(self) -> int:
        return self._filesystem.free_bytes()

    def link(self, name: str, target: FileSystem, target_name: str) -> bool:
        path = self.path(name)
        if isinstance(target, Below):
            return self._filesystem.link(path, target._filesystem, target.path(target_name))
        return self._filesystem.link(path, target, target_name)

    def lock(self, name: str) -> FileLock:
        return self._filesystem.lock(self.path(name))

    def describe(self, name: str = "") -> str:
        return self._filesystem.describe(self.path(name))
