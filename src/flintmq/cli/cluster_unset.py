"""`flintmq cluster unset`: each node goes by its own configuration again."""

from __future__ import annotations

import click

from ..config.shared import KIND, NAMES
from .cluster_change import ask_broker
from .connecting import Target, server_options
from .shared import output_option, show


@click.command("unset")
@click.argument("name", type=click.Choice(NAMES), metavar="NAME")
@server_options
@output_option
def command(name: str, target: Target, output: str) -> int:
    """Have each node go by its own configuration again, for this setting.

    \b
    Examples:
      flintmq cluster unset auto_create
    """
    ask_broker(target, lambda broker: broker.define(KIND, "", name, None))
    return show(output, {"name": name}, f"{name} is what each node was started with")
