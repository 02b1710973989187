"""Command groups that suggest a command when a name is unknown."""

from __future__ import annotations

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


def nearest(typed: str, known: list[str]) -> str | None:
    """The command that was probably meant: a typo, or another broker's name for it."""
    from difflib import get_close_matches

    words = {word: name for name in known for word in (*SYNONYMS.get(name, ()), f"{name}s", name)}
    near = get_close_matches(typed.lower(), words, n=1)
    return words[near[0]] if near else None
