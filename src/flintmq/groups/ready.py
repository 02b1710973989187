"""What a group can be handed next: what lies ahead of its cursors, and what came back.

Messages that came back, or were delayed and are due, are in a set for each lane; they go ahead of
later ones of their lane. Whatever the rule, what is drawn is the first few of each lane.
"""

from __future__ import annotations

from ..group_model import PRIORITIES, Ranges
from .lanes import END, LANES, LOG, LaneIndex
from .offset_set import OffsetSet
from .ranges import count_in, extend_ranges, joined

# The lanes that are in use, highest priority first, by a bit for each.
LANES_OF = [
    tuple(lane for lane in range(PRIORITIES - 1, -1, -1) if used >> lane & 1)
    for used in range(1 << PRIORITIES)
]


class Ready:
    """By priority there are eight lanes, else there is LOG alone."""

    __slots__ = ("_is_by_priority", "_used", "cursors", "index", "returned")

    def __init__(self, index: LaneIndex, floor: int, *, is_by_priority: bool) -> None:
        self._is_by_priority = is_by_priority
        self.index = index
        self.cursors = index.cursor(floor)
        self.returned = [OffsetSet() for _ in range(LANES)]
        self._used = 0  # which of them ever had something, a bit for each

    def begin(self, index: LaneIndex, floor: int) -> None:
        """Begin anew: nothing has come back."""
        self.index = index
        self.cursors = index.cursor(floor)
        for returned in self.returned:
            returned.clear()

    def __bool__(self) -> bool:
        """Whether there may be anything. What lies ahead may turn out to be settled."""
        if self._is_by_priority:
            if self.cursors.has_more(0):
                return True
            return any(self.returned[lane] for lane in LANES_OF[self._used])
        return self.cursors.has_more(LOG) or bool(self.returned[LOG])

    def lanes(self) -> tuple[int, ...]:
        """The lanes there are, highest priority first."""
        return LANES_OF[self.index.used | self._used] if self._is_by_priority else (LOG,)

    def busy_lanes(self) -> list[int]:
        """Those that have something."""
        head, returned = self.cursors.head, self.returned
        return [lane for lane in self.lanes() if returned[lane] or head(lane) != END]

    def lane_of(self, priority: int) -> int:
        return priority if self._is_by_priority else LOG

    # --- coming back, and being withdrawn

    def add(self, lane: int, ranges: Ranges) -> None:
        if lane != LOG:
            self._used |= 1 << lane
        self.returned[lane].add_ranges(ranges)

    def withdraw(self, ranges: Ranges) -> list[tuple[int, Ranges]]:
        """Take offsets out of what came back: those that have a priority, by lane."""
        found = []
        for lane, returned in enumerate(self.returned):
            if not returned:
                continue
            if lane in (0, LOG):
                returned.remove_ranges(ranges)
            elif mine := returned.take_ranges(ranges):
                found.append((lane, mine))
        return found

    def is_ahead(self, lane: int, offset: int) -> bool:
        """Whether the cursor has yet to come to an offset."""
        return self.cursors.head(lane) <= offset and self.index.lanes[lane].has(offset)

    # --- drawing

    def lowest(self, lane: int, wanted: int) -> list[int]:
        """The first of a lane, left where they are."""
        offsets = self.cursors.peek(lane, wanted)
        if self.returned[lane]:
            return sorted(self.returned[lane].lowest(wanted) + offsets)[:wanted]
        return offsets

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

    def draw_by_priority(self, wanted: int, reserved: int) -> list[tuple[int, Ranges]]:
        """HermesMQ's rule: by priority, but the `reserved` go to the oldest whatever theirs is.

        What was drawn of each lane, highest first.
        """
        lanes = self.busy_lanes()
        if len(lanes) <= 1:
            return [(lane, self.draw(lane, wanted)) for lane in lanes]
        drawn: dict[int, list[Ranges]] = {lane: [] for lane in lanes}
        left = wanted - reserved
        for lane in lanes:
            if not left:
                break
            ranges = self.draw(lane, left)
            drawn[lane].append(ranges)
            left -= count_in(ranges)
        # If there were fewer than that, nothing is left for the others either.
        for lane, count in self._oldest(reserved if not left else 0):
            drawn[lane].append(self.draw(lane, count))
        return [(lane, joined(parts)) for lane, parts in drawn.items()]

    def _oldest(self, wanted: int) -> list[tuple[int, int]]:
        """How many of each lane are among the oldest of all."""
        lanes = self.busy_lanes() if wanted else []
        if len(lanes) <= 1:
            return [(lane, wanted) for lane in lanes]
        lowest = {lane: self.lowest(lane, wanted) for lane in lanes}
        last = sorted([offset for offsets in lowest.values() for offset in offsets])[:wanted][-1]
        return [
            (lane, len([offset for offset in offsets if offset <= last]))
            for lane, offsets in lowest.items()
            if offsets[0] <= last
        ]
