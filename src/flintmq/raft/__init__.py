"""Consensus as a pure state machine: facts in, one Ready out. Begin reading at `node`.

No clock, socket, file or task, and no chance but the generator it is given. Payloads are opaque
and never copied. `docs/raft.md` explains how to drive it.
"""

from flintmq.raft.membership import (
    LEAVE_JOINT,
    MemberAction,
    Membership,
    MembershipChange,
    MembershipStep,
    Transition,
    add_learner,
    add_voter,
    decode_change,
    encode_change,
    remove,
)
from flintmq.raft.messages import (
    NOBODY,
    EntryId,
    EntryKind,
    HardState,
    MessageKind,
    RaftEntry,
    RaftMessage,
    RaftSnapshot,
)
from flintmq.raft.node import RaftNode
from flintmq.raft.ready import Persisted, ReadState, Ready, SoftState
from flintmq.raft.settings import RaftSettings
from flintmq.raft.snapshot_chunks import SnapshotChunk, SnapshotReceiver, chunk_at, describe_bytes
from flintmq.raft.status import PeerStatus, Status
from flintmq.raft.storage import MemoryStorage, Storage
from flintmq.raft.trace import TraceEvent

__all__ = [
    # the node and what it is given
    "RaftNode",
    "RaftSettings",
    "Storage",
    "MemoryStorage",
    # what goes in and out
    "RaftMessage",
    "MessageKind",
    "RaftEntry",
    "EntryId",
    "EntryKind",
    "HardState",
    "RaftSnapshot",
    "Ready",
    "Persisted",
    "ReadState",
    "SoftState",
    "TraceEvent",
    "NOBODY",
    # membership
    "Membership",
    "MembershipChange",
    "MembershipStep",
    "MemberAction",
    "Transition",
    "LEAVE_JOINT",
    "add_voter",
    "add_learner",
    "remove",
    "encode_change",
    "decode_change",
    # looking at it
    "Status",
    "PeerStatus",
    # snapshots' bytes
    "SnapshotChunk",
    "SnapshotReceiver",
    "chunk_at",
    "describe_bytes",
]
