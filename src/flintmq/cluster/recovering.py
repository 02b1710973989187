"""A node whose majority is lost goes on alone, as a new cluster.

Never automatic: what only the lost nodes had is gone, and what they acknowledged after they had
lost contact with this one, too. Everything in the log here is kept, also what may never have been
acknowledged. The cluster gets a new id, so the nodes of the old one can never meet it again.

The order makes a crash harmless: the node file first, under which nothing opens the directory but
this; then one checkpoint with the whole log, and a membership of this node alone; then the node
file of a member. Doing it again goes on.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from ..cluster_model import NodeEntry
from ..engine.broker import Broker
from ..engine.commands import Command, SetNodes
from ..engine.host import Host
from ..engine.journal_log import JournalLog
from ..engine.recovery import JOURNAL, RECOVERY_STEP_SECONDS, RecoveryPace
from ..errors import InvalidRequest
from ..raft import Membership
from ..storage.backup import LOCK
from ..storage.filesystem import FileSystem
from ..storage.frames import MEMBERSHIP, Record
from ..storage.group_files import files_of
from ..storage.journal import Journal
from ..storage.manifest import read_manifest
from .bootstrap import entries_of
from .catalog import MEMBER, REMOVED
from .identity import NodeFile, NodeRecord, NodeStanding, draw_incarnation
from .levels import LEVEL
from .replicated_log import command_in
from .storage import is_member, members_bytes, members_of

MAY_BE = (NodeStanding.FOUNDER, NodeStanding.MEMBER, NodeStanding.RECOVERING)


class GroupRemains(msgspec.Struct):
    """What a node has of a group."""

    id: int
    last_index: int
    last_term: int
    committed: int
    """Up to here this node knew that a majority had it."""
    members: list[str]


class ClusterRemains(msgspec.Struct):
    """What a stopped node has."""

    cluster: str
    node: str
    lost: list[str]
    """The other nodes, which will not be part of the new cluster."""
    groups: list[GroupRemains]


class LogOfOne(JournalLog):
    """The log of a node of a cluster, all of which counts."""

    leads_alone = False  # the directory is that of a node

    def __init__(self, node: int) -> None:
        super().__init__()
        self.members = members_bytes(Membership((node,)))

    def command_of(self, record: Record) -> Command | None:
        return None if record.kind & MEMBERSHIP else command_in(record.payload)


@contextmanager
def stopped_node(filesystem: FileSystem) -> Iterator[NodeFile]:
    """The node file of a directory that nobody uses. Raises where it is not that of a node that
    can be recovered."""
    file = NodeFile(filesystem)
    try:
        record = file.record
        if record is None or record.standing not in MAY_BE or not is_member(filesystem):
            raise InvalidRequest(
                f"{filesystem.describe()} is not the directory of a node that was a member of a "
                "cluster: there is nothing to continue with"
            )
        yield file
    finally:
        file.close()


def remains(filesystem: FileSystem, record: NodeRecord) -> ClusterRemains:
    """What is there; a torn end of the journal is cut off and saved aside, as at any start."""
    lock = filesystem.lock(LOCK)
    try:
        manifest = read_manifest(files_of(filesystem, 0))
        assert manifest is not None, "it is the directory of a member"
        journal = Journal.open(filesystem, JOURNAL)
        try:
            known, state = journal.groups().get(0), journal.states().get(0)
        finally:
            journal.abandon()
    finally:
        lock.release()
    last, term = manifest.checkpoint, manifest.term
    if known is not None and known.next_index - 1 > last:
        last, term = known.next_index - 1, known.last_term
    nodes = manifest.nodes or entries_of(record)
    names = {node.id: node.name for node in nodes}
    members = members_of(manifest.members).everybody()
    group = GroupRemains(
        id=0,
        last_index=last,
        last_term=term,
        committed=min(last, max(manifest.checkpoint, state.commit if state is not None else 0)),
        members=[names.get(node, str(node)) for node in members],
    )
    others = [node for node in nodes if node.standing != REMOVED and node.id != record.node]
    return ClusterRemains(
        record.cluster.hex(), record.name, [node.name for node in others], [group]
    )


async def recover(filesystem: FileSystem, file: NodeFile) -> NodeRecord:
    """The directory is that of the only node of a new cluster from now on."""
    record = file.record
    assert record is not None, "it is the directory of a node"
    node = record.node
    if record.standing is not NodeStanding.RECOVERING:
        record = msgspec.structs.replace(
            record,
            standing=NodeStanding.RECOVERING,
            cluster=secrets.token_bytes(16),
            incarnation=draw_incarnation(),
            id=node,
            nodes=tuple(entries_of(record)),
        )
        file.write(record)
    nodes = await _alone(filesystem, record)
    record = msgspec.structs.replace(
        record, standing=NodeStanding.MEMBER, members=(), incarnations=(), nodes=tuple(nodes)
    )
    file.write(record)
    return record


async def found_anew(filesystem: FileSystem, name: str, address: str) -> NodeRecord:
    """A copy of a node's data is that of the only node of a new cluster from now on. The nodes
    that the copy speaks of belong to another one; their ids are not used here."""
    file = NodeFile(filesystem)
    try:
        manifest = read_manifest(files_of(filesystem, 0))
        assert manifest is not None, "the copy is whole"
        known = {node.id for node in manifest.nodes}
        known.update(members_of(manifest.members).everybody())
        id, incarnation = max(known) + 1, draw_incarnation()
        record = NodeRecord(
            standing=NodeStanding.RECOVERING,
            cluster=secrets.token_bytes(16),
            name=name,
            incarnation=incarnation,
            members=(),
            asker=0,
            level=LEVEL,
            id=id,
            nodes=(NodeEntry(id, name, address, incarnation),),
        )
        file.write(record)
        return await recover(filesystem, file)
    finally:
        file.close()


def is_of_cluster(filesystem: FileSystem) -> bool:
    """Whether a copy is that of a node's directory. The backup of a cluster that runs is not: it
    speaks of no nodes."""
    manifest = read_manifest(files_of(filesystem, 0))
    return manifest is not None and bool(manifest.members)


async def _alone(filesystem: FileSystem, record: NodeRecord) -> list[NodeEntry]:
    """Apply the whole log, and write it down as that of a cluster of this node."""
    host = Host(filesystem, log_of=lambda group: LogOfOne(record.node))
    host.producer_limits = None  # as they are: no producer is forgotten by this
    broker = Broker(host=host)
    await broker.open()
    try:
        kept = host.kept[0]
        await kept.take_lead(0, RecoveryPace(True, RECOVERY_STEP_SECONDS).step_aside)
        known = {entry.id: entry for entry in record.nodes} | kept.shard.state.nodes
        nodes = [_own(entry, record) for entry in known.values()]
        await kept.shard.change(SetNodes(nodes))
        await host.checkpoint()
    finally:
        await broker.close()
    return nodes


def _own(entry: NodeEntry, record: NodeRecord) -> NodeEntry:
    """The entry as it is from now on: only this node is there, and no id is used again."""
    if entry.id != record.node:
        return msgspec.structs.replace(entry, standing=REMOVED)
    return msgspec.structs.replace(
        entry, incarnation=record.incarnation, standing=MEMBER, replaces=0
    )
