"""`flintmq cluster add`: keep a place for a node that will join."""

from __future__ import annotations

import click

from .cluster_change import ask_cluster, tell
from .connecting import Target, server_options
from .shared import output_option


@click.command("add")
@click.argument("node", metavar="NAME")
@click.argument("peer", metavar="HOST:PORT")
@output_option
@server_options
def command(target: Target, node: str, peer: str, output: str) -> int:
    """Reserve name and address for a node that will join.

    HOST:PORT is where the other nodes reach it. Then start the node there with an empty data
    directory, --node-name NAME and --join. You can skip `add`: a node started with --join is
    added automatically.

    \b
    Examples:
      flintmq cluster add d 10.0.0.4:7602
    """
    status = ask_cluster(target, "add", node, peer)
    text = f"start node {node} at {peer} with --join and an empty data directory"
    return tell(output, status, text)
