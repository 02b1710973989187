"""The one way in for everything HTTP does on the event loop: in turn, in pieces, within a budget.

One piece is done per turn of the loop, so messages are looked after between any two of them,
however many clients ask at once. Over the budget the line stands still; sockets are not read, and
those who hammer wait for each other and not messages for them.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from time import thread_time
from typing import Any, TypeVar

from .budget import Budget

T = TypeVar("T")

PIECE_SECONDS = 60e-6
"""What a piece costs beside what is measured: the socket, the loop, making and ending tasks."""

SLICE_SECONDS = 0.3e-3
"""How long a handler may go on before it steps aside for messages."""


class Turnstile:
    def __init__(self, share: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.budget = Budget(share, self._loop.time())
        self._line: deque[tuple[float, Callable[[], None]]] = deque()
        self._handle: asyncio.Handle | None = None
        self._closed = False
        self._step_began = 0.0
        self.held = 0
        """How often something had to wait because of the budget."""
        self.held_seconds = 0.0

    def enter(self, work: Callable[[], None]) -> None:
        """Have `work` done when it is its turn."""
        if not self._closed:
            self._line.append((self._loop.time(), work))
            self._go_on()

    async def pause(self) -> None:
        """Step aside; go on when it is this one's turn again."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self.enter(partial(_set, turn))
        await turn

    async def breathe(self) -> None:
        """Step aside if this step of a handler has taken long enough."""
        if thread_time() - self._step_began > SLICE_SECONDS:
            await self.pause()

    @types.coroutine
    def metered(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await `work`, and pay for each of its steps."""
        value, error = None, None
        while True:
            self._step_began = began = thread_time()
            try:
                awaited = work.send(value) if error is None else work.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                self.budget.spend(thread_time() - began)
            value, error = None, None
            try:
                value = yield awaited
            except BaseException as thrown:
                error = thrown

    def close(self) -> None:
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
        line, self._line = self._line, deque()
        for _, work in line:
            work()

    def _go_on(self) -> None:
        if self._handle is not None or not self._line:
            return
        wait = self.budget.wait_seconds(self._loop.time())
        if wait:
            self.held += 1
            self._handle = self._loop.call_later(wait, self._next)
        else:
            self._handle = self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._handle = None
        came, work = self._line.popleft()
        self.held_seconds += self._loop.time() - came
        began = thread_time()
        try:
            work()
        finally:
            self.budget.spend(thread_time() - began + PIECE_SECONDS)
            self._go_on()


def _set(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
