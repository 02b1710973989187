"""Adds files to a directory: all or none, even if the process is killed in between.

Files are prepared beside the directory, in `.<name>.flintmq/`, so readers never see half a file.
The intent is written to disk before the first file is moved, and the next run finishes it. Moving
twice is the same as moving once, so it does not matter how far it came.

    .orders.flintmq/<owner>.json    the intent, and what the owner remembers
    .orders.flintmq/<owner>/...     files that are not in place yet

A directory may have several owners (queries); each has its own intent and files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from ...errors import InvalidRequest


def local_directory(text: str) -> Path:
    """The directory of a path or `file:` URL."""
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        raise InvalidRequest(
            f"{text!r} is not a directory of a file system: exactly once needs atomic renames. "
            "Use a directory that is mounted on every machine of the cluster"
        )
    return Path(os.path.abspath(os.path.expanduser(text)))


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The intent: files to move into place, then files to delete."""

    moves: tuple[tuple[str, str], ...] = ()
    """From a path in the owner's directory to one in the data directory."""
    drops: tuple[str, ...] = ()
    """In the data directory."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the owner remembers afterwards."""


class Landing:
    """Adds the files of one owner to a directory. Only one process at a time may use it."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.directory = directory
        control = directory.parent / f".{directory.name}.flintmq"
        self._own = control / owner
        self._written = control / f"{owner}.json"
        self.facts: Mapping[str, Any] = {}

    def finish(self) -> None:
        """Finish the stored intent, and load the facts."""
        try:
            written = json.loads(self._written.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except ValueError:
            raise InvalidRequest(
                f"{self._written} is damaged, so the state of {self.directory} is unknown. Start "
                "over with another directory and another checkpoint"
            ) from None
        change = FileChanges(
            tuple((source, target) for source, target in written["moves"]),
            tuple(written["drops"]),
            written["facts"],
        )
        if change.moves or change.drops:
            self._do(change)
        self.facts = change.facts

    def ready(self, label: str) -> Path:
        """An empty path for new files, in the owner's directory."""
        place = self._own / label
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def own(self, path: Path) -> str:
        """The name of a prepared file in FileChanges."""
        return path.relative_to(self._own).as_posix()

    def land(self, change: FileChanges) -> None:
        """Make the changes. If it is killed after the intent is stored, `finish` completes them."""
        made = [self._own / source for source, _ in change.moves]
        _sync_all(made)
        # The sync of a file does not make its name durable, and a file that is missing later
        # counts as moved.
        _sync_all(_directories(made, self._own))
        self._write(change)
        self._do(change)
        self.facts = change.facts

    def _do(self, change: FileChanges) -> None:
        targets = [self.directory / target for _, target in change.moves]
        for parent in {target.parent for target in targets}:
            parent.mkdir(parents=True, exist_ok=True)
        for (source, _), target in zip(change.moves, targets, strict=True):
            # A missing file was moved before.
            if (self._own / source).exists():
                os.replace(self._own / source, target)
        for name in change.drops:
            (self.directory / name).unlink(missing_ok=True)
        _sync_all(_directories(targets, self.directory))
        self._write(FileChanges(facts=change.facts))

    def _write(self, change: FileChanges) -> None:
        text = json.dumps(
            {"moves": change.moves, "drops": change.drops, "facts": dict(change.facts)}
        )
        with replacing(self._written) as file:
            file.write(text.encode())
        _sync(self._written.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Replace a file: completely or not at all, even if the machine stops in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def files_below(directory: Path, suffix: str) -> list[Path]:
    """The files that Spark wrote, without its marker files."""
    return sorted(path for path in directory.rglob(f"*{suffix}") if path.is_file())


def _directories(files: Iterable[Path], root: Path) -> set[Path]:
    """The directories of files up to a root, and the parent of the root: any of them may be new."""
    within = {above for file in files for above in file.parents if above.is_relative_to(root)}
    return within | {root.parent} if within else set()


def _sync_all(paths: Iterable[Path]) -> None:
    for path in paths:
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
