"""Waiting on the event loop with a timeout of the connection's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..clock import Clock
from ..errors import FlintError
from ..loop.callbacks import call_each


def again(error: FlintError) -> FlintError:
    """The same error for one more who is to hear it: an error that is raised twice gathers the
    traceback, and so the locals, of everybody who raised it."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.__dict__.update(error.__dict__)
    fresh.__cause__ = error.__cause__
    return fresh


def resolve(future: asyncio.Future[bool], outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)


def fail(future: asyncio.Future[bool], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class Bell:
    """Wakes everybody who waits for it. Waiting takes nothing, so being cancelled loses nothing."""

    __slots__ = ("_waiting", "listeners")

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[bool]] = set()
        self.listeners: set[Callable[[], None]] = set()
        """Called at every ring."""

    def ring(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            for future in waiting:
                resolve(future, True)
        if self.listeners:
            call_each(list(self.listeners))

    async def wait(self, clock: Clock, timeout: float | None) -> bool:
        """True once rung, False when the time is up first."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        if timeout is None:
            try:
                return await future
            finally:
                self._waiting.discard(future)
        timer = clock.call_later(timeout, lambda: resolve(future, False))
        try:
            return await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def __len__(self) -> int:
        return len(self._waiting)
