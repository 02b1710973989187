"""Where consumers wait: woken all together, or each when its time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..clock import Clock


class Parking:
    """Waiting takes nothing, so being cancelled loses nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parked: set[asyncio.Future[bool]] = set()

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._parked)

    async def wait(
        self, timeout: float | None, when_parked: Callable[[], object] | None = None
    ) -> bool:
        """True once woken, False when the time is up first. `when_parked` is called in between."""
        parked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._parked.add(parked)
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
            self._parked.discard(parked)
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        parked, self._parked = self._parked, set()
        for future in parked:
            if not future.done():
                future.set_result(True)
