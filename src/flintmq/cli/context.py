"""`flintmq context`: save brokers under names."""

from __future__ import annotations

import click

from .command_group import CommandGroup
from .contexts import Context, Contexts, chosen, path_of_contexts, read_contexts, write_contexts
from .look import print_table
from .shared import output_option, print_json
from .showing import plain


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
@click.option("--api-key-file", type=click.Path(dir_okay=False, resolve_path=True), metavar="FILE")
@click.option("--tls-ca", type=click.Path(dir_okay=False, resolve_path=True), metavar="FILE")
@click.option("--tls-cert", type=click.Path(dir_okay=False, resolve_path=True), metavar="FILE")
@click.option("--tls-key", type=click.Path(dir_okay=False, resolve_path=True), metavar="FILE")
@click.option("--use", is_flag=True, help="Make it the default.")
@output_option
def add(name: str, use: bool, output: str, **facts: str | None) -> int:
    """Save a broker under a name. Replaces an existing context of that name.

    \b
    Examples:
      flintmq context add here --server flint://127.0.0.1:7600 --use
    """
    path = path_of_contexts()
    contexts = read_contexts(path)
    contexts.contexts[name] = Context(**facts)  # type: ignore[arg-type]
    if use or len(contexts.contexts) == 1:
        contexts.current = name
    write_contexts(path, contexts)
    used = (
        " (current)"
        if contexts.current == name
        else f"; select it with `flintmq context use {name}`"
    )
    return _done(contexts, name, f"Saved context {name}{used}", output)


def _done(contexts: Contexts, name: str, text: str, output: str) -> int:
    if output == "json":
        print_json({"context": name, "current": contexts.current})
    else:
        click.echo(text)
    return 0


@command.command("use")
@click.argument("name")
@output_option
def use(name: str, output: str) -> int:
    """Make a context the default.

    \b
    Examples:
      flintmq context use prod
    """
    path = path_of_contexts()
    contexts = read_contexts(path)
    chosen(contexts, name)
    contexts.current = name
    write_contexts(path, contexts)
    return _done(contexts, name, f"Current context: {name}", output)


@command.command("rm")
@click.argument("name")
@output_option
def rm(name: str, output: str) -> int:
    """Delete a context. The broker itself is not affected.

    \b
    Examples:
      flintmq context rm old
    """
    path = path_of_contexts()
    contexts = read_contexts(path)
    chosen(contexts, name)
    del contexts.contexts[name]
    if contexts.current == name:
        contexts.current = None
    write_contexts(path, contexts)
    return _done(contexts, name, f"Deleted context {name}.", output)


@command.command("ls")
@output_option
def ls(output: str) -> int:
    """List the contexts, and show the current one.

    \b
    Examples:
      flintmq context ls
    """
    contexts = read_contexts(path_of_contexts())
    if output == "json":
        print_json(plain(contexts))
    else:
        print_table(
            ["", "CONTEXT", "SERVER", "KEY"],
            [
                ("*" if name == contexts.current else "", name, one.server, one.api_key_file or "")
                for name, one in contexts.contexts.items()
            ],
        )
    return 0
