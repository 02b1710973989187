"""How what a group decides is made to last: at once in memory, or by way of the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ..errors import FlintError
from ..group_model import Ranges
from .commands import Attempts, Command, Settle
from .proposer import Proposer
from .waiting import again

Done = asyncio.Future[None] | None
"""What to wait for; None where it is done already."""


class Keeper(Protocol):
    """Carries out decisions of the groups of one topic."""

    keeps_counts: bool
    """Whether delivery counts have to be written before messages are handed out."""

    @property
    def failure(self) -> FlintError | None: ...
    def settle(self, group: str, ranges: Ranges, reason: str = "") -> Done: ...
    def attempts(self, command: Attempts) -> Done:
        """Done once it is written; nobody waits for the sync."""
        ...

    def change(self, command: Command) -> Done: ...
    def give_up(self, error: FlintError) -> None:
        """Whoever waits for what was not proposed yet hears that it never will be."""
        ...


class AtOnce:
    """In memory: applied in the same step."""

    keeps_counts = False
    failure = None

    def __init__(self, topic: int, apply: Callable[[Command], None]) -> None:
        self._topic, self._apply = topic, apply

    def settle(self, group: str, ranges: Ranges, reason: str = "") -> None:
        self._apply(Settle(self._topic, group, ranges, reason))

    def attempts(self, command: Attempts) -> None:
        return None

    def change(self, command: Command) -> None:
        self._apply(command)

    def give_up(self, error: FlintError) -> None:
        return


class Journaled:
    """Over a journal: what is settled within one turn of the event loop shares a command."""

    keeps_counts = True

    def __init__(self, topic: int, proposer: Proposer) -> None:
        self._topic, self._proposer = topic, proposer
        self._gathered: dict[tuple[str, str], tuple[Ranges, list[_Waiter]]] = {}

    @property
    def failure(self) -> FlintError | None:
        return self._proposer.failure

    def settle(self, group: str, ranges: Ranges, reason: str = "") -> Done:
        if self._proposer.failure is not None:
            raise again(self._proposer.failure)
        waiter = _Waiter()
        known = self._gathered.get((group, reason))
        if known is None:
            if not self._gathered:
                self._proposer.at_end_of_turn(self._propose_gathered)
            self._gathered[group, reason] = (list(ranges), [waiter])
        else:
            known[0].extend(ranges)
            known[1].append(waiter)
        return waiter.future

    def _propose_gathered(self) -> None:
        for (group, reason), (ranges, waiters) in self._gathered.items():
            try:
                self._proposer.propose(Settle(self._topic, group, ranges, reason), waiters)
            except FlintError as error:  # the journal has stopped
                for waiter in waiters:
                    waiter.failed(error)
        self._gathered = {}

    def give_up(self, error: FlintError) -> None:
        gathered, self._gathered = self._gathered, {}
        for _, waiters in gathered.values():
            for waiter in waiters:
                waiter.failed(again(error))

    def attempts(self, command: Attempts) -> Done:
        waiter = _Waiter()
        self._proposer.propose(command, (_FailureOnly(waiter),), waiter.written)
        return waiter.future

    def change(self, command: Command) -> Done:
        self._propose_gathered()  # it was decided before
        waiter = _Waiter()
        self._proposer.propose(command, (waiter,))
        return waiter.future


class _Waiter:
    """Somebody who waits, or has left since: then nobody has to hear."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def applied(self, durability: object) -> None:
        self.written()

    def failed(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()


class _FailureOnly:
    """For whoever waits for the write: the sync is of interest only where there is none."""

    __slots__ = ("_waiter",)

    def __init__(self, waiter: _Waiter) -> None:
        self._waiter = waiter

    def applied(self, durability: object) -> None:
        self._waiter.written()

    def failed(self, error: BaseException) -> None:
        self._waiter.failed(error)
