"""`flintmq cluster settings`: what a cluster keeps for all of its nodes."""

from __future__ import annotations

import click

from ..config.shared import KIND
from .cluster_change import ask_broker
from .connecting import Target, server_options
from .look import print_table
from .shared import output_option, show


@click.command("settings")
@server_options
@output_option
def command(target: Target, output: str) -> int:
    """Show the settings that a cluster keeps for all of its nodes.

    What is not listed is as each node was started: `flintmq config show`. Needs a key with
    administer on >.

    \b
    Examples:
      flintmq cluster settings
    """
    found = ask_broker(target, lambda broker: broker.definitions(KIND, ""))
    values = {one.name: one.value.decode() for one in found}
    return show(
        output, {"settings": values}, lambda: print_table(("NAME", "VALUE"), list(values.items()))
    )
