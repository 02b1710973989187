"""What a group can be handed next: what lies ahead of its cursors, and what came back.

Messages that came back, or were delayed and are due, are in a set for each lane; they go ahead of
later ones of their lane. Which lanes count, and how many of each, is the order's to say.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..group_model import Ranges
from .lanes import END, LANES, LOG, LaneIndex
from .offset_set import OffsetSet
from .ranges import count_in, extend_ranges, joined, ranges_of


class ReadyOffsets:
    __slots__ = ("cursors", "index", "returned", "used")

    def __init__(self, index: LaneIndex, floor: int) -> None:
        self.index = index
        self.cursors = index.cursor(floor)
        self.returned = [OffsetSet() for _ in range(LANES)]
        self.used = 0
        """Into which lanes of priorities something ever came back, a bit for each."""

    def begin(self, index: LaneIndex, floor: int) -> None:
        """Begin anew: nothing has come back."""
        self.leave()
        self.index = index
        self.cursors = index.cursor(floor)
        for returned in self.returned:
            returned.clear()

    def leave(self) -> None:
        self.index.leave(self.cursors)

    def add(self, lane: int, ranges: Ranges) -> None:
        if lane != LOG:
            self.used |= 1 << lane
        self.returned[lane].add_ranges(ranges)

    def is_ahead(self, lane: int, offset: int) -> bool:
        """Whether the cursor has yet to come to an offset."""
        return self.cursors.head(lane) <= offset and self.index.lanes[lane].has(offset)

    def lowest(self, lane: int, wanted: int) -> list[int]:
        """The first of a lane, left where they are."""
        offsets = self.cursors.peek(lane, wanted)
        if self.returned[lane]:
            return sorted(self.returned[lane].lowest(wanted) + offsets)[:wanted]
        return offsets

    def first_of(self, lanes: Iterable[int], wanted: int) -> Ranges:
        """The first of some lanes, one lane after the other, left where they are."""
        parts: list[Ranges] = []
        for lane in lanes:
            offsets = self.lowest(lane, wanted)
            parts.append(ranges_of(offsets))
            wanted -= len(offsets)
            if wanted <= 0:
                break
        return joined(parts)

    def draw(self, lane: int, wanted: int) -> Ranges:
        """The first of a lane, off it."""
        returned, cursors = self.returned[lane], self.cursors
        if not returned:
            return cursors.take(lane, wanted)
        ranges: Ranges = []
        while wanted > 0:
            head, first = cursors.head(lane), returned.first()
            if first is not None and first < head:
                some = returned.take_lowest(wanted, head)
            elif head != END:
                some = cursors.take(lane, wanted, END if first is None else first)
            else:
                break
            wanted -= count_in(some)
            extend_ranges(ranges, some)
        return ranges
