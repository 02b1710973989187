"""`flintmq restore`: restore a data directory from a backup."""

from __future__ import annotations

from pathlib import Path

import click

from ..storage.backup import check_empty, copy_stopped
from ..storage.filesystem import LocalFileSystem
from .log import tell_damage, verified
from .shared import DIRECTORY, output_option, stopped_directory, tell_copied


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
    return tell_damage(
        output,
        verified(target),
        sound=f"Restored {directory}",
        damaged=f"Restored {directory}, but it is damaged; see above",
    )
