"""`flintmq config check`: report all errors in a configuration file at once."""

from __future__ import annotations

from pathlib import Path

import click

from ..config.settings import resolve
from .config_options import tell_problems
from .shared import output_option, print_json


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def command(file: Path, output: str) -> int:
    """Check FILE as a broker would, and list all errors: file, line, key, allowed values.

    Only the file is checked, not the environment. Exits with 0 if it is valid, else 2.

    \b
    Examples:
      flintmq config check /etc/flintmq.toml
      flintmq config check /etc/flintmq.yaml --output json
    """
    problems = resolve(file=file).all_problems()
    if output == "json":
        print_json({"file": str(file), "problems": problems})
    else:
        tell_problems(problems)
        if not problems:
            click.echo(f"{file}: no errors")
    return 2 if problems else 0
