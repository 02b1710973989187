"""Command groups: they suggest a command when a name is unknown, and load one when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

SYNONYMS = {
    "add": ("create", "new", "make"),
    "ls": ("list", "all"),
    "rm": ("delete", "remove", "del"),
    "info": ("describe", "stats", "get"),
    "edit": ("alter", "set", "configure"),
    "pub": ("publish", "produce", "send", "put"),
    "sub": ("subscribe", "consume", "tail", "read", "cat", "listen"),
    "serve": ("start", "server", "run", "broker"),
    "topic": ("stream", "queue"),
    "group": ("consumer",),
    "dlq": ("dead", "deadletter", "dead-letters"),
    "copy": ("export", "import", "mirror"),
    "check": ("health", "status", "ping"),
    "redrive": ("retry", "requeue", "replay"),
}
"""Names that other brokers use for a command."""


class CommandGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        typed = args[0]
        if not typed.startswith("-") and self.get_command(ctx, typed) is None:
            meant = nearest(typed, self.list_commands(ctx))
            remedy = "" if meant is None else f"; did you mean `{ctx.command_path} {meant}`?"
            if not ctx.resilient_parsing:
                ctx.fail(f"unknown command `{ctx.command_path} {typed}`{remedy}")
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """Imports the module of a command when it is called: help stays fast.

    `sections` has the commands by heading, each with its line of help. The module of a command is
    `prefix` and its name, with _ for -.
    """

    def __init__(
        self, sections: Mapping[str, Mapping[str, str]], *, prefix: str = "", **keywords: Any
    ) -> None:
        super().__init__(**keywords)
        self._sections, self._prefix = sections, prefix
        self._names = [name for section in sections.values() for name in section]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._names:
            return None
        module = f".{self._prefix}{cmd_name}".replace("-", "_")
        found: click.Command = import_module(module, __package__).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._names))
        for heading, section in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in section.items()])


def nearest(typed: str, known: list[str]) -> str | None:
    """The command that was probably meant: a typo, or another broker's name for it."""
    from difflib import get_close_matches

    words = {word: name for name in known for word in (*SYNONYMS.get(name, ()), f"{name}s", name)}
    near = get_close_matches(typed.lower(), words, n=1)
    return words[near[0]] if near else None
