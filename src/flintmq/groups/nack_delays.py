"""Messages that were nacked with a delay, until that is over.

Always true: every offset in the place `delayed` has a time, in the wheel or among those that were
replayed; the last one it was given counts. Replayed ones go into the wheel when it is first asked:
until then a later command may change them, and the lanes may not be able to tell their priority.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..group_model import Ranges
from .delay_wheel import DelayWheel
from .offset_set import OffsetSet
from .orders import ReadyOrder
from .ranges import offsets_in


class NackDelays:
    __slots__ = ("_order", "_replayed", "_wheel", "waiting")

    def __init__(self, waiting: OffsetSet, order: ReadyOrder) -> None:
        self.waiting = waiting
        self._order = order
        self._wheel = DelayWheel()
        self._replayed: dict[int, int] = {}

    def add(self, ranges: Ranges, due_ms: int, doubted: OffsetSet) -> None:
        """These are nacked. The order still knows their priority, as they were out; of what is in
        doubt the lanes may have to be asked."""
        for offset in offsets_in(ranges):
            if offset in doubted:
                self.replay(offset, due_ms)
            else:
                self._wheel.add(due_ms, offset, self._order.forget(offset))
        self.waiting.add_ranges(ranges)

    def replay(self, offset: int, due_ms: int) -> None:
        """It is delayed until then, whatever was said of it before."""
        if offset in self.waiting and offset not in self._replayed:
            self._wheel.discard([offset])
        self.waiting.add_range(offset, offset + 1)
        self._replayed[offset] = due_ms

    def load(self) -> None:
        """Have those that were replayed in the wheel."""
        if self._replayed:
            for offset, due_ms in self._replayed.items():
                self._wheel.add(due_ms, offset, self._order.priority_of(offset))
            self._replayed.clear()

    def take_due(self, now_ms: int) -> list[tuple[int, int]]:
        """Those whose time has come, with their priority."""
        self.load()
        remove = self.waiting.remove_range
        return [due for due in self._wheel.take_due(now_ms) if remove(due[0], due[0] + 1)]

    def next_due_ms(self) -> int | None:
        due_ms = self._wheel.next_due_ms()
        if self._replayed:
            first = min(self._replayed.values())
            due_ms = first if due_ms is None else min(first, due_ms)
        return due_ms

    def forget(self, ranges: Ranges) -> None:
        if not self.waiting:
            return
        for start, stop in ranges:
            for first, last in self.waiting.present(start, stop):
                self.waiting.remove_range(first, last)
                offsets = range(first, last)
                self._wheel.discard([one for one in offsets if one not in self._replayed])
                for offset in offsets:
                    self._replayed.pop(offset, None)

    def forget_before(self, offset: int) -> None:
        """The log has dropped these."""
        self._wheel.forget_before(offset)

    def items(self) -> Iterator[tuple[int, int]]:
        """Each as (offset, due_ms), in no order."""
        for due_ms, offset, _ in self._wheel.items():
            if offset in self.waiting:
                yield offset, due_ms
        yield from self._replayed.items()

    def clear(self) -> None:
        self._wheel.clear()
        self._replayed.clear()
