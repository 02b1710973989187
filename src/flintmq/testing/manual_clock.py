"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush

START_MS = 1_700_000_000_000
_TURNS = 16
"""How many turns everybody gets after each step: a chain of tasks may wake each other."""


class ManualClock:
    """Time as a test wants it: `await clock.advance(5)` and everything due has happened.

    clock = ManualClock()
    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.publish("orders", b"...", ttl=60)
        await clock.advance(61)
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._elapsed = 0.0
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._counter = 0
        self._others: list[Callable[[], Awaitable[bool]]] = []

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back; steady time and timers do not notice."""
        self._start_ms += round(seconds * 1000)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _ManualTimer:
        self._counter += 1
        timer = _ManualTimer(callback)
        heappush(self._timers, (self._elapsed + max(0.0, seconds), self._counter, timer))
        return timer

    def wait_also_for(self, settled: Callable[[], Awaitable[bool]]) -> None:
        """Have time stand still while something other than a task is at work, such as a thread.

        `settled` waits until it is done, and returns whether there was anything to wait for.
        """
        self._others.append(settled)

    async def settle(self) -> None:
        """Let everybody run until they wait for something. No time passes."""
        await settle()
        while any([await settled() for settled in self._others]):
            await settle()

    async def advance(self, seconds: float) -> None:
        """Move time, running what falls due on the way at its own time and in its order."""
        await self.settle()
        until = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heappop(self._timers)
            self._elapsed = max(self._elapsed, due)
            if timer.callback is not None:
                timer.callback()
                await self.settle()
        self._elapsed = until
        await self.settle()

    def pending(self) -> int:
        """How many timers are set: 0 in a broker that has nothing to wait for."""
        return sum(timer.callback is not None for _, _, timer in self._timers)


class _ManualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
