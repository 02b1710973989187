"""`flintmq cluster recover`: go on with one node, where a majority is lost for good."""

from __future__ import annotations

from pathlib import Path

import click

from ..cluster.recovering import ClusterRemains, recover, remains, stopped_node
from ..storage.filesystem import LocalFileSystem
from .connecting import run_async
from .shared import DIRECTORY, confirm, output_option, show, yes_option


@click.command("recover")
@click.argument("directory", type=DIRECTORY, metavar="DATA_DIR")
@click.option("--unsafe", is_flag=True, help="Say that you know: messages may be lost.")
@click.option("--dry-run", is_flag=True, help="Only show what this node has.")
@yes_option
@output_option
def command(directory: Path, unsafe: bool, dry_run: bool, yes: bool, output: str) -> int:
    """Go on with one stopped node, where a majority of the cluster is lost for good.

    DATA_DIR becomes that of the only node of a new cluster, with everything it has. Messages
    that were acknowledged by the lost nodes without this one are gone. Nodes of the old cluster
    are refused by the new one, also if they come back; start them with empty data directories
    and --join.

    Do this only if the lost nodes cannot be started again: if a majority can, start it, and
    nothing is lost. Of several nodes that are left, take the one whose last term is the highest,
    and of those the one with the highest last index; --dry-run shows them. Make a copy of the
    directory first.

    \b
    Examples:
      flintmq cluster recover --unsafe --dry-run /var/lib/flint
      flintmq cluster recover --unsafe /var/lib/flint
    """
    if not unsafe:
        raise click.UsageError(
            "messages that only the lost nodes have will be gone; pass --unsafe if they cannot be "
            "started again"
        )
    filesystem = LocalFileSystem(directory)
    with stopped_node(filesystem) as file:
        assert file.record is not None
        found = remains(filesystem, file.record)
        if dry_run:
            return show(output, found, lambda: _tell(found))
        if output != "json":
            _tell(found)
        confirm(f"Make {directory} a new cluster of {found.node} alone?", yes)
        record = run_async(recover(filesystem, file))
    cluster = record.cluster.hex()
    return show(
        output,
        {"cluster": cluster, "node": record.name, "was": found},
        f"{directory} is the only node of the new cluster {cluster[:8]}. Start it as before, "
        "without --join; then start the others with empty data directories and --join.",
    )


def _tell(found: ClusterRemains) -> None:
    click.echo(f"Node {found.node} of cluster {found.cluster[:8]}:")
    for group in found.groups:
        click.echo(
            f"  group {group.id}: last index {group.last_index:,}, term {group.last_term}; known "
            f"to be on a majority up to {group.committed:,}"
        )
        behind = group.last_index - group.committed
        if behind:
            click.echo(f"  {behind:,} entries behind that are kept; they may not be acknowledged")
    click.echo(
        "May be lost: everything acknowledged behind the last index, by "
        f"{', '.join(found.lost) or 'nobody'} without this node."
    )
