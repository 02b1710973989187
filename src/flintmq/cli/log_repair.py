"""`flintmq log repair`: repair a damaged data directory, and report each step."""

from __future__ import annotations

from pathlib import Path

import click

from ..storage.repair import carry_out, plan_repair
from .look import said, say
from .shared import DIRECTORY, output_option, print_json, stopped_directory


@click.command("repair")
@click.argument("directory", type=DIRECTORY)
@click.option("--yes", is_flag=True, help="Do the repair. Without it, the steps are only listed.")
@click.option(
    "--cut-journal",
    is_flag=True,
    help="Cut a damaged journal where the damage starts. Everything after it is lost.",
)
@output_option
def command(directory: Path, yes: bool, cut_journal: bool, output: str) -> int:
    """Repair a damaged data directory, and keep as much data as possible.

    Files that are taken out of use are first moved to repair-1 (2, 3 ...) inside the directory,
    with a report. Exits with 1 if something remains to be done.

    \b
    Examples:
      flintmq log repair /var/lib/flint
      flintmq log repair /var/lib/flint --yes
      flintmq log repair /var/lib/flint --cut-journal --yes
    """
    with stopped_directory(directory) as filesystem:
        say("looking for damage")
        plan = plan_repair(filesystem, cut_journal=cut_journal)
        said()
        aside, steps = None, plan.steps
        if yes and plan.steps:
            name, steps = carry_out(filesystem, plan, say)
            said()
            aside = filesystem.describe(name)
    if output == "json":
        print_json({"done": yes, "steps": steps, "left": plan.refused, "aside": aside})
    else:
        for step in steps:
            click.echo(f"{'done' if yes else 'would do'}: {step}")
        for left in plan.refused:
            click.echo(f"not repaired: {left}")
        if aside is not None:
            click.echo(f"Removed data was moved to {aside}.")
        elif steps:
            click.echo("Nothing was changed. Run it again with --yes to repair.")
        elif not plan.refused:
            click.echo("Nothing to repair.")
    return int(bool(plan.refused) or (bool(plan.steps) and not yes))
