"""Order "log": by offset, whatever the priority or the key."""

from __future__ import annotations

from collections.abc import Sequence

from ..group_model import Lease, Ranges
from .deliveries import DeliveryTable
from .lanes import LOG
from .offset_set import OffsetSet
from .orders import Drawn, Due, KeyHashes
from .places import Places
from .ranges import ranges_of
from .ready import ReadyOffsets


class ByLog:
    def __init__(self, ready: ReadyOffsets, places: Places, deliveries: DeliveryTable) -> None:
        self.ready = ready
        self._places = places

    def has_more(self) -> bool:
        return self.ready.cursors.has_more(LOG) or bool(self.ready.returned[LOG])

    def lanes(self) -> tuple[int, ...]:
        return (LOG,)

    def draw(
        self, wanted: int, poll: int, key_hashes: KeyHashes | None, until: int, together: bool
    ) -> Drawn:
        return self.ready.draw(LOG, wanted), False

    def add(self, ranges: Ranges) -> None:
        self.ready.add(LOG, ranges)

    def come_back(self, ranges: Ranges) -> tuple[Ranges, Ranges]:
        return ranges, []

    def add_due(self, due: Due) -> None:
        delayed = self._places.delayed
        self.add(ranges_of(sorted(offset for offset, _ in due if offset not in delayed)))

    def stage(self, lane: int, ready: Ranges, out: Ranges, delayed: Ranges) -> None:
        self.add(ready)

    def withdraw(self, ranges: Ranges) -> None:
        self.ready.returned[LOG].remove_ranges(ranges)

    def is_ahead(self, offset: int, priority: int | None = None) -> bool:
        return self.ready.is_ahead(LOG, offset)

    def settled(self, ranges: Ranges) -> None:
        pass

    def clear(self) -> None:
        pass

    def forget(self, offset: int) -> int:
        return 0

    def priority_of(self, offset: int) -> int:
        return 0

    def take_up(self, granted: Sequence[Lease], key_hashes: KeyHashes | None) -> OffsetSet:
        return OffsetSet()

    def claim(self, token: int, offset: int, key_hashes: KeyHashes | None) -> bool:
        return True
