"""Structs of the client as tables for people and as JSON for scripts."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from ..model import TEXT_IN_JSON
from .exit_codes import FAILED

LARGE = frozenset((*TEXT_IN_JSON, "token"))
"""Numbers of 64 bits, and partitions: strings in JSON."""


def plain(value: Any) -> Any:
    """As JSON takes it."""
    return _with_strings(msgspec.to_builtins(value))


def _with_strings(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: str(found) if name in LARGE and type(found) is int else _with_strings(found)
            for name, found in value.items()
        }
    return [_with_strings(one) for one in value] if isinstance(value, list) else value


def has_colour() -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def confirm(question: str, yes: bool) -> None:
    """Ask before an action that cannot be undone; a script must pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Cannot ask without a terminal: pass --yes")
    if not click.confirm(question, err=True):
        click.echo("cancelled; nothing was changed", err=True)
        raise click.exceptions.Exit(FAILED)


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
