"""The durable part of a group's Raft log, in the journal of its node.

The journal is the log: records have group, term and index, hard states lie among them. What was
written last is kept in memory too, so that a follower that keeps up costs no read of the disk. The
log begins behind the last checkpoint or before it: `keep_bytes` of entries are kept for followers
that were away for a while.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import msgspec

from ..errors import InvalidRequest, LogCompacted, LogUnavailable
from ..raft import EntryKind, HardState, Membership, RaftEntry, RaftSnapshot
from ..raft.messages import ENTRY_OVERHEAD_BYTES
from ..raft.storage import fitting
from ..storage.filesystem import FileSystem
from ..storage.frames import MEMBERSHIP, Record
from ..storage.group_files import files_of
from ..storage.journal import Journal
from ..storage.manifest import Manifest, ManifestStore, write_manifest

CACHE_BYTES = 32 << 20
KEEP_BYTES = 256 << 20
_MARK_BYTES = 1 << 20


def members_bytes(membership: Membership) -> bytes:
    """Who belongs to a group, as the manifest keeps it."""
    return msgspec.msgpack.encode(membership)


def members_of(data: bytes) -> Membership:
    return msgspec.msgpack.decode(data, type=Membership)


def is_member(filesystem: FileSystem) -> bool:
    """Whether a directory is one of a cluster."""
    manifest = ManifestStore(files_of(filesystem, 0)).open()
    return manifest is not None and bool(manifest.members)


def found(filesystem: FileSystem, founders: Membership) -> None:
    """Make a blank directory that of a founder. All founders begin with the same snapshot, of
    index 1 and term 1: so who joins later learns of them by a snapshot, never by guessing.

    Does nothing where that was done; refuses a directory that holds anything else.
    """
    files = files_of(filesystem, 0)
    manifest = ManifestStore(files).open()
    if manifest is not None and manifest.members:
        return
    if manifest is not None or filesystem.exists("journal"):
        raise InvalidRequest(
            f"{filesystem.describe()} holds the data of a single broker, but a new cluster starts "
            "empty: use another directory, or convert this one with `flintmq cluster init` and let "
            "other nodes join"
        )
    members = members_bytes(founders)
    write_manifest(files, Manifest(checkpoint=1, term=1, members=members))


def begin_blank(filesystem: FileSystem) -> None:
    """Make a blank directory that of a node that joins: it holds nothing, knows nobody, and does
    not vote. Does nothing where that was done."""
    files = files_of(filesystem, 0)
    if ManifestStore(files).open() is None:
        write_manifest(files, Manifest(term=0, members=members_bytes(Membership())))


class JournalStorage:
    """`raft.Storage` over a journal. `stored` is told of entries once they are durable, in order.

    Always true: entries from `_before` + 1 to `_last` are durable; those from `_cache_first` on are
    in `_cache` too.
    """

    def __init__(
        self,
        journal: Journal,
        group: int,
        checkpoint: tuple[int, int],
        membership: Membership,
        *,
        cache_bytes_max: int = CACHE_BYTES,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        """`checkpoint` is the index and the term of the last one; `membership` as of what is
        applied."""
        self._journal, self._group = journal, group
        state = journal.states().get(group)
        self._hard_state = HardState()
        if state is not None:
            self._hard_state = HardState(state.term, state.vote, state.commit)
        self._membership = membership
        known = journal.groups().get(group)
        if known is None or known.next_index <= checkpoint[0]:
            self._before, self._last = checkpoint, checkpoint[0]
        else:
            self._last = known.next_index - 1
            first = known.first_index
            if first == checkpoint[0] + 1:
                self._before = checkpoint
            else:
                # The term of the entry before the first is known only if that is here too. Of a log
                # that begins with the first of all, who votes is known by a checkpoint alone.
                self._before = (first, journal.term(group, first) or 0)
        self._cache_first, self._cache = self._last + 1, list[RaftEntry]()
        self._cache_bytes, self._cache_bytes_max = 0, cache_bytes_max
        self._keep_bytes, self._stored_bytes = keep_bytes, 0
        self._mark_bytes = min(_MARK_BYTES, keep_bytes // 16)
        self._marks: list[tuple[int, int]] = []
        """Now and then: how many bytes had been stored up to an index."""
        self.on_too_far_behind: Callable[[], object] | None = None
        """Told where a follower needs entries that are not here any more."""
        self.held_behind: int | None = None
        """Entries behind this one are kept, however many: a node gets a checkpoint of that index,
        and goes on with them."""

    # --- what the core reads

    def initial_state(self) -> tuple[HardState, Membership]:
        return self._hard_state, self._membership

    def first_index(self) -> int:
        return self._before[0] + 1

    def last_index(self) -> int:
        return self._last

    def term(self, index: int) -> int:
        if index >= self._cache_first and index <= self._last:
            return self._cache[index - self._cache_first].term
        if index == self._before[0]:
            return self._before[1]
        if index < self._before[0]:
            raise LogCompacted(index, self.first_index())
        term = self._journal.term(self._group, index) if index <= self._last else None
        if term is None:
            raise LogUnavailable(f"entry {index} is not in the log")
        return term

    def entries(self, first: int, end: int, bytes_max: int) -> list[RaftEntry]:
        if first < self.first_index():
            raise LogCompacted(first, self.first_index())
        if end > self._last + 1:
            raise LogUnavailable(f"entries up to {end} are not in the log")
        found: list[RaftEntry] = []
        if first < self._cache_first:
            found = self._read(first, min(end, self._cache_first), bytes_max)
            first += len(found)
            if first < min(end, self._cache_first):
                return found
        cached = self._cache[first - self._cache_first : end - self._cache_first]
        return fitting(found + cached if found else cached, bytes_max)

    def _read(self, first: int, end: int, bytes_max: int) -> list[RaftEntry]:
        found: list[RaftEntry] = []
        size = 0
        for record in self._journal.records(self._group, first):
            size += len(record.payload) + ENTRY_OVERHEAD_BYTES
            if record.index >= end or (found and size > bytes_max):
                break
            found.append(entry_of(record))
        if not found:
            raise LogUnavailable(f"entry {first} cannot be read now")
        return found

    def snapshot(self) -> RaftSnapshot:
        """Never at once: `shipping` gives the follower a checkpoint beside the core. The follower
        then says how far it is, as if it had been restarted with that."""
        if self.on_too_far_behind is not None:
            self.on_too_far_behind()
        raise LogUnavailable("a checkpoint is on its way to those that need it")

    # --- what the driver has written

    def stored(self, entries: list[RaftEntry]) -> None:
        """These are durable, in place of what was at and behind the first one's index."""
        first = entries[0].index
        if first <= self._last:
            keep = max(0, first - self._cache_first)
            self._cache_bytes -= sum(len(entry.data) for entry in self._cache[keep:])
            del self._cache[keep:]
            while self._marks and self._marks[-1][0] >= first:
                self._marks.pop()
        if not self._cache:
            self._cache_first = first
        self._cache += entries
        self._last = entries[-1].index
        size = sum(len(entry.data) for entry in entries)
        self._cache_bytes += size
        self._stored_bytes += size + len(entries) * ENTRY_OVERHEAD_BYTES
        if not self._marks or self._stored_bytes - self._marks[-1][1] >= self._mark_bytes:
            self._marks.append((self._last, self._stored_bytes))
        if self._cache_bytes > self._cache_bytes_max:
            self._trim()

    def _trim(self) -> None:
        count = 0
        while count < len(self._cache) - 1 and self._cache_bytes > self._cache_bytes_max * 3 // 4:
            self._cache_bytes -= len(self._cache[count].data)
            count += 1
        del self._cache[:count]
        self._cache_first += count

    def bytes_behind(self, index: int) -> int:
        """About how many bytes somebody lacks who has the log up to `index`: of what was stored
        since this node was started, and is kept."""
        marks = [*self._marks, (self._last, self._stored_bytes)]
        at = bisect_right(marks, index, key=lambda mark: mark[0])
        if at == len(marks):
            return 0
        behind, high = marks[at]
        before, low = marks[max(0, at - 1)]
        between = (high - low) * (behind - index) // (behind - before) if at else 0
        return self._stored_bytes - high + between

    def compact(self, checkpoint: int) -> int:
        """There is a checkpoint: behind which index the log is kept from now on."""
        kept = bisect_right(self._marks, self._stored_bytes - self._keep_bytes, key=lambda m: m[1])
        if kept:
            index = min(checkpoint, self._marks[kept - 1][0])
            if self.held_behind is not None:
                index = min(index, self.held_behind)
            if index > self._before[0]:
                self._before = (index, self.term(index))
            del self._marks[: kept - 1]
        return self._before[0] - 1 if self._before[0] else 0


def entry_of(record: Record) -> RaftEntry:
    """A copy of its own: what is read is a view of a large buffer."""
    kind = EntryKind.MEMBERSHIP if record.kind & MEMBERSHIP else EntryKind.NORMAL
    return RaftEntry(record.index, record.term, bytes(record.payload), kind)
