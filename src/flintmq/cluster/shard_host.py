"""One group on one node: the Raft core, its log in the journal, and the shard of the engine.

Facts come in (ticks, messages, commands, finished writes), `pump` carries out what the core wants
done: messages leave, entries are handed to the journal, what is committed is applied. Messages of
a turn leave before our own sync; nothing waits for the round before.

The standing of the shard:

    following    it applies what is committed, and refuses every verb
    elected      the others voted for us; we wait until the entry that opens our term is applied, so
                 that everything before it is
    taking lead  what only a leader has is being made from what is applied
    leading      verbs are decided here
    installing   a checkpoint of another node takes the place of what is here: it takes no part, and
                 another host follows once that is done
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from random import Random
from time import perf_counter

from ..clock import Clock, Timer
from ..engine.kept import KeptShard
from ..engine.recovery import RECOVERY_STEP_SECONDS, RecoveryPace
from ..errors import Closed, FlintError, NotLeader
from ..observe.logs import event
from ..raft import (
    NOBODY,
    EntryKind,
    MessageKind,
    RaftEntry,
    RaftMessage,
    RaftNode,
    RaftSettings,
    Ready,
)
from ..raft.leader import Leader
from ..raft.membership import changed, decode_change
from .lead import LeadConfirmation
from .reads import WaitingReads
from .replicated_log import ReplicatedLog, command_in
from .storage import KEEP_BYTES, JournalStorage, members_of
from .writes import ReadyWrites

_log = logging.getLogger(__name__)

FATE_SECONDS = 5.0
"""How long whoever proposed something waits to hear what became of it, once we do not lead."""
RECLAIM_SECONDS = 5.0
"""How long messages in work are kept for their consumers after the lead has changed."""
APPLY_SECONDS = 0.01
"""How long applying keeps the event loop to itself."""


class Standing(Enum):
    FOLLOWING = "following"
    ELECTED = "elected"
    TAKING_LEAD = "taking lead"
    LEADING = "leading"
    INSTALLING = "installing"


class ShardHost:
    def __init__(
        self,
        settings: RaftSettings,
        kept: KeptShard,
        log: ReplicatedLog,
        clock: Clock,
        random: Random,
        send: Callable[[list[RaftMessage]], None],
        make_good: Callable[[], None],
        *,
        keep_bytes: int = KEEP_BYTES,
        reclaim_seconds: float = RECLAIM_SECONDS,
    ) -> None:
        """`kept` was opened: its journal is applied as far as it is known to be committed."""
        self.shard, self._kept, self._clock, self._send = kept.shard, kept, clock, send
        self._journal_log = log
        head = kept.checkpoints.manifest.head
        membership = members_of(log.members or head.members)
        for change in log.changes:
            membership = changed(membership, decode_change(bytes(change.payload)))
        log.changes = []
        log.members_changed(membership)
        self.storage = JournalStorage(
            log.commit.journal,
            log.group,
            (head.checkpoint, head.term),
            membership,
            keep_bytes=keep_bytes,
        )
        applied = kept.shard.proposer.applied
        self.raft = RaftNode(settings, self.storage, random, applied=applied)
        self.on_too_far_behind: Callable[[list[int]], object] | None = None
        """Told which nodes need what the log no longer has, as long as they do."""
        self.storage.on_too_far_behind = self._tell_too_far_behind
        self.writes = ReadyWrites(
            log.commit,
            log.group,
            self.storage.initial_state()[0],
            is_behind=log.is_behind,
            on_done=self._done,
            on_written=log.entries_written,
        )
        log.on_gathered = self._gathered
        log.on_go = self.pump
        log.on_written = self.writes.written_up_to
        log.on_durable = self._durable_up_to
        log.needed = self.storage.compact
        self.standing = Standing.FOLLOWING
        self.on_changed: list[Callable[[], None]] = []
        """Told when the standing changes, or who leads."""
        self.before_leading: Callable[[], object] | None = None
        """Called once this node leads, before anybody else is told."""
        self._led_term = 0
        self._leader = NOBODY
        self._taking: asyncio.Task[None] | None = None
        self._fate: Timer | None = None
        self._reclaim_seconds = reclaim_seconds
        self._to_apply: deque[RaftEntry] = deque()
        self._outgoing: list[RaftMessage] = []
        self._reads = WaitingReads()
        self._is_due = self._is_pumping = False
        self.lead = LeadConfirmation(self.raft.has_lease, self._confirm, make_good)
        self.shard.around.lead = self.lead
        self.is_stopped = False
        self._refuse()

    @property
    def leader(self) -> int:
        return self.raft.leader

    @property
    def term(self) -> int:
        return self.raft.term

    @property
    def is_leading(self) -> bool:
        return self.standing is Standing.LEADING

    # --- what comes in

    def tick(self) -> None:
        if not self.is_stopped:
            self._propose_gathered()
            self.raft.tick()
            self.pump()

    def receive(self, messages: list[RaftMessage]) -> None:
        if not self.is_stopped:
            self._propose_gathered()
            for message in messages:
                self.raft.step(message)
            self.pump()

    def campaign(self) -> None:
        self.drive(self.raft.campaign)

    def hand_over(self, to: int) -> None:
        self.drive(self.raft.transfer_leadership, to)

    def peer_restarted(self, peer: int) -> None:
        self.drive(self.raft.peer_restarted, peer)

    def peer_lost(self, peer: int) -> None:
        self.drive(self.raft.report_unreachable, peer)

    def drive(self, step: Callable[..., object], *arguments: int) -> None:
        """Tell the core something, behind what was gathered."""
        self._propose_gathered()
        step(*arguments)
        self.pump()

    def _gathered(self) -> None:
        """A command was submitted: others of this turn go along."""
        if not self._is_pumping:
            self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._is_due = False
        self.pump()

    def _durable_up_to(self, ticket: int) -> None:
        if not self.is_stopped:
            self._propose_gathered()
            self.writes.durable_up_to(ticket)
            self.pump()

    def _done(self, ready: Ready) -> None:
        """What a Ready had to write is durable."""
        if ready.entries:
            self.storage.stored(ready.entries)
        self._outgoing += ready.messages_after_sync
        assert ready.persisted is not None
        self.raft.persisted(ready.persisted)

    # --- what is to be done

    def pump(self) -> None:
        if self._is_pumping or self.is_stopped:
            return
        self._is_pumping = True
        commit = self._journal_log.commit
        commit.hold()
        try:
            self._propose_gathered()
            while self.raft.has_ready():
                self._carry_out(self.raft.ready())
                self._propose_gathered()
            self._reads.serve(self.shard.proposer.applied)
            if self._outgoing:
                outgoing, self._outgoing = self._outgoing, []
                self._send(outgoing)
        except Exception as error:
            self.shard.fault("driving the Raft log", error)
            self.stop(self.shard.failure or Closed("the node"))
        finally:
            self._is_pumping = False
            commit.go()  # behind the messages: others write while we do

    def _carry_out(self, ready: Ready) -> None:
        self._look_at_standing()
        self._outgoing += ready.messages
        if ready.persisted is not None:
            wants_written = self._journal_log.wants_written()
            if self.writes.write(ready, tell_when_written=wants_written):
                self._done(ready)
        self._reads.confirmed(ready.reads)
        self._to_apply += ready.committed
        self._apply()

    def _propose_gathered(self) -> None:
        """Also before anything else is told to the core: what was submitted has its index, and
        nothing may come between."""
        log = self._journal_log
        if not log.gathered or self._is_handing_over():
            return
        if self._leads_in_its_term():
            self.raft.propose(*log.take_gathered())

    def _leads_in_its_term(self) -> bool:
        core = self.raft.core
        return isinstance(core.role, Leader) and core.term == self._led_term

    def _is_handing_over(self) -> bool:
        role = self.raft.role
        return isinstance(role, Leader) and role.transferee != NOBODY

    # --- applying

    def _apply(self) -> None:
        to_apply, proposer = self._to_apply, self.shard.proposer
        if not to_apply:
            return
        until = perf_counter() + APPLY_SECONDS
        while to_apply:
            entry = to_apply.popleft()
            self._apply_one(entry)
            if self.shard.failure is not None:
                raise self.shard.failure
            if perf_counter() > until and to_apply:
                asyncio.get_running_loop().call_soon(self._apply_rest)
                break
        self._propose_gathered()
        self.raft.applied(proposer.applied)
        if self.standing is Standing.ELECTED and self._has_applied_own_term():
            self._take_lead()

    def _apply_rest(self) -> None:
        if not self.is_stopped and not self._is_pumping:
            self._is_pumping = True
            try:
                self._apply()
            except Exception as error:
                self.shard.fault("applying what is committed", error)
                self.stop(self.shard.failure or Closed("the node"))
            finally:
                self._is_pumping = False
            self.pump()

    def _apply_one(self, entry: RaftEntry) -> None:
        index, term, log = entry.index, entry.term, self._journal_log
        proposer = self.shard.proposer
        is_ours = proposer.is_ours(index, term)
        if is_ours:
            proposer.committed(index)
        elif entry.kind is EntryKind.MEMBERSHIP:
            membership = self.raft.apply_membership(entry)
            if membership is not None:
                log.members_changed(membership)
            proposer.take(index, term, None)
        else:
            proposer.take(index, term, command_in(entry.data))
        if not entry.data and self._leads_in_its_term() and term == self._led_term:
            term = log.term  # until we begin it, the term is that of who led before
        log.applied(index, term, len(entry.data), is_ours=is_ours)

    def _has_applied_own_term(self) -> bool:
        log = self.raft.log
        return self._leads_in_its_term() and log.term(log.applied) == self._led_term

    # --- standing

    def _look_at_standing(self) -> None:
        core = self.raft.core
        if self.standing is not Standing.FOLLOWING and not self._leads_in_its_term():
            self._give_up_lead()
        if self.standing is Standing.FOLLOWING and isinstance(core.role, Leader):
            self._led_term = core.term
            self._stand(Standing.ELECTED)
        if core.leader != self._leader:
            self._leader = core.leader
            self._refuse()
            self._tell_changed()

    def _stand(self, standing: Standing) -> None:
        self.standing = standing
        self._tell_changed()

    def _tell_changed(self) -> None:
        for tell in list(self.on_changed):
            tell()

    def _refuse(self) -> None:
        """Verbs hear who leads."""
        if self.standing is not Standing.LEADING and self.shard.failure is None:
            self.shard.refusal = NotLeader(self.raft.core.id, self.raft.leader)

    def _take_lead(self) -> None:
        self._stand(Standing.TAKING_LEAD)
        self._journal_log.lead(self._led_term, self.raft.log.last_index())
        self._taking = asyncio.get_running_loop().create_task(self._begin_to_lead())

    async def _begin_to_lead(self) -> None:
        try:
            pace = RecoveryPace(True, RECOVERY_STEP_SECONDS)
            await self._kept.take_lead(self._reclaim_seconds, pace.step_aside)
        except Exception as error:
            self.shard.fault("taking the lead", error)
            return
        self._taking = None
        self.standing = Standing.LEADING
        if self.before_leading is not None:
            self.before_leading()
        event(
            _log,
            logging.INFO,
            "cluster_leading",
            f"this node leads group {self._journal_log.group}, term {self._led_term}",
            node=self.raft.core.id,
            group=self._journal_log.group,
            term=self._led_term,
            index=self.shard.proposer.applied,
        )
        self._tell_changed()

    def _give_up_lead(self) -> None:
        """Another leads, or nobody. What was gathered is surely not done; what was proposed waits
        for its fate, and no longer than a while."""
        was = self.standing
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        never = self._journal_log.give_up_lead()
        # First of all: clients that are sent away ask the next leader. If they were told before
        # that this was not done, they would take it for the answer.
        self._stand(Standing.FOLLOWING)
        if was in (Standing.TAKING_LEAD, Standing.LEADING):
            self.shard.give_up_lead()
            self.shard.proposer.lost(never)
            self._wait_for_fate()
        self._refuse()
        event(
            _log,
            logging.WARNING,
            "cluster_gave_up_lead",
            f"this node no longer leads group {self._journal_log.group}",
            node=self.raft.core.id,
            group=self._journal_log.group,
            term=self._led_term,
            leader=self.raft.leader,
        )
        self._reads.fail(NotLeader(self.raft.core.id, self.raft.leader))

    def _wait_for_fate(self) -> None:
        if self._fate is not None:
            self._fate.cancel()

        def unknown() -> None:
            self._fate = None
            if not self.is_leading:
                self.shard.proposer.unknown("the lead was lost before it was confirmed")

        self._fate = self._clock.call_later(FATE_SECONDS, self.shard.guarded(unknown))

    # --- reading

    async def _confirm(self) -> None:
        """Wait until it is certain that we led after this was asked, and that everything that was
        committed by then is applied. Raises NotLeader."""
        if not self._leads_in_its_term():
            raise NotLeader(self.raft.core.id, self.raft.leader)
        context, answered = self._reads.ask()
        self._propose_gathered()
        self.raft.read_index(context)
        self._pump_soon()
        await answered

    # --- checkpoints of other nodes

    def _tell_too_far_behind(self) -> None:
        if self.on_too_far_behind is not None and (behind := too_far_behind(self.raft)):
            self.on_too_far_behind(behind)

    def holds(self, index: int, term: int) -> bool:
        """Whether everything up to a committed entry is here, applied or only durable."""
        log = self.raft.log
        return index <= self.shard.proposer.applied or (
            index <= log.durable_index() and log.matches(index, term)
        )

    def tell_held(self, peer: int, index: int = 0) -> None:
        """Say how far we are, as the answer to an append does: what is applied is durable here, and
        every leader has it. So it is up to `index`, of a committed entry that we hold."""
        self._send([held(self.raft, peer, max(index, self.shard.proposer.applied))])

    async def retire(self) -> None:
        """Take no part any more, for another host to follow: what was handed to the journal is
        durable when this returns."""
        log, writes = self._journal_log, self.writes
        self.stop(NotLeader(self.raft.core.id, self.raft.leader))
        self.standing = Standing.INSTALLING
        log.on_durable = writes.durable_up_to
        await writes.wait_quiet(lambda: self.shard.proposer.failure)
        log.is_behind = writes.is_behind

    # --- the end

    def stop(self, error: FlintError) -> None:
        """Take no part any more. What was proposed may or may not be done."""
        if self.is_stopped:
            return
        if self.standing is not Standing.FOLLOWING:
            self._journal_log.give_up_lead()
            self.standing = Standing.FOLLOWING
        self.is_stopped = True
        if self._taking is not None:
            self._taking.cancel()
        if self._fate is not None:
            self._fate.cancel()
        self._reads.fail(error)
        self.shard.end(error)
        self.shard.proposer.unknown(str(error) or type(error).__name__)
        self._tell_changed()


def too_far_behind(raft: RaftNode) -> list[int]:
    """The followers that need what the log of this node, which leads, no longer has."""
    role = raft.role
    if not isinstance(role, Leader):
        return []
    first = raft.log.first_index()
    return [peer for peer in role.peers() if role.progress[peer].next < first]


def held(raft: RaftNode, peer: int, index: int) -> RaftMessage:
    """What answers an append: up to there we hold what every leader has."""
    core = raft.core
    return RaftMessage(MessageKind.APPEND_REPLY, core.id, peer, raft.term, index, group=core.group)


def may_install(host: ShardHost, index: int, term: int) -> bool:
    """Whether a checkpoint may take the place of all that is here. Where the log goes on beyond it,
    what is there may not follow from it; a term that we have not seen is not ours yet."""
    return (
        not host.is_stopped
        and host.standing is Standing.FOLLOWING
        and host.raft.log.last_index() < index
        and host.raft.term >= term
    )


def may_rebuild(host: ShardHost, index: int, term: int) -> bool:
    """Whether a checkpoint may take the place of what is applied, and not of the log: that has the
    entry with which it ends, or the one behind it, and goes on from there."""
    log = host.raft.log
    return (
        not host.is_stopped
        and host.standing is Standing.FOLLOWING
        and log.first_index() - 1 <= index <= log.durable_index()
        and log.matches(index, term)
    )
