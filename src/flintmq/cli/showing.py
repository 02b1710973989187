"""Structs of the client as tables for people and as JSON for scripts."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from .exit_codes import FAILED

LARGE = frozenset({"id", "offset", "first_offset", "next_offset", "position", "partition", "token"})
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


def age(seconds: float | None) -> str:
    """`3 s`, `5 min`, `2 h`, `4 d`: rounded to one unit."""
    if seconds is None:
        return "-"
    for least, size, name in ((172_800, 86_400, "d"), (7200, 3600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def many(count: int, what: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


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
