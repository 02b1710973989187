"""The clock as a parameter: wall time, steady time, and callbacks in the future.

Everything that waits asks the clock of its connection, so that a test can move time by hand
(`flintmq.testing.ManualClock`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970; may jump."""

    def monotonic(self) -> float:
        """Steady time in seconds; for durations and timeouts."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` on the event loop once `seconds` have passed."""


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


async def done_within(clock: Clock, future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for something up to so many seconds; whether it is done. If not, it goes on."""
    late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, late.cancel)
    try:
        await asyncio.wait((future, late), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        late.cancel()
    return future.done()
