"""Which token messages were last granted under, from what was noted of that in order.

Notes cost next to nothing when they are taken; what they come to is worked out when it is asked
for, and now and then, so that they stay few.
"""

from __future__ import annotations

from collections.abc import Callable

from ..group_model import Lease, Ranges
from .offset_set import OffsetSet

COMPACT_AT = 64


class Tokens:
    """The last note of a message counts. `open_in` says which of a range are of interest still."""

    def __init__(self, open_in: Callable[[int, int], Ranges]) -> None:
        self._open_in = open_in
        self._notes: list[Lease] = []
        self._compact_at = COMPACT_AT

    def note(self, token: int, ranges: Ranges) -> None:
        """These were granted under a token; under 0: they were given back."""
        self._notes.append((token, ranges))
        if len(self._notes) >= self._compact_at:
            self._notes = self.standing()
            self._compact_at = max(COMPACT_AT, 2 * len(self._notes))

    def standing(self) -> list[Lease]:
        """The tokens that still hold something, with that; in the order of the notes."""
        known = OffsetSet()
        found: list[Lease] = []
        for token, ranges in reversed(self._notes):
            mine: Ranges = []
            for start, stop in ranges:  # a note may name a message twice
                for first, last in self._open_in(start, stop):
                    runs = known.missing(first, last)
                    known.add_ranges(runs)
                    mine += runs
            if token and mine:
                found.append((token, mine))
        found.reverse()
        return found

    def clear(self) -> None:
        self._notes.clear()
