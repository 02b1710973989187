"""The figures of a node of a cluster, for `/metrics`."""

from __future__ import annotations

from ..cluster_model import ClusterFigures, NodeEntry, PeerFigures
from ..raft import Status
from .catalog import ClusterCatalog
from .node import ClusterNode
from .peers import Peers, PeerState


def figures_of(node: ClusterNode, peers: Peers, catalog: ClusterCatalog) -> ClusterFigures:
    status, counts = node.status(), node.counts
    present = catalog.present()
    care = node.care
    shipping = (0, 0) if care is None else care.shipped_bytes()
    return ClusterFigures(
        nodes=len(present),
        voters=len(status.membership.voters),
        level=catalog.level,
        has_leader=node.leader() != 0,
        leads=node.is_leading(),
        is_abstaining=not node.may_lead,
        clock_skew_seconds=node.clock.skew_ms / 1000,
        term=status.term,
        last_index=status.last_index,
        committed=status.committed,
        applied=status.applied,
        leader_changes=counts.leader_changes,
        leads_taken=counts.taken,
        leads_lost=counts.lost,
        transfers=counts.transfers,
        sent_snapshot_bytes=shipping[0],
        received_snapshot_bytes=shipping[1],
        checks=0 if care is None else care.checks.checked,
        differs=node.differs,
        found_different=0 if care is None else care.checks.found,
        rebuilt=0 if care is None else care.checks.rebuilt,
        mended=0 if care is None else care.mender.mended,
        late_ticks=counts.late_ticks,
        fates=node.local.shard.proposer.fates(),
        commit_seconds=node.commit_seconds,
        peers=[
            _peer(one, peers.states[one.id], status, node)
            for one in present
            if one.id in peers.states
        ],
    )


def _peer(entry: NodeEntry, state: PeerState, status: Status, node: ClusterNode) -> PeerFigures:
    known = status.peers.get(entry.id)
    return PeerFigures(
        name=entry.name,
        is_connected=state.is_connected,
        lag_entries=None if known is None else max(0, status.last_index - known.match),
        lag_bytes=None if known is None else node.host.storage.bytes_behind(known.match),
        round_trip_seconds=None if state.round_trip_ms is None else state.round_trip_ms / 1000,
        clock_offset_seconds=None if state.clock_ms is None else state.clock_ms / 1000,
        dropped=state.dropped,
    )
