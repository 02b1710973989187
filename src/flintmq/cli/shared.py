"""Shared by the commands: options, output as text or JSON, confirmation, locking of directories."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..amounts import size
from ..errors import FlintError
from ..model import TEXT_IN_JSON
from .exit_codes import FAILED
from .look import print_table, say

if TYPE_CHECKING:  # storage is loaded by the few commands that look at a directory
    from ..storage.backup import BackupProgress
    from ..storage.filesystem import LocalFileSystem

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # takes no type arguments in older versions

Command = Callable[..., int]

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
LARGE = frozenset((*TEXT_IN_JSON, "token"))
"""Numbers of 64 bits, and partitions: strings in JSON."""

output_option = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def file_option(
    name: str,
    help: str,
    *,
    metavar: str = "FILE",
    exists: bool = False,
    resolve_path: bool = False,
    envvar: str | None = None,
) -> Callable[[Command], Command]:
    """An option that takes the path of a file."""
    kind = click.Path(exists, dir_okay=False, resolve_path=resolve_path, path_type=Path)
    return click.option(name, type=kind, metavar=metavar, envvar=envvar, help=help)


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order of the help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def show(output: str, value: Any, text: str | Callable[[], object]) -> int:
    """Print `value` as JSON for scripts, or `text` for people. Returns the exit code 0.

    `text` may be a function that prints it.
    """
    if output == "json":
        print_json(value)
    elif isinstance(text, str):
        click.echo(text)
    else:
        text()
    return 0


def print_json(value: Any) -> None:
    """Print one line of JSON. The caller converts offsets and 64-bit ids to strings."""
    click.echo(msgspec.json.encode(value).decode())


def plain(value: Any) -> Any:
    """A struct of the client as JSON takes it."""
    return _with_strings(msgspec.to_builtins(value))


def _with_strings(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: str(found) if name in LARGE and type(found) is int else _with_strings(found)
            for name, found in value.items()
        }
    return [_with_strings(one) for one in value] if isinstance(value, list) else value


def has_colour() -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def hint(text: str) -> None:
    """A hint about an empty result: for people only."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def show_list(
    output: str, value: Any, headings: Sequence[str], rows: Sequence[Sequence[object]], none: str
) -> int:
    """Print a list as JSON or as a table; `none` is the hint where there is nothing."""
    if not rows and output != "json":
        hint(none)
    return show(output, value, lambda: print_table(headings, rows))


def confirm(question: str, yes: bool) -> None:
    """Ask before an action that cannot be undone; a script must pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Cannot ask without a terminal: pass --yes")
    if not click.confirm(question, err=True):
        click.echo("cancelled; nothing was changed", err=True)
        raise click.exceptions.Exit(FAILED)


@contextmanager
def reported(tell: Callable[[str], object], count: Callable[[], int]) -> Iterator[None]:
    """Calls `tell` with how the work ended: done, interrupted, or failed after `count` messages."""
    try:
        yield
    except KeyboardInterrupt:
        tell("interrupted")
        raise
    except FlintError:
        if count():
            tell("failed")
        raise
    tell("done")


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"{path} already exists and is not overwritten; choose another name"
        ) from None
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None


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


def tell_copied(progress: BackupProgress) -> None:
    done = f"{size(progress.bytes_done)} of {size(progress.bytes)}"
    say(f"{progress.files_done} of {progress.files} files, {done}: {progress.file}")
