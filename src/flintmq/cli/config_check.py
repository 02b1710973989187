"""`flintmq config check`: everything that is wrong with a configuration file, at once."""

from __future__ import annotations

from pathlib import Path

import click

from ..settings import resolve
from .config_options import tell_problems
from .shared import output_option, print_json


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def command(file: Path, output: str) -> int:
    """Read FILE as a broker would, and say what is wrong: file, line, key, what is allowed.

    The file alone is looked at, without the environment. Exit code 0 if all is well, else 2.

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
            click.echo(f"{file}: nothing is wrong with it")
    return 2 if problems else 0
