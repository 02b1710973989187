"""Where consumers wait: woken all together, a few at a time, or each when its time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from ..clock import Clock

WAKE_AT_ONCE = 2
"""How many one that was woken wakes in turn, while there is something for them."""


class Parking:
    """Waiting takes nothing, so being cancelled loses nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parked: dict[asyncio.Future[bool], None] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._parked)

    async def wait(
        self, timeout: float | None, when_parked: Callable[[], object] | None = None
    ) -> bool:
        """True once woken, False when the time is up first. `when_parked` is called in between."""
        parked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._parked[parked] = None
        timer = None
        if timeout is not None:
            timer = self._clock.call_later(
                timeout, lambda: None if parked.done() else parked.set_result(False)
            )
        try:
            if when_parked is not None:
                when_parked()
            return await parked
        finally:
            self._parked.pop(parked, None)
            if timer is not None:
                timer.cancel()

    async def wait_in_turn(
        self, timeout: float | None, when_parked: Callable[[], object], there: Callable[[], int]
    ) -> bool:
        """The same, for what is woken by `wake_some`. `there` is how much there is to take.

        Whoever is quick takes it all, and the others need not wake up. One that was woken and is
        cancelled leaves what it was woken for to others.
        """
        is_woken = False
        try:
            is_woken = await self.wait(timeout, when_parked)
        finally:
            if there() > is_woken:
                self.wake_some(WAKE_AT_ONCE)
        return is_woken

    def wake(self) -> None:
        parked, self._parked = self._parked, {}
        for future in parked:
            if not future.done():
                future.set_result(True)

    def wake_some(self, count: int) -> None:
        """Wake those who have waited longest: they wake more as long as there is more to take."""
        waiting = (future for future in self._parked if not future.done())
        for future in list(islice(waiting, count)):
            del self._parked[future]
            future.set_result(True)
