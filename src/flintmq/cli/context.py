"""`flintmq context`: save brokers under names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from .command_group import CommandGroup
from .connecting import access_options
from .contexts import Context, Contexts, chosen, path_of_contexts, read_contexts, write_contexts
from .look import print_table
from .shared import output_option, plain, show


@click.group("context", cls=CommandGroup)
def command() -> None:
    """Save brokers under names, and choose the default one.

    \b
    Examples:
      flintmq context add prod --server flints://mq.example.com --api-key-file prod.key
      flintmq context use prod
      flintmq context ls
    """


@command.command("add")
@click.argument("name")
@click.option(
    "--server", required=True, metavar="URL", help="Broker URL: flint://host:port or flints://..."
)
@access_options(key_variable=None, resolve_path=True)
@click.option("--use", is_flag=True, help="Make it the default.")
@output_option
def add(name: str, server: str, use: bool, output: str, **access: Path | None) -> int:
    """Save a broker under a name. Replaces an existing context of that name.

    \b
    Examples:
      flintmq context add here --server flint://127.0.0.1:7600 --use
    """

    def save(contexts: Contexts) -> str:
        files = {option: str(file) for option, file in access.items() if file is not None}
        contexts.contexts[name] = Context(server, **files)
        if use or len(contexts.contexts) == 1:
            contexts.current = name
        if contexts.current == name:
            return f"Saved context {name} (current)"
        return f"Saved context {name}; select it with `flintmq context use {name}`"

    return _change(save, name, output)


def _change(change: Callable[[Contexts], str], name: str, output: str) -> int:
    """Change the saved contexts, and print what `change` returns."""
    path = path_of_contexts()
    contexts = read_contexts(path)
    text = change(contexts)
    write_contexts(path, contexts)
    return show(output, {"context": name, "current": contexts.current}, text)


@command.command("use")
@click.argument("name")
@output_option
def use(name: str, output: str) -> int:
    """Make a context the default.

    \b
    Examples:
      flintmq context use prod
    """

    def select(contexts: Contexts) -> str:
        chosen(contexts, name)
        contexts.current = name
        return f"Current context: {name}"

    return _change(select, name, output)


@command.command("rm")
@click.argument("name")
@output_option
def rm(name: str, output: str) -> int:
    """Delete a context. The broker itself is not affected.

    \b
    Examples:
      flintmq context rm old
    """

    def delete(contexts: Contexts) -> str:
        chosen(contexts, name)
        del contexts.contexts[name]
        if contexts.current == name:
            contexts.current = None
        return f"Deleted context {name}."

    return _change(delete, name, output)


@command.command("ls")
@output_option
def ls(output: str) -> int:
    """List the contexts, and show the current one.

    \b
    Examples:
      flintmq context ls
    """
    contexts = read_contexts(path_of_contexts())
    rows = [
        ("*" if name == contexts.current else "", name, one.server, one.api_key_file or "")
        for name, one in contexts.contexts.items()
    ]
    return show(
        output, plain(contexts), lambda: print_table(["", "CONTEXT", "SERVER", "KEY"], rows)
    )
