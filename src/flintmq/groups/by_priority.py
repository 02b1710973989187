"""Order "priority": 7 before 0, by offset within a priority; the oldest do not starve.

Each priority is a lane. Always true: what is out, delayed or withdrawn and has a priority other
than 0 is in `_known` of that priority, as the lanes forget what every group has passed; what comes
back goes to the lane it was drawn from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ..group_model import PRIORITIES, Lease, Ranges
from .deliveries import DeliveryTable
from .lanes import END
from .offset_set import OffsetSet
from .orders import Drawn, Due, KeyHashes
from .places import Places
from .ranges import ascending, count_in, joined, ranges_of, without
from .ready import ReadyOffsets

# The lanes that are in use, highest priority first, by a bit for each.
LANES_OF = [
    tuple(lane for lane in range(PRIORITIES - 1, -1, -1) if used >> lane & 1)
    for used in range(1 << PRIORITIES)
]


class ByPriority:
    def __init__(self, ready: ReadyOffsets, places: Places, deliveries: DeliveryTable) -> None:
        self.ready = ready
        self._places = places
        self._known = [OffsetSet() for _ in range(PRIORITIES)]

    def has_more(self) -> bool:
        ready = self.ready
        if ready.cursors.has_more(0):
            return True
        return ready.used > 0 and any(ready.returned[lane] for lane in LANES_OF[ready.used])

    def lanes(self) -> tuple[int, ...]:
        return LANES_OF[self.ready.index.used | self.ready.used]

    # --- drawing

    def draw(
        self, wanted: int, poll: int, key_hashes: KeyHashes | None, until: int, together: bool
    ) -> Drawn:
        """HermesMQ's rule: by priority, but a quarter is reserved for the oldest, whatever theirs
        is, and one more in every fourth poll."""
        ready = self.ready
        lanes = self._busy()
        if len(lanes) <= 1:
            if not lanes:
                return [], False
            ranges = ready.draw(lanes[0], wanted)
            self._note(lanes[0], ranges)
            return ranges, False
        reserved = min(wanted // 4 + ((poll + 1) % 4 == 0), wanted)
        drawn: dict[int, list[Ranges]] = {lane: [] for lane in lanes}
        left = wanted - reserved
        for lane in lanes:
            if not left:
                break
            ranges = ready.draw(lane, left)
            drawn[lane].append(ranges)
            left -= count_in(ranges)
        # If there were fewer than that, nothing is left for the others either.
        for lane, count in self._oldest(reserved if not left else 0):
            drawn[lane].append(ready.draw(lane, count))
        whole = []
        for lane, parts in drawn.items():
            ranges = joined(parts)
            self._note(lane, ranges)
            whole.append(ranges)
        return joined(whole), False

    def _busy(self) -> list[int]:
        """The lanes that have something."""
        head, returned = self.ready.cursors.head, self.ready.returned
        return [lane for lane in self.lanes() if returned[lane] or head(lane) != END]

    def _oldest(self, wanted: int) -> list[tuple[int, int]]:
        """How many of each lane are among the oldest of all."""
        lanes = self._busy() if wanted else []
        if len(lanes) <= 1:
            return [(lane, wanted) for lane in lanes]
        lowest = {lane: self.ready.lowest(lane, wanted) for lane in lanes}
        last = sorted([offset for offsets in lowest.values() for offset in offsets])[:wanted][-1]
        return [
            (lane, bisect_right(offsets, last))
            for lane, offsets in lowest.items()
            if offsets[0] <= last
        ]

    # --- coming and going

    def add(self, ranges: Ranges) -> None:
        for lane, known in enumerate(self._known):
            if known and ranges:
                mine = known.take_ranges(ranges)
                if mine:
                    self.ready.add(lane, mine)
                    ranges = without(ranges, ascending(mine))
        if ranges:
            self.ready.add(0, ranges)

    def come_back(self, ranges: Ranges) -> tuple[Ranges, Ranges]:
        return ranges, []

    def add_due(self, due: Due) -> None:
        lanes: dict[int, list[int]] = {}
        for offset, priority in due:
            if offset not in self._places.delayed:
                lanes.setdefault(priority, []).append(offset)
            else:
                self._note(priority, [(offset, offset + 1)])
        for lane, offsets in lanes.items():
            self.ready.add(lane, ranges_of(sorted(offsets)))

    def stage(self, lane: int, ready: Ranges, out: Ranges, delayed: Ranges) -> None:
        self._note(lane, out)
        if ready:
            self.ready.add(lane, ready)

    def withdraw(self, ranges: Ranges) -> None:
        for lane in LANES_OF[self.ready.used]:
            returned = self.ready.returned[lane]
            if not lane:
                returned.remove_ranges(ranges)
            elif returned:
                self._note(lane, returned.take_ranges(ranges))

    def is_ahead(self, offset: int, priority: int | None = None) -> bool:
        if priority is None:
            priority = self._lane_of(offset) or self.ready.index.priority_of(offset)
        if self.ready.is_ahead(priority, offset):
            return True
        self._note(priority, [(offset, offset + 1)])
        return False

    def settled(self, ranges: Ranges) -> None:
        for known in self._known:
            if known:
                known.remove_ranges(ranges)

    def clear(self) -> None:
        for known in self._known:
            known.clear()

    # --- what it remembers

    def _note(self, lane: int, ranges: Ranges) -> None:
        if lane:
            self._known[lane].add_ranges(ranges)

    def _lane_of(self, offset: int) -> int:
        for lane, known in enumerate(self._known):
            if known and offset in known:
                return lane
        return 0

    def forget(self, offset: int) -> int:
        lane = self._lane_of(offset)
        self._known[lane].remove_range(offset, offset + 1)
        return lane

    def priority_of(self, offset: int) -> int:
        return self.forget(offset) or self.ready.index.priority_of(offset)

    def take_up(self, granted: Sequence[Lease], key_hashes: KeyHashes | None) -> OffsetSet:
        return OffsetSet()

    def claim(self, token: int, offset: int, key_hashes: KeyHashes | None) -> bool:
        return True
