"""The clock as a parameter: wall time, steady time, and callbacks in the future.

Everything that waits asks the clock of its connection, so that a test can move time by hand
(`flintmq.testing.ManualClock`).

A broker's own time (`SteadyClock`) decides when messages expire and are due. The machine's clock
may be set, by people or by a time service; the broker's time is not. The rule:

- It begins with the wall clock, or with the latest time its data has, whichever is later.
- From then on it runs with steady time, the time the machine sleeps included. It never goes back,
  and never leaps while the machine is awake.
- Where the wall clock says otherwise, it runs up to 1 % slower or faster until both agree. So a
  ttl or a delay is off by 1 % at most, whatever is done to the clock; and a broker that was started
  with a wrong clock is right in the end (a minute of difference takes 100 minutes).
- Append times come from it, and those of a topic never go back. A duration that counts from an
  append time (see batch/format.py) means the same after a restart.

A restart takes a step forward over at once: it cannot be told from time that has passed while the
broker was not there. A step back it follows slowly, as above.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

DRIFT_MAX = 0.01
"""How much slower or faster than steady time a broker's time runs, towards the wall clock."""

_SLEEPLESS: int | None = getattr(time, "CLOCK_BOOTTIME", None)
_MS = 1_000_000  # nanoseconds

LOOK_NS = 1000 * _MS
"""How often the two are compared, while anybody asks for the time."""

AGREE_NS = 2 * _MS
"""What is no difference: readings are rounded, and not taken at the same moment."""

STEP_NS = 1000 * _MS
"""What is told as a step of the wall clock."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970; may jump, unless it is a broker's."""
        ...

    def monotonic(self) -> float:
        """Steady time in seconds; for durations and timeouts."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` on the event loop once `seconds` have passed."""
        ...


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // _MS

    def monotonic(self) -> float:
        return time.monotonic()

    def asleep_ns(self) -> int:
        """How long the machine has slept, which its steady time does not count; 0 where the system
        does not say."""
        if not hasattr(time, "CLOCK_BOOTTIME"):
            return 0
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


def steady_seconds() -> float:
    """Steady time that goes on while the machine sleeps, where the system has such a time."""
    if _SLEEPLESS is None:
        return time.monotonic()
    return time.clock_gettime(_SLEEPLESS)


class SleeplessClock(SystemClock):
    """For what others count on meanwhile. Its timers are those of the loop: after a sleep they are
    late, and who looks at the time knows it."""

    def monotonic(self) -> float:
        return steady_seconds()


class SteadyClock:
    """A broker's time, by the rule above.

    Between two looks it is a straight line: steady time and `_shift`, which grows by `_drift` for
    each nanosecond since `_at`. Without drift, which is nearly always, that is one addition.
    """

    def __init__(self, source: Clock) -> None:
        self.source = source
        self.on_step: Callable[[float], None] | None = None
        """Told when the wall clock was set: by how many seconds."""
        self.monotonic = source.monotonic
        self.call_later = source.call_later
        self._steady_ns: Callable[[], int] = lambda: round(source.monotonic() * 1e9)
        self._asleep_ns: Callable[[], int] = lambda: 0
        if isinstance(source, SystemClock):
            self._steady_ns, self._asleep_ns = time.monotonic_ns, source.asleep_ns
        self._asleep = self._asleep_ns()
        self._begin(self._wall_ns(), 0)

    def _begin(self, now_ns: int, ahead_ns: int) -> None:
        self._at = self._look_at = self._plain_until = self._steady_ns()
        self._shift = now_ns - self._at
        self._drift = 0.0
        self._ahead = ahead_ns

    def now_ms(self) -> int:
        """Milliseconds since 1970; never less than before."""
        at = self._steady_ns()
        if at < self._plain_until:
            return (at + self._shift) // _MS
        if at >= self._look_at:
            self._look(at)
        return (at + self._shift + int((at - self._at) * self._drift)) // _MS

    def begin_at(self, ms: int) -> None:
        """There is data of this time: now is not earlier."""
        now = self.now_ms()
        if ms > now:
            self._begin(ms * _MS, self._ahead + (ms - now) * _MS)

    def _wall_ns(self) -> int:
        return self.source.now_ms() * _MS + _MS // 2  # so that what is cut off is rounded

    def _look(self, at: int) -> None:
        """Begin a new line, which brings both times together by the next look if it may.

        Nobody may have asked for long: that time has passed as was known at its beginning. What is
        seen only now counts from now on.
        """
        drifted = int((self._look_at - self._at) * self._drift)
        known = self._ahead + drifted
        shift = drifted + _towards_zero(known, at - self._look_at)
        expected = self._ahead + shift
        self._shift += shift + self._slept()
        self._at, self._look_at = at, at + LOOK_NS
        self._ahead = at + self._shift - self._wall_ns()
        self._drift = _towards_zero(self._ahead, LOOK_NS) / LOOK_NS
        self._plain_until = at if self._drift else self._look_at
        step = expected - self._ahead
        if abs(step) > STEP_NS and self.on_step is not None:
            self.on_step(step / 1e9)

    def _slept(self) -> int:
        """How long the machine was asleep since the last look: that time has passed as well."""
        slept = self._asleep_ns() - self._asleep
        if slept <= STEP_NS:  # the two readings behind it were not taken at the same moment
            return 0
        self._asleep += slept
        return slept


def _towards_zero(ahead: int, elapsed: int) -> int:
    """By how much a difference may be made smaller in that time, if it is one. Nanoseconds."""
    most = int(elapsed * DRIFT_MAX)
    return 0 if abs(ahead) <= AGREE_NS else min(max(-ahead, -most), most)


async def pause(clock: Clock, seconds: float) -> None:
    """Wait for so long, as this clock has it."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, over.cancel)
    try:
        await asyncio.wait((over,))
    finally:
        timer.cancel()


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
