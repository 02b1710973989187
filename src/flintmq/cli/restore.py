"""`flintmq restore`: restore a data directory from a backup."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ..storage.backup import check_empty, copy_stopped
from ..storage.filesystem import LocalFileSystem
from ..storage.inspect import verify
from .look import said, say
from .shared import DIRECTORY, output_option, print_json, stopped_directory, tell_copied


@click.command("restore")
@click.argument("backup", type=DIRECTORY)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@output_option
def command(backup: Path, directory: Path, output: str) -> int:
    """Copy a backup to an empty directory, and check all checksums of the copy.

    \b
    Examples:
      flintmq restore /mnt/backup/flint-monday /var/lib/flint
    """
    with stopped_directory(backup) as filesystem:
        target = LocalFileSystem(directory)
        check_empty(target)
        copy_stopped(filesystem, target, tell_copied, link=False)
    problems = verify(target, lambda name: say(f"checking {name}"))
    said()
    damaged = any(problem.is_damage for problem in problems)
    if output == "json":
        print_json({"ok": not damaged, "problems": msgspec.to_builtins(problems)})
    else:
        for problem in problems:
            click.echo(f"{'DAMAGED' if problem.is_damage else 'note'}  {problem}")
        click.echo(f"Restored {directory}" + (", but it is damaged; see above" if damaged else ""))
    return int(damaged)
