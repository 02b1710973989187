"""One node of one Raft group, as a pure state machine.

Facts go in as method calls: time (`tick`), messages (`step`), wishes (`propose`,
`propose_membership`, `read_index`, `transfer_leadership`, `campaign`), completions (`persisted`,
`applied`, `apply_membership`) and reports of the transport. What is to be done comes out of
`ready()` as one value, each thing once. Nothing here reads a clock, a socket or a disk; chance is
the generator given at the start.

What belongs to all roles is in `core`; what a role does is in `follower`, `candidate` and `leader`.
"""

from __future__ import annotations

from random import Random

from flintmq.raft.candidate import Candidate, PreCandidate
from flintmq.raft.core import RaftCore, Role
from flintmq.raft.follower import Follower
from flintmq.raft.leader import Leader
from flintmq.raft.log import RaftLog
from flintmq.raft.membership import (
    Membership,
    MembershipChange,
    changed,
    decode_change,
    encode_change,
)
from flintmq.raft.messages import (
    NOBODY,
    EntryId,
    EntryKind,
    HardState,
    Payload,
    RaftEntry,
    RaftMessage,
    RaftSnapshot,
)
from flintmq.raft.ready import Persisted, Ready, SoftState
from flintmq.raft.settings import RaftSettings
from flintmq.raft.status import PeerStatus, Status
from flintmq.raft.storage import Storage
from flintmq.raft.trace import TraceHook

_ROLES = {role.name: role for role in (Follower, PreCandidate, Candidate, Leader)}


class RaftNode:
    """Not thread-safe; one caller."""

    def __init__(
        self,
        settings: RaftSettings,
        storage: Storage,
        random: Random,
        *,
        applied: int = 0,
        trace_hook: TraceHook | None = None,
    ) -> None:
        self.settings = settings
        self.core = RaftCore(settings, storage, random, _ROLES, applied, trace_hook)
        self.log: RaftLog = self.core.log
        self._given_hard_state = self.core.stored_hard_state
        self._given_soft_state = self._soft_state()
        self._given_role = self.core.role.name

    @property
    def term(self) -> int:
        return self.core.term

    @property
    def leader(self) -> int:
        return self.core.leader

    @property
    def membership(self) -> Membership:
        return self.core.membership

    @property
    def role(self) -> Role:
        return self.core.role

    # -- inputs: time and messages ----------------------------------------------------------

    def tick(self) -> None:
        """A tick's time has passed. With lease reads, a driver that was held up must make good for
        every tick it missed before it does anything else."""
        self.core.tick()

    def step(self, message: RaftMessage) -> None:
        """Take a message from a peer. Late, repeated and reordered ones do no harm."""
        self.core.step(message)

    # -- inputs: wishes ---------------------------------------------------------------------

    def propose(self, *payloads: Payload) -> EntryId | None:
        """Append payloads, in order. On the leader: the id of the last one, to be watched for in
        `committed`. On a follower they are passed on, without promise, and the answer is None.

        Raises a ProposalRefused when nothing was appended or passed on.
        """
        return self.role.propose([(EntryKind.NORMAL, data) for data in payloads])

    def propose_membership(self, change: MembershipChange) -> EntryId | None:
        """Propose a change of membership; see `apply_membership` for when it counts."""
        return self.role.propose([(EntryKind.MEMBERSHIP, encode_change(change))])

    def read_index(self, context: bytes) -> None:
        """Ask up to where a linearizable read must wait; the answer comes in `Ready.reads`, or
        never: then ask again. Raises NotLeader when no leader is known."""
        self.role.read_index(self.core.id, context)

    def transfer_leadership(self, successor: int) -> None:
        """Hand over to `successor`, or ask the leader to. A wish: watch who leads."""
        self.role.transfer_to(successor)

    def has_lease(self) -> bool:
        """Whether nobody else can lead at this moment, by the clocks. With lease reads only, and
        only once all ticks that are due were given."""
        role = self.role
        return isinstance(role, Leader) and self.settings.lease_reads and role.has_lease()

    def abstain(self, abstains: bool) -> None:
        """Whether to leave the lead to others: vote, and never campaign. Who leads goes on."""
        self.core.abstains = abstains

    def forget_leader(self) -> None:
        """The caller knows that the leader is gone: do not refuse votes on its behalf. Term and
        role stay. With lease reads the lease must run out by itself."""
        if isinstance(self.role, Follower) and not self.settings.lease_reads:
            self.core.leader = NOBODY

    def campaign(self) -> None:
        """Try to become leader, unless we lead, may not, or a change of who votes is unapplied."""
        self.core.campaign()

    # -- inputs: completions ----------------------------------------------------------------

    def persisted(self, receipt: Persisted) -> None:
        """A Ready's write, and all before it, is durable."""
        if receipt.snapshot_index:
            self.log.snapshot_installed(receipt.snapshot_index)
        self.core.durable_term = max(self.core.durable_term, receipt.term)
        if receipt.term != self.term:
            # The write is real, but since then the log may have been cut and grown again.
            return
        if receipt.index:
            self.log.stable_to(receipt.index, receipt.log_term)
        self.role.persisted(receipt)

    def applied(self, index: int) -> None:
        """Everything up to `index` is applied. Membership changes among it were given to
        `apply_membership` before."""
        if index <= self.log.applied:
            return  # overtaken by a snapshot
        self.log.applied_to(index)
        self.role.applied(index)

    def apply_membership(self, entry: RaftEntry) -> Membership | None:
        """A committed change is being applied: it takes effect now. Returns the membership to
        store with the applied state; None when a snapshot from beyond this entry arrived since it
        was handed out, and has set the membership already.

        A driver whose state machine refuses the change simply does not call this.
        """
        if entry.index <= self.core.membership_index:
            return None
        self.core.membership_index = entry.index
        self.core.switch_membership(changed(self.membership, decode_change(entry.data)))
        return self.membership

    # -- inputs: reports of the transport ---------------------------------------------------

    def peer_restarted(self, peer: int) -> None:
        """Another process answers for the peer now: what it has is asked for again."""
        self.role.peer_restarted(peer)

    def report_unreachable(self, peer: int) -> None:
        """A message to the peer was lost for sure: stop sending ahead."""
        self.role.peer_is_unreachable(peer)

    def report_snapshot(self, peer: int, *, arrived: bool) -> None:
        """The transfer of a snapshot to the peer ended. Without this report the peer's own answer
        must come, or it stays without entries."""
        self.role.snapshot_was_sent(peer, arrived=arrived)

    # -- output -----------------------------------------------------------------------------

    def has_ready(self) -> bool:
        core, log = self.core, self.log
        return bool(
            core.messages
            or core.messages_after_sync
            or core.reads
            or log.unstable.next_entries()
            or log.unstable.next_snapshot() is not None
            or log.has_next_to_apply()
            or self._has_new_state()
        )

    def _has_new_state(self) -> bool:
        """Asked after every event, so it makes nothing."""
        core, log, hard = self.core, self.log, self._given_hard_state
        return (
            self._has_new_soft_state()
            or core.term != hard.term
            or core.vote != hard.vote
            or (log.committed > hard.commit and log.durable_index() > hard.commit)
        )

    def _has_new_soft_state(self) -> bool:
        core = self.core
        return (
            core.leader != self._given_soft_state.leader or core.role.name is not self._given_role
        )

    def ready(self) -> Ready:
        """Everything to be done since the last call. Each thing is handed out once."""
        log = self.log
        last_given, now = self._given_hard_state, self._hard_state()
        hard_state = now if now != last_given else None
        self._given_hard_state = now
        has_new_soft_state = self._has_new_soft_state()
        if has_new_soft_state:
            self._given_soft_state, self._given_role = self._soft_state(), self.core.role.name
        entries, snapshot = log.unstable.next_entries(), log.unstable.next_snapshot()
        committed = log.next_to_apply()
        core = self.core
        messages, core.messages = core.messages, []
        after_sync, core.messages_after_sync = core.messages_after_sync, []
        reads, core.reads = core.reads, []
        has_write = bool(hard_state or entries or snapshot or after_sync)
        log.unstable.accept_in_progress()
        if committed:
            log.accept_applying(committed)
        core.role.handed_out(committed)
        return Ready(
            group=core.group,
            soft_state=self._given_soft_state if has_new_soft_state else None,
            hard_state=hard_state,
            snapshot=snapshot,
            entries=entries,
            messages=messages,
            messages_after_sync=after_sync,
            persisted=self._receipt(snapshot) if has_write else None,
            must_sync=bool(
                entries
                or snapshot
                or (
                    hard_state is not None
                    and (hard_state.term, hard_state.vote) != (last_given.term, last_given.vote)
                )
            ),
            committed=committed,
            reads=reads,
        )

    def _receipt(self, snapshot: RaftSnapshot | None) -> Persisted:
        """Names the end of the log even if this write has no entries: when the term moved on while
        entries were being written, the write of the new term confirms them, being behind them."""
        has_unstable = bool(self.log.unstable.entries)
        last = self.log.last_id() if has_unstable else EntryId(0, 0)
        return Persisted(
            term=self.term,
            vote=self.core.vote,
            index=last.index,
            log_term=last.term,
            snapshot_index=snapshot.index if snapshot is not None else 0,
        )

    def _hard_state(self) -> HardState:
        # Only what is durable counts as committed across a restart: a crash may keep this and
        # lose entries written beside it.
        commit = min(self.log.committed, self.log.durable_index())
        return HardState(self.term, self.core.vote, max(commit, self._given_hard_state.commit))

    def _soft_state(self) -> SoftState:
        return SoftState(self.leader, self.role.name.value)

    def status(self) -> Status:
        """A copy of what an operator wants to see."""
        peers: dict[int, PeerStatus] = {}
        transferee = NOBODY
        uncommitted_bytes = waiting_reads = 0
        if isinstance(self.role, Leader):
            transferee = self.role.transferee
            uncommitted_bytes = self.role.uncommitted_bytes
            waiting_reads = self.role.waiting_reads()
            peers = {peer: progress.status() for peer, progress in self.role.progress.items()}
        return Status(
            node=self.core.id,
            group=self.core.group,
            role=self.role.name.value,
            is_learner=not self.membership.is_voter(self.core.id),
            term=self.term,
            vote=self.core.vote,
            leader=self.leader,
            first_index=self.log.first_index(),
            last_index=self.log.last_index(),
            durable_index=self.log.durable_index(),
            committed=self.log.committed,
            applied=self.log.applied,
            membership=self.membership,
            transferee=transferee,
            uncommitted_bytes=uncommitted_bytes,
            waiting_reads=waiting_reads,
            peers=peers,
        )

    def index_to_compact(self) -> int:
        """Up to here the log may be compacted: behind the snapshot and what is applied, less a
        tail for followers that are a little slow. 0: nothing yet."""
        covered = min(self.log.storage.snapshot().index, self.log.applied)
        index = covered - self.settings.trailing_entries
        return index if index >= self.log.storage.first_index() else 0
