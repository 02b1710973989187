"""How much of the event loop's time may go into HTTP. Pure: the caller brings the time.

Messages and HTTP share one event loop. What HTTP takes of it is measured and paid from an account
that fills at a fixed share; while the account is overdrawn, HTTP waits, and messages do not.
"""

from __future__ import annotations

SAVED_SECONDS = 15.0
"""Of this long a pause the share is saved up, so that a scrape now and then never waits: by a
tenth, 1.5 s on the processor, several times what the figures of 20,000 topics take. Spent at once
it is still one small piece in each turn of the loop."""


class Budget:
    __slots__ = ("_at", "_credit", "share", "spent_seconds")

    def __init__(self, share: float, now: float) -> None:
        assert 0 < share <= 1, "a share of the time"
        self.share = share
        self._credit = share * SAVED_SECONDS
        self._at = now
        self.spent_seconds = 0.0

    def spend(self, seconds: float) -> None:
        self._credit -= seconds
        self.spent_seconds += seconds

    def wait_seconds(self, now: float) -> float:
        """How long the next piece of work has to wait; 0 where it may be done at once."""
        self._credit = min(self.share * SAVED_SECONDS, self._credit + (now - self._at) * self.share)
        self._at = now
        return 0.0 if self._credit > 0 else -self._credit / self.share
