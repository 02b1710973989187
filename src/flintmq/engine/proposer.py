"""From a decision to its effect: propose, log, commit, apply, answer.

What is committed is applied in the order of the log, whoever proposed it. What becomes of a
proposal is told by the index and the term it got:

    its entry is applied here, leading or not any more       applied
    another entry is applied at its index                    NotLeader: surely not done
    a snapshot covers its index                              OutcomeUnknown
    the log stops                                            OutcomeUnknown
    it was gathered and never proposed                       whatever ended that: surely not done
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter, thread_time
from typing import NamedTuple

from ..broker_api import Waiter
from ..errors import FlintError, NotLeader, OutcomeUnknown, StorageFull
from ..group_model import Ranges
from ..model import Durability
from ..observe.metrics import Histogram
from .command_log import CommandLog
from .commands import Attempts, Command, Settle
from .group_turn import GroupTurn
from .publish_turn import PublishTurn
from .waiting import again

QUEUE_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for the journal before publishers have to wait too."""

SERVE_SECONDS = 0.005
"""What groups that were woken may take of one turn of the event loop."""

Done = asyncio.Future[None] | None
"""What to wait for; None where it is done already."""


async def wait_for(done: Done) -> None:
    """Wait for a change; it is carried out also if whoever asked for it leaves."""
    if done is not None:
        await asyncio.shield(done)


class _Proposal(NamedTuple):
    at: int
    term: int
    size: int
    command: Command
    waiters: list[Waiter]
    """Who hears of it; more may come."""
    measures: Sequence[Histogram]
    proposed_at: float


class Proposer:
    """Hands commands to a log and applies them when they come back.

    `on_fault` is called where a command that has to be applied cannot be: what is in memory is then
    no longer what the log says, and `fail` is expected to follow.
    """

    def __init__(
        self,
        log: CommandLog,
        apply: Callable[[Command], None],
        durability: Durability,
        on_fault: Callable[[str, Exception], None],
    ) -> None:
        self.log, self._apply = log, apply
        self.durability: Durability = durability
        self.is_instant = log.is_instant
        self._on_fault = on_fault
        self._flying: deque[_Proposal] = deque()
        self.queued_bytes = 0
        """Proposed and not yet applied."""
        self.queue_bytes_max = QUEUE_BYTES_MAX
        self.submitted_bytes_max: float = inf
        """What the log may have taken before publishers have to wait for checkpoints."""
        self.is_full = False
        """Whether publishers have to wait, by those two."""
        self._groups: GroupTurn | None = None
        """What queue groups decided in this turn of the event loop and is not proposed yet."""
        self._woken: list[Callable[[], object]] = []
        self._held_back: list[Callable[[], None]] = []
        self.turn: PublishTurn | None = None
        """What was published in this turn of the event loop and is not proposed yet."""
        self._turn_ends: list[Callable[[], None]] = []
        self._is_ending = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """On which turns end; None before the first."""
        self._quiet: list[asyncio.Future[None]] = []
        self.failure: FlintError | None = None
        self.full: StorageFull | None = None
        """Why publishers are refused; consumers go on."""
        self.applied = log.index
        self._submitted = self._not_done = self._unknown = 0
        self._term_begun: _Wait | None = None

    # --- leading

    def begin_term(self, above: int) -> None:
        """Propose under a new term from now on, above that number."""
        if self.failure is not None:
            raise again(self.failure)
        self._term_begun = _Wait()
        self.log.begin_term(above, self._term_begun.applied)

    async def wait_term(self) -> None:
        """Wait until nobody can ever lead under our term again."""
        while (begun := self._term_begun) is not None and not begun.future.done():
            await asyncio.shield(begun.future)

    # --- proposing

    def propose(
        self,
        command: Command,
        waiters: Sequence[Waiter] = (),
        on_written: Callable[[], None] | None = None,
        *,
        sync_can_wait: bool = False,
    ) -> None:
        """Hand a command to the log, behind what was decided before. With `sync_can_wait` all who
        wait for it are content once it is written."""
        if self.failure is not None:
            raise again(self.failure)
        if self.is_instant:
            self._apply(command)
            for waiter in waiters:
                waiter.applied()
            return
        if self._groups is not None:
            self.propose_groups()
        if self.turn is not None:
            self.propose_turn()
        self._submit(command, list(waiters), on_written, (), sync_can_wait)

    def begin_turn(self, now_ms: int) -> PublishTurn:
        """What is published from now on goes together, until this turn of the loop is over."""
        if not self._is_ending:
            self._end_turn_later()
        turn = self.turn = PublishTurn(now_ms)
        return turn

    def propose_turn(self) -> None:
        """Propose what was published so far. Its waiters hear of it if that fails."""
        turn, self.turn = self.turn, None
        if turn is not None:
            try:
                if self.failure is not None:
                    raise again(self.failure)
                self._submit(turn.command(), turn.waiters, None, turn.measures)
            except FlintError as error:  # the journal has stopped; this never went in
                for waiter in turn.waiters:
                    waiter.failed(error)

    def _submit(
        self,
        command: Command,
        waiters: list[Waiter],
        on_written: Callable[[], None] | None,
        measures: Sequence[Histogram],
        sync_can_wait: bool = False,
    ) -> None:
        index, term, size = self.log.submit(command, on_written, sync_can_wait=sync_can_wait)
        self.queued_bytes += size
        self._submitted += 1
        self._flying.append(
            _Proposal(index, term, size, command, waiters, measures, perf_counter())
        )
        if self.queued_bytes >= self.queue_bytes_max or (
            self.log.submitted_bytes >= self.submitted_bytes_max
        ):
            self.is_full = True

    def change(self, command: Command, future: Done = None) -> Done:
        """Have a command applied; what to wait for: `future`, if there is one already."""
        if self.is_instant:
            self._apply(command)
            return None
        waiter = _Wait(future)
        self.propose(command, (waiter,))
        return waiter.future

    def settle(
        self, topic: int, group: str, ranges: Ranges, reason: str = "", future: Done = None
    ) -> Done:
        """Groups are done with messages. What they decide within one turn of the event loop shares
        a command."""
        if self.is_instant:
            self._apply(Settle(topic, group, ranges, reason))
            return None
        waiter = _Wait(future)
        turn = self._groups or self._begin_groups()
        turn.settle(topic, group, ranges, reason)
        turn.waiters.append(waiter)
        if turn.is_due:
            self.propose_groups()
        return waiter.future

    def attempts(self, command: Attempts, future: Done = None) -> Done:
        """Have delivery counts kept: done once they are written; nobody waits for the sync."""
        if self.is_instant:
            return None  # they end with the process, like what was delivered
        waiter = _Wait(future)
        turn = self._groups or self._begin_groups()
        turn.count(command)
        turn.writers.append(waiter)
        if turn.is_due:
            self.propose_groups()
        return waiter.future

    def _begin_groups(self) -> GroupTurn:
        if self.failure is not None:
            raise again(self.failure)
        if not self._is_ending:
            self._end_turn_later()
        turn = self._groups = GroupTurn()
        return turn

    def propose_groups(self) -> None:
        """Propose what groups decided so far. Who waits for it hears of it if that fails."""
        turn, self._groups = self._groups, None
        if turn is not None:
            try:
                on_written = turn.was_written if turn.writers else None
                self.propose(
                    turn.command(),
                    [*turn.waiters, *turn.writers],
                    on_written,
                    sync_can_wait=not turn.waiters,
                )
            except FlintError as error:  # the journal has stopped; this never went in
                turn.failed(error)

    def serve_soon(self, callback: Callable[[], object]) -> None:
        """Call back when this turn of the event loop is over, one after the other with all groups
        that were woken, and propose what they decide as one. Where they are many, over turns."""
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._serve)
        self._woken.append(callback)

    def _serve(self) -> None:
        woken, self._woken = self._woken, []
        until = thread_time() + SERVE_SECONDS
        for number, callback in enumerate(woken, 1):
            callback()
            if not number % 16 and thread_time() > until and number < len(woken):
                asyncio.get_running_loop().call_soon(self._serve)
                self._woken = woken[number:] + self._woken
                break
        if self._groups is not None:
            self.propose_groups()
            self.log.go()

    def give_up(self, error: FlintError) -> None:
        """What was gathered and not proposed never will be: whoever waits for it hears so."""
        groups, self._groups = self._groups, None
        if groups is not None:
            groups.failed(again(error))
        turn, self.turn = self.turn, None
        if turn is not None:
            for publish in turn.waiters:
                publish.failed(again(error))

    # --- what became of it

    def committed(self, index: int) -> None:
        """What was proposed here is to be applied up to `index`: apply it, and answer."""
        flying = self._flying
        now = perf_counter()
        while flying and flying[0].at <= index:
            proposal = flying.popleft()
            self.queued_bytes -= proposal.size
            try:
                self._apply(proposal.command)
                self.applied = proposal.at
                for measure in proposal.measures:
                    measure.observe(now - proposal.proposed_at)
                for waiter in proposal.waiters:
                    waiter.applied()
            except Exception as error:
                flying.appendleft(proposal)  # whoever waits for it hears of it with the others
                self._on_fault(f"applying {type(proposal.command).__name__}", error)
                return
        if self.is_full:
            self.let_go_on()
        if self._quiet:
            self._tell_quiet()

    def is_ours(self, index: int, term: int) -> bool:
        """Whether the entry that is to be applied next was proposed here. What was proposed here
        under an earlier term and is not applied by now is nowhere: terms only grow in a log."""
        flying = self._flying
        while flying and (flying[0].term < term or flying[0].at < index):
            self._fail(flying.popleft(), NotLeader(0, 0))
        return bool(flying) and flying[0].at == index

    def take(self, index: int, term: int, command: Command | None) -> None:
        """Apply an entry of the log that somebody else may have proposed: who led before, or this
        node before it was started again. None: one that changes nothing here. Raises what applying
        raises."""
        if self.is_ours(index, term):
            self.committed(index)
            return
        if command is not None:
            self._apply(command)
        self.applied = index
        if self._quiet:
            self._tell_quiet()

    def unknown(self, why: str) -> None:
        """What became of all that was proposed and not applied will not be heard here."""
        while self._flying:
            self._fail(self._flying.popleft(), OutcomeUnknown(why))
        self.let_go_on()
        self._tell_quiet()

    def lost(self, index: int) -> None:
        """From `index` on, others' commands are in the place of ours, which are nowhere then."""
        while self._flying and self._flying[-1].at >= index:
            self._fail(self._flying.pop(), NotLeader(0, 0))
        self.let_go_on()
        self._tell_quiet()

    def covered(self, index: int) -> None:
        """A snapshot has taken the place of everything up to `index`: who knows what is in it."""
        while self._flying and self._flying[0].at <= index:
            self._fail(self._flying.popleft(), OutcomeUnknown("a snapshot covers it"))
        self.applied = max(self.applied, index)
        self.let_go_on()
        self._tell_quiet()

    def fail(self, cause: FlintError) -> None:
        """The log has stopped: what was proposed may or may not be in it."""
        if self.failure is None:
            self.failure = cause
        if self._term_begun is not None:
            self._term_begun.failed(again(cause))
        flying, self._flying = self._flying, deque()
        for proposal in flying:
            self._fail(proposal, OutcomeUnknown(str(cause)))
        held_back, self._held_back = self._held_back, []
        for wake in held_back:
            wake()
        self._tell_quiet()

    def _fail(self, proposal: _Proposal, error: FlintError) -> None:
        self.queued_bytes -= proposal.size
        if isinstance(error, NotLeader):
            self._not_done += 1
        else:
            self._unknown += 1
        for waiter in proposal.waiters:
            waiter.failed(again(error))

    def fates(self) -> dict[str, int]:
        """What became of everything that was proposed here, but for what is on its way."""
        heard = self._not_done + self._unknown
        applied = self._submitted - heard - len(self._flying)
        return {"applied": applied, "not_done": self._not_done, "unknown": self._unknown}

    # --- waiting

    async def wait_applied(self) -> None:
        """Wait until everything that was proposed so far is applied."""
        if self.failure is not None:
            raise again(self.failure)
        self.propose_turn()
        if self._flying:
            waiter = _Wait()
            self._flying[-1].waiters.append(waiter)
            await waiter.future

    async def wait_room(self) -> None:
        """Wait until the log has caught up far enough to take more."""
        while self.is_full and self.failure is None:
            waiter = _Wait()
            self.when_room(waiter.applied)
            await waiter.future

    def is_quiet(self) -> bool:
        """Nothing is decided and not yet applied."""
        return not (self._flying or self._turn_ends or self.turn or self._groups)

    async def wait_quiet(self) -> None:
        while not self.is_quiet():
            waiter = _Wait()
            self._quiet.append(waiter.future)
            await waiter.future

    def _tell_quiet(self) -> None:
        if self._quiet and self.is_quiet():
            quiet, self._quiet = self._quiet, []
            for future in quiet:
                if not future.done():
                    future.set_result(None)

    # --- back-pressure, and what is gathered within a turn

    def check_room(self) -> None:
        """Raise where the disk has no room for more."""
        if self.full is not None:
            raise again(self.full)

    def let_go_on(self) -> None:
        """Wake publishers that were held back, if there is room now."""
        self.is_full = (
            self.queued_bytes >= self.queue_bytes_max
            or self.log.submitted_bytes >= self.submitted_bytes_max
        )
        if self._held_back and not self.is_full:
            held_back, self._held_back = self._held_back, []
            for wake in held_back:
                wake()

    def when_room(self, wake: Callable[[], None]) -> None:
        self._held_back.append(wake)

    def at_end_of_turn(self, callback: Callable[[], None]) -> None:
        """Call back once when this turn of the event loop is over."""
        if not self._is_ending:
            self._end_turn_later()
        self._turn_ends.append(callback)

    def _end_turn_later(self) -> None:
        self._is_ending = True
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        self.loop.call_soon(self.end_turn)
        self.log.hold()

    def end_turn(self) -> None:
        callbacks, self._turn_ends = self._turn_ends, []
        try:
            for callback in callbacks:
                callback()
            self.propose_turn()
            self.propose_groups()
            self._is_ending = False
            if self._turn_ends or self._groups is not None:  # since
                self._end_turn_later()
            self.log.go()
        except Exception as error:
            self._is_ending = False
            self._on_fault("proposing what was gathered", error)
        if self._quiet:
            self._tell_quiet()


class _Wait:
    """Somebody who waits, or has left since: then nobody has to hear."""

    __slots__ = ("future",)

    def __init__(self, future: Done = None) -> None:
        self.future = future or asyncio.get_running_loop().create_future()

    def applied(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()
