"""`flintmq config`: check, show and create the configuration of a broker."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..config.docs import sample
from ..config.settings import resolve
from ..config.table import DEFAULT, SETTINGS, described
from .command_group import CommandGroup
from .config_options import GroupedCommand, config_options, tell_doubts, tell_problems
from .look import print_table
from .shared import output_option, print_json, show, write_new


@click.group("config", cls=CommandGroup)
def command() -> None:
    """Check, show and create the configuration of a broker.

    \b
    Examples:
      flintmq config init /etc/flintmq.toml
      flintmq config check /etc/flintmq.toml
      flintmq config show --config /etc/flintmq.toml
    """


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def check(file: Path, output: str) -> int:
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


@command.command("show", cls=GroupedCommand)
@output_option
@config_options()
def show_settings(config_file: Path | None, flags: dict[str, str | bool], output: str) -> int:
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
    tell_doubts(resolved)
    if problems:
        return 2
    values, sources = resolved.all_values(), resolved.sources
    rows = [
        (one.name, one.shown_text(values.get(one.name)), sources.get(one.name, DEFAULT))
        for one in SETTINGS
    ]
    return show(
        output,
        described(values, sources),
        lambda: print_table(["SETTING", "VALUE", "SOURCE"], rows),
    )


@command.command("init")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--format",
    type=click.Choice(["toml", "yaml"]),
    help="TOML or YAML; default: by the extension of FILE, else TOML.",
)
@output_option
def init(file: Path | None, format: str | None, output: str) -> int:
    """Write a sample configuration to FILE (default: flintmq.toml).

    It lists every setting with its description and default, commented out. An existing file is
    not overwritten.

    \b
    Examples:
      flintmq config init /etc/flintmq.toml
      flintmq config init --format yaml
    """
    if file is None:
        file = Path(f"flintmq.{format or 'toml'}")
    by_name = "yaml" if file.suffix.lower() in (".yaml", ".yml") else "toml"
    if file.suffix.lower() not in (".toml", ".yaml", ".yml") or format not in (None, by_name):
        wanted = f".{format}" if format else ".toml or .yaml"
        raise click.UsageError(
            f"a file in this format must end in {wanted} for `serve --config`, not {file}"
        )
    write_new(file, sample(by_name))
    return show(
        output,
        {"file": str(file), "format": by_name},
        f"Wrote {file}. Start a broker with it: `flintmq serve --config {file}`",
    )
