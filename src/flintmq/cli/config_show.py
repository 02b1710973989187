"""`flintmq config show`: every setting in effect, and where it comes from."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..config.settings import resolve
from ..config.table import DEFAULT, SETTINGS, described
from .config_options import GroupedCommand, config_options, tell_problems
from .look import print_table
from .shared import output_option, print_json


@click.command("show", cls=GroupedCommand)
@output_option
@config_options
def command(config_file: Path | None, flags: dict[str, str | bool], output: str) -> int:
    """Show every setting that `flintmq serve` would use, and where it comes from.

    Takes the same file, environment and flags as `flintmq serve`. Secrets are not shown. Exits
    with 2 if the configuration is invalid.

    \b
    Examples:
      flintmq config show --config /etc/flintmq.toml
      FLINTMQ_FSYNC=never flintmq config show --output json
    """
    resolved = resolve(file=config_file, environment=os.environ, flags=flags)
    problems = resolved.all_problems()
    tell_problems(problems)
    for doubt in resolved.doubts:
        click.echo(f"flintmq: warning: {doubt}", err=True)
    if problems:
        return 2
    values = resolved.all_values()
    if output == "json":
        print_json(described(values, resolved.sources))
        return 0
    print_table(
        ["SETTING", "VALUE", "SOURCE"],
        [
            (
                setting.name,
                setting.shown_text(values.get(setting.name)),
                resolved.sources.get(setting.name, DEFAULT),
            )
            for setting in SETTINGS
        ],
    )
    return 0
