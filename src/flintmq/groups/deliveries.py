"""How often messages were delivered: with the delivery they are in.

Always true: `counts` has the deliveries that are over. A message that is leased or in limbo is in
one more, which is not written down: so that a first delivery that is settled, as nearly all are,
costs nothing here. `given_back` has those that were handed out, are not out any more, and have no
delivery that counts: they were released, or recalled behind another of their key.

Relied on by who leads next: what has a count or was given back is known to somebody, so its next
grant has to be durable before it is handed out; and by key, nothing behind it goes before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..group_model import Ranges
from .delivery_counts import DeliveryCounts
from .offset_set import OffsetSet
from .places import Places
from .ranges import ranges_of, without


class DeliveryTable:
    __slots__ = ("_places", "counts", "given_back")

    def __init__(self, places: Places) -> None:
        self._places = places
        self.counts = DeliveryCounts()
        self.given_back = OffsetSet()

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

    def was_given_back(self, ranges: Ranges) -> bool:
        """Whether any of these was handed out before, and that does not count."""
        given_back = self.given_back
        return bool(given_back) and any(given_back.present(*run) for run in ranges)

    def not_counted(self, ranges: Ranges) -> None:
        """These were out, and that delivery does not count."""
        counted = self.counts.counted(ranges)
        self.given_back.add_ranges(without(ranges, ranges_of(sorted(counted))))

    def seen(self) -> Ranges:
        """What was handed out at some time, ascending."""
        seen = OffsetSet((start, stop) for start, stop, _ in self.counts.runs())
        seen.add_ranges(self.given_back.ranges())
        return seen.ranges()

    def forget(self, ranges: Ranges) -> None:
        """These are done with."""
        if self.counts:
            self.counts.forget_all(ranges)
        if self.given_back:
            self.given_back.remove_ranges(ranges)

    def clear(self) -> None:
        self.counts.clear()
        self.given_back.clear()

    def apply(self, attempts: Iterable[tuple[int, int, int]]) -> None:
        """Set counts, (start, stop, count), as they were journaled; 0: it was given back."""
        counts, leased, limbo = self.counts, self._places.leased, self._places.limbo
        for start, stop, count in attempts:
            for first, last in self._places.open_in(start, stop):
                counts.set(first, last, count)
                if count:
                    self.given_back.remove_range(first, last)
                else:
                    self.given_back.add_range(first, last)
                if count and (leased or limbo):
                    counts.take_one(leased.present(first, last))
                    counts.take_one(limbo.present(first, last))

    def runs(self) -> list[tuple[int, int, int]]:
        """Every count as (start, stop, count), ascending."""
        whole = self.counts.copy()
        whole.add_one(self._places.leased.ranges())
        whole.add_one(self._places.limbo.ranges())
        return list(whole.runs())
