"""From a decision to its effect: propose, journal, commit, apply, answer.

What was proposed is applied in the order of the journal, once it is as durable as the policy asks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol

from ..errors import FlintError, OutcomeUnknown
from ..metrics import Histogram
from ..model import Durability
from .commands import Buffer, Command, encode_command
from .waiting import again

QUEUE_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for the journal before publishers have to wait too."""


class Waiter(Protocol):
    """Who wants to hear that a command was applied, or that nobody knows."""

    def applied(self, durability: Durability) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class _Proposal(NamedTuple):
    place: int
    command: Command
    size: int
    waiters: Sequence[Waiter]
    measure: Histogram | None
    proposed_at: float


class Proposer:
    """Hands commands to the journal and applies them when they come back.

    `submit` queues a record and returns its index; `committed` is called with the highest index
    that may be applied, `fail` when the journal has stopped for good. `on_fault` is called where a
    command that has to be applied cannot be: what is in memory is then no longer what the journal
    says, and `fail` is expected to follow.
    """

    def __init__(
        self,
        submit: Callable[[Sequence[Buffer], Callable[[], None] | None], int],
        apply: Callable[[Command], None],
        durability: Durability,
        on_fault: Callable[[str, Exception], None],
    ) -> None:
        self._submit, self._apply, self.durability = submit, apply, durability
        self._on_fault = on_fault
        self._flying: deque[_Proposal] = deque()
        self._queued_bytes = 0
        self.queue_bytes_max = QUEUE_BYTES_MAX
        self.is_behind = False
        """Whether publishers have to wait for something else: checkpoints that cannot keep up."""
        self._held_back: list[Callable[[], None]] = []
        self._turn_ends: list[Callable[[], None]] = []
        self._quiet: list[asyncio.Future[None]] = []
        self.failure: FlintError | None = None
        self.applied = 0
        self.is_recovering = False
        """Whether what is applied was decided by a process before this one."""

    def propose(
        self,
        command: Command,
        waiters: Sequence[Waiter] = (),
        on_written: Callable[[], None] | None = None,
        measure: Histogram | None = None,
    ) -> None:
        """Hand a command to the journal. `on_written` is called once it is written there, which
        may be long before it is synced and applied; not at all if the journal stops. `measure`
        gets the seconds until it was applied."""
        if self.failure is not None:
            raise again(self.failure)
        buffers = encode_command(command)
        size = sum(map(len, buffers))
        index = self._submit(buffers, on_written)
        self._queued_bytes += size
        self._flying.append(_Proposal(index, command, size, waiters, measure, perf_counter()))

    async def carry_out(self, command: Command) -> None:
        """Propose a command and wait until it was applied."""
        await self.begin(command)

    def begin(self, command: Command) -> asyncio.Future[None]:
        """Propose a command; the future that is done when it was applied."""
        waiter = _Wait()
        self.propose(command, (waiter,))
        return waiter.future

    async def wait_applied(self) -> None:
        """Wait until everything that was proposed so far is applied."""
        if self.failure is not None:
            raise self.failure
        if self._flying:
            waiter = _Wait()
            last = self._flying.pop()
            self._flying.append(last._replace(waiters=(*last.waiters, waiter)))
            await waiter.future

    async def wait_room(self) -> None:
        """Wait until the journal has caught up far enough to take more."""
        while self.is_full() and self.failure is None:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_room(lambda room=room: room.done() or room.set_result(None))  # type: ignore[misc]
            await room

    def committed(self, index: int) -> None:
        """Everything up to `index` is in the journal: apply it, and answer."""
        flying = self._flying
        now = perf_counter()
        while flying and flying[0].place <= index:
            proposal = flying.popleft()
            self._queued_bytes -= proposal.size
            try:
                self._apply(proposal.command)
                self.applied = proposal.place
                if proposal.measure is not None:
                    proposal.measure.observe(now - proposal.proposed_at)
                for waiter in proposal.waiters:
                    waiter.applied(self.durability)
            except Exception as error:
                flying.appendleft(proposal)  # whoever waits for it hears of it with the others
                self._on_fault(f"applying {type(proposal.command).__name__}", error)
                return
        self.let_go_on()
        self._tell_quiet()

    def fail(self, cause: FlintError) -> None:
        """The journal has stopped: what was proposed may or may not be in it."""
        if self.failure is None:
            self.failure = cause
        flying, self._flying = self._flying, deque()
        for proposal in flying:
            for waiter in proposal.waiters:
                waiter.failed(OutcomeUnknown(str(cause)))
        held_back, self._held_back = self._held_back, []
        for wake in held_back:
            wake()
        self._tell_quiet()

    def is_quiet(self) -> bool:
        """Nothing is decided and not yet applied."""
        return not self._flying and not self._turn_ends

    async def wait_quiet(self) -> None:
        while not self.is_quiet():
            quiet: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._quiet.append(quiet)
            await quiet

    def _tell_quiet(self) -> None:
        if self._quiet and self.is_quiet():
            quiet, self._quiet = self._quiet, []
            for future in quiet:
                if not future.done():
                    future.set_result(None)

    # --- back-pressure, and what is gathered within a turn

    @property
    def queued_bytes(self) -> int:
        """Proposed and not yet applied."""
        return self._queued_bytes

    def is_full(self) -> bool:
        return self.is_behind or self._queued_bytes >= self.queue_bytes_max

    def let_go_on(self) -> None:
        """Wake publishers that were held back, if there is room now."""
        if self._held_back and not self.is_full():
            held_back, self._held_back = self._held_back, []
            for wake in held_back:
                wake()

    def when_room(self, wake: Callable[[], None]) -> None:
        self._held_back.append(wake)

    def at_end_of_turn(self, callback: Callable[[], None]) -> None:
        """Call back once when this turn of the event loop is over."""
        if not self._turn_ends:
            asyncio.get_running_loop().call_soon(self.end_turn)
        self._turn_ends.append(callback)

    def end_turn(self) -> None:
        callbacks, self._turn_ends = self._turn_ends, []
        try:
            for callback in callbacks:
                callback()
        except Exception as error:
            self._on_fault("proposing what was gathered", error)
        self._tell_quiet()


class _Wait:
    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def applied(self, durability: Durability) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
