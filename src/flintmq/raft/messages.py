"""The values that go in and out of the core: entries, messages, hard state, snapshots.

Plain immutable data. `flintmq.net.wire.raft_messages` says how it looks on the wire.
Payloads are opaque here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec

from flintmq.raft.membership import NO_MEMBERS, Membership

Payload: TypeAlias = bytes | memoryview  # never copied, never looked into

NOBODY = 0  # node ids begin at 1
ENTRY_OVERHEAD_BYTES = 24  # what an entry costs in a message beside its payload, rounded up


class EntryKind(IntEnum):
    NORMAL = 0
    MEMBERSHIP = 1


class RaftEntry(msgspec.Struct, frozen=True):
    """One slot of the log. An empty NORMAL entry is the no-op that opens a term."""

    index: int
    term: int
    data: Payload = b""
    kind: EntryKind = EntryKind.NORMAL


class EntryId(msgspec.Struct, frozen=True):
    """Index and term: together they name one entry for ever (Raft 5.3)."""

    index: int
    term: int


class HardState(msgspec.Struct, frozen=True):
    """What must be on disk before anything that depends on it is sent.

    `commit` is a help for restarts and need not be synced. It never runs ahead of the entries
    that are durable here, so a restart may trust it whatever a crash took with it.
    """

    term: int = 0
    vote: int = NOBODY
    commit: int = 0


class RaftSnapshot(msgspec.Struct, frozen=True):
    """What a snapshot covers and how its bytes can be checked. The bytes stay outside.

    The transport moves the bytes in chunks of `chunk_bytes` (the last may be shorter), verifies
    each against `chunk_checksums`, and gives this value to the receiving core when all are there.
    """

    index: int = 0
    term: int = 0
    membership: Membership = NO_MEMBERS
    size_bytes: int = 0
    chunk_bytes: int = 0
    checksum: int = 0
    chunk_checksums: tuple[int, ...] = ()


class MessageKind(IntEnum):
    """What nodes say to each other. Local events are method calls and have no kind here, so
    nothing that arrives from the network can pass for one."""

    APPEND = 1
    APPEND_REPLY = 2
    HEARTBEAT = 3
    HEARTBEAT_REPLY = 4
    VOTE = 5
    VOTE_REPLY = 6
    PRE_VOTE = 7
    PRE_VOTE_REPLY = 8
    SNAPSHOT = 9
    TIMEOUT_NOW = 10
    PROPOSE = 11
    READ_INDEX = 12
    READ_INDEX_REPLY = 13
    TRANSFER_LEADER = 14


class RaftMessage(msgspec.Struct, frozen=True):
    """One message between two nodes of one group. Which fields count depends on the kind:

    APPEND            index, log_term: the entry before `entries`; commit; entries
    APPEND_REPLY      index: last entry held (or the refused index); reject, hint, log_term
    HEARTBEAT(_REPLY) commit; read_round: confirms every read of that round and before
    VOTE, PRE_VOTE    index, log_term: the candidate's last entry; force: a transfer, ignore leases
    and their replies commit, hint: what the sender knows to be committed, and its term
    SNAPSHOT          snapshot
    PROPOSE           entries, without index and term; term 0: any leader may take it
    READ_INDEX(_REPLY) context of the asker; index: what to wait for; term 0 in the request
    TRANSFER_LEADER   hint: who is to lead; term 0
    """

    kind: MessageKind
    sender: int
    receiver: int
    term: int = 0
    index: int = 0
    log_term: int = 0
    commit: int = 0
    entries: tuple[RaftEntry, ...] = ()
    reject: bool = False
    hint: int = 0
    read_round: int = 0
    context: bytes = b""
    force: bool = False
    snapshot: RaftSnapshot | None = None
    group: int = 0


# A message of these kinds promises something about our disk: a vote, a log position. It waits for
# the sync of everything before it.
AFTER_SYNC_KINDS = frozenset({MessageKind.APPEND_REPLY, MessageKind.VOTE_REPLY})


def payload_bytes(entries: tuple[RaftEntry, ...] | list[RaftEntry]) -> int:
    return sum([len(entry.data) for entry in entries])
