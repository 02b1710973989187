"""A cluster as operators see it: its nodes, its groups, and what may be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol, get_args

import msgspec

from .observe.metrics import Histogram

NodeDisk = Literal["ok", "full", "stalled"]
NodeCopy = Literal["ok", "differs"]
NodeRole = Literal["leader", "follower", "learner", "down"]
ClusterVerb = Literal["status", "add", "remove", "replace", "transfer", "finalize"]
VERBS: tuple[ClusterVerb, ...] = get_args(ClusterVerb)


class NodeEntry(msgspec.Struct, frozen=True, array_like=True):
    """A node of the cluster. It stays in the list for ever: its id is never used again."""

    id: int
    name: str
    address: str
    """For other nodes: host:port."""
    incarnation: int
    """Of its data directory; 0: that is not known yet."""
    standing: str = "member"
    """member, leaving or removed."""
    replaces: int = 0
    """The node whose place it takes once it has caught up."""


class NodeStatus(msgspec.Struct, kw_only=True):
    """A node. A learner receives everything and does not vote yet."""

    id: int
    name: str
    role: NodeRole
    address: str
    """For clients; empty while it is not known."""
    peer: str = ""
    """For other nodes."""
    term: int | None = None
    committed: int | None = None
    applied: int | None = None
    behind: int | None = None
    """How many entries it has yet to apply, or on a view of the leader's alone, to store."""
    why: str = ""
    """Why it is down, or waits."""
    version: str = ""
    """Of its FlintMQ."""
    level: int | None = None
    """The highest level of features that it knows."""
    disk: NodeDisk = "ok"
    """A node whose disk is full or stalled does not lead."""
    copy: NodeCopy = "ok"
    """A node whose copy differs from that of most gets theirs, and does not lead meanwhile."""
    clock_ms: int | None = None
    """How far its clock is ahead of the leader's, or behind if negative."""
    round_trip_ms: int | None = None
    life: str = ""
    """Another one after each start."""


class GroupStatus(msgspec.Struct, kw_only=True):
    id: int
    leader: str | None
    term: int
    members: list[str]
    """The nodes that keep copies, learners too."""


class ClusterStatus(msgspec.Struct, kw_only=True):
    cluster: str
    leader: str | None
    has_quorum: bool
    nodes: list[NodeStatus]
    groups: list[GroupStatus]
    level: int = 1
    """Of features that are in use; `finalize` raises it."""


class PeerFigures(NamedTuple):
    """Another node, as this one has it."""

    name: str
    is_connected: bool
    lag_entries: int | None
    """At the leader."""
    lag_bytes: int | None
    round_trip_seconds: float | None
    clock_offset_seconds: float | None
    dropped: int


class ClusterFigures(NamedTuple):
    """What a node counts of its cluster, for metrics."""

    nodes: int
    voters: int
    level: int
    has_leader: bool
    leads: bool
    is_abstaining: bool
    clock_skew_seconds: float
    term: int
    last_index: int
    committed: int
    applied: int
    leader_changes: int
    leads_taken: int
    leads_lost: int
    transfers: int
    sent_snapshot_bytes: int
    received_snapshot_bytes: int
    checks: int
    differs: bool
    found_different: int
    rebuilt: int
    mended: int
    late_ticks: int
    fates: Mapping[str, int]
    """Of what was proposed here."""
    commit_seconds: Histogram
    peers: list[PeerFigures]


class ClusterApi(Protocol):
    """What a node of a cluster tells and does for operators."""

    async def ask(self, verb: ClusterVerb, name: str = "", address: str = "") -> ClusterStatus:
        """Raises InvalidRequest for what cannot be done, NotLeader while nobody leads."""
        ...

    def figures(self) -> ClusterFigures | None:
        """None: it has not begun."""
        ...
