"""The leader: appends, replicates at each peer's pace, commits what a quorum holds durably.

Everything here is lost with the role: who knows what, which reads wait, who is to take over.
"""

from __future__ import annotations

from flintmq.errors import (
    InvalidRequest,
    LeadershipMoving,
    LogCompacted,
    LogUnavailable,
    MembershipChangeRefused,
    ProposalRefused,
    TooMuchUncommitted,
)
from flintmq.raft.core import RaftCore, Role
from flintmq.raft.inflights import Inflights
from flintmq.raft.membership import Membership, MembershipChange, changed, decode_change
from flintmq.raft.messages import (
    NOBODY,
    EntryId,
    EntryKind,
    MessageKind,
    Payload,
    RaftEntry,
    RaftMessage,
    payload_bytes,
)
from flintmq.raft.progress import PeerProgress, ProgressState
from flintmq.raft.read_only import PendingRead, ReadRounds
from flintmq.raft.ready import Persisted, ReadState
from flintmq.raft.roles import RoleName

LEASE_ROUNDS_KEPT = 1024  # an answer to an older heartbeat proves nothing worth knowing


class Leader(Role):
    name = RoleName.LEADER

    def __init__(self, node: RaftCore) -> None:
        super().__init__(node)
        log = node.log
        self.progress: dict[int, PeerProgress] = {}
        for peer in node.membership.everybody():
            self.progress[peer] = self._new_progress(next_index=log.last_index() + 1)
        if node.id in self.progress:
            ours = self.progress[node.id]
            ours.become_replicate()
            ours.match = log.durable_index()
            ours.recent_active = True
        self.transferee = NOBODY
        self.heartbeat_elapsed = 0
        self.uncommitted_bytes = 0
        # The tail we inherit may hold a change we have not applied, so no other until it is.
        self.pending_membership_index = log.last_index()
        self._rounds = ReadRounds()
        self._reads_before_first_commit: list[tuple[int, bytes]] = []
        self._clock = 0  # ticks since we lead
        self._sent_at: dict[int, int] = {}  # round of heartbeats -> when it left, for leases
        self._lease_is_given_up = False

    def _new_progress(self, *, next_index: int) -> PeerProgress:
        settings = self.node.settings
        window = Inflights(settings.inflight_messages_max, settings.inflight_bytes_max)
        return PeerProgress(next_index=next_index, inflights=window)

    def peers(self) -> list[int]:
        return [peer for peer in self.progress if peer != self.node.id]

    def begin(self) -> None:
        """The no-op: once it commits, everything before it is committed too (Raft 5.4.2, 8)."""
        self.append([(EntryKind.NORMAL, b"")])

    # -- time -------------------------------------------------------------------------------

    def tick(self) -> None:
        node = self.node
        self._clock += 1
        self.heartbeat_elapsed += 1
        node.election_elapsed += 1
        if node.election_elapsed >= node.settings.election_ticks:
            node.election_elapsed = 0
            if node.settings.check_quorum and not self._still_has_quorum():
                node.become_follower(node.term, NOBODY)
                return
            self.transferee = NOBODY  # it had an election timeout's time
        if self.heartbeat_elapsed >= node.settings.heartbeat_ticks:
            self.heartbeat_elapsed = 0
            self.broadcast_heartbeat()

    def _still_has_quorum(self) -> bool:
        live = {peer for peer, pr in self.progress.items() if pr.recent_active}
        live.add(self.node.id)
        for peer, progress in self.progress.items():
            progress.was_active = progress.recent_active
            progress.recent_active = peer == self.node.id
        return self.node.membership.has_quorum_of(live)

    # -- proposing --------------------------------------------------------------------------

    def append(self, payloads: list[tuple[EntryKind, Payload]]) -> EntryId:
        """Append without asking, and send. The id is the last entry's."""
        node = self.node
        entries = node.log.append_new(node.term, payloads)
        self.uncommitted_bytes += payload_bytes(entries)
        self.broadcast_append()
        return EntryId(entries[-1].index, node.term)

    def propose(self, payloads: list[tuple[EntryKind, Payload]]) -> EntryId:
        node = self.node
        if not payloads:
            raise InvalidRequest("a proposal needs at least one entry")
        if node.id not in self.progress:
            raise ProposalRefused("this node is no longer a member of the group")
        if self.transferee != NOBODY:
            raise LeadershipMoving(self.transferee)
        size = sum(len(data) for _, data in payloads)
        limit = node.settings.uncommitted_bytes_max
        if size and self.uncommitted_bytes and self.uncommitted_bytes + size > limit:
            raise TooMuchUncommitted(self.uncommitted_bytes + size, limit)
        last = node.log.last_index()
        for position, (kind, data) in enumerate(payloads, start=1):
            if kind is EntryKind.MEMBERSHIP:
                check_may_change_membership(self, decode_change(data))
                self.pending_membership_index = last + position
        return self.append(payloads)

    def has_committed_in_term(self) -> bool:
        return self.node.log.term(self.node.log.committed) == self.node.term

    def handed_out(self, committed: list[RaftEntry]) -> None:
        """What is being applied no longer presses on the limit."""
        self.uncommitted_bytes = max(0, self.uncommitted_bytes - payload_bytes(committed))
        self._rounds.heartbeats_left()

    # -- sending ----------------------------------------------------------------------------

    def broadcast_append(self) -> None:
        for peer in self.peers():
            self.send_append(peer)

    def broadcast_heartbeat(self) -> None:
        number = self._rounds.begin_round()
        if self.node.settings.lease_reads:
            self._sent_at[number] = self._clock
            self._sent_at.pop(number - LEASE_ROUNDS_KEPT, None)
        for peer in self.peers():
            progress = self.progress[peer]
            # Never a commit beyond what the peer is known to hold: it could not tell whether
            # its own entries there are ours.
            commit = min(progress.match, self.node.log.committed)
            self.node.send(MessageKind.HEARTBEAT, peer, commit=commit, read_round=number)

    def send_append(self, peer: int, *, even_if_empty: bool = True) -> bool:
        """Send the peer what it lacks next, unless it is paused. True when something was sent."""
        node, log, progress = self.node, self.node.log, self.progress[peer]
        if progress.is_paused():
            return False
        before = progress.next - 1
        before_term = log.term(before)
        if before_term is None:
            return self._send_snapshot(peer)
        entries: tuple[RaftEntry, ...] = ()
        if not progress.inflights.is_full():
            try:
                entries = tuple(log.entries(progress.next, node.settings.message_bytes_max))
            except (LogCompacted, LogUnavailable):
                return self._send_snapshot(peer)
        if not entries and not even_if_empty:
            return False
        node.send(
            MessageKind.APPEND,
            peer,
            index=before,
            log_term=before_term,
            entries=entries,
            commit=log.committed,
        )
        progress.sent_entries(len(entries), payload_bytes(entries))
        progress.sent_commit = log.committed
        return True

    def _send_snapshot(self, peer: int) -> bool:
        progress = self.progress[peer]
        if not progress.recent_active:
            return False  # the peer is not there to take it
        try:
            snapshot = self.node.log.storage.snapshot()
        except LogUnavailable:
            return False  # being made; a later answer of the peer asks again
        if snapshot.index == 0:
            return False
        self.node.send(MessageKind.SNAPSHOT, peer, snapshot=snapshot)
        progress.become_snapshot(snapshot.index)
        return True

    # -- answers ----------------------------------------------------------------------------

    def step(self, message: RaftMessage) -> None:
        match message.kind:
            case MessageKind.PROPOSE:
                self._take_forwarded(message)
                return
            case MessageKind.READ_INDEX:
                self.read_index(message.sender, message.context)
                return
            case MessageKind.TRANSFER_LEADER:
                self.transfer_to(message.hint)
                return
            case _:
                pass
        progress = self.progress.get(message.sender)
        if progress is None:
            return  # removed meanwhile
        if message.kind is MessageKind.APPEND_REPLY:
            progress.recent_active = True
            if message.reject:
                self._append_refused(message, progress)
            else:
                self._append_confirmed(message.sender, message.index, progress)
        elif message.kind is MessageKind.HEARTBEAT_REPLY:
            self._heartbeat_answered(message, progress)

    def _take_forwarded(self, message: RaftMessage) -> None:
        """A proposal that came by another node. A refused membership change becomes a no-op, so
        that the rest of the message keeps its place; any other refusal drops the message."""
        for entry in message.entries:
            try:
                self.propose([(entry.kind, entry.data)])
            except (MembershipChangeRefused, InvalidRequest):
                self.propose([(EntryKind.NORMAL, b"")])
            except ProposalRefused:
                return

    def _append_refused(self, message: RaftMessage, progress: PeerProgress) -> None:
        hint = message.hint
        if message.log_term > 0:
            # Skip our own entries of later terms than the peer's hint: none of them is there.
            hint, _ = self.node.log.find_conflict_by_term(hint, message.log_term)
        if progress.refuse(message.index, hint):
            if progress.state is ProgressState.REPLICATE:
                progress.become_probe()
            self.send_append(message.sender)

    def _append_confirmed(self, peer: int, index: int, progress: PeerProgress) -> None:
        log = self.node.log
        if index > log.last_index():
            return  # no entry of ours: an answer out of its time
        is_news = progress.confirm(index)
        if not is_news and not (progress.match == index and progress.state is ProgressState.PROBE):
            return
        if progress.state is ProgressState.PROBE:
            progress.become_replicate()
        elif progress.state is ProgressState.SNAPSHOT:
            if progress.match + 1 >= log.first_index():
                progress.become_probe()
                progress.become_replicate()
        else:
            progress.inflights.free_to(index)
        if progress.match > log.committed and self.commit_what_is_held():
            self._tell_commit()
        elif self.node.settings.tells_commit_at_once and progress.can_learn_commit(log.committed):
            self.send_append(peer)
        while progress.next <= log.last_index() and self.send_append(peer, even_if_empty=False):
            pass
        if peer == self.transferee and progress.match == log.last_index():
            self.node.send(MessageKind.TIMEOUT_NOW, peer)

    def _heartbeat_answered(self, message: RaftMessage, progress: PeerProgress) -> None:
        progress.recent_active = True
        # It is alive, so what we last sent may be lost: let one more message through. Into a full
        # window goes an empty append; its refusal tells us what is missing.
        progress.is_paused_until_answer = False
        if progress.match < self.node.log.last_index() or progress.state is ProgressState.PROBE:
            self.send_append(message.sender)
        if message.read_round > progress.read_round:
            progress.read_round = message.read_round
            progress.lease_tick = self._sent_at.get(message.read_round, progress.lease_tick)
            self._confirm_reads()

    # -- committing -------------------------------------------------------------------------

    def persisted(self, receipt: Persisted) -> None:
        """Our own disk is one voice of the quorum, heard after the sync like any other."""
        progress, durable = self.progress.get(self.node.id), self.node.log.durable_index()
        if progress is not None and progress.confirm(durable) and self.commit_what_is_held():
            self._tell_commit()

    def _tell_commit(self) -> None:
        if self.node.settings.tells_commit_at_once:
            self.broadcast_append()

    def commit_what_is_held(self) -> bool:
        node = self.node
        held = {peer: progress.match for peer, progress in self.progress.items()}
        if not node.log.commit_counted(node.membership.quorum_index(held), node.term):
            return False
        node.trace("commit", index=node.log.committed)
        self._release_early_reads()
        return True

    # -- reading ----------------------------------------------------------------------------

    def read_index(self, asker: int, context: bytes) -> None:
        """Answer with the commit index, once it is certain that we lead."""
        if not self.has_committed_in_term():
            # Entries committed by earlier leaders may still look uncommitted to us (Raft 8).
            self._reads_before_first_commit.append((asker, context))
            return
        if self.node.settings.lease_reads and self.has_lease():
            self._answer(PendingRead(0, self.node.log.committed, asker, context))
            return
        if self._rounds.ask(self.node.log.committed, asker, context):
            self.broadcast_heartbeat()
        self._confirm_reads()  # a group of one needs no answer

    def has_lease(self) -> bool:
        """A quorum answered heartbeats so lately that it still refuses votes to everyone else.

        Counted from when the heartbeat left, and for three quarters of the shortest timeout: ticks
        of two nodes may differ by that much. No peer may be asked to campaign meanwhile.
        """
        if self._lease_is_given_up:
            return False
        ticks = {peer: progress.lease_tick for peer, progress in self.progress.items()}
        ticks[self.node.id] = self._clock
        begun = self.node.membership.quorum_index(ticks)
        return begun > 0 and self._clock - begun < self.node.settings.election_ticks * 3 // 4

    def _release_early_reads(self) -> None:
        if not self._reads_before_first_commit:
            return
        waiting, self._reads_before_first_commit = self._reads_before_first_commit, []
        for asker, context in waiting:
            self.read_index(asker, context)

    def _confirm_reads(self) -> None:
        if not len(self._rounds):
            return
        rounds = {peer: progress.read_round for peer, progress in self.progress.items()}
        rounds[self.node.id] = self._rounds.round
        for read in self._rounds.confirmed(self.node.membership.quorum_index(rounds)):
            self._answer(read)

    def _answer(self, read: PendingRead) -> None:
        if read.asker in (NOBODY, self.node.id):
            self.node.reads.append(ReadState(read.index, read.context))
        else:
            self.node.send(
                MessageKind.READ_INDEX_REPLY, read.asker, index=read.index, context=read.context
            )

    def waiting_reads(self) -> int:
        return len(self._rounds) + len(self._reads_before_first_commit)

    # -- handing over -----------------------------------------------------------------------

    def transfer_to(self, successor: int) -> None:
        """Catch the successor up, then tell it to campaign at once. Refuses proposals meanwhile;
        gives up after an election timeout."""
        node = self.node
        if successor == node.id:
            self.transferee = NOBODY  # we keep it after all
            return
        progress = self.progress.get(successor)
        if progress is None or not node.membership.is_voter(successor):
            return
        if self.transferee == successor:
            return  # asking twice does not buy more time
        self.transferee = successor
        # It may campaign from now on, however late, and its votes ignore the lease.
        self._lease_is_given_up = True
        node.election_elapsed = 0
        if progress.match == node.log.last_index():
            node.send(MessageKind.TIMEOUT_NOW, successor)
        else:
            self.send_append(successor)

    # -- reports ----------------------------------------------------------------------------

    def peer_restarted(self, peer: int) -> None:
        progress = self.progress.get(peer)
        if progress is not None and peer != self.node.id:
            progress.forget()

    def peer_is_unreachable(self, peer: int) -> None:
        progress = self.progress.get(peer)
        if progress is not None and progress.state is ProgressState.REPLICATE:
            progress.become_probe()

    def snapshot_was_sent(self, peer: int, *, arrived: bool) -> None:
        progress = self.progress.get(peer)
        if progress is not None and progress.state is ProgressState.SNAPSHOT:
            progress.snapshot_was_sent(arrived=arrived)

    # -- membership -------------------------------------------------------------------------

    def applied(self, index: int) -> None:
        if self.node.membership.auto_leave and index >= self.pending_membership_index:
            last = self.append([(EntryKind.MEMBERSHIP, b"")])
            self.pending_membership_index = last.index

    def membership_changed(self, membership: Membership) -> None:
        """The applied change counts from now on: quorums, peers, perhaps our own place."""
        node = self.node
        members = membership.everybody()
        for peer in [peer for peer in self.progress if peer not in members]:
            del self.progress[peer]
        for peer in members:
            if peer not in self.progress:
                progress = self._new_progress(next_index=max(node.log.last_index(), 1))
                # It had no chance to answer yet; the next quorum check must not count it lost.
                progress.recent_active = True
                self.progress[peer] = progress
        self.progress = {peer: self.progress[peer] for peer in sorted(self.progress)}
        if not membership.is_voter(node.id):
            node.become_follower(node.term, NOBODY)
            return
        if self.commit_what_is_held():
            self.broadcast_append()
        else:
            for peer in self.peers():
                self.send_append(peer, even_if_empty=False)
        self._confirm_reads()
        if self.transferee != NOBODY and not membership.is_voter(self.transferee):
            self.transferee = NOBODY


def check_may_change_membership(leader: Leader, change: MembershipChange) -> None:
    node = leader.node
    if leader.pending_membership_index > node.log.applied:
        raise MembershipChangeRefused(
            f"the change at {leader.pending_membership_index} may be unapplied"
            f" (applied {node.log.applied})"
        )
    if not leader.has_committed_in_term():
        # Otherwise two leaders could each lead on from a configuration the other never saw.
        raise MembershipChangeRefused("nothing of this term is committed yet")
    after = changed(node.membership, change)
    if node.settings.membership_needs_live_quorum and not change.is_leave():
        live = {peer for peer, pr in leader.progress.items() if pr.is_live()} | {node.id}
        if not after.has_quorum_of(live):
            raise MembershipChangeRefused(
                f"of the voters {after.all_voters()} only {sorted(live)} are heard from"
            )
