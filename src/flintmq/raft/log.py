"""The log as the core sees it: the durable part in storage, the unstable end, three cursors.

    first ... applied <= applying <= committed <= last          applying <= durable

`committed` never moves back and what is at or below it never changes; entries are handed out for
apply in order, once, and only when they are durable here. Decides nothing about elections or
quorums.
"""

from __future__ import annotations

from flintmq.errors import LogCompacted, LogUnavailable, RaftInvariantBroken
from flintmq.raft.messages import EntryId, EntryKind, Payload, RaftEntry, RaftSnapshot
from flintmq.raft.settings import UNLIMITED
from flintmq.raft.storage import Storage, fitting
from flintmq.raft.unstable import Unstable


class RaftLog:
    def __init__(self, storage: Storage, *, apply_bytes_max: int = UNLIMITED) -> None:
        self.storage = storage
        self.unstable = Unstable(storage.last_index() + 1)
        before_first = storage.first_index() - 1
        self.committed = before_first
        self.applying = before_first
        self.applied = before_first
        self._apply_bytes_max = apply_bytes_max
        self._applying_sizes: list[tuple[int, int]] = []  # last index and bytes of each hand-out
        self._applying_bytes = 0

    # -- reading ----------------------------------------------------------------------------

    def first_index(self) -> int:
        if self.unstable.snapshot is not None:
            return self.unstable.snapshot.index + 1
        return self.storage.first_index()

    def last_index(self) -> int:
        index = self.unstable.last_index()
        return self.storage.last_index() if index is None else index

    def last_id(self) -> EntryId:
        index = self.last_index()
        term = self.term(index)
        if term is None:
            raise RaftInvariantBroken(f"the term of the last entry {index} is unknown")
        return EntryId(index, term)

    def durable_index(self) -> int:
        """The last entry that a restart would find. A snapshot being installed is not there."""
        if self.unstable.snapshot is not None:
            return 0
        return self.unstable.offset - 1

    def term(self, index: int) -> int | None:
        """The term of an entry; None when it is compacted away or beyond the end."""
        term = self.unstable.term(index)
        if term is not None:
            return term
        if index >= self.unstable.offset or index < self.first_index() - 1:
            return None
        try:
            return self.storage.term(index)
        except (LogCompacted, LogUnavailable):
            return None

    def matches(self, index: int, term: int) -> bool:
        return self.term(index) == term

    def entries(self, first: int, bytes_max: int = UNLIMITED) -> list[RaftEntry]:
        """From `first` to the end, as many as fit. LogCompacted when the beginning is gone."""
        return self.slice(first, self.last_index() + 1, bytes_max)

    def slice(self, first: int, end: int, bytes_max: int = UNLIMITED) -> list[RaftEntry]:
        if first >= end:
            return []
        if first < self.first_index():
            raise LogCompacted(first, self.first_index())
        if end > self.last_index() + 1:
            raise RaftInvariantBroken(f"slice [{first}, {end}) passes the end {self.last_index()}")
        offset = self.unstable.offset
        if first >= offset:
            return fitting(self.unstable.slice(first, end), bytes_max)
        durable = self.storage.entries(first, min(end, offset), bytes_max)
        if end <= offset or len(durable) < offset - first:
            return durable
        return fitting(durable + self.unstable.slice(offset, end), bytes_max)

    def is_up_to_date(self, index: int, term: int) -> bool:
        """Raft 5.4.1: the other log ends in a later term, or in ours and is not shorter."""
        last = self.last_id()
        return term > last.term or (term == last.term and index >= last.index)

    def find_conflict_by_term(self, index: int, term: int) -> tuple[int, int]:
        """The largest index at or below `index` whose term is at or below `term`, and its term.

        Both sides use it so that one probe settles a whole term. Term 0 says: not known here.
        """
        index = min(index, self.last_index())
        while index > 0:
            our_term = self.term(index)
            if our_term is None:
                return index, 0
            if our_term <= term:
                return index, our_term
            index -= 1
        return 0, 0

    def has_unapplied_membership_change(self) -> bool:
        first = self.applied + 1
        while first <= self.committed:
            try:
                page = self.slice(first, self.committed + 1, 1 << 20)
            except LogCompacted:
                return True  # inside a snapshot that is not applied yet: be careful
            if any(entry.kind is EntryKind.MEMBERSHIP for entry in page):
                return True
            first = page[-1].index + 1
        return False

    # -- growing ----------------------------------------------------------------------------

    def append_new(self, term: int, payloads: list[tuple[EntryKind, Payload]]) -> list[RaftEntry]:
        """The leader appends at the end."""
        index = self.last_index()
        entries = [
            RaftEntry(index + position, term, data, kind)
            for position, (kind, data) in enumerate(payloads, start=1)
        ]
        self.unstable.truncate_and_append(entries)
        return entries

    def append_after(self, index: int, term: int, entries: tuple[RaftEntry, ...]) -> int | None:
        """A follower takes what the leader sends behind (index, term): the last index that now
        agrees with the leader, or None when the entry before is not ours.

        Entries we already have stay untouched: only from the first real conflict on is anything
        deleted, so late and repeated messages change nothing (Raft 5.3).
        """
        if not self.matches(index, term):
            return None
        last_new = index + len(entries)
        for position, entry in enumerate(entries):
            if self.term(entry.index) == entry.term:
                continue
            if entry.index <= self.committed:
                raise RaftInvariantBroken(
                    f"entry {entry.index} conflicts with the committed one ({self.committed})"
                )
            self.unstable.truncate_and_append(entries[position:])
            break
        return last_new

    def commit_to(self, index: int) -> bool:
        if index <= self.committed:
            return False
        if index > self.last_index():
            raise RaftInvariantBroken(f"commit {index} passes the last entry {self.last_index()}")
        self.committed = index
        return True

    def commit_counted(self, index: int, term: int) -> bool:
        """Raft 5.4.2: counting copies commits entries of the leader's own term only."""
        return index > self.committed and self.term(index) == term and self.commit_to(index)

    def restore(self, snapshot: RaftSnapshot) -> None:
        self.committed = snapshot.index
        self.unstable.restore(snapshot)

    # -- durable ----------------------------------------------------------------------------

    def stable_to(self, index: int, term: int) -> bool:
        return self.unstable.stable_to(index, term)

    def snapshot_installed(self, index: int) -> None:
        self.unstable.stable_snapshot_to(index)
        if index > self.applied:
            self.applied_to(index)

    # -- applying ---------------------------------------------------------------------------

    def next_to_apply(self) -> list[RaftEntry]:
        """Committed, durable entries not handed out yet, within the limit of outstanding bytes."""
        if self.unstable.snapshot is not None:
            return []
        end = min(self.committed, self.unstable.offset - 1) + 1
        first = self.applying + 1
        if first >= end:
            return []
        room = self._apply_bytes_max - self._applying_bytes
        if room <= 0:
            return []
        return self.slice(first, end, room)

    def has_next_to_apply(self) -> bool:
        if self.unstable.snapshot is not None or self._applying_bytes >= self._apply_bytes_max:
            return False
        return self.applying < min(self.committed, self.unstable.offset - 1)

    def accept_applying(self, entries: list[RaftEntry]) -> None:
        self.applying = entries[-1].index
        # The limit must hold for entries of any size, so every entry counts at least a byte.
        size = sum(len(entry.data) + 1 for entry in entries)
        self._applying_sizes.append((self.applying, size))
        self._applying_bytes += size

    def applied_to(self, index: int) -> None:
        if index < self.applied or index > self.committed:
            raise RaftInvariantBroken(
                f"applied {index} is not within [{self.applied}, {self.committed}]"
            )
        self.applied = index
        self.applying = max(self.applying, index)
        while self._applying_sizes and self._applying_sizes[0][0] <= index:
            self._applying_bytes -= self._applying_sizes.pop(0)[1]
