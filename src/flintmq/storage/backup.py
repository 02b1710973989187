"""Backups: a copy of a data directory that is one itself.

A running broker copies the segments of a checkpoint and writes a manifest without a journal. A
stopped directory is copied as it is, journal and all. The manifest comes last: a copy that was
interrupted has none, and does not pass for an empty broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ..errors import Corrupt, FlintError, InvalidRequest
from .filesystem import FileSystem, copy_file, directory_of
from .group_files import GROUPS, files_of, groups_in, make_directories
from .manifest import COPY_NAME, NAME, Manifest, read_manifest, write_manifest

JOURNAL = "journal"
SEGMENTS = "segments"
LOCK = "lock"


class BackupProgress(NamedTuple):
    """How far a copy has come."""

    file: str
    files_done: int
    files: int
    bytes_done: int
    bytes: int


Tell = Callable[[BackupProgress], object]


def check_empty(target: FileSystem) -> None:
    there = target.list()
    if there:
        raise InvalidRequest(
            f"{target.describe()} is not empty ({there[0]!r} is in it); a copy goes into an empty "
            "directory"
        )


def back_up(
    source: FileSystem, manifests: Mapping[int, Manifest], target: FileSystem, tell: Tell
) -> None:
    """Copy what the manifests of all groups refer to. Those segments must stay where they are
    meanwhile.

    Segments never change, so that where the target is on the same disk, it has them by link. What
    is damaged in them is damaged in the copy.
    """
    check_empty(target)
    # The journal's positions mean nothing in a new one, which begins with frame 1.
    whole = {group: msgspec.structs.replace(m, position=0) for group, m in manifests.items()}
    files = [path for group, m in whole.items() for path in _paths(group, m.files())]
    with _undone_on_error(target, whole) as made:
        _make_directories(target, whole)
        _copy(source, files, target, tell, made, link=True, around_damage=True)
        _write_manifests(target, whole)


def copy_stopped(source: FileSystem, target: FileSystem, tell: Tell, *, link: bool) -> None:
    """Copy a data directory that is not in use. The caller holds its lock.

    With `link`, segments become links where the disk allows; never for a copy that is to be used
    by a broker beside the original.
    """
    check_empty(target)
    manifests: dict[int, Manifest] = {}
    segments: list[str] = []
    journal = [f"{JOURNAL}/{name}" for name in _listed(source, JOURNAL) if _is_of_use(name)]
    groups = groups_in(source)
    for group in groups:
        files = files_of(source, group)
        manifest = read_manifest(files)
        names = {f"{SEGMENTS}/{name}" for name in _listed(files, SEGMENTS)}
        if manifest is None and names and not _listed(source, JOURNAL):
            raise Corrupt(
                f"{files.describe()} has segments, but no manifest: an unfinished copy, or "
                "damaged; `flintmq log repair` rebuilds it"
            )
        if manifest is not None:
            missing = sorted(manifest.files() - names)
            if missing:
                raise Corrupt(f"{files.describe(missing[0])} is missing; restore an earlier backup")
            manifests[group], names = manifest, manifest.files()
        segments += _paths(group, names)
    with _undone_on_error(target, groups) as made:
        _make_directories(target, groups)
        _copy(source, segments, target, tell, made, link=link)
        _copy(source, journal, target, tell, made, link=False)
        _write_manifests(target, manifests)


def _paths(group: int, names: Iterable[str]) -> list[str]:
    return sorted(f"{GROUPS}/{group}/{name}" if group else name for name in names)


def _make_directories(target: FileSystem, groups: Iterable[int]) -> None:
    for group in groups:
        make_directories(target, group, SEGMENTS)
    make_directories(target, 0, JOURNAL)


def _write_manifests(target: FileSystem, manifests: Mapping[int, Manifest]) -> None:
    """That of group 0 comes last of all."""
    for group, manifest in sorted(manifests.items(), reverse=True):
        write_manifest(files_of(target, group), msgspec.structs.replace(manifest, obsolete=[]))


def _listed(filesystem: FileSystem, directory: str) -> list[str]:
    return filesystem.list(directory) if filesystem.exists(directory) else []


def _is_of_use(name: str) -> bool:
    return not name.startswith("spare-") and not name.endswith(".tmp")


def _copy(
    source: FileSystem,
    files: list[str],
    target: FileSystem,
    tell: Tell,
    made: list[str],
    *,
    link: bool,
    around_damage: bool = False,
) -> None:
    sizes = {name: source.size_of(name) for name in files}
    total, done = sum(sizes.values()), 0
    for count, name in enumerate(files):
        tell(BackupProgress(name, count, len(files), done, total))
        made.append(name)
        if not (link and source.link(name, target, name)):
            copy_file(source, name, target, name, around_damage=around_damage)
        done += sizes[name]
    for directory in {directory_of(name) for name in files}:
        target.sync_directory(directory)
    if files:
        tell(BackupProgress(files[-1], len(files), len(files), done, total))


class _undone_on_error:
    """Take away what a copy that failed has made; without its manifests it is of no use."""

    def __init__(self, target: FileSystem, groups: Iterable[int]) -> None:
        self._target, self._groups = target, sorted(groups, reverse=True)
        names = (COPY_NAME, NAME, NAME + ".tmp")
        self._made = [path for group in self._groups for path in _paths(group, names)]

    def __enter__(self) -> list[str]:
        return self._made

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        for name in self._made:
            with suppress(FlintError):
                if self._target.exists(name):
                    self._target.remove(name)
        directories = [path for group in self._groups for path in _paths(group, (SEGMENTS, ""))]
        for name in [*sorted(directories, reverse=True), GROUPS, JOURNAL]:
            if name:
                with suppress(FlintError):
                    self._target.remove_directory(name.rstrip("/"))
