"""`flintmq cluster finalize`: use what the new version can, and give up the way back."""

from __future__ import annotations

import click

from .cluster_change import ask_cluster
from .connecting import Target, server_options
from .shared import output_option, show


@click.command("finalize")
@output_option
@server_options
def command(target: Target, output: str) -> int:
    """Raise the cluster to the highest feature level that all nodes support.

    After a rolling upgrade, the nodes run the new version, but use only features of the earlier
    one, so you can still downgrade. `finalize` enables the new features. From then on, nodes with
    the earlier version are refused. Fails while a node is down or runs an earlier version.

    \b
    Examples:
      flintmq cluster finalize
    """
    status = ask_cluster(target, "finalize")
    return show(output, status, f"the cluster is at level {status.level}")
