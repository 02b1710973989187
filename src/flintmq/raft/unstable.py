"""The end of the log that is not known to be durable, and how much of it is being written.

             durable, in storage      being written          not yet handed out
        ... -----------------------|--------------------|----------------------|
                              offset             in_progress                 last + 1

Several writes may be under way at once. Pure bookkeeping; `log` decides what may be appended.
"""

from __future__ import annotations

from flintmq.errors import RaftInvariantBroken
from flintmq.raft.messages import RaftEntry, RaftSnapshot


class Unstable:
    """Entries from `offset` on, perhaps behind a received snapshot that is not installed yet.

    Invariant: offset <= in_progress <= offset + len(entries). A snapshot, when there, ends at
    offset - 1.
    """

    __slots__ = ("entries", "in_progress", "offset", "snapshot", "snapshot_in_progress")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.entries: list[RaftEntry] = []
        self.in_progress = offset
        self.snapshot: RaftSnapshot | None = None
        self.snapshot_in_progress = False

    def last_index(self) -> int | None:
        if self.entries:
            return self.offset + len(self.entries) - 1
        return self.snapshot.index if self.snapshot is not None else None

    def term(self, index: int) -> int | None:
        if index < self.offset:
            if self.snapshot is not None and self.snapshot.index == index:
                return self.snapshot.term
            return None
        position = index - self.offset
        return self.entries[position].term if position < len(self.entries) else None

    def slice(self, first: int, end: int) -> list[RaftEntry]:
        if first < self.offset or end > self.offset + len(self.entries) or first > end:
            raise RaftInvariantBroken(f"unstable entries [{first}, {end}) are not held")
        return self.entries[first - self.offset : end - self.offset]

    def truncate_and_append(self, entries: list[RaftEntry] | tuple[RaftEntry, ...]) -> None:
        """Put entries at their index; what was there and behind goes, written or not."""
        first = entries[0].index
        if first == self.offset + len(self.entries):
            self.entries.extend(entries)
        elif first <= self.offset:
            # Durable entries are overwritten as well; everything is to be written again from here.
            self.offset = self.in_progress = first
            self.entries = list(entries)
        else:
            # A new list: slices handed out earlier must not change under their holder.
            self.entries = self.slice(self.offset, first)
            self.entries.extend(entries)
            self.in_progress = min(self.in_progress, first)

    def restore(self, snapshot: RaftSnapshot) -> None:
        self.offset = self.in_progress = snapshot.index + 1
        self.entries = []
        self.snapshot = snapshot
        self.snapshot_in_progress = False

    # -- handing out and completing writes --------------------------------------------------

    def next_entries(self) -> list[RaftEntry]:
        return self.entries[self.in_progress - self.offset :]

    def next_snapshot(self) -> RaftSnapshot | None:
        return None if self.snapshot_in_progress else self.snapshot

    def accept_in_progress(self) -> None:
        if self.entries:
            self.in_progress = self.offset + len(self.entries)
        if self.snapshot is not None:
            self.snapshot_in_progress = True

    def stable_to(self, index: int, term: int) -> bool:
        """A write up to this entry is durable. False when the entry was replaced meanwhile."""
        if index < self.offset or self.term(index) != term:
            return False
        self.entries = self.entries[index + 1 - self.offset :]
        self.offset = index + 1
        self.in_progress = max(self.in_progress, self.offset)
        return True

    def stable_snapshot_to(self, index: int) -> None:
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot = None
            self.snapshot_in_progress = False
