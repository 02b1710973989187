"""Three nodes of a cluster in one process as a way of running, asked at the node that leads, or at
one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flintmq
from flintmq.client.client import Client
from flintmq.fsync_policy import FsyncPolicy
from flintmq.serde.codec import DECODED_BYTES_MAX, Codec
from flintmq.testing import ManualClock

from ..cluster.nodes import Cluster

FIRST, OTHER = 1, 2
"""The first of the founders leads."""
NOT_OF_CLUSTERS = {
    "test_a_disk_that_fails_leaves_publishers_uncertain_and_stops_the_broker": (
        "a disk that fails ends one node, and the others go on: tests/cluster has that"
    ),
}
"""What is promised of the directory of a node alone, and why not of a cluster."""


def connect_over_cluster(
    directory: Path,
    at: int,
    *,
    clock: ManualClock,
    auto_create: bool = True,
    timeout: Any = 30.0,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    fsync: str = "always",
    tracing: Any = None,
) -> flintmq.Client:
    codec = Codec(decoded_bytes_max)
    cluster = ContractCluster(
        directory, clock=clock, decoder=codec, fsync=FsyncPolicy.parse(fsync), reclaim_seconds=0.0
    )
    for id in cluster.ids:
        cluster.nodes[id] = cluster.make(id)
    broker = cluster.nodes[at].broker
    broker.open = cluster.open  # type: ignore[method-assign]
    broker.close = cluster.stop  # type: ignore[method-assign]
    clock.wait_also_for(cluster.settled)
    return Client(broker, codec, auto_create=auto_create, timeout=timeout, url="cluster")


class ContractCluster(Cluster):
    async def settled(self) -> bool:
        """Wait until nothing is on its way; whether there was anything."""
        return any([await node.local.settled() for node in list(self.nodes.values())])
