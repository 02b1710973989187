"""Calls that need not wait would never let the event loop run: now and then they let it."""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine

TURNS = 128


class YieldEvery:
    """Counts calls that did not suspend; every 128th gives everybody else a turn."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = TURNS
        """Every call takes one, and at 0 awaits `pause`: a read before it takes anything, a publish
        when it has its place, which others would take from it meanwhile."""

    @coroutine
    def pause(self) -> Generator[None, None, None]:
        self.left = TURNS
        yield
