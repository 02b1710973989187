"""A token bucket: how many messages may be handed out now, and when the next one may.

Pure. Times are seconds of the caller's monotonic clock.
"""

from __future__ import annotations

from math import ceil

SLACK_SECONDS = 1e-7
"""A token that is this near counts as there, and is owed: a waiter who slept as long as it was told
is served, though its clock rounds."""


class TokenBucket:
    """Refills at `rate` tokens a second, below one too. It begins with a burst's worth.

    The capacity is at least what a timer of 10 ms brings at that rate, so that one that is served
    late does not lose its share. Without `burst` it is a twentieth of a second's worth.
    """

    __slots__ = ("_at", "_slack", "_tokens", "burst", "capacity", "rate")

    def __init__(self, rate: float, burst: float | None = None) -> None:
        assert rate > 0, "a rate of nothing is a pause"
        self.rate = rate
        self.burst = max(1.0, rate / 20) if burst is None else max(1.0, burst)
        self.capacity = float(max(self.burst, ceil(rate / 100)))
        self._tokens = self.burst
        self._slack = min(0.5, 1e-9 + rate * SLACK_SECONDS)
        self._at: float | None = None

    def take(self, want: int, now: float) -> int:
        """Take up to `want` tokens; how many there were."""
        self._refill(now)
        taken = max(0, min(want, int(self._tokens + self._slack)))
        self._tokens -= taken
        return taken

    def refund(self, tokens: int) -> None:
        """Give back what was taken and not used."""
        self._tokens = min(self.capacity, self._tokens + tokens)

    def seconds_until(self, tokens: int, now: float) -> float:
        """How long until so many are there, or as many as there is room for; 0 if they are."""
        self._refill(now)
        lacking = min(tokens, int(self.capacity)) - self._tokens
        return lacking / self.rate if lacking > self._slack else 0.0

    def _refill(self, now: float) -> None:
        if self._at is None:
            self._at = now
        elif now > self._at:
            self._tokens = min(self.capacity, self._tokens + (now - self._at) * self.rate)
            self._at = now
