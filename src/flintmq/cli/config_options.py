"""The table of settings as command options, and configuration errors as lines on stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ..config.kinds import Boolean
from ..config.settings import FILE_VARIABLE, ConfigInvalid, Resolved
from ..config.table import BY_NAME, SETTINGS, Config, Setting
from .shared import Command, with_options


class GroupedCommand(click.Command):
    """Help that lists settings under the headings of the table."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                setting = BY_NAME.get(parameter.name or "")
                groups.setdefault(setting.group if setting else "Options", []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def config_options(
    variable: str = FILE_VARIABLE, defaults: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """Adds `--config` and an option for every setting that is not secret. The command receives the
    given ones as `flags`, unparsed: they are checked together with file and environment.

    `variable` names the file, too. `defaults` are those that differ, as they are shown.
    """
    return lambda command: _with_options(command, variable, defaults or {})


def _with_options(command: Command, variable: str, defaults: Mapping[str, str]) -> Command:
    @wraps(command)
    def called(config_file: Path | None, **given: Any) -> int:
        flags = {name: given.pop(name) for name in BY_NAME if given.get(name) is not None}
        rest = {name: value for name, value in given.items() if name not in BY_NAME}
        return command(config_file=config_file, flags=flags, **rest)

    file = click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"A TOML or YAML file with settings.  [{variable}]",
    )
    options = [
        _option(setting, defaults.get(setting.name))
        for setting in SETTINGS
        if not setting.secret  # arguments are in the process list, for all to read
    ]
    return with_options(file, *options)(called)


def _option(setting: Setting, otherwise: str | None) -> Callable[[Command], Command]:
    is_switch = isinstance(setting.kind, Boolean)
    flag = f"{setting.flag}/--no-{setting.flag[2:]}" if is_switch else setting.flag
    default = otherwise or setting.default_shown
    return click.option(
        flag,
        setting.name,
        default=None,
        metavar=None if is_switch else setting.metavar,
        help=f"{setting.help}  [default: {default}]",
    )


def configured(resolved: Resolved) -> Config:
    """The configuration. If it is wrong, prints one line per error and exits with code 2."""
    try:
        return resolved.config()
    except ConfigInvalid as error:
        tell_problems(error.problems)
        raise click.exceptions.Exit(2) from None


def tell_problems(problems: list[str]) -> None:
    for problem in problems:
        click.echo(f"flintmq: {problem}", err=True)


def tell_doubts(resolved: Resolved) -> None:
    for doubt in resolved.doubts:
        click.echo(f"flintmq: warning: {doubt}", err=True)
