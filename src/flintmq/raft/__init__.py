"""Consensus as a pure state machine: facts in, one Ready out. Begin reading at `node`.

No clock, socket, file or task, and no chance but the generator it is given. Payloads are opaque
and never copied. `docs/raft.md` explains how to drive it.
"""

from flintmq.raft.membership import (
    LEAVE_JOINT,
    Action,
    Membership,
    MembershipChange,
    Step,
    Transition,
    add_learner,
    add_voter,
    decode_change,
    encode_change,
    remove,
)
from flintmq.raft.messages import (
    NOBODY,
    Entry,
    EntryId,
    EntryKind,
    HardState,
    Message,
    MessageKind,
    Snapshot,
)
from flintmq.raft.node import RaftNode, TraceEvent
from flintmq.raft.ready import Persisted, ReadState, Ready, SoftState
from flintmq.raft.settings import Settings
from flintmq.raft.snapshot_chunks import SnapshotChunk, SnapshotReceiver, chunk_at, describe_bytes
from flintmq.raft.status import PeerStatus, Status
from flintmq.raft.storage import MemoryStorage, Storage

__all__ = [
    # the node and what it is given
    "RaftNode",
    "Settings",
    "Storage",
    "MemoryStorage",
    # what goes in and out
    "Message",
    "MessageKind",
    "Entry",
    "EntryId",
    "EntryKind",
    "HardState",
    "Snapshot",
    "Ready",
    "Persisted",
    "ReadState",
    "SoftState",
    "TraceEvent",
    "NOBODY",
    # membership
    "Membership",
    "MembershipChange",
    "Step",
    "Action",
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
