"""Whether the disk of this node is good enough to lead on. Pure: it counts looks, not seconds.

What most nodes have on their disks is committed without ours, but it is applied here only once it
is durable here: a leader whose disk hangs answers nobody. So a node whose oldest write is older
than `STALLED_LOOKS` leaves the lead to others, until `QUICK_RUN` looks in a row found writes that
had come back soon. There is one look in each turn of a tick, so time in which the loop itself was
held up does not count.
"""

from __future__ import annotations

import logging

from ..cluster_model import NodeDisk
from ..observe.logs import event

_log = logging.getLogger(__name__)

STALLED_LOOKS = 20
"""Two seconds of ticks."""
QUICK_LOOKS = 5
QUICK_RUN = 10

IS_FULL, IS_STALLED, IS_OFF, IS_DIFFERENT = 1, 2, 4, 8
"""As a PING tells them; the third is that of the clock, the last that of the state."""


class DiskHealth:
    def __init__(self, stalled_looks: int = STALLED_LOOKS) -> None:
        """0: a disk is never taken for one that hangs."""
        self._stalled_looks = stalled_looks
        self.is_stalled = self.is_full = False
        self._mark = self._durable = 0
        self._looks = self._run = 0

    @property
    def is_fit(self) -> bool:
        return not self.is_stalled and not self.is_full

    @property
    def flags(self) -> int:
        return IS_FULL * self.is_full | IS_STALLED * self.is_stalled

    @property
    def shown(self) -> NodeDisk:
        return shown_disk(self.flags)

    def look(self, submitted: int, durable: int, *, is_full: bool) -> bool:
        """How far writes were handed in and are durable, by their tickets. Whether the disk has
        to be tried: it hangs, and nothing waits for it that would show that it is over."""
        self.is_full = is_full
        if durable >= min(self._mark, submitted):
            if durable > self._durable:
                self._run = self._run + 1 if self._looks <= QUICK_LOOKS else 0
            self._mark, self._looks = submitted, 0
        else:
            self._looks += 1
            if self._stalled_looks and self._looks >= self._stalled_looks:
                self.is_stalled, self._run = True, 0
        self._durable = durable
        if self.is_stalled and self._run >= QUICK_RUN:
            self.is_stalled = False
        return self.is_stalled and durable >= submitted


def shown_disk(flags: int) -> NodeDisk:
    return "full" if flags & IS_FULL else "stalled" if flags & IS_STALLED else "ok"


def tell_fitness(disk: DiskHealth, node: int) -> None:
    """Whether the node may lead has changed."""
    if disk.is_fit:
        level, name, text = (
            logging.INFO,
            "cluster_fit",
            "the disk is well: this node may lead again",
        )
    else:
        why = "is full" if disk.is_full else "does not finish writing"
        text = f"the disk {why}: this node leaves the lead to others until that is over"
        level, name = logging.WARNING, "cluster_abstains"
    event(_log, level, name, text, node=node)
