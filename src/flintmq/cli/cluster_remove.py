"""`flintmq cluster remove`: take a node out of the cluster."""

from __future__ import annotations

import click

from .cluster_change import ask_cluster, tell
from .connecting import Target, server_options
from .shared import output_option


@click.command("remove")
@click.argument("node", metavar="NAME")
@output_option
@server_options
def command(target: Target, node: str, output: str) -> int:
    """Remove a node from the cluster.

    A leader hands over first. The removed node stops, and cannot join again under its id. Refused
    if the remaining running nodes would not be a majority.

    \b
    Examples:
      flintmq cluster remove c
    """
    status = ask_cluster(target, "remove", node)
    text = f"node {node} is being removed; `flintmq cluster status` shows when that is done"
    return tell(output, status, text)
