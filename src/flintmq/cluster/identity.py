"""The node file: which node of which cluster a data directory belongs to.

    "FLND" | version u32 | length u32 | CRC32C of the body u32 | body: MessagePack `NodeRecord`

It is replaced as a whole, synced, before anything that follows from it is said: after a crash it is
the old one or the new one. One that is damaged is refused; there is no older copy to fall back to,
because a node that forgot that it had founded a cluster could found a second one.
"""

from __future__ import annotations

import secrets
from enum import StrEnum
from struct import Struct

import msgspec

from ..batch.checksum import crc32c
from ..cluster_model import NodeEntry
from ..errors import Corrupt, InvalidRequest, UnsupportedFormat
from ..storage.filesystem import FileLock, FileSystem, read_file, replace_file
from .levels import LEVEL

NODE_FILE = "node"
NODE_LOCK = "node.lock"
MAGIC = b"FLND"
VERSION = 1
_HEAD = Struct("<4sIII")


class NodeStanding(StrEnum):
    """How far a node is on its way into a cluster; a blank one has no node file."""

    ADOPTED = "adopted"
    CONFIRMED = "confirmed"
    FOUNDER = "founder"
    JOINING = "joining"
    JOINED = "joined"
    """It has an id; its directory may still be blank."""
    MEMBER = "member"
    REMOVED = "removed"
    RECOVERING = "recovering"
    """`cluster recover` was begun and not finished."""


class ClusterMember(msgspec.Struct, frozen=True, order=True):
    """One of the nodes that found a cluster. Its id is its place in the sorted list, from 1."""

    address: str
    name: str


Members = tuple[ClusterMember, ...]


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    standing: NodeStanding
    cluster: bytes
    name: str
    incarnation: int
    """Drawn with the directory: who has lost its disk is another one."""
    members: Members
    asker: int
    """The incarnation of the node that asked us last; only its word counts."""
    former_askers: tuple[int, ...] = ()
    """Those before it. They are gone, and what still arrives of them is not heard."""
    incarnations: tuple[int, ...] = ()
    """Of all founders, in the order of the members; known once the cluster is founded."""
    level: int = 1
    """Of the cluster, as far as this node has heard."""
    id: int = 0
    """Of a node that has joined; of a founder 0."""
    nodes: tuple[NodeEntry, ...] = ()
    """The nodes of the cluster when this one joined."""
    has_begun: bool = False
    """Of a founder: it has taken part. A directory that is lost from then on is not begun anew."""

    @property
    def node(self) -> int:
        return self.id or id_of(self.name, self.members)


def id_of(name: str, members: Members) -> int:
    """The id of the member of that name; 0: it is none of them."""
    names = [member.name for member in members]
    return names.index(name) + 1 if name in names else 0


def draw_incarnation() -> int:
    return secrets.randbits(63) | 1


class NodeFile:
    """The node file of a directory, held alone. `record` is None for a blank node."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._lock: FileLock | None = filesystem.lock(NODE_LOCK)
        try:
            self.record = read_record(filesystem)
        except BaseException:
            self.close()
            raise

    def write(self, record: NodeRecord) -> None:
        """Synced when this returns."""
        body = msgspec.msgpack.encode(record)
        head = _HEAD.pack(MAGIC, VERSION, len(body), crc32c(body))
        replace_file(self._filesystem, NODE_FILE, [head + body])
        self.record = record

    def has_other_data(self) -> bool:
        """Whether a broker that ran alone has left its data here."""
        if self.record is not None:
            return False
        ours = {NODE_FILE, NODE_LOCK, NODE_FILE + ".tmp"}
        return any(
            name.startswith(("manifest", "journal", "segments", "groups"))
            for name in self._filesystem.list()
            if name not in ours
        )

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def read_record(filesystem: FileSystem) -> NodeRecord | None:
    if not filesystem.exists(NODE_FILE):
        return None
    data = read_file(filesystem, NODE_FILE)
    where = filesystem.describe(NODE_FILE)
    remedy = "restore it from a backup, or add this node again with an empty data directory"
    if len(data) < _HEAD.size:
        raise Corrupt(f"{where} is too short; {remedy}")
    magic, version, length, checksum = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + length]
    if magic != MAGIC or len(body) != length or crc32c(body) != checksum:
        raise Corrupt(f"{where} is damaged; {remedy}")
    if version != VERSION:
        raise UnsupportedFormat(f"{where} was written by a newer FlintMQ (version {version})")
    try:
        record = msgspec.msgpack.decode(body, type=NodeRecord)
    except msgspec.DecodeError as error:
        raise UnsupportedFormat(f"{where} was written by a newer FlintMQ ({error})") from None
    if record.level > LEVEL:
        raise UnsupportedFormat(
            f"{where} is of a cluster of level {record.level}, and this FlintMQ knows level "
            f"{LEVEL} at most; update it"
        )
    return record


def check_alone(filesystem: FileSystem) -> None:
    """Raises where a broker is about to run alone on the directory of a cluster's node."""
    record = read_record(filesystem)
    if record is not None:
        raise InvalidRequest(
            f"{filesystem.describe()} belongs to node {record.name} of a cluster; start it with "
            f"--node-name {record.name} and --peer-listen, or choose another data_dir"
        )


def members_of(pairs: list[tuple[str, str]]) -> Members:
    """From names and addresses. Raises where a name or an address is there twice."""
    members = tuple(sorted(ClusterMember(address, name) for name, address in pairs))
    for what, values in (
        ("name", [member.name for member in members]),
        ("address", [member.address for member in members]),
    ):
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise InvalidRequest(f"the {what} {min(twice)!r} is there twice")
    return members
