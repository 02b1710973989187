"""Backups: a copy of a data directory that is one itself.

A running broker copies the segments of a checkpoint and writes a manifest without a journal. A
stopped directory is copied as it is, journal and all. The manifest comes last: a copy that was
interrupted has none, and does not pass for an empty broker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ..errors import Corrupt, FlintError, InvalidRequest
from .filesystem import FileSystem, copy_file, directory_of
from .manifest import COPY_NAME, NAME, Manifest, read_manifest, write_manifest

JOURNAL = "journal"
SEGMENTS = "segments"
LOCK = "lock"


class Progress(NamedTuple):
    """How far a copy has come."""

    file: str
    files_done: int
    files: int
    bytes_done: int
    bytes: int


Tell = Callable[[Progress], object]


def check_empty(target: FileSystem) -> None:
    there = target.list()
    if there:
        raise InvalidRequest(
            f"{target.describe()} is not empty ({there[0]!r} is in it); a copy goes into an empty "
            "directory"
        )


def back_up(source: FileSystem, manifest: Manifest, target: FileSystem, tell: Tell) -> None:
    """Copy what a manifest refers to. Its segments must stay where they are meanwhile.

    Segments never change, so that where the target is on the same disk, it has them by link. What
    is damaged in them is damaged in the copy.
    """
    check_empty(target)
    files = sorted(manifest.files())
    with _undone_on_error(target) as made:
        for directory in (SEGMENTS, JOURNAL):
            target.make_directory(directory)
        target.sync_directory()
        _copy(source, files, target, tell, made, link=True, around_damage=True)
        # The journal's positions mean nothing in a new one, which begins with frame 1.
        write_manifest(target, msgspec.structs.replace(manifest, position=0, obsolete=[]))


def copy_stopped(source: FileSystem, target: FileSystem, tell: Tell, *, link: bool) -> None:
    """Copy a data directory that nobody uses. Whoever calls this holds its lock.

    With `link`, segments become links where the disk allows; never for a copy that is to be used
    by a broker beside the original.
    """
    check_empty(target)
    manifest = read_manifest(source)
    names = [f"{SEGMENTS}/{name}" for name in _listed(source, SEGMENTS)]
    if manifest is None and names and not _listed(source, JOURNAL):
        raise Corrupt(
            f"{source.describe()} has segments, but no manifest: an unfinished copy, or damaged; "
            "`flintmq log repair` rebuilds it"
        )
    if manifest is not None:
        missing = sorted(manifest.files() - set(names))
        if missing:
            raise Corrupt(f"{source.describe(missing[0])} is missing; restore an earlier backup")
        names = sorted(manifest.files())
    journal = [f"{JOURNAL}/{name}" for name in _listed(source, JOURNAL) if _is_of_use(name)]
    with _undone_on_error(target) as made:
        for directory in (SEGMENTS, JOURNAL):
            target.make_directory(directory)
        target.sync_directory()
        _copy(source, names, target, tell, made, link=link)
        _copy(source, journal, target, tell, made, link=False)
        if manifest is not None:
            write_manifest(target, msgspec.structs.replace(manifest, obsolete=[]))


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
        tell(Progress(name, count, len(files), done, total))
        made.append(name)
        if not (link and source.link(name, target, name)):
            copy_file(source, name, target, name, around_damage=around_damage)
        done += sizes[name]
    for directory in {directory_of(name) for name in files}:
        target.sync_directory(directory)
    if files:
        tell(Progress(files[-1], len(files), len(files), done, total))


class _undone_on_error:
    """Take away what a copy that failed has made; without its manifest it is of no use."""

    def __init__(self, target: FileSystem) -> None:
        self._target = target
        self._made: list[str] = [COPY_NAME, NAME, NAME + ".tmp"]

    def __enter__(self) -> list[str]:
        return self._made

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        for name in self._made:
            with suppress(FlintError):
                if self._target.exists(name):
                    self._target.remove(name)
        for directory in (SEGMENTS, JOURNAL):
            with suppress(FlintError):
                self._target.remove_directory(directory)
