"""One node of one Raft group, as a pure state machine.

Facts go in as method calls: time (`tick`), messages (`step`), wishes (`propose`,
`propose_membership`, `read_index`, `transfer_leadership`, `campaign`), completions (`persisted`,
`applied`, `apply_membership`) and reports of the transport. What is to be done comes out of
`ready()` as one value, each thing once. Nothing here reads a clock, a socket or a disk; chance is
the generator given at the start.

What belongs to all roles is here: the term, the vote, who may become what. What a role does is in
`follower`, `candidate` and `leader`; the table of transitions is in `roles`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from flintmq.errors import InvalidRequest, NotLeader, RaftInvariantBroken
from flintmq.raft.candidate import Candidate, PreCandidate
from flintmq.raft.follower import Follower
from flintmq.raft.leader import Leader
from flintmq.raft.log import RaftLog
from flintmq.raft.membership import (
    Membership,
    MembershipChange,
    changed,
    check_is_sound,
    decode_change,
    encode_change,
)
from flintmq.raft.messages import (
    AFTER_SYNC_KINDS,
    NOBODY,
    EntryId,
    EntryKind,
    HardState,
    MessageKind,
    Payload,
    RaftEntry,
    RaftMessage,
    RaftSnapshot,
)
from flintmq.raft.ready import Persisted, ReadState, Ready, SoftState
from flintmq.raft.roles import TRANSITIONS, Role
from flintmq.raft.settings import RaftSettings
from flintmq.raft.status import PeerStatus, Status
from flintmq.raft.storage import Storage

_LEADERS_WORD = frozenset({MessageKind.APPEND, MessageKind.HEARTBEAT, MessageKind.SNAPSHOT})
_ANY_TERM = frozenset({MessageKind.PROPOSE, MessageKind.READ_INDEX, MessageKind.TRANSFER_LEADER})


class TraceEvent(msgspec.Struct, frozen=True):
    """Something an observer may want to check: a role taken, a commit moved, a log cut."""

    what: str
    node: int
    group: int
    term: int
    index: int


TraceHook = Callable[[TraceEvent], None]


class RaftNode:
    """Not thread-safe; one caller. Invariants: the term never falls; one vote per term; what is
    committed never changes."""

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
        self.id = settings.node
        self.group = settings.group
        self._random = random
        self._trace_hook = trace_hook
        hard_state, self.membership = storage.initial_state()
        check_is_sound(self.membership)
        self._membership_index = applied  # the entry or snapshot that set the membership
        self.log = RaftLog(storage, apply_bytes_max=settings.apply_bytes_max)
        # Of an unsynced write the disk may keep the entries and lose the term. Nothing was said
        # in that term, so it is free; but a log never holds a term its node has not reached.
        self.term = max(hard_state.term, self.log.last_id().term)
        self.vote = hard_state.vote if self.term == hard_state.term else NOBODY
        # What is applied was committed, even if the crash took the note of it: the state machine
        # and the hard state are not synced together.
        self.log.committed = max(self.log.committed, hard_state.commit, applied)
        if self.log.committed > self.log.last_index():
            raise RaftInvariantBroken(
                f"commit {self.log.committed} is stored; the log ends at {self.log.last_index()}"
            )
        if applied:
            self.log.applied_to(applied)
        self.leader = NOBODY
        self._ticks = 0
        self.election_elapsed = 0
        self.election_timeout = 0
        self.reads: list[ReadState] = []
        self._messages: list[RaftMessage] = []
        self._messages_after_sync: list[RaftMessage] = []
        self._durable_term = hard_state.term
        self._given_hard_state = hard_state
        self.role: Role = Follower(self)
        self._draw_election_timeout()
        self._given_soft_state = self._soft_state()

    # -- inputs: time -----------------------------------------------------------------------

    def tick(self) -> None:
        """A tick's time has passed. With lease reads, a driver that was held up must make good for
        every tick it missed before it does anything else."""
        self._ticks += 1
        self.role.tick()

    def is_past_election_timeout(self) -> bool:
        return self.election_elapsed >= self.election_timeout

    def _draw_election_timeout(self) -> None:
        ticks = self.settings.election_ticks
        self.election_timeout = ticks + self._random.randrange(ticks)

    # -- inputs: messages -------------------------------------------------------------------

    def step(self, message: RaftMessage) -> None:
        """Take a message from a peer. Late, repeated and reordered ones do no harm."""
        if message.group != self.group or message.receiver != self.id:
            raise InvalidRequest(
                f"a message for node {message.receiver} of group {message.group} came to"
                f" node {self.id} of group {self.group}"
            )
        if message.kind not in _ANY_TERM:
            if message.term > self.term:
                if not self._enter_term_of(message):
                    return
            elif message.term < self.term:
                self._answer_old_term(message)
                return
        if message.kind is MessageKind.VOTE or message.kind is MessageKind.PRE_VOTE:
            self._answer_vote(message)
        else:
            if message.reject and message.kind is not MessageKind.APPEND_REPLY:
                self._learn_commit(message)
            self.role.step(message)

    def _enter_term_of(self, message: RaftMessage) -> bool:
        """A higher term. True when the message should be looked at further."""
        is_vote = message.kind in (MessageKind.VOTE, MessageKind.PRE_VOTE)
        if is_vote and not message.force and self._is_in_lease():
            # A leader was heard of lately: who does not hear it should not unseat it (Raft 4.2.3).
            return False
        if message.kind is MessageKind.VOTE and self._can_only_refuse(message):
            # Our term matters to an election only if we vote. Who was removed and does not know it
            # asks us for ever, with a log that is behind; were we to take each of its terms, our
            # next answer would carry them on to the leader, and unseat it again and again.
            self._learn_commit(message)
            self._refuse_vote(MessageKind.VOTE_REPLY, message.sender)
            return False
        if message.kind is MessageKind.PRE_VOTE:
            return True  # a question; nothing changes
        if message.kind is MessageKind.PRE_VOTE_REPLY and not message.reject:
            return True  # carries the term we asked about, which begins when we win
        leader = message.sender if message.kind in _LEADERS_WORD else NOBODY
        self.become_follower(message.term, leader)
        return True

    def _can_only_refuse(self, message: RaftMessage) -> bool:
        """We are no voter, as far as we know, so nobody needs our word; and if we were promoted and
        do not know it yet, this log is still none to vote for."""
        return not self.membership.is_voter(self.id) and not self.log.is_up_to_date(
            message.index, message.log_term
        )

    def _is_in_lease(self) -> bool:
        if self.settings.lease_reads and self._ticks < self.settings.election_ticks:
            return True  # before the restart we may have promised a leader our silence
        return (
            self.settings.check_quorum
            and self.leader != NOBODY
            and self.election_elapsed < self.settings.election_ticks
        )

    def _answer_old_term(self, message: RaftMessage) -> None:
        """Most of it is dropped: it is late. Three kinds are not."""
        if message.kind is MessageKind.HEARTBEAT or message.kind is MessageKind.APPEND:
            # A leader of a lower term is told of ours, whatever the settings (Raft 5.1): we ignore
            # it, and it may have no other way to learn why. To wait until our candidacy is heard is
            # not enough. With pre-vote or leases nobody listens to it; and a learner, or who waits
            # for a snapshot or a change to be applied, has none. The leader steps down, once, and
            # the next one begins above our term.
            self.send(MessageKind.APPEND_REPLY, message.sender)
        elif message.kind is MessageKind.PRE_VOTE:
            self._refuse_vote(MessageKind.PRE_VOTE_REPLY, message.sender)
        elif message.reject and message.kind is not MessageKind.APPEND_REPLY:
            # A refusal that does not count any more. But what is committed is so in every term.
            self._learn_commit(message)

    def _answer_vote(self, message: RaftMessage) -> None:
        is_pre_vote = message.kind is MessageKind.PRE_VOTE
        can_vote = (
            self.vote == message.sender
            or (self.vote == NOBODY and self.leader == NOBODY)
            or (is_pre_vote and message.term > self.term)
        )
        reply = MessageKind.PRE_VOTE_REPLY if is_pre_vote else MessageKind.VOTE_REPLY
        if can_vote and self.log.is_up_to_date(message.index, message.log_term):
            # A learner answers too: it may have been promoted and not know it yet.
            if not is_pre_vote:
                self.election_elapsed = 0
                self.vote = message.sender
                self.trace("vote", index=message.sender)
            self.send(reply, message.sender, term=message.term)
        else:
            self._learn_commit(message)
            self._refuse_vote(reply, message.sender)

    def _refuse_vote(self, kind: MessageKind, candidate: int) -> None:
        commit = self.log.committed
        commit_term = self.log.term(commit) or 0
        self.send(kind, candidate, reject=True, commit=commit, hint=commit_term)

    def _learn_commit(self, message: RaftMessage) -> None:
        """Votes and refusals tell what their sender knows to be committed. Without this a group can
        stand still: a leader demotes itself with the last but one entry of its log and steps down;
        it may no longer lead, refuses its longer log to the rest, and the rest waits for its vote
        because only it knows that the change is committed."""
        if not message.hint or not self.log.matches(message.commit, message.hint):
            return
        self.commit_to(message.commit)
        if isinstance(self.role, PreCandidate | Candidate) and (
            self.log.has_unapplied_membership_change()
        ):
            # Who votes is about to change for us: not a moment to win by the old rules.
            self.become_follower(self.term, NOBODY)

    # -- inputs: wishes ---------------------------------------------------------------------

    def propose(self, *payloads: Payload) -> EntryId | None:
        """Append payloads, in order. On the leader: the id of the last one, to be watched for in
        `committed`. On a follower they are passed on, without promise, and the answer is None.

        Raises a ProposalRefused when nothing was appended or passed on.
        """
        return self._propose([(EntryKind.NORMAL, data) for data in payloads])

    def propose_membership(self, change: MembershipChange) -> EntryId | None:
        """Propose a change of membership; see `apply_membership` for when it counts."""
        return self._propose([(EntryKind.MEMBERSHIP, encode_change(change))])

    def _propose(self, payloads: list[tuple[EntryKind, Payload]]) -> EntryId | None:
        if isinstance(self.role, Leader):
            return self.role.propose(payloads)
        can_forward = isinstance(self.role, Follower) and self.settings.forward_proposals
        if self.leader == NOBODY or not can_forward:
            raise NotLeader(self.id, self.leader)
        entries = tuple(RaftEntry(0, 0, data, kind) for kind, data in payloads)
        self.send(MessageKind.PROPOSE, self.leader, entries=entries)
        return None

    def read_index(self, context: bytes) -> None:
        """Ask up to where a linearizable read must wait; the answer comes in `Ready.reads`, or
        never: an asker that hears nothing asks again. Raises NotLeader when nobody can be asked."""
        if isinstance(self.role, Leader):
            self.role.read_index(self.id, context)
        elif self.leader == NOBODY:
            raise NotLeader(self.id, self.leader)
        else:
            self.send(MessageKind.READ_INDEX, self.leader, context=context)

    def transfer_leadership(self, successor: int) -> None:
        """Hand over to `successor`, or ask the leader to. A wish: watch who leads."""
        if isinstance(self.role, Leader):
            self.role.transfer_to(successor)
        elif self.leader != NOBODY:
            self.send(MessageKind.TRANSFER_LEADER, self.leader, hint=successor)

    def forget_leader(self) -> None:
        """The caller knows that the leader is gone: do not refuse votes on its behalf. Term and
        role stay. With lease reads the lease must run out by itself."""
        if isinstance(self.role, Follower) and not self.settings.lease_reads:
            self.leader = NOBODY

    def campaign(self, *, transfer: bool = False) -> None:
        """Try to become leader, unless we lead, may not, or a change of who votes is unapplied."""
        if isinstance(self.role, Leader) or not self.is_promotable():
            return
        if self.log.has_unapplied_membership_change():
            return
        if self.settings.pre_vote and not transfer:
            self._ask_whether_we_could_win()
        else:
            self.start_election(transfer=transfer)

    def is_promotable(self) -> bool:
        """We vote by our own membership, and are not waiting for a snapshot to be installed."""
        return self.membership.is_voter(self.id) and self.log.unstable.snapshot is None

    # -- inputs: completions ----------------------------------------------------------------

    def persisted(self, receipt: Persisted) -> None:
        """A Ready's write, and all before it, is durable."""
        if receipt.snapshot_index:
            self.log.snapshot_installed(receipt.snapshot_index)
        self._durable_term = max(self._durable_term, receipt.term)
        if receipt.term != self.term:
            # The write is real, but since then the log may have been cut and grown again.
            return
        if receipt.index:
            self.log.stable_to(receipt.index, receipt.log_term)
        if isinstance(self.role, Leader):
            self.role.own_entries_are_durable(self.log.durable_index())
        elif isinstance(self.role, Candidate) and receipt.vote == self.id:
            self.role.own_vote_is_durable()

    def applied(self, index: int) -> None:
        """Everything up to `index` is applied. Membership changes among it were given to
        `apply_membership` before."""
        if index <= self.log.applied:
            return  # overtaken by a snapshot
        self.log.applied_to(index)
        role = self.role
        if (
            isinstance(role, Leader)
            and self.membership.auto_leave
            and index >= role.pending_membership_index
        ):
            last = role.append([(EntryKind.MEMBERSHIP, b"")])
            role.pending_membership_index = last.index

    def apply_membership(self, entry: RaftEntry) -> Membership | None:
        """A committed change is being applied: it takes effect now. Returns the membership to
        store with the applied state; None when a snapshot from beyond this entry arrived since it
        was handed out, and has set the membership already.

        A driver whose state machine refuses the change simply does not call this.
        """
        if entry.index <= self._membership_index:
            return None
        self._membership_index = entry.index
        self._switch_membership(changed(self.membership, decode_change(entry.data)))
        return self.membership

    def _switch_membership(self, membership: Membership) -> None:
        self.membership = membership
        self.trace("membership", index=self.log.applied)
        if isinstance(self.role, Leader):
            self.role.membership_changed(membership)

    # -- inputs: reports of the transport ---------------------------------------------------

    def report_unreachable(self, peer: int) -> None:
        """A message to the peer was lost for sure: stop sending ahead."""
        if isinstance(self.role, Leader):
            self.role.peer_is_unreachable(peer)

    def report_snapshot(self, peer: int, *, arrived: bool) -> None:
        """The transfer of a snapshot to the peer ended. Without this report the peer's own answer
        must come, or it stays without entries."""
        if isinstance(self.role, Leader):
            self.role.snapshot_was_sent(peer, arrived=arrived)

    # -- output -----------------------------------------------------------------------------

    def has_ready(self) -> bool:
        return bool(
            self._messages
            or self._messages_after_sync
            or self.reads
            or self.log.unstable.next_entries()
            or self.log.unstable.next_snapshot() is not None
            or self.log.has_next_to_apply()
            or self._has_new_state()
        )

    def _has_new_state(self) -> bool:
        """Asked after every event, so it makes nothing."""
        hard, soft = self._given_hard_state, self._given_soft_state
        return (
            self.leader != soft.leader
            or self.role.name.value != soft.role
            or self.term != hard.term
            or self.vote != hard.vote
            or min(self.log.committed, self.log.durable_index()) > hard.commit
        )

    def ready(self) -> Ready:
        """Everything to be done since the last call. Each thing is handed out once."""
        log = self.log
        last_given, now = self._given_hard_state, self._hard_state()
        hard_state = now if now != last_given else None
        self._given_hard_state = now
        soft_state: SoftState | None = self._soft_state()
        if soft_state == self._given_soft_state:
            soft_state = None
        else:
            self._given_soft_state = self._soft_state()
        entries, snapshot = log.unstable.next_entries(), log.unstable.next_snapshot()
        committed = log.next_to_apply()
        messages, self._messages = self._messages, []
        after_sync, self._messages_after_sync = self._messages_after_sync, []
        reads, self.reads = self.reads, []
        has_write = bool(hard_state or entries or snapshot or after_sync)
        log.unstable.accept_in_progress()
        if committed:
            log.accept_applying(committed)
        if isinstance(self.role, Leader):
            self.role.left_uncommitted(committed)
            self.role.messages_left()
        return Ready(
            group=self.group,
            soft_state=soft_state,
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
            vote=self.vote,
            index=last.index,
            log_term=last.term,
            snapshot_index=snapshot.index if snapshot is not None else 0,
        )

    def _hard_state(self) -> HardState:
        # Only what is durable counts as committed across a restart: a crash may keep this and
        # lose entries written beside it.
        commit = min(self.log.committed, self.log.durable_index())
        return HardState(self.term, self.vote, max(commit, self._given_hard_state.commit))

    def _soft_state(self) -> SoftState:
        return SoftState(self.leader, self.role.name.value)

    def send(
        self,
        kind: MessageKind,
        receiver: int,
        *,
        term: int | None = None,
        index: int = 0,
        log_term: int = 0,
        commit: int = 0,
        entries: tuple[RaftEntry, ...] = (),
        reject: bool = False,
        hint: int = 0,
        read_round: int = 0,
        context: bytes = b"",
        force: bool = False,
        snapshot: RaftSnapshot | None = None,
    ) -> None:
        """Queue a message in the right one of the two classes: to be sent now, or after the sync
        of everything it depends on.

        No message of a term leaves before that term is durable. That holds back requests for votes
        too, and the log they boast of: were one sent early, and the entries lost in a crash, late
        grants could elect a node that no longer holds what its voters saw.
        """
        if term is None:
            term = 0 if kind in _ANY_TERM else self.term
        message = RaftMessage(
            kind=kind,
            sender=self.id,
            receiver=receiver,
            term=term,
            index=index,
            log_term=log_term,
            commit=commit,
            entries=entries,
            reject=reject,
            hint=hint,
            read_round=read_round,
            context=context,
            force=force,
            snapshot=snapshot,
            group=self.group,
        )
        waits = kind in AFTER_SYNC_KINDS or self._durable_term != self.term
        (self._messages_after_sync if waits else self._messages).append(message)

    def forward(self, message: RaftMessage, receiver: int) -> None:
        """Pass a wish on; answers go to who asked first."""
        self._messages.append(msgspec.structs.replace(message, receiver=receiver))

    # -- transitions, for the roles ---------------------------------------------------------

    def _become(self, role: Role) -> None:
        if (self.role.name, role.name) not in TRANSITIONS:
            raise RaftInvariantBroken(f"{self.role.name.value} cannot become {role.name.value}")
        self.role = role
        self.election_elapsed = 0
        self._draw_election_timeout()
        self.trace(role.name.value, index=self.log.last_index())

    def _enter_term(self, term: int) -> None:
        if term < self.term:
            raise RaftInvariantBroken(f"the term would fall from {self.term} to {term}")
        if term > self.term:
            self.term = term
            self.vote = NOBODY
        self.leader = NOBODY

    def become_follower(self, term: int, leader: int) -> None:
        self._enter_term(term)
        self.leader = leader
        self._become(Follower(self))

    def _ask_whether_we_could_win(self) -> None:
        role = PreCandidate(self)
        self.leader = NOBODY
        self._become(role)
        self._ask_for_votes(MessageKind.PRE_VOTE, self.term + 1)
        role.count(role.record(self.id, True))  # promises nothing, so it need not be durable

    def start_election(self, *, transfer: bool = False) -> None:
        self._enter_term(self.term + 1)
        self.vote = self.id
        self._become(Candidate(self))
        self._ask_for_votes(MessageKind.VOTE, self.term, force=transfer)

    def _ask_for_votes(self, kind: MessageKind, term: int, *, force: bool = False) -> None:
        last = self.log.last_id()
        commit = self.log.committed
        for voter in self.membership.all_voters():
            if voter != self.id:
                self.send(
                    kind,
                    voter,
                    term=term,
                    index=last.index,
                    log_term=last.term,
                    commit=commit,
                    hint=self.log.term(commit) or 0,
                    force=force,
                )

    def become_leader(self) -> None:
        role = Leader(self)
        self._become(role)
        self.leader = self.id
        role.open_term()

    # -- shared by roles --------------------------------------------------------------------

    def commit_to(self, index: int) -> None:
        if self.log.commit_to(index):
            self.trace("commit", index=index)

    def restore(self, snapshot: RaftSnapshot) -> bool:
        """Take over a snapshot from the leader. False when it brings nothing new."""
        log = self.log
        if snapshot.index <= log.committed:
            return False
        # It need not name us: who joins may get a snapshot from before it was added, and learns the
        # rest from the entries behind it. Until then the membership lets it neither vote nor lead.
        if log.matches(snapshot.index, snapshot.term):
            # We hold all of it as entries; only the commit is news.
            self.commit_to(snapshot.index)
            return False
        check_is_sound(snapshot.membership)
        log.restore(snapshot)
        self._membership_index = snapshot.index
        self._switch_membership(snapshot.membership)
        self.trace("restore", index=snapshot.index)
        return True

    def trace(self, what: str, *, index: int) -> None:
        if self._trace_hook is not None:
            self._trace_hook(TraceEvent(what, self.id, self.group, self.term, index))

    def status(self) -> Status:
        """A copy of what an operator wants to see."""
        peers: dict[int, PeerStatus] = {}
        transferee = NOBODY
        uncommitted_bytes = waiting_reads = 0
        if isinstance(self.role, Leader):
            transferee = self.role.transferee
            uncommitted_bytes = self.role.uncommitted_bytes
            waiting_reads = self.role.waiting_reads()
            peers = {
                peer: PeerStatus(
                    match=progress.match,
                    next=progress.next,
                    state=progress.state.value,
                    is_live=progress.is_live(),
                    is_paused=progress.is_paused(),
                    inflight_messages=len(progress.inflights),
                    inflight_bytes=progress.inflights.in_flight_bytes,
                    pending_snapshot=progress.pending_snapshot,
                )
                for peer, progress in self.role.progress.items()
            }
        return Status(
            node=self.id,
            group=self.group,
            role=self.role.name.value,
            is_learner=not self.membership.is_voter(self.id),
            term=self.term,
            vote=self.vote,
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
