"""In which order a queue hands out what is ready: what an order has to bring.

A new order is one file with a class of this shape, and a line in `ORDERS` (`queue.py`). All that is
particular to it is in there: the queue asks and tells, and knows no order by name.

Always true: an offset that was given to `add`, `add_due` or `stage`, or that lies ahead of the
cursors, is drawn once, unless it is withdrawn before; and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..group_model import Lease, Ranges
from .offset_set import OffsetSet
from .ready import ReadyOffsets

KeyHashes = Callable[[int, int], Sequence[int]]
"""The keys of a range of offsets, as hashes; 0 for none. May read the disk, and raise."""

Due = list[tuple[int, int]]
"""Offsets whose time has come, with their priority."""

Drawn = tuple[Ranges, bool]
"""What was drawn, in the order of delivery; and whether there may be more: it looked at as much as
it does in one go."""


class ReadyOrder(Protocol):
    """What is ready, and who is first. Made of the lanes, the places and the delivery counts."""

    ready: ReadyOffsets

    def has_more(self) -> bool:
        """Whether a draw is worth a try."""
        ...

    def lanes(self) -> tuple[int, ...]:
        """The lanes it draws from, first to last."""
        ...

    def draw(
        self, wanted: int, poll: int, key_hashes: KeyHashes | None, until: int, together: bool
    ) -> Drawn:
        """Pick up to `wanted`, off the lanes. `poll` counts the draws that found something; the
        cursors do not go into what lies before `until`; `together`: what has to be worked on one
        after the other may come at once. If it raises, nothing was drawn."""
        ...

    # --- coming and going

    def add(self, ranges: Ranges) -> None:
        """These are ready: they have come back."""
        ...

    def come_back(self, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """These are not out any more: who is ready to be drawn, now or when its delay is over; and
        who waits behind others, of these and of what was granted with them."""
        ...

    def add_due(self, due: Due) -> None:
        """These were published with a delay, and it is their time; some may be delayed anew."""
        ...

    def stage(self, lane: int, ready: Ranges, out: Ranges, delayed: Ranges) -> None:
        """A cursor passed these after a restart."""
        ...

    def withdraw(self, ranges: Ranges) -> None:
        """Those of these that are ready are so no more: somebody has them."""
        ...

    def is_ahead(self, offset: int, priority: int | None = None) -> bool:
        """Whether the cursor of its lane has yet to come to it; its priority, if that is known."""
        ...

    def settled(self, ranges: Ranges) -> None:
        """The queue is done with these."""
        ...

    def clear(self) -> None:
        """The queue begins anew."""
        ...

    # --- what it remembers

    def forget(self, offset: int) -> int:
        """The priority of what was out, which the order need not remember any longer."""
        ...

    def priority_of(self, offset: int) -> int:
        """The same after a restart: the lanes may have to tell."""
        ...

    def take_up(self, granted: Sequence[Lease], key_hashes: KeyHashes | None) -> OffsetSet:
        """After a restart: what was granted under which token. Which of that has to wait for
        others."""
        ...

    def claim(self, token: int, offset: int, key_hashes: KeyHashes | None) -> bool:
        """Whether one that is ready may be taken out of the line by who has it by this token."""
        ...
