"""The figures of a cluster on `/metrics`, as the node that is asked has them."""

from __future__ import annotations

from collections.abc import Callable

from ...cluster_model import ClusterFigures, PeerFigures
from .exposition import families


def _each(
    value: Callable[[PeerFigures], float | None],
) -> Callable[[ClusterFigures], dict[str, float]]:
    return lambda figures: {
        peer.name: found for peer in figures.peers if (found := value(peer)) is not None
    }


# fmt: off
CLUSTER = families(
    (),
    ("flintmq_cluster_nodes", "Nodes of the cluster, including this one.", "nodes"),
    ("flintmq_cluster_voters", "Nodes that vote; a majority of them must be up.", "voters"),
    ("flintmq_cluster_level", "Feature level in use; `cluster finalize` raises it.", "level"),
    ("flintmq_cluster_has_leader", "1 if this node knows the leader.", "has_leader"),
    ("flintmq_cluster_abstaining",
     "1 while this node does not want to lead: its disk hangs or is full, its clock is wrong, or "
     "its state differs.",
     "is_abstaining"),
    ("flintmq_cluster_clock_skew_seconds",
     "How far the clock of this node is ahead of the median of all nodes.", "clock_skew_seconds"),
    ("flintmq_cluster_leader_changes_total", "How often the leader changed, as seen by this node.",
     "leader_changes"),
    ("flintmq_cluster_transfers_total", "How often this node has handed over the leadership.",
     "transfers"),
    ("flintmq_cluster_snapshot_sent_bytes_total",
     "Bytes of checkpoints sent to nodes that were away.", "sent_snapshot_bytes"),
    ("flintmq_cluster_snapshot_received_bytes_total",
     "Bytes of checkpoints received from another node.", "received_snapshot_bytes"),
    ("flintmq_cluster_state_checks_total",
     "How often this node has worked out what its state comes to, to compare it.", "checks"),
    ("flintmq_cluster_state_differs",
     "1 while the state of this node is not that of most nodes; it gets theirs.", "differs"),
    ("flintmq_cluster_state_differences_total",
     "How often the state of this node was found to be another one.", "found_different"),
    ("flintmq_cluster_state_rebuilt_total",
     "How often the state of this node was replaced by a copy of the leader's.", "rebuilt"),
    ("flintmq_cluster_mended_messages_total",
     "Messages that the disk of this node had damaged, and that were got from another.", "mended"),
    ("flintmq_cluster_late_ticks_total",
     "Ticks of 0.1 s that this node missed because its process was held up, and made good.",
     "late_ticks"),
) + families(
    ("peer",),
    ("flintmq_cluster_peer_connected", "1 while this node has a connection to that one.",
     _each(lambda peer: peer.is_connected)),
    ("flintmq_cluster_peer_round_trip_seconds", "Round trip to another node.",
     _each(lambda peer: peer.round_trip_seconds)),
    ("flintmq_cluster_peer_clock_offset_seconds",
     "How far the clock of another node is ahead of this one's.",
     _each(lambda peer: peer.clock_offset_seconds)),
    ("flintmq_cluster_peer_dropped_total",
     "Messages to another node that were dropped: no connection, or a slow one. They are repeated.",
     _each(lambda peer: peer.dropped)),
) + families(
    ("group",),
    ("flintmq_raft_is_leader", "1 if this node leads the group.", lambda f: {0: f.leads}),
    ("flintmq_raft_term", "The term of the group.", lambda f: {0: f.term}),
    ("flintmq_raft_last_index", "Last entry in the log of this node.",
     lambda f: {0: f.last_index}),
    ("flintmq_raft_committed_index", "Last entry that a majority is known to have.",
     lambda f: {0: f.committed}),
    ("flintmq_raft_applied_index", "Last entry that this node has applied.",
     lambda f: {0: f.applied}),
    ("flintmq_raft_elections_won_total", "How often this node became the leader.",
     lambda f: {0: f.leads_taken}),
    ("flintmq_raft_leads_lost_total", "How often this node stopped being the leader.",
     lambda f: {0: f.leads_lost}),
) + families(
    ("group", "peer"),
    ("flintmq_raft_peer_lag_entries", "At the leader: entries that a node has not stored yet.",
     lambda f: {(0, peer.name): peer.lag_entries
                for peer in f.peers if peer.lag_entries is not None}),
    ("flintmq_raft_peer_lag_bytes",
     "At the leader: about how many bytes of the log a node has not stored yet.",
     lambda f: {(0, peer.name): peer.lag_bytes
                for peer in f.peers if peer.lag_bytes is not None}),
) + families(
    ("group", "fate"),
    ("flintmq_raft_proposals_total",
     "What became of what this node proposed: applied, not_done (lost with the lead, sent again by "
     "clients) or unknown.",
     lambda f: {(0, fate): count for fate, count in f.fates.items()}),
) + families(
    (),
    ("flintmq_raft_commit_seconds",
     "At the leader: from a proposal until it is applied, once for each turn of the event loop.",
     "commit_seconds", "histogram"),
)
# fmt: on
