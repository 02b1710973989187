"""`flintmq backup`: a copy of a data directory that nobody uses."""

from __future__ import annotations

from pathlib import Path

import click

from ..storage.backup import check_empty, copy_stopped
from ..storage.filesystem import LocalFileSystem
from .shared import DIRECTORY, output_option, print_json, said, stopped_directory, tell_copied


@click.command("backup")
@click.argument("directory", type=DIRECTORY)
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@output_option
def command(directory: Path, target: Path, output: str) -> int:
    """Copy a data directory that no broker uses into an empty one.

    The copy is a data directory itself. On the same disk segments become links, which never change.
    A running broker makes its own backup: `mq.backup(directory)`.

    \b
    Examples:
      flintmq backup /var/lib/flint /mnt/backup/flint-monday
    """
    with stopped_directory(directory) as filesystem:
        copy = LocalFileSystem(target)
        check_empty(copy)
        copy_stopped(filesystem, copy, tell_copied, link=True)
    said()
    if output == "json":
        print_json({"directory": str(directory), "target": str(target)})
    else:
        click.echo(f"{directory} is copied to {target}")
    return 0
