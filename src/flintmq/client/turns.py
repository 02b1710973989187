"""Calls that need not wait would never let the event loop run: now and then they let it."""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine

TURNS = 128


class Turns:
    """Counts calls that did not suspend; every 128th gives everybody else a turn."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = TURNS

    def spend(self) -> bool:
        """Count one call; True when it is time to `pause`, before the call does anything."""
        self._left -= 1
        return self._left <= 0

    @coroutine
    def pause(self) -> Generator[None, None, None]:
        self._left = TURNS
        yield
