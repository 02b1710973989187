"""An event loop whose time is simulated: no threads, no sockets, no clock of the machine.

Callbacks run in the order in which they were asked for, as with every loop. When none is left, time
leaps to the next timer. Timers of the same moment run in an order that the seed decides. What would
go to a thread is done at once. So a run follows from its seed alone.
"""

from __future__ import annotations

import asyncio
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from random import Random
from typing import Any

TURNS_MAX = 100_000
"""How many turns may follow each other without time passing: more never end."""
TIE_SECONDS = 1e-7
"""By how much the seed moves a timer."""


class LoopStuck(Exception):
    """Nothing is left to wait for, or time does not pass any more."""


class _NoSockets:
    """Where a loop waits for its sockets, this one lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self._turns = 0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise LoopStuck("nobody waits for a time, and somebody waits")
        if timeout:
            self.now += timeout
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS_MAX:
                raise LoopStuck(f"{TURNS_MAX} turns at one moment")
        return []


class SimulatedLoop(BaseEventLoop):
    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._selector = _NoSockets()
        self.events = 0
        """How many timers were set."""

    def time(self) -> float:
        return self._selector.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self.events += 1
        when += self._random.random() * TIE_SECONDS
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def end(self) -> None:
        """Have whoever is left hear that it is over, and close."""
        left = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left, timeout=60))
        self.close()

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...
