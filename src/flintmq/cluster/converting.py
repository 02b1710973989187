"""A broker that ran alone becomes a cluster of one; others may join it then.

Its journal is a Raft log already: group 0, with terms and indexes. So nothing is copied: what is
recovered is written as a checkpoint, the node file says who the node is, and the manifest who
votes. A crash between the two is made good by doing it again; until then neither a broker alone
nor a node opens the directory.
"""

from __future__ import annotations

import secrets

import msgspec

from ..engine.host import durable_broker
from ..errors import InvalidRequest
from ..raft import Membership
from ..storage.filesystem import FileSystem
from ..storage.group_files import files_of
from ..storage.manifest import read_manifest, write_manifest
from .identity import ClusterMember, NodeFile, NodeRecord, NodeStanding, draw_incarnation
from .levels import LEVEL
from .storage import found, is_member, members_bytes


async def make_cluster(filesystem: FileSystem, name: str, address: str) -> NodeRecord:
    """The directory of a broker that is stopped, or an empty one, is that of a node from now on."""
    file = NodeFile(filesystem)
    try:
        members = (ClusterMember(address, name),)
        record = file.record
        if record is not None and (is_member(filesystem) or record.members != members):
            raise InvalidRequest(
                f"{filesystem.describe()} belongs to node {record.name} of a cluster already"
            )
        has_data = record is not None or file.has_other_data()
        if has_data:
            await _written_whole(filesystem)
        if record is None:
            incarnation = draw_incarnation()
            record = NodeRecord(
                standing=NodeStanding.FOUNDER,
                cluster=secrets.token_bytes(16),
                name=name,
                incarnation=incarnation,
                members=members,
                asker=incarnation,
                incarnations=(incarnation,),
                level=LEVEL,
            )
            file.write(record)
        manifest = read_manifest(files_of(filesystem, 0)) if has_data else None
        if manifest is None:
            found(filesystem, Membership((1,)))
        else:
            voters = members_bytes(Membership((1,)))
            write_manifest(
                files_of(filesystem, 0), msgspec.structs.replace(manifest, members=voters)
            )
        return record
    finally:
        file.close()


async def _written_whole(filesystem: FileSystem) -> None:
    """Recover, and have everything in the checkpoint that closing writes."""
    broker = durable_broker(filesystem)
    broker.host.producer_limits = None  # as they are: no producer is forgotten by this
    await broker.open()
    try:
        await broker.host.checkpoint()
    finally:
        await broker.close()
