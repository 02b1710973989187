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
@click.option("--unsafe", is_flag=True, help="Confirm that messages may be lost.")
@click.option("--dry-run", is_flag=True, help="Only show what this node has.")
@yes_option
@output_option
def command(directory: Path, unsafe: bool, dry_run: bool, yes: bool, output: str) -> int:
    """Continue with one stopped node after a majority of the cluster is lost forever.

    DATA_DIR becomes the only node of a new cluster, with all its data. Messages that only the lost
    nodes had are gone. The new cluster refuses nodes of the old one, even if they come back: start
    them with empty data directories and --join.

    Do this only if the lost nodes cannot be started again. If a majority can be started, start it,
    and nothing is lost. If several nodes are left, choose the one with the highest last term, and
    among those the one with the highest last index; --dry-run shows both. Copy the directory
    first.

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
            click.echo(
                f"  {behind:,} entries after that are kept; they may not have been acknowledged"
            )
    click.echo(
        "May be lost: messages acknowledged after the last index, by "
        f"{', '.join(found.lost) or 'nobody'} without this node."
    )
