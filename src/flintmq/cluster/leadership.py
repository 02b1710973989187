"""What the native server of a node knows of who leads, and what it does when that changes.

Clients that follow the leader are taken once this node leads and knows what they have to know of
its topics; they are sent away when it does not lead any more. Others are served on every node: what
another leads is asked there, over one connection that follows the leader too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .. import __version__
from ..cluster_model import (
    ClusterFigures,
    ClusterStatus,
    ClusterVerb,
    GroupStatus,
    NodeEntry,
    NodeRole,
    NodeStatus,
)
from ..config.kinds import Address, NodeName, UnfitValue, shown_address
from ..errors import Disconnected, FlintError, InvalidRequest, NotLeader
from ..net.remote.broker import RemoteBroker
from ..net.remote.tls import ClientTls
from ..net.server.native import NativeServer
from ..net.wire.operations import ClusterMap, MapGroup, MapNode
from ..observe.logs import event
from ..raft import Status
from ..rows import Decoder
from .bootstrap import PEER_PORT
from .catalog import ClusterCatalog
from .disk_health import IS_DIFFERENT, shown_disk
from .figures import figures_of
from .identity import NodeRecord
from .levels import LEVEL, highest, too_old
from .node import ClusterNode
from .peers import Peers, PeerState

_log = logging.getLogger(__name__)

EVERYWHERE = ("0.0.0.0", "::", "")
OPEN_AGAIN_SECONDS = 0.2


class ClusterLeadership:
    """Implements `Leadership` of the native server."""

    def __init__(self, peers: Peers, catalog: ClusterCatalog) -> None:
        self._peers, self._catalog = peers, catalog
        self._belonging: NodeRecord | None = None
        self._node: ClusterNode | None = None
        self._server: NativeServer | None = None
        self._own = ""
        self._is_ready = False
        """We lead, and the server knows what clients have to know."""
        self._learning: asyncio.Task[None] | None = None
        self.leader_at: Callable[[int], RemoteBroker | None] | None = None
        """How the node that leads is asked."""

    def belongs(self, record: NodeRecord) -> None:
        """The node is a founder of its cluster."""
        self._belonging = record

    @property
    def _record(self) -> NodeRecord:
        assert self._belonging is not None, "the node belongs to a cluster"
        return self._belonging

    def serve(self, node: ClusterNode, server: NativeServer) -> None:
        """From now on. The server has its address later."""
        self._node, self._server = node, server
        node.on_leader_changed(self._changed)

    def listens(self, address: Address, peer_host: str) -> str:
        """Where clients connect, as other nodes tell them."""
        host = peer_host if address[0] in EVERYWHERE else address[0]
        self._own = shown_address((host, address[1]))
        return self._own

    def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()

    # --- Leadership

    def refusal(self) -> NotLeader | None:
        assert self._node is not None
        if self._is_ready and self._node.is_leading():
            return None
        leader = self._node.leader()
        known = [self._address(leader)] if leader not in (0, self._node.id) else []
        return NotLeader(self._node.id, leader, [address for address in known if address])

    def map(self) -> ClusterMap:
        assert self._node is not None
        nodes = [
            MapNode(node.id, node.name, [at] if (at := self._address(node.id)) else [])
            for node in self._catalog.present()
        ]
        status = self._node.status()
        group = MapGroup(
            0,
            self._node.leader(),
            status.term,
            list(status.membership.everybody()),
            status.committed,
            status.applied,
            list(status.membership.learners),
        )
        return ClusterMap(self._record.cluster, nodes, [group], self._record.node)

    def _address(self, node: int) -> str:
        if node == self._record.node:
            return self._own
        state = self._peers.states.get(node)
        return "" if state is None else state.about.clients

    def addresses(self) -> list[str]:
        """Of all nodes whose clients' address is known."""
        nodes = [node.id for node in self._catalog.present()]
        return [address for node in nodes if (address := self._address(node))]

    def token_at(self, address: tuple[str, int]) -> list[str] | None:
        """What the server at that address knows other nodes by."""
        for state in self._peers.states.values():
            if state.about.clients == shown_address(address) and state.about.token:
                return ["key", state.about.token]
        return None

    # --- ClusterApi

    async def ask(self, verb: ClusterVerb, name: str = "", address: str = "") -> ClusterStatus:
        """The leader decides, and knows most."""
        assert self._node is not None
        members = self._node.members
        if not self._node.is_leading():
            leader = None if self.leader_at is None else self.leader_at(self._node.leader())
            if leader is not None:
                try:
                    return await leader.cluster(verb, name, address)
                except (NotLeader, Disconnected):
                    if verb != "status":
                        raise
            elif verb != "status":
                raise NotLeader(self._node.id, self._node.leader())
            return self.status()
        if verb in ("add", "replace"):
            _check_place(name, address)
        match verb:
            case "add":
                await members.add(name, address)
            case "replace":
                await members.replace(name, address)
            case "remove":
                await members.remove(name)
            case "transfer":
                members.transfer(name)
            case "finalize":
                await members.finalize(self._next_level())
            case "status":
                pass
        return self.status()

    def _tell_own(self, shown: NodeStatus) -> None:
        assert self._node is not None
        shown.version, shown.level = __version__, LEVEL
        shown.life = f"{self._peers.life:x}"
        shown.disk, shown.clock_ms = self._node.disk.shown, 0
        shown.copy = "differs" if self._node.differs else "ok"

    def _next_level(self) -> int:
        """Raises InvalidRequest where a node is too old, or down."""
        status = self.status()
        if status.level >= LEVEL:
            return status.level
        level = highest(status.nodes)
        if level == status.level < LEVEL:
            raise InvalidRequest(
                f"the cluster stays at level {level}, since these nodes know no higher one: "
                f"{', '.join(too_old(status.nodes, LEVEL))}; update FlintMQ there first"
            )
        return level

    def figures(self) -> ClusterFigures | None:
        node = self._node
        if node is None or not node.is_open:
            return None
        return figures_of(node, self._peers, self._catalog)

    def status(self) -> ClusterStatus:
        """As this node sees it: who is connected to it, and where it leads, how far they are."""
        assert self._node is not None
        status, leader = self._node.status(), self._node.leader()
        members = status.membership
        nodes = [
            self._node_status(node.id, node, status, leader) for node in self._catalog.present()
        ]
        up = {node.id for node in nodes if node.role != "down"}
        names = {node.id: node.name for node in nodes}
        group = GroupStatus(
            id=0,
            leader=names.get(leader),
            term=status.term,
            members=[names.get(node, str(node)) for node in members.everybody()],
        )
        return ClusterStatus(
            cluster=self._record.cluster.hex(),
            leader=group.leader,
            has_quorum=members.has_quorum_of(up),
            nodes=nodes,
            groups=[group],
            level=self._catalog.level,
        )

    def _node_status(self, node: int, member: NodeEntry, status: Status, leader: int) -> NodeStatus:
        peer = self._peers.states.get(node)
        shown = NodeStatus(
            id=node,
            name=member.name,
            role="follower",
            address=self._address(node),
            peer=member.address,
        )
        if node == self._record.node:
            shown.term, shown.committed, shown.applied = (
                status.term,
                status.committed,
                status.applied,
            )
            shown.behind = status.committed - status.applied
            self._tell_own(shown)
        elif peer is None or not peer.is_connected:
            shown.role, shown.why = "down", "" if peer is None else peer.why
            return shown
        else:
            _tell_peer(shown, peer)
        if (known := status.peers.get(node)) is not None and node != self._record.node:
            shown.behind = max(0, status.last_index - known.match)
        shown.role = _role(node, status, leader)
        return shown

    # --- changes

    def _changed(self, leader: int, term: int) -> None:
        assert self._node is not None
        assert self._server is not None
        self.close()
        was_ready, self._is_ready = self._is_ready, False
        event(
            _log,
            logging.INFO,
            "leader_changed",
            f"node {self._name(leader)} leads" if leader else "no leader",
            leader=leader,
            term=term,
        )
        if leader == self._node.id:
            self._learning = asyncio.get_running_loop().create_task(self._begin())
        elif was_ready:
            refusal = self.refusal()
            assert refusal is not None
            self._server.send_away(refusal)

    def _name(self, node: int) -> str:
        return self._catalog.name_of(node)

    async def _begin(self) -> None:
        assert self._node is not None
        assert self._server is not None
        try:
            await self._server.learn_topics(self._node.local)
        except FlintError:
            return  # the lead is lost again, or the node stops
        self._is_ready = True


def _check_place(name: str, address: str) -> None:
    """Raises where a node cannot have that name, or cannot be there."""
    try:
        NodeName().parse(name)
        PEER_PORT.parse(address)
    except UnfitValue as error:
        raise InvalidRequest(f"node {name} at {address}: {error}") from None


def _tell_peer(shown: NodeStatus, peer: PeerState) -> None:
    """What the peer tells of itself."""
    shown.version, shown.life = peer.about.version, peer.life
    shown.round_trip_ms, shown.clock_ms = peer.round_trip_ms, peer.clock_ms
    if peer.health is not None:
        shown.level = peer.health.level or 1
        shown.disk = shown_disk(peer.health.flags)
        shown.copy = "differs" if peer.health.flags & IS_DIFFERENT else "ok"


def _role(node: int, status: Status, leader: int) -> NodeRole:
    if node == leader:
        return "leader"
    members = status.membership
    # Until a joint phase is over, those that come in are not counted on yet.
    return "follower" if node in (members.outgoing or members.voters) else "learner"


class LeaderBroker:
    """The broker of whoever leads, over one connection that is made when it is first needed."""

    def __init__(
        self,
        addresses: Callable[[], list[str]],
        token_at: Callable[[tuple[str, int]], list[str] | None],
        decoder: Decoder,
        tls: ClientTls | None,
    ) -> None:
        """`token_at`: what a server knows other nodes by; permissions were asked for already."""
        self._addresses, self._token_at = addresses, token_at
        self._decoder, self._tls = decoder, tls
        self._broker: RemoteBroker | None = None
        self._opening: asyncio.Task[None] | None = None

    def of(self, node: int) -> RemoteBroker | None:
        """None: it cannot be asked now."""
        if self._broker is None and self._opening is None and self._addresses():
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return self._broker

    async def _open(self) -> None:
        scheme = "flint" if self._tls is None else "flints"
        broker = RemoteBroker(
            f"{scheme}://{','.join(self._addresses())}",
            decoder=self._decoder,
            tls=self._tls,
        )
        broker.link.dialer.auth_of = self._token_at
        try:
            await broker.open()
            self._broker = broker
        except FlintError:
            await asyncio.sleep(OPEN_AGAIN_SECONDS)
        finally:
            self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._broker is not None:
            await self._broker.close()
