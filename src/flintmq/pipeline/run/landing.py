"""Files that come into a directory all or none, also where the process is killed in between.

Files are made ready beside the directory, in `.<name>.flintmq/`, so whoever reads it sees none that
is half written. What is to happen is written down before the first one is moved; whoever comes next
does what is left of it. Moving twice is moving once, so nothing has to be known about how far it
came.

    .orders.flintmq/<owner>.json    what is to happen, and what the owner remembers
    .orders.flintmq/<owner>/...     files that are not in their place yet

One directory may have several owners (queries); each has its own intent and files.
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
    """The directory that a path or a `file:` URL names: files are renamed there, and synced."""
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        raise InvalidRequest(
            f"{text!r} is no directory of a file system: exactly once needs renames in one step. "
            "Name a directory that is mounted on every machine of the cluster"
        )
    return Path(os.path.abspath(os.path.expanduser(text)))


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What is to happen: files that go to their place, then files that go away."""

    moves: tuple[tuple[str, str], ...] = ()
    """From a path below the owner's own directory to one below the data's."""
    drops: tuple[str, ...] = ()
    """Below the data's."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the owner remembers from then on."""


class Landing:
    """One owner's way into a directory. One process at a time uses it."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.directory = directory
        control = directory.parent / f".{directory.name}.flintmq"
        self._own = control / owner
        self._written = control / f"{owner}.json"
        self.facts: Mapping[str, Any] = {}

    def finish(self) -> None:
        """Do what is left of what was written down, and remember."""
        try:
            written = json.loads(self._written.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except ValueError:
            raise InvalidRequest(
                f"{self._written} is damaged: without it nobody knows what {self.directory} has. "
                "Begin anew with another directory and another checkpoint"
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
        """An empty place for files that are being made, in the owner's own directory."""
        place = self._own / label
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def own(self, path: Path) -> str:
        """How a change calls a file that was made ready."""
        return path.relative_to(self._own).as_posix()

    def land(self, change: FileChanges) -> None:
        """Have it happen. Once this has returned, or was killed after it began, it does."""
        made = [self._own / source for source, _ in change.moves]
        _sync_all(made)
        # A file's own sync does not keep its name. One that is missing later was moved: so it has
        # to be there.
        _sync_all(_directories(made, self._own))
        self._write(change)
        self._do(change)
        self.facts = change.facts

    def _do(self, change: FileChanges) -> None:
        targets = [self.directory / target for _, target in change.moves]
        for parent in {target.parent for target in targets}:
            parent.mkdir(parents=True, exist_ok=True)
        for (source, _), target in zip(change.moves, targets, strict=True):
            # One that is not there any more was moved before.
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
    """A file that is written anew: all of it or nothing, also where the machine stops between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def files_below(directory: Path, suffix: str) -> list[Path]:
    """What Spark has written there, without its own marks."""
    return sorted(path for path in directory.rglob(f"*{suffix}") if path.is_file())


def _directories(files: Iterable[Path], root: Path) -> set[Path]:
    """Those from a root down that files lie in, and that which has the root in it: any of them may
    be new."""
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
