"""`flintmq cluster transfer`: have another node lead."""

from __future__ import annotations

import click

from .cluster_change import ask_cluster, tell
from .connecting import Target, server_options
from .shared import output_option


@click.command("transfer")
@click.argument("node", metavar="NAME")
@output_option
@server_options
def command(target: Target, node: str, output: str) -> int:
    """Make another node the leader. Clients follow it immediately.

    \b
    Examples:
      flintmq cluster transfer b
    """
    status = ask_cluster(target, "transfer", node)
    text = f"node {node} is asked to lead; `flintmq cluster status` shows who does"
    return tell(output, status, text)
