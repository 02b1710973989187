"""What the core reads from the disk, as a protocol, and an implementation in memory.

The core never writes: it hands out what to persist in a Ready, and the driver writes. Until the
driver reports the write as persisted, the core keeps those entries itself and does not ask for
them here.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from flintmq.errors import InvalidRequest, LogCompacted, LogUnavailable, RaftInvariantBroken
from flintmq.raft.membership import Membership
from flintmq.raft.messages import ENTRY_OVERHEAD_BYTES, HardState, RaftEntry, RaftSnapshot
from flintmq.raft.settings import UNLIMITED


class Storage(Protocol):
    """The durable part of a log. Calls are short and do not block for long."""

    def initial_state(self) -> tuple[HardState, Membership]:
        """The hard state, and the membership as of the last applied entry or snapshot."""
        ...

    def first_index(self) -> int:
        """The first entry still here; the one after the compacted part."""
        ...

    def last_index(self) -> int: ...

    def term(self, index: int) -> int:
        """The term of an entry from `first_index() - 1` to `last_index()`.

        Raises LogCompacted below that, LogUnavailable above.
        """
        ...

    def entries(self, first: int, end: int, bytes_max: int) -> list[RaftEntry]:
        """Entries `first` up to, not including, `end`; as many as fit, but at least one.

        Raises LogCompacted or LogUnavailable when the first ones are not here.
        """
        ...

    def snapshot(self) -> RaftSnapshot:
        """The newest snapshot, to be sent to who is too far behind. LogUnavailable: not now."""
        ...


def fitting(entries: list[RaftEntry], bytes_max: int) -> list[RaftEntry]:
    """The longest beginning within `bytes_max`, but at least one entry."""
    if bytes_max >= UNLIMITED or len(entries) <= 1:
        return entries
    total = 0
    for count, entry in enumerate(entries):
        total += len(entry.data) + ENTRY_OVERHEAD_BYTES
        if total > bytes_max and count:
            return entries[:count]
    return entries


class MemoryStorage:
    """A Storage in lists. For tests, the simulator and groups that promise no durability.

    A restart begins at the snapshot, with its membership, and applies everything behind it again.

    Invariant: the entries are contiguous and begin right behind `_before`.
    """

    def __init__(self, membership: Membership | None = None) -> None:
        self._hard_state = HardState()
        self._snapshot = RaftSnapshot(membership=membership or Membership())
        self._before = (0, 0)  # index and term of the entry before the first one here
        self._entries: list[RaftEntry] = []

    @classmethod
    def bootstrapped(cls, membership: Membership) -> MemoryStorage:
        """The disk of a founding member. The group begins at a snapshot of index 1 that names the
        founders, so that who joins later learns of them by a snapshot, never by guessing."""
        storage = cls()
        storage.install(RaftSnapshot(index=1, term=1, membership=membership))
        storage.set_hard_state(HardState(term=1, commit=1))
        return storage

    # -- reading, as the core does ----------------------------------------------------------

    def initial_state(self) -> tuple[HardState, Membership]:
        return self._hard_state, self._snapshot.membership

    def first_index(self) -> int:
        return self._before[0] + 1

    def last_index(self) -> int:
        return self._before[0] + len(self._entries)

    def term(self, index: int) -> int:
        before_index, before_term = self._before
        if index == before_index:
            return before_term
        if index < before_index:
            raise LogCompacted(index, self.first_index())
        if index > self.last_index():
            raise LogUnavailable(f"entry {index} is not in the log")
        return self._entries[index - before_index - 1].term

    def entries(self, first: int, end: int, bytes_max: int = UNLIMITED) -> list[RaftEntry]:
        if first < self.first_index():
            raise LogCompacted(first, self.first_index())
        if end > self.last_index() + 1:
            raise LogUnavailable(f"entries up to {end} are not in the log")
        begin = first - self.first_index()
        return fitting(self._entries[begin : begin + end - first], bytes_max)

    def snapshot(self) -> RaftSnapshot:
        return self._snapshot

    # -- writing, as the driver does --------------------------------------------------------

    def set_hard_state(self, hard_state: HardState) -> None:
        self._hard_state = hard_state

    def append(self, entries: list[RaftEntry]) -> None:
        """Write entries in place of what is at and behind their first index."""
        entries = [entry for entry in entries if entry.index >= self.first_index()]
        if not entries:
            return
        keep = entries[0].index - self.first_index()
        if keep > len(self._entries):
            raise RaftInvariantBroken(
                f"entry {entries[0].index} would leave a gap after {self.last_index()}"
            )
        del self._entries[keep:]
        self._entries.extend(entries)

    def install(self, snapshot: RaftSnapshot) -> None:
        """Replace the whole log by a snapshot received from the leader. An older one is ignored."""
        if snapshot.index <= self._snapshot.index:
            return
        self._snapshot = snapshot
        self._before = (snapshot.index, snapshot.term)
        self._entries = []

    def take_snapshot(
        self, index: int, membership: Membership, *, size_bytes: int = 0, checksum: int = 0
    ) -> RaftSnapshot:
        """Note that a snapshot as of `index` now exists. The log is left as it is."""
        if index <= self._snapshot.index:
            raise InvalidRequest(f"a snapshot at {self._snapshot.index} exists already")
        self._snapshot = RaftSnapshot(
            index, self.term(index), membership, size_bytes=size_bytes, checksum=checksum
        )
        return self._snapshot

    def describe_snapshot(self, **facts: int | tuple[int, ...]) -> None:
        """Add what became known about the snapshot's bytes: size, checksums."""
        self._snapshot = msgspec.structs.replace(self._snapshot, **facts)

    def compact(self, index: int) -> None:
        """Forget entries up to and including `index`."""
        if index < self.first_index():
            raise LogCompacted(index, self.first_index())
        term = self.term(index)
        del self._entries[: index - self._before[0]]
        self._before = (index, term)
