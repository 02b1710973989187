"""What must hold after every step, whatever went wrong (Raft figure 3, and what it rests on).

    election safety        one leader per term, and nobody leads a term twice
    one vote               a node votes for one candidate per term, restarts or not
    log matching           an entry's index and term determine it and everything before it
    leader completeness    a new leader holds everything ever committed
    state-machine safety   every node applies the same entry at the same index, without gaps
    committed for good     a committed entry never changes, on any node
    durable on a quorum    when a leader commits an entry, the disks of a quorum hold it
    fresh reads            a read waits for everything committed anywhere when it was asked
    monotonic              terms and commits never fall; what was durable is there after a restart
    in order               compacted <= snapshot <= applied <= committed <= last

Everything is checked incrementally: each entry when it enters a log, each index when it commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import LogCompacted
from flintmq.raft import (
    EntryKind,
    MessageKind,
    RaftEntry,
    RaftMessage,
    ReadState,
    Ready,
    TraceEvent,
)

if TYPE_CHECKING:
    from tests.simulation.server import Server
    from tests.simulation.world import World


class Violation(AssertionError):
    """A promise was broken. The text says which, by whom and when."""


class Invariants:
    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[int, tuple[int, int]] = {}  # term -> node and its incarnation
        self._votes: dict[tuple[int, int], int] = {}  # node, term -> candidate
        self._entries: dict[tuple[int, int], tuple[int, bytes, EntryKind]] = {}
        self._committed: dict[int, RaftEntry] = {}
        self.commit_max = 1  # the group begins at a snapshot of index 1
        self._commit_when_asked: dict[bytes, int] = {}  # context of a read -> commit_max

    def fail(self, text: str) -> None:
        raise Violation(text)

    # -- told by the core -------------------------------------------------------------------

    def traced(self, server: Server, event: TraceEvent) -> None:
        if event.what == "leader":
            self._leads(server, event.term)
        elif event.what == "commit" and server.raft.role.name.value == "leader":
            self._is_durable_on_quorum(server, event.index)

    def _leads(self, server: Server, term: int) -> None:
        known = self._leaders.setdefault(term, (server.id, server.incarnation))
        if known != (server.id, server.incarnation):
            self.fail(f"election safety: nodes {known[0]} and {server.id} both led term {term}")
        # Late votes can still elect a leader of a term that is over; later terms are not its duty.
        index = self.commit_max
        while index > 1 and self._committed[index].term >= term:
            index -= 1
        if index > 1:
            ours, entry = server.raft.log, self._committed[index]
            if ours.first_index() <= entry.index and ours.term(entry.index) != entry.term:
                self.fail(
                    f"leader completeness: node {server.id} leads term {term} without the"
                    f" committed entry {entry.index} of term {entry.term}"
                )

    def _is_durable_on_quorum(self, server: Server, index: int) -> None:
        term = server.raft.log.term(index)
        assert term is not None
        membership = server.raft.membership
        held = {
            node
            for node in membership.all_voters()
            if self._world.servers[node].disk.holds(index, term)
        }
        if not membership.has_quorum_of(held):
            self.fail(
                f"durable on a quorum: node {server.id} committed {index}, but only the disks of"
                f" {sorted(held)} of {membership.all_voters()} hold it"
            )

    # -- told by the driver -----------------------------------------------------------------

    def handed_out(self, server: Server, ready: Ready) -> None:
        previous: RaftEntry | None = None
        for entry in ready.entries:
            before = previous.term if previous else server.raft.log.term(entry.index - 1) or 0
            facts = (before, bytes(entry.data), entry.kind)
            if self._entries.setdefault((entry.index, entry.term), facts) != facts:
                self.fail(
                    f"log matching: node {server.id} has another entry {entry.index} of term"
                    f" {entry.term}, or another one before it"
                )
            previous = entry

    def sent(self, message: RaftMessage) -> None:
        if message.kind is MessageKind.VOTE:
            self._voted(message.sender, message.term, message.sender)
        elif message.kind is MessageKind.VOTE_REPLY and not message.reject:
            self._voted(message.sender, message.term, message.receiver)

    def _voted(self, node: int, term: int, candidate: int) -> None:
        known = self._votes.setdefault((node, term), candidate)
        if known != candidate:
            self.fail(f"one vote: node {node} voted for {known} and {candidate} in term {term}")

    def asks_to_read(self, context: bytes) -> None:
        self._commit_when_asked[context] = self.commit_max

    def may_read(self, server: Server, read: ReadState) -> None:
        """Sharper than the judge of histories: a leader that was replaced and still answers is
        found even if nobody has written since."""
        commit = self._commit_when_asked[read.context]
        if read.index < commit:
            self.fail(
                f"fresh reads: node {server.id} may read at {read.index}, but {commit} was"
                f" committed when it asked"
            )

    def stepped(self, server: Server) -> None:
        """After anything happened on this server."""
        raft, log = server.raft, server.raft.log
        if raft.term < server.seen_term:
            self.fail(f"monotonic: the term of node {server.id} fell to {raft.term}")
        server.seen_term = raft.term
        if log.committed != server.seen_commit:
            if log.committed < server.seen_commit:
                self.fail(f"monotonic: the commit of node {server.id} fell to {log.committed}")
            self._commits(server, server.seen_commit + 1, log.committed)
            server.seen_commit = log.committed
            snapshot = server.disk.storage.snapshot().index
            if not log.applied <= log.committed <= log.last_index() or snapshot > log.committed:
                self.fail(f"in order: cursors of node {server.id} are {raft.status()}")

    def _commits(self, server: Server, first: int, last: int) -> None:
        log = server.raft.log
        try:
            entries = log.slice(max(first, log.first_index()), last + 1)
        except LogCompacted:
            entries = []
        for entry in entries:
            self._is_the_committed_one(server, entry)
        if not entries:
            known, term = self._committed.get(last), log.term(last)
            if known is not None and term is not None and known.term != term:
                self.fail(f"committed for good: node {server.id} restored another entry {last}")
        if last > self.commit_max:
            if not entries:
                self.fail(f"node {server.id} commits {last} by a snapshot nobody committed")
            self.commit_max = last

    def _is_the_committed_one(self, server: Server, entry: RaftEntry) -> None:
        known = self._committed.setdefault(entry.index, entry)
        same = (known.term, known.kind, bytes(known.data)) == (
            entry.term,
            entry.kind,
            bytes(entry.data),
        )
        if not same:
            self.fail(
                f"committed for good: entry {entry.index} is of term {entry.term} on node"
                f" {server.id}, but was committed in term {known.term}"
            )

    def applies(self, server: Server, entry: RaftEntry) -> None:
        if entry.index != server.machine.applied + 1:
            self.fail(
                f"state-machine safety: node {server.id} applies {entry.index} after"
                f" {server.machine.applied}"
            )
        if entry.index not in self._committed:
            self.fail(f"state-machine safety: node {server.id} applies uncommitted {entry.index}")
        self._is_the_committed_one(server, entry)

    def restarted(self, server: Server) -> None:
        """What was promised to be durable is there: the checks of the new life begin from it."""
        raft = server.raft
        if raft.term < server.durable_term:
            self.fail(
                f"monotonic: node {server.id} came back in term {raft.term}, before"
                f" {server.durable_term}"
            )
        server.seen_term = raft.term
        server.seen_commit = raft.log.applied
        self.stepped(server)
