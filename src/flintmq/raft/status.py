"""What a node looks like from outside, for operators, metrics and tests. Copies, not views."""

from __future__ import annotations

import msgspec

from flintmq.raft.membership import Membership


class PeerStatus(msgspec.Struct, frozen=True):
    match: int
    next: int
    state: str
    is_live: bool
    is_paused: bool
    inflight_messages: int
    inflight_bytes: int
    pending_snapshot: int


class Status(msgspec.Struct, frozen=True):
    node: int
    group: int
    role: str
    is_learner: bool
    term: int
    vote: int
    leader: int
    first_index: int
    last_index: int
    durable_index: int
    committed: int
    applied: int
    membership: Membership
    transferee: int
    uncommitted_bytes: int
    waiting_reads: int
    peers: dict[int, PeerStatus]
