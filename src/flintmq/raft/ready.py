"""What the core wants done, as one value, and the receipt that comes back when it was done.

The driver, for each Ready, in this order and without waiting between Readies:

    1. send `messages` at once
    2. hand `hard_state`, `snapshot`, `entries` to the disk, in this order. Writes of later Readies
       may be under way at the same time, but complete in order
    3. when this write and all before it are durable: send `messages_after_sync`, and give
       `persisted` back to the node
    4. apply `committed` in order, then tell the node `applied(index)`
    5. answer the reads in `reads` once `index` of each is applied

A failed sync is never reported: the node stops.
"""

from __future__ import annotations

import msgspec

from flintmq.raft.messages import HardState, RaftEntry, RaftMessage, RaftSnapshot


class Persisted(msgspec.Struct, frozen=True):
    """Receipt for one write: how the log ended, and in which term, when it was handed out.

    A receipt of an earlier term proves nothing about entries: since then the same index may have
    been overwritten, and overwritten back (the ABA case). The core recognises it by `term`.
    """

    term: int
    vote: int
    index: int = 0  # 0: nothing about entries
    log_term: int = 0
    snapshot_index: int = 0


class ReadState(msgspec.Struct, frozen=True):
    """The read named by `context` may be served once `index` is applied."""

    index: int
    context: bytes


class SoftState(msgspec.Struct, frozen=True):
    """Who leads and what we are. Not to be stored; for those who wait for a leader."""

    leader: int
    role: str


class Ready(msgspec.Struct, frozen=True):
    group: int
    soft_state: SoftState | None
    hard_state: HardState | None
    snapshot: RaftSnapshot | None
    entries: list[RaftEntry]
    messages: list[RaftMessage]
    messages_after_sync: list[RaftMessage]
    persisted: Persisted | None  # None: there is nothing to write and nothing waits for a write
    must_sync: bool  # False: the write may be lost in a crash without harm
    committed: list[RaftEntry]
    reads: list[ReadState]
