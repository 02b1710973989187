"""`flintmq cluster replace`: another machine or disk takes the place of a node."""

from __future__ import annotations

import click

from .cluster_change import ask_cluster, tell
from .connecting import Target, server_options
from .shared import output_option


@click.command("replace")
@click.argument("node", metavar="NAME")
@click.argument("peer", metavar="HOST:PORT")
@output_option
@server_options
def command(target: Target, node: str, peer: str, output: str) -> int:
    """Replace a node whose disk or machine is lost with an empty one.

    Then start the new node at HOST:PORT with an empty data directory, --node-name NAME and --join.
    Once it has caught up, it takes over the vote of the old node, which is refused from then on.

    \b
    Examples:
      flintmq cluster replace c 10.0.0.7:7602
    """
    status = ask_cluster(target, "replace", node, peer)
    text = f"start node {node} at {peer} with --join and an empty data directory"
    return tell(output, status, text)
