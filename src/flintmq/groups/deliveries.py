"""How often messages were delivered: with the delivery they are in.

Always true: `counts` has the deliveries that are over. A message that is leased or in limbo is in
one more, which is not written down: so that a first delivery that is settled, as nearly all are,
costs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..group_model import Ranges
from .delivery_counts import DeliveryCounts
from .places import Places


class Deliveries:
    __slots__ = ("_places", "counts")

    def __init__(self, places: Places) -> None:
        self._places = places
        self.counts = DeliveryCounts()

    def of(self, offset: int) -> int:
        places = self._places
        return self.counts[offset] + (offset in places.leased or offset in places.limbo)

    def of_granted(self, ranges: Ranges) -> dict[int, int]:
        """Of what was just granted, where it is not the first."""
        if not self.counts:
            return {}
        return {offset: count + 1 for offset, count in self.counts.counted(ranges).items()}

    def exhausted(self, ranges: Ranges, max_deliveries: int) -> list[int]:
        """Which of these were delivered as often as they may be."""
        counts = self.counts.counted(ranges)
        return [offset for offset, count in counts.items() if count >= max_deliveries]

    def apply(self, attempts: Iterable[tuple[int, int, int]]) -> None:
        """Set counts, (start, stop, count), as they were journaled."""
        counts, leased, limbo = self.counts, self._places.leased, self._places.limbo
        for start, stop, count in attempts:
            for first, last in self._places.open_in(start, stop):
                counts.set(first, last, count)
                if count and (leased or limbo):
                    counts.take_one(leased.present(first, last))
                    counts.take_one(limbo.present(first, last))

    def runs(self) -> list[tuple[int, int, int]]:
        """Every count as (start, stop, count), ascending."""
        whole = self.counts.copy()
        whole.add_one(self._places.leased.ranges())
        whole.add_one(self._places.limbo.ranges())
        return list(whole.runs())
