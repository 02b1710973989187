"""How many messages a subscription holds at most.

A fixed number; or, between two of them, as many as it settles in a tenth of a second. So quick work
does not wait for the broker, and slow work is left to whoever has time for it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock, Timer

AHEAD_SECONDS = 0.1
AHEAD_MAX = 1024
LOOK_SECONDS = 0.5
"""After this without much that was settled, what was taken too far ahead goes back."""


class TakeAhead:
    """The limit of one subscription. It grows while messages are settled, twofold at most each time
    that half of them are."""

    def __init__(self, clock: Clock, least: int, most: int) -> None:
        self._clock = clock
        self._least, self._most = least, max(least, most)
        self.limit = least
        self.refill_at = (least + 1) // 2
        """With room for so many, it is worth to ask the broker for more."""
        self.on_surplus: Callable[[], None] | None = None
        """Gives back what is held beyond the limit and was not handed out."""
        self._settled, self._since = 0, clock.monotonic()
        self._timer: Timer | None = None
        self._is_giving_back = False

    def settled(self, count: int) -> None:
        if self._is_giving_back:
            return
        self._settled += count
        if self._settled >= self.refill_at and self._least < self._most:
            self._set(min(self._pace(), 2 * self.limit))

    def _pace(self) -> int:
        """How many are settled in `AHEAD_SECONDS`, as of late."""
        now = self._clock.monotonic()
        took, count = now - self._since, self._settled
        self._settled, self._since = 0, now
        return int(count * AHEAD_SECONDS / took) if took > 0 else self._most

    def _set(self, wanted: int) -> None:
        self.limit = max(self._least, min(wanted, self._most))
        self.refill_at = (self.limit + 1) // 2
        if self.limit > self._least and self._timer is None:
            self._timer = self._clock.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._clock.monotonic() - self._since < LOOK_SECONDS:
            self._set(self.limit)  # it goes on well
            return
        self._set(self._pace())
        if self.on_surplus is not None:
            self._is_giving_back = True
            try:
                self.on_surplus()
            finally:
                self._is_giving_back = False
