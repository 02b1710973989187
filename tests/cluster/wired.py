"""Nodes with real lines on loopback, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from flintmq.cluster.peers import Belonging, LineTls, PeerPlace, Peers
from flintmq.raft import RaftMessage

from ..patience import free_port

KEY = b"k" * 32
CLUSTER = b"c" * 16


class HeardNode:
    """A node that notes what its lines tell."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, RaftMessage]] = []
        self.turns: list[int] = []
        self.lives: list[tuple[int, int]] = []
        self.lost: list[int] = []
        self.shipped: list[tuple[int, int, bytes]] = []
        self.unfit: set[int] = set()

    def receive(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        self.messages += [(peer, message) for message in messages]
        self.turns.append(len(messages))

    def receive_shipping(self, peer: int, kind: int, body: memoryview) -> None:
        self.shipped.append((peer, kind, bytes(body)))

    def peer_connected(self, peer: int, incarnation: int) -> None:
        self.lives.append((peer, incarnation))

    def peer_lost(self, peer: int) -> None:
        self.lost.append(peer)

    def peer_is_fit(self, peer: int, is_fit: bool) -> None:
        (self.unfit.discard if is_fit else self.unfit.add)(peer)


class WiredNodes:
    def __init__(self, count: int = 2) -> None:
        self.places = {
            node: PeerPlace(("127.0.0.1", free_port()), f"n{node}", node * 11)
            for node in range(1, count + 1)
        }
        self.peers: dict[int, Peers] = {}
        self.nodes: dict[int, HeardNode] = {}

    async def start(
        self,
        node: int,
        *,
        key: bytes | None = KEY,
        tls: LineTls | None = None,
        cluster: bytes = CLUSTER,
        incarnation: int | None = None,
    ) -> HeardNode:
        place = self.places[node]
        peers = Peers(key=key, tls=tls)
        await peers.listen(*place.address)
        peers.join(Belonging(cluster, node, incarnation or place.incarnation), self.places)
        heard = HeardNode()
        peers.start(heard)
        self.peers[node], self.nodes[node] = peers, heard
        return heard

    async def stop(self, node: int) -> None:
        await self.peers.pop(node).close()


@asynccontextmanager
async def wired(count: int = 2, *, started: bool = True) -> AsyncIterator[WiredNodes]:
    nodes = WiredNodes(count)
    if started:
        for node in nodes.places:
            await nodes.start(node)
    try:
        yield nodes
    finally:
        for node in sorted(nodes.peers):  # who dials first: asyncio forgets whom it just accepted
            await nodes.peers[node].close()
