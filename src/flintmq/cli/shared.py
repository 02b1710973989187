"""Shared by the commands: options, JSON output, locking of directories."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..amounts import size
from .look import say

if TYPE_CHECKING:  # storage is loaded by the few commands that look at a directory
    from ..storage.backup import BackupProgress
    from ..storage.filesystem import LocalFileSystem

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)

output_option = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)


@contextmanager
def stopped_directory(path: Path) -> Iterator[LocalFileSystem]:
    """A data directory, locked; an error names the pid of the process that uses it."""
    if not any((path / name).exists() for name in ("manifest", "journal", "segments")):
        raise click.UsageError(f"{path} is not a data directory: it has no manifest and no journal")
    from ..storage.backup import LOCK
    from ..storage.filesystem import LocalFileSystem

    filesystem = LocalFileSystem(path)
    lock = filesystem.lock(LOCK)
    try:
        yield filesystem
    finally:
        lock.release()


def print_json(value: Any) -> None:
    """Print one line of JSON. The caller converts offsets and 64-bit ids to strings."""
    click.echo(msgspec.json.encode(value).decode())


def hint(text: str) -> None:
    """A hint about an empty result: for people only."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def tell_copied(progress: BackupProgress) -> None:
    done = f"{size(progress.bytes_done)} of {size(progress.bytes)}"
    say(f"{progress.files_done} of {progress.files} files, {done}: {progress.file}")


Tell = Callable[[str], object]
