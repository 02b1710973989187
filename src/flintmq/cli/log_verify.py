"""`flintmq log verify`: check all checksums of a data directory."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ..storage.inspect import verify
from .look import said, say
from .shared import DIRECTORY, output_option, print_json, stopped_directory


@click.command("verify")
@click.argument("directory", type=DIRECTORY)
@output_option
def command(directory: Path, output: str) -> int:
    """Check all checksums of journal, segments and manifest. Changes nothing.

    Exits with 1 if anything is damaged. An incomplete last write of the journal is normal after
    a crash: it is noted, but is not damage.

    \b
    Examples:
      flintmq log verify /var/lib/flint
      flintmq log verify /mnt/backup/flint-monday --output json
    """
    with stopped_directory(directory) as filesystem:
        problems = verify(filesystem, lambda name: say(f"checking {name}"))
    said()
    damaged = any(problem.is_damage for problem in problems)
    if output == "json":
        print_json({"ok": not damaged, "problems": msgspec.to_builtins(problems)})
        return int(damaged)
    for problem in problems:
        click.echo(f"{'DAMAGED' if problem.is_damage else 'note'}  {problem}")
    if damaged:
        click.echo("Restore a backup, or see what 'flintmq log repair' would do.")
    else:
        click.echo("No damage found.")
    return int(damaged)
