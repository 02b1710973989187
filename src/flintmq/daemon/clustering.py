"""A broker that is a node of a cluster: its place among the others, made from the configuration.

async with joined(config) as place:       # founds the cluster, or finds its place in it again
    node = place.node(config)
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from .. import __version__
from ..cluster.bootstrap import PEER_PORT, ClusterFounder, belonging_of, entries_of
from ..cluster.catalog import REMOVED, ClusterCatalog
from ..cluster.identity import NodeFile, NodeRecord, NodeStanding, members_of
from ..cluster.joining import (
    HAS_DATA,
    NO_KEY,
    REMOVED_TEXT,
    STARTING,
    Admissions,
    join,
    places_in,
    wait_removed,
)
from ..cluster.leadership import EVERYWHERE, ClusterLeadership, LeaderBroker
from ..cluster.levels import LEVEL
from ..cluster.node import ClusterNode
from ..cluster.peer_frames import AboutNode, PeerHealth
from ..cluster.peers import LineTls, Peers, clocks
from ..cluster.storage import is_member
from ..config.kinds import shown_address
from ..config.table import Config
from ..engine.broker import Broker
from ..errors import InvalidRequest
from ..frontends.hermes.settings import is_hermes_node
from ..net.remote.tls import ClientTls
from ..net.server.gate import ApiKeyGate
from ..net.server.native import NativeServer
from ..net.tls.files import load_authorities, load_pair
from ..observe.logs import event
from ..storage.filesystem import LocalFileSystem
from .assembly import engine_settings
from .node_view import NodeView
from .reloading import Reloading
from .shared_keys import SharedKeys
from .shared_settings import SharedSettings

_log = logging.getLogger(__name__)

KEY_BYTES_MIN = 16
KEY_OF_ALL = b"HermesMQ's nodes have no key"
"""For nodes that know each other by nothing but their addresses."""
REFUSED_SECONDS = 0.5
"""How long a node rests whose Bootstrap was refused."""
NAMES = "tls_cert, tls_key"
JOINS = (NodeStanding.JOINING, NodeStanding.JOINED, NodeStanding.MEMBER)


class NodePlace:
    """This node's place in its cluster: who it is, its lines, and what clients are told."""

    def __init__(self, config: Config, file: NodeFile, founder: ClusterFounder) -> None:
        self._config, self._file, self._founder = config, file, founder
        has_credential = config.peer_ca is not None or config.cluster_key_file is not None
        self.token = secrets.token_urlsafe(32) if has_credential else ""
        """By which this node knows others that ask for their clients; where anybody may act as a
        node there is none."""
        self.on_removed: Callable[[str], object] | None = None
        """Told why this node is no longer in the cluster."""
        self._clients = ""
        self.peers = Peers(
            key=None if config.peer_ca is not None else cluster_key(config),
            tls=line_tls(config),
            found=founder.answer,
            admit=self._admit,
            about=self._about,
            health=self._health,
        )
        self._node: ClusterNode | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._hop: LeaderBroker | None = None
        self.keys: SharedKeys | None = None
        self.record: NodeRecord
        self.catalog = ClusterCatalog(level=1)
        self.catalog.on_changed.append(self._follow)
        self.leadership = ClusterLeadership(self.peers, self.catalog)
        self.view = NodeView(founder, self.catalog)

    async def take(self) -> None:
        """Listen, and found the cluster or find our place in it again. What clients have to found
        is waited for by `wait_founded`, when they can connect."""
        config = self._config
        assert config.peer_listen is not None
        await self.peers.listen(*config.peer_listen)
        if self._is_to_join():
            self._belongs(await self._join())
        elif self._founder.node.is_founder():
            await self._belong()
        elif not self._founder.node.is_driven:
            event(
                _log,
                logging.INFO,
                "cluster_founding",
                "the cluster is forming: waiting for the other nodes",
                members=", ".join(config.initial_cluster) or None,
            )
            await self._belong()

    @property
    def is_founded(self) -> bool:
        return self.view.record is not None

    async def wait_founded(self, node: ClusterNode) -> None:
        """Until a client has named the members, and all of them have agreed."""
        event(
            _log,
            logging.INFO,
            "cluster_blank",
            "this node belongs to no cluster yet: waiting for a Bootstrap request",
            node=self._config.node_name,
        )
        while not self.is_founded:
            try:
                await self._belong()
            except InvalidRequest as error:
                self.view.refused(error)
                await asyncio.sleep(REFUSED_SECONDS)
        self._be(node)

    async def _belong(self) -> None:
        self._belongs(await self._founder.wait_founded(self.peers))

    def _belongs(self, record: NodeRecord) -> None:
        self.record = self.view.record = record
        self.catalog.raised(record.level)
        self.peers.level = record.level
        self.catalog.know(entries_of(record), record.node)
        self.peers.join(belonging_of(record), places_in(self.catalog))
        self.leadership.belongs(record)

    def _be(self, node: ClusterNode) -> None:
        record = self.record
        founders = () if record.has_begun else tuple(range(1, len(record.members) + 1))
        node.be(record.node, founders, begins_blank=record.standing is NodeStanding.JOINED)

    # --- joining, and who belongs to the cluster

    def _is_to_join(self) -> bool:
        record = self._file.record
        return bool(self._config.join) if record is None else record.standing in JOINS

    async def _join(self) -> NodeRecord:
        record, config = self._file.record, self._config
        if record is not None and record.standing is not NodeStanding.JOINING:
            return record
        assert config.node_name is not None
        seeds = [PEER_PORT.parse(address) for address in config.join]
        return await join(self._file, self.peers, config.node_name, own_address(config), seeds)

    def _follow(self) -> None:
        """The nodes have changed."""
        removed = {
            node.id: node.name for node in self.catalog.nodes.values() if node.standing == REMOVED
        }
        self.peers.follow(places_in(self.catalog), removed)
        if self.catalog.level > self.record.level:
            self.peers.level = self.catalog.level
            self.record = msgspec.structs.replace(self.record, level=self.catalog.level)
            self._file.write(self.record)

    def _admit(self, data: bytes, shown: list[str] | None) -> bytes:
        node = self._node
        if node is None or not node.is_open:
            return STARTING
        if self._config.peer_ca is None and self._config.cluster_key_file is None:
            return NO_KEY  # whoever can connect could join
        admissions = Admissions(self.record.cluster, self.catalog, node.members, node.leader)
        return admissions.answer(data, shown)

    def node(self, config: Config) -> ClusterNode:
        settings = engine_settings(config)
        tls = None
        if config.tls_cert is not None:
            tls = ClientTls(config.peer_ca, config.tls_cert, config.tls_key, verify=True)
        leadership = self.leadership
        self._hop = LeaderBroker(
            leadership.addresses, leadership.token_at, settings["decoder"], tls
        )
        leadership.leader_at = self._hop.of
        node = self._node = ClusterNode(
            LocalFileSystem(config.data_dir),
            self.peers,
            catalog=self.catalog,
            broker_of=self._hop.of,
            **settings,
        )
        node.clocks_of_peers = self.peers.clocks_ms
        if self.is_founded:
            self._be(node)
        self.view.serve(node)
        return node

    def serve(self, node: ClusterNode, server: NativeServer) -> None:
        self.leadership.serve(node, server)

    def listens(self, address: tuple[str, int]) -> None:
        """Clients can connect there: others hear of it, and founders that were away of them."""
        # From now on its directory is that of a member: one that is lost is not begun anew.
        record = self.record
        if record.standing is NodeStanding.JOINED:
            self.record = msgspec.structs.replace(record, standing=NodeStanding.MEMBER)
        elif not record.has_begun and record.standing is NodeStanding.FOUNDER:
            self.record = msgspec.structs.replace(record, has_begun=True)
        if self.record is not record:
            self._file.write(self.record)
        host = self.catalog.nodes[self.record.node].address.rpartition(":")[0].strip("[]")
        self._clients = self.leadership.listens(address, host)
        self.peers.tell_about()
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._hear_removal()))
        if self._founder.node.is_founder():
            self._tasks.append(loop.create_task(self._founder.keep_telling(self.peers)))

    async def _hear_removal(self) -> None:
        seeds = [PEER_PORT.parse(address) for address in self._config.join]
        answer = await wait_removed(self.record, self.peers, seeds)
        if answer.is_removed:
            record = msgspec.structs.replace(self.record, standing=NodeStanding.REMOVED)
            self._file.write(record)
        if self.on_removed is not None:
            self.on_removed(answer.why)

    def _about(self) -> AboutNode:
        return AboutNode(
            self._config.node_name or "",
            self._clients,
            __version__,
            self._config.tls_cert is not None,
            self.token,
            self.keys is not None and self.keys.are_there,
        )

    def share(self, broker: Broker, gate: ApiKeyGate, reloading: Reloading) -> None:
        """Have clients show a key of the cluster, where it has any, and go by its settings."""
        self.keys = SharedKeys(broker, gate, self.catalog, self.peers)
        SharedSettings(broker, reloading, self.catalog)

    def _health(self) -> PeerHealth:
        return clocks()._replace(flags=0 if self._node is None else self._node.flags, level=LEVEL)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._hop is not None:
            await self._hop.close()
        self.leadership.close()
        await self.peers.close()
        self._file.close()


@asynccontextmanager
async def joined(config: Config) -> AsyncIterator[NodePlace]:
    """Raises what names the setting that is wrong, or the node that refuses."""
    assert config.node_name is not None
    config.data_dir.mkdir(parents=True, exist_ok=True)
    file = NodeFile(LocalFileSystem(config.data_dir))
    try:
        founder = ClusterFounder(file, config.node_name, is_driven=is_driven(config))
        check_place(config, file, founder)
        place = NodePlace(config, file, founder)
    except BaseException:
        file.close()
        raise
    try:
        await place.take()
        yield place
    finally:
        await place.close()


def check_place(config: Config, file: NodeFile, founder: ClusterFounder) -> None:
    record = file.record
    if record is not None:
        if record.name != config.node_name:
            raise InvalidRequest(
                f"data_dir {config.data_dir} belongs to node {record.name}, not to "
                f"{config.node_name}; choose another data_dir, or set node_name"
            )
        if record.standing is NodeStanding.REMOVED:
            raise InvalidRequest(REMOVED_TEXT)
        if record.standing is NodeStanding.RECOVERING:
            raise InvalidRequest(
                "`flintmq cluster recover` was interrupted in this data directory; run it again"
            )
        if record.standing is NodeStanding.JOINING and not config.join:
            raise InvalidRequest(
                f"node {record.name} has not joined its cluster yet; name nodes of it with --join "
                "host:port"
            )
        has_begun = record.has_begun or record.standing is NodeStanding.MEMBER
        if has_begun and not is_member(LocalFileSystem(config.data_dir)):
            raise InvalidRequest(
                f"data_dir {config.data_dir} is that of node {record.name}, but its data is gone: "
                "a node that has lost its data does not come back as the same. On a node that runs,"
                f" `flintmq cluster replace {record.name} host:port`; then start this one with an "
                "empty data_dir and --join"
            )
        return  # what it was founded with counts
    if config.join:
        if founder.node.has_data:
            raise InvalidRequest(HAS_DATA)
        return
    if founder.node.is_driven:
        return  # clients name the members
    if not config.initial_cluster:
        raise InvalidRequest(
            f"node {config.node_name} belongs to no cluster yet; list all nodes of a new one with "
            "--initial-cluster name=host:port,..., or name nodes of a running one with --join "
            "host:port"
        )
    parts = (member.partition("=") for member in config.initial_cluster)
    pairs = [(name, address) for name, _, address in parts]
    founder.want(members_of(pairs))


def is_driven(config: Config) -> bool:
    """Whether clients found the cluster, by HermesMQ's Bootstrap."""
    return is_hermes_node(config) and not config.initial_cluster


def runs_alone(config: Config) -> bool:
    """Whether this broker has no place in a cluster. One of HermesMQ's protocol that has data from
    before there were clusters goes on alone, whatever address it has for others."""
    if config.node_name is None:
        return True
    if not is_driven(config) or not config.data_dir.is_dir():
        return False
    file = NodeFile(LocalFileSystem(config.data_dir))
    try:
        return file.has_other_data()
    finally:
        file.close()


def own_address(config: Config) -> str:
    """Where the other nodes reach this one."""
    assert config.peer_listen is not None
    host, port = config.peer_address or config.peer_listen
    return shown_address((socket.gethostname() if host in EVERYWHERE else host, port))


def cluster_key(config: Config) -> bytes:
    path = config.cluster_key_file
    if path is None:
        event(
            _log,
            logging.WARNING,
            "cluster_without_key",
            "anyone who can connect to peer_listen can act as a node of this cluster; set "
            "cluster_key_file, or peer_ca for TLS",
        )
        return KEY_OF_ALL
    try:
        key = path.read_bytes().strip()
        mode = path.stat().st_mode
    except OSError as error:
        raise InvalidRequest(
            f"cluster_key_file {path} cannot be read: {error.strerror}; make one with "
            f"`openssl rand -hex 32 > {path}` and give all nodes the same"
        ) from None
    if len(key) < KEY_BYTES_MIN:
        raise InvalidRequest(
            f"cluster_key_file {path} must have at least {KEY_BYTES_MIN} characters"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        event(
            _log,
            logging.WARNING,
            "cluster_key_readable",
            f"other users of this machine can read {path}; run `chmod 600 {path}`",
            file=path,
        )
    return key


def line_tls(config: Config) -> LineTls | None:
    if config.peer_ca is None:
        return None
    assert config.tls_cert is not None
    assert config.tls_key is not None
    files = (config.tls_cert, config.tls_key, config.peer_ca)
    client_of_any = _context(ssl.PROTOCOL_TLS_CLIENT, *files)
    client_of_any.check_hostname = False
    return LineTls(
        _context(ssl.PROTOCOL_TLS_SERVER, *files),
        _context(ssl.PROTOCOL_TLS_CLIENT, *files),
        client_of_any,
    )


def _context(purpose: ssl._SSLMethod, certificate: Path, key: Path, ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, certificate, key, names=NAMES)
    load_authorities(context, ca, name="peer_ca")
    context.verify_mode = ssl.CERT_REQUIRED
    return context
