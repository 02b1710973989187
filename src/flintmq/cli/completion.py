"""`flintmq completion`: shell completion of commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script for a shell.

    \b
    Examples:
      flintmq completion bash > ~/.local/share/bash-completion/completions/flintmq
      flintmq completion zsh > ~/.zfunc/_flintmq
      flintmq completion fish > ~/.config/fish/completions/flintmq.fish
    """
    from .root import root

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(root, {}, "flintmq", "_FLINTMQ_COMPLETE").source())
    return 0
