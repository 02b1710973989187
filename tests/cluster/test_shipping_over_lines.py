"""A checkpoint travels over real lines on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.cluster.peer_frames import LineKind
from flintmq.cluster.peers import Belonging, PeerPlace, Peers
from flintmq.cluster.transport import LocalNetwork, Transport

from ..patience import free_port
from .nodes import Cluster
from .test_shipping import SMALL_SIZES, let_go, received, same
from .wired import CLUSTER, KEY

pytestmark = pytest.mark.slow


class RealLines(LocalNetwork):
    """Of all nodes; who is to start listens first."""

    def __init__(self, *ids: int) -> None:
        super().__init__()
        self._places = {id: PeerPlace(("127.0.0.1", free_port()), f"n{id}", id * 11) for id in ids}
        self.peers: dict[int, Peers] = {}

    async def listen(self, id: int) -> None:
        place = self._places[id]
        peers = self.peers[id] = Peers(key=KEY)
        await peers.listen(*place.address)
        peers.join(Belonging(CLUSTER, id, place.incarnation), self._places)

    def transport(self, node: int) -> Transport:  # type: ignore[override]
        return self.peers[node]


async def test_a_blank_node_gets_all_over_real_lines(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, **SMALL_SIZES)
    lines = cluster.network = RealLines(1, 2, 3)
    for id in cluster.ids:
        await lines.listen(id)
    await cluster.open(1, 2)
    try:
        leader = await let_go(cluster)
        await cluster.start(3)
        await same(cluster)

        assert received(cluster, 3) > 3_000_000
        to_it = lines.peers[leader.id].states[3].lines
        assert to_it[LineKind.BULK].bytes_sent > 3_000_000
        assert to_it[LineKind.MAIN].bytes_sent < 1_000_000
    finally:
        await cluster.close()
        for peers in lines.peers.values():
            await peers.close()
