"""What all roles of a node share: the term, the vote, the transitions, and the messages to be sent.

What a role does is in `follower`, `candidate` and `leader`; the table of transitions is in `roles`.
`node` is the side that the driver sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar

import msgspec

from flintmq.errors import InvalidRequest, NotLeader, RaftInvariantBroken
from flintmq.raft.log import RaftLog
from flintmq.raft.membership import Membership, check_is_sound
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
from flintmq.raft.ready import Persisted, ReadState
from flintmq.raft.roles import TRANSITIONS, RoleName
from flintmq.raft.settings import RaftSettings
from flintmq.raft.storage import Storage
from flintmq.raft.trace import TraceEvent, TraceHook

_LEADERS_WORD = frozenset({MessageKind.APPEND, MessageKind.HEARTBEAT, MessageKind.SNAPSHOT})
_ANY_TERM = frozenset({MessageKind.PROPOSE, MessageKind.READ_INDEX, MessageKind.TRANSFER_LEADER})


class Role:
    """One role's answer to time, messages, wishes and completions. The node has checked the term
    of a message before it asks. What only one role does something about does nothing here."""

    name: ClassVar[RoleName]

    def __init__(self, node: RaftCore) -> None:
        self.node = node

    def begin(self) -> None:
        """The node has taken this role."""

    def tick(self) -> None:
        """Time passes; unless a leader is heard, the election timeout comes nearer."""
        node = self.node
        node.election_elapsed += 1
        if node.is_past_election_timeout() and node.is_promotable():
            node.election_elapsed = 0
            node.campaign()

    def step(self, message: RaftMessage) -> None:
        raise NotImplementedError

    def propose(self, payloads: list[tuple[EntryKind, Payload]]) -> EntryId | None:
        raise NotLeader(self.node.id, self.node.leader)

    def read_index(self, asker: int, context: bytes) -> None:
        if self.node.leader == NOBODY:
            raise NotLeader(self.node.id, NOBODY)
        self.node.send(MessageKind.READ_INDEX, self.node.leader, context=context)

    def transfer_to(self, successor: int) -> None:
        if self.node.leader != NOBODY:
            self.node.send(MessageKind.TRANSFER_LEADER, self.node.leader, hint=successor)

    def persisted(self, receipt: Persisted) -> None: ...

    def applied(self, index: int) -> None: ...

    def membership_changed(self, membership: Membership) -> None: ...

    def peer_restarted(self, peer: int) -> None: ...

    def peer_is_unreachable(self, peer: int) -> None: ...

    def snapshot_was_sent(self, peer: int, *, arrived: bool) -> None: ...

    def handed_out(self, committed: list[RaftEntry]) -> None:
        """Messages leave, and committed entries are being applied."""


class RaftCore:
    """Invariants: the term never falls; one vote per term; what is committed never changes."""

    def __init__(
        self,
        settings: RaftSettings,
        storage: Storage,
        random: Random,
        roles: Mapping[RoleName, Callable[[RaftCore], Role]],
        applied: int,
        trace_hook: TraceHook | None,
    ) -> None:
        self.settings = settings
        self.id = settings.node
        self.group = settings.group
        self._random = random
        self._roles = roles
        self._trace_hook = trace_hook
        hard_state, self.membership = storage.initial_state()
        check_is_sound(self.membership)
        self.membership_index = applied  # the entry or snapshot that set the membership
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
        self.abstains = False
        self._ticks = 0
        self.election_elapsed = 0
        self.election_timeout = 0
        self.reads: list[ReadState] = []
        self.messages: list[RaftMessage] = []
        self.messages_after_sync: list[RaftMessage] = []
        self.durable_term = hard_state.term
        self.stored_hard_state: HardState = hard_state
        self.role: Role = roles[RoleName.FOLLOWER](self)
        self._draw_election_timeout()

    def tick(self) -> None:
        self._ticks += 1
        self.role.tick()

    def is_past_election_timeout(self) -> bool:
        return self.election_elapsed >= self.election_timeout

    def _draw_election_timeout(self) -> None:
        ticks = self.settings.election_ticks
        self.election_timeout = ticks + self._random.randrange(ticks)

    # -- messages ---------------------------------------------------------------------------

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
            # A leader was heard of lately: a node that lost it should not unseat it (Raft 4.2.3).
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
        """We are no voter, as far as we know, so our word is not needed. If we were promoted and
        do not know it yet, this log is still none to vote for."""
        return not self.membership.is_voter(self.id) and not self.log.is_up_to_date(
            message.index, message.log_term
        )

    def _is_in_lease(self) -> bool:
        if (
            self.settings.lease_reads
            and self._ticks < self.settings.election_ticks
            and self.stored_hard_state.term > 0
        ):
            return True  # before the restart we may have promised a leader our silence
        return (
            self.settings.check_quorum
            and self.leader != NOBODY
            and self.election_elapsed < self.settings.election_ticks
        )

    def _answer_old_term(self, message: RaftMessage) -> None:
        """Most of it is dropped: it is late. Three kinds are not."""
        if message.kind is MessageKind.HEARTBEAT or message.kind is MessageKind.APPEND:
            # A leader of a lower term learns ours, whatever the settings (Raft 5.1): we ignore
            # it, and it may have no other way to learn why. To wait until our candidacy is heard is
            # not enough. With pre-vote or leases it is ignored; and a learner, or a node that waits
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
        if self.role.name in (RoleName.PRE_CANDIDATE, RoleName.CANDIDATE) and (
            self.log.has_unapplied_membership_change()
        ):
            # Who votes is about to change for us: not a moment to win by the old rules.
            self.become_follower(self.term, NOBODY)

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
        waits = kind in AFTER_SYNC_KINDS or self.durable_term != self.term
        (self.messages_after_sync if waits else self.messages).append(message)

    def forward(self, message: RaftMessage, receiver: int) -> None:
        """Pass a wish on; answers go to who asked first."""
        self.messages.append(msgspec.structs.replace(message, receiver=receiver))

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
        self._become(self._roles[RoleName.FOLLOWER](self))

    def _ask_whether_we_could_win(self) -> None:
        self.leader = NOBODY
        self._become(self._roles[RoleName.PRE_CANDIDATE](self))
        self._ask_for_votes(MessageKind.PRE_VOTE, self.term + 1)
        self.role.begin()

    def start_election(self, *, transfer: bool = False) -> None:
        self._enter_term(self.term + 1)
        self.vote = self.id
        self._become(self._roles[RoleName.CANDIDATE](self))
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
        self._become(self._roles[RoleName.LEADER](self))
        self.leader = self.id
        self.role.begin()

    def campaign(self, *, transfer: bool = False) -> None:
        """Try to become leader, unless we lead, may not, or a change of who votes is unapplied."""
        if self.role.name is RoleName.LEADER or not self.is_promotable():
            return
        if self.log.has_unapplied_membership_change():
            return
        if self.settings.pre_vote and not transfer:
            self._ask_whether_we_could_win()
        else:
            self.start_election(transfer=transfer)

    def is_promotable(self) -> bool:
        """We vote by our own membership, may lead, and wait for no snapshot to be installed."""
        return (
            self.membership.is_voter(self.id)
            and not self.abstains
            and self.log.unstable.snapshot is None
        )

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
        self.membership_index = snapshot.index
        self.switch_membership(snapshot.membership)
        self.trace("restore", index=snapshot.index)
        return True

    def switch_membership(self, membership: Membership) -> None:
        self.membership = membership
        self.trace("membership", index=self.log.applied)
        self.role.membership_changed(membership)

    def trace(self, what: str, *, index: int) -> None:
        if self._trace_hook is not None:
            self._trace_hook(TraceEvent(what, self.id, self.group, self.term, index))
