"""`flintmq cluster init`: a broker that ran alone becomes a cluster of one."""

from __future__ import annotations

from pathlib import Path

import click

from ..cluster.bootstrap import PEER_PORT
from ..cluster.converting import make_cluster
from ..cluster.identity import NodeRecord
from ..cluster.leadership import EVERYWHERE
from ..config.kinds import Address, NodeName, UnfitValue, shown_address
from ..errors import InvalidRequest
from ..storage.filesystem import LocalFileSystem
from .connecting import run_async
from .shared import output_option, show


@click.command("init")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Data directory of the broker, which must be stopped.",
)
@click.option("--node-name", required=True, metavar="NAME", help="Name of the node.")
@click.option(
    "--peer-listen",
    required=True,
    metavar="HOST:PORT",
    help="Address at which the other nodes will reach this one.",
)
@output_option
def command(data_dir: Path, node_name: str, peer_listen: str, output: str) -> int:
    """Convert the data directory of a single broker to a cluster of one node.

    Messages, offsets, groups, producers and keys are kept. Then start the node with --node-name
    and --peer-listen, and other nodes with an empty data directory and --join. Make a backup
    first: this cannot be undone.

    \b
    Examples:
      flintmq cluster init --data-dir /var/lib/flint --node-name a --peer-listen a.example.com:7602
    """
    name, address = own_place(node_name, peer_listen)
    data_dir.mkdir(parents=True, exist_ok=True)
    record = run_async(make_cluster(LocalFileSystem(data_dir), name, shown_address(address)))
    return tell_cluster_of_one(output, data_dir, record, peer_listen)


def tell_cluster_of_one(output: str, data_dir: Path, record: NodeRecord, peer_listen: str) -> int:
    cluster = record.cluster.hex()
    return show(
        output,
        {"cluster": cluster, "node": record.name, "address": peer_listen},
        f"{data_dir} is node {record.name} of cluster {cluster[:8]}\n"
        f"start it with `flintmq serve --data-dir {data_dir} --node-name {record.name} "
        f"--peer-listen {peer_listen}` and others with `--join {peer_listen}`",
    )


def own_place(node_name: str, peer_listen: str) -> tuple[str, Address]:
    """Raises InvalidRequest where a node cannot be called that, or cannot be reached there."""
    try:
        name, address = NodeName().parse(node_name), PEER_PORT.parse(peer_listen)
    except UnfitValue as error:
        raise InvalidRequest(f"{node_name} at {peer_listen}: {error}") from None
    if address[0] in EVERYWHERE:
        raise InvalidRequest(
            f"other nodes cannot connect to {peer_listen}; pass the name or the address of this "
            "machine"
        )
    return name, address
