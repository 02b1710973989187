"""`flintmq restore`: restore a data directory from a backup."""

from __future__ import annotations

from pathlib import Path

import click

from ..cluster.converting import make_cluster
from ..cluster.recovering import found_anew, is_of_cluster
from ..config.kinds import shown_address
from ..errors import InvalidRequest
from ..storage.backup import check_empty, copy_stopped
from ..storage.filesystem import LocalFileSystem
from .cluster_init import own_place, tell_cluster_of_one
from .connecting import run_async
from .log import tell_damage, verified
from .shared import DIRECTORY, output_option, stopped_directory, tell_copied


@click.command("restore")
@click.argument("backup", type=DIRECTORY)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--node-name", metavar="NAME", help="Found a new cluster; name of its first node.")
@click.option(
    "--peer-listen",
    metavar="HOST:PORT",
    help="Address at which the other nodes will reach that node.",
)
@output_option
def command(
    backup: Path, directory: Path, node_name: str | None, peer_listen: str | None, output: str
) -> int:
    """Copy a backup to an empty directory, and check all checksums of the copy.

    With --node-name and --peer-listen, the copy is the first node of a new cluster with a new id;
    others join it with empty data directories. Without them it is a single broker, even if the
    backup is that of a cluster. A copy of a stopped node's directory can only be restored as a
    node.

    \b
    Examples:
      flintmq restore /mnt/backup/flint-monday /var/lib/flint
      flintmq restore /mnt/backup/cluster-monday /var/lib/flint \\
          --node-name a --peer-listen a.example.com:7602
    """
    if (node_name is None) != (peer_listen is None):
        raise click.UsageError("pass --node-name and --peer-listen together")
    if node_name is not None and peer_listen is not None:
        own_place(node_name, peer_listen)  # raises where that is nothing
    with stopped_directory(backup) as filesystem:
        of_cluster = is_of_cluster(filesystem)
        if of_cluster and node_name is None:
            raise InvalidRequest(
                f"{backup} is a copy of a node of a cluster; pass --node-name and --peer-listen of "
                "the first node of the new cluster"
            )
        target = LocalFileSystem(directory)
        check_empty(target)
        copy_stopped(filesystem, target, tell_copied, link=False)
    if node_name is not None and peer_listen is not None:
        problems = verified(target)
        if any(problem.is_damage for problem in problems):
            return tell_damage(output, problems, sound="", damaged=f"{directory} is damaged")
        name, address = own_place(node_name, peer_listen)
        found = found_anew if of_cluster else make_cluster
        record = run_async(found(target, name, shown_address(address)))
        return tell_cluster_of_one(output, directory, record, peer_listen)
    return tell_damage(
        output,
        verified(target),
        sound=f"Restored {directory}",
        damaged=f"Restored {directory}, but it is damaged; see above",
    )
