"""A broker that is a node of a cluster: its place among the others, made from the configuration.

async with joined(config) as place:       # founds the cluster, or finds its place in it again
    node = place.node(config)
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from .. import __version__
from ..cluster.bootstrap import ClusterFounder, belonging_of, places_of
from ..cluster.identity import NodeFile, NodeRecord, members_of
from ..cluster.leadership import ClusterLeadership, LeaderBroker
from ..cluster.node import ClusterNode
from ..cluster.peer_frames import AboutNode, PeerHealth
from ..cluster.peers import LineTls, Peers, clocks
from ..config.table import Config
from ..errors import InvalidRequest
from ..frontends.hermes.settings import is_hermes_node
from ..net.remote.tls import ClientTls
from ..net.server.native import NativeServer
from ..net.tls.files import load_authorities, load_pair
from ..observe.logs import event
from ..storage.filesystem import LocalFileSystem
from .assembly import engine_settings
from .node_view import NodeView

_log = logging.getLogger(__name__)

KEY_BYTES_MIN = 16
KEY_OF_ALL = b"HermesMQ's nodes have no key"
"""For nodes that know each other by nothing but their addresses."""
REFUSED_SECONDS = 0.5
"""How long a node rests whose Bootstrap was refused."""
NAMES = "tls_cert, tls_key"


class NodePlace:
    """This node's place in its cluster: who it is, its lines, and what clients are told."""

    def __init__(self, config: Config, file: NodeFile, founder: ClusterFounder) -> None:
        self._config, self._file, self._founder = config, file, founder
        self._clients = ""
        self.peers = Peers(
            key=None if config.peer_ca is not None else cluster_key(config),
            tls=line_tls(config),
            found=founder.answer,
            about=self._about,
            health=self._health,
        )
        self._node: ClusterNode | None = None
        self._telling: asyncio.Task[None] | None = None
        self._hop: LeaderBroker | None = None
        self.record: NodeRecord
        self.leadership = ClusterLeadership(self.peers)
        self.view = NodeView(founder)

    async def take(self) -> None:
        """Listen, and found the cluster or find our place in it again. What clients have to found
        is waited for by `wait_founded`, when they can connect."""
        config = self._config
        assert config.peer_listen is not None
        await self.peers.listen(*config.peer_listen)
        if self._founder.node.is_founder():
            await self._belong()
        elif not self._founder.node.is_driven:
            event(
                _log,
                logging.INFO,
                "cluster_founding",
                "the cluster is being founded: waiting for the other nodes",
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
        node.be(*self._founders())

    async def _belong(self) -> None:
        self.record = self.view.record = await self._founder.wait_founded(self.peers)
        self.peers.join(belonging_of(self.record), places_of(self.record))
        self.leadership.belongs(self.record)

    def _founders(self) -> tuple[int, tuple[int, ...]]:
        return self.record.node, tuple(range(1, len(self.record.members) + 1))

    def node(self, config: Config) -> ClusterNode:
        settings = engine_settings(config)
        tls = None
        if config.tls_cert is not None:
            tls = ClientTls(config.peer_ca, config.tls_cert, config.tls_key, verify=True)
        self._hop = LeaderBroker(self.leadership.addresses, settings["decoder"], tls)
        node = self._node = ClusterNode(
            LocalFileSystem(config.data_dir), self.peers, broker_of=self._hop.of, **settings
        )
        if self.is_founded:
            node.be(*self._founders())
        self.view.serve(node)
        return node

    def serve(self, node: ClusterNode, server: NativeServer) -> None:
        self.leadership.serve(node, server)

    def listens(self, address: tuple[str, int]) -> None:
        """Clients can connect there: others hear of it, and founders that were away of them."""
        member = self.record.members[self.record.node - 1]
        host = member.address.rpartition(":")[0].strip("[]")
        self._clients = self.leadership.listens(address, host)
        self.peers.tell_about()
        self._telling = asyncio.get_running_loop().create_task(
            self._founder.keep_telling(self.peers)
        )

    def _about(self) -> AboutNode:
        return AboutNode(
            self._config.node_name or "",
            self._clients,
            __version__,
            self._config.tls_cert is not None,
        )

    def _health(self) -> PeerHealth:
        return clocks()._replace(flags=0 if self._node is None else self._node.disk.flags)

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
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
        return  # what it was founded with counts
    if founder.node.is_driven:
        return  # clients name the members
    if not config.initial_cluster:
        raise InvalidRequest(
            f"node {config.node_name} belongs to no cluster yet; list all its nodes with "
            "--initial-cluster name=host:port,..."
        )
    pairs = [member.partition("=")[::2] for member in config.initial_cluster]
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


def cluster_key(config: Config) -> bytes:
    path = config.cluster_key_file
    if path is None:
        event(
            _log,
            logging.WARNING,
            "cluster_without_key",
            "whoever can connect to peer_listen can act as a node of this cluster; set "
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
    return LineTls(
        _context(ssl.PROTOCOL_TLS_SERVER, config.tls_cert, config.tls_key, config.peer_ca),
        _context(ssl.PROTOCOL_TLS_CLIENT, config.tls_cert, config.tls_key, config.peer_ca),
    )


def _context(purpose: ssl._SSLMethod, certificate: Path, key: Path, ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, certificate, key, names=NAMES)
    load_authorities(context, ca, name="peer_ca")
    context.verify_mode = ssl.CERT_REQUIRED
    return context
