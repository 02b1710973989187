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
    """Raise the cluster to the highest level of features that all its nodes know.

    After a rolling upgrade the nodes run the new version, and use nothing that the one before does
    not understand; so every node could go back to it. This ends that: new features are used
    from now on, and a node that runs the earlier version is refused. Refused while a node is
    down or runs an earlier version.

    \b
    Examples:
      flintmq cluster finalize
    """
    status = ask_cluster(target, "finalize")
    return show(output, status, f"the cluster is at level {status.level}")
