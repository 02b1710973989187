"""What a restart left open: the cursors stand before offsets that are settled, delayed or leased.

Always true: below `until`, what the lanes have is looked at before it is drawn, and what turns out
to be ready goes to `returned`; from `until` on, whatever the cursors come to is ready. `doubted` is
what was leased on and may lie on either side of the cursors: if it comes back before they have
passed it, they bring it, and it is not returned as well.

Relied on by `Queue.select`, which so never asks whether what it draws is settled.
"""

from __future__ import annotations

from ..group_model import Ranges
from .lanes import LOG
from .offset_set import OffsetSet
from .orders import ReadyOrder
from .places import Places
from .ranges import append_range, offsets_in

STEP = 1_024
UNKNOWN_BUDGET = 16_384
"""How many rows one look goes through."""


class CatchingUp:
    __slots__ = ("_order", "_places", "doubted", "until")

    def __init__(self, places: Places, order: ReadyOrder) -> None:
        self._places, self._order = places, order
        self.until = 0
        self.doubted = OffsetSet()

    def reaches(self, offset: int) -> None:
        """Something before this offset is elsewhere than the lanes say."""
        self.until = max(self.until, offset)

    def look(self, wanted: int) -> bool:
        """Look at what is open, as far as is needed; whether that is done.

        Ready ones are returned: at least `wanted` for each lane, if there are as many.
        """
        until, budget, is_over = self.until, UNKNOWN_BUDGET, True
        ready, places = self._order.ready, self._places
        cursors = ready.cursors
        for lane in self._order.lanes():
            returned = ready.returned[lane]
            while (head := cursors.head(lane)) < until:
                if len(returned) >= wanted and returned.count_before(head) >= wanted:
                    is_over = False
                    break
                if budget <= 0:
                    return False
                # A long stretch that is settled is passed in one step.
                open_at = places.settled.first_missing(max(head, places.floor))
                if open_at > head:
                    cursors.skip_to(lane, open_at)
                self._stage(lane, cursors.take(lane, STEP, until))
                budget -= STEP
        if is_over:
            self.until = 0
        return True

    def _stage(self, lane: int, ranges: Ranges) -> None:
        places = self._places
        missing, settled = places.settled.missing, places.settled
        ready: Ranges = []
        for start, stop in ranges:
            if stop - start > 1:
                ready += missing(start, stop)
            elif start not in settled:
                ready.append((start, stop))
        out: Ranges = []
        for place in (places.leased, places.limbo, places.selected):
            if place:
                if lane != LOG:  # it tells the priority, and not for ever: lanes are trimmed
                    out += [run for start, stop in ready for run in place.present(start, stop)]
                ready = [run for start, stop in ready for run in place.missing(start, stop)]
        delayed: Ranges = []
        if places.delayed:
            waits, rest = places.delayed.present, places.delayed.missing
            delayed = [run for start, stop in ready for run in waits(start, stop)]
            ready = [run for start, stop in ready for run in rest(start, stop)]
        if self.doubted:
            self.doubted.remove_ranges(ranges)
        self._order.stage(lane, ready, out, delayed)

    def passed(self, ranges: Ranges) -> Ranges:
        """Those of what comes back that the cursors will not bring."""
        if not self.doubted:
            return ranges
        passed: Ranges = []
        end = self._order.ready.index.end
        for offset in offsets_in(ranges):
            if offset in self.doubted and (offset >= end or self._order.is_ahead(offset)):
                continue
            append_range(passed, offset, offset + 1)
        return passed

    def clear(self) -> None:
        self.until = 0
        self.doubted.clear()
