"""Whether the clock of this node is good enough to lead by. Pure.

Times of messages never go back, so a leader whose clock is far ahead would stop everybody's. The
clock is compared with the median of all nodes; of two nodes nobody knows which one is wrong, so a
node leaves the lead to others only if at least three clocks are known.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from statistics import median_low

from ..cluster_advice import SKEW_MS, SKEW_MS_MAX
from ..observe.logs import event

_log = logging.getLogger(__name__)

CLOCKS_MIN = 3
BACK = 0.8
"""A clock is taken for good again when it is this much nearer than the bound."""


class ClockHealth:
    def __init__(self) -> None:
        self.skew_ms = 0
        """How far this clock is ahead of the median."""
        self.is_skewed = self.is_off = False

    def look(self, others: Collection[int], node: int) -> None:
        """`others`: how far each clock that is known is ahead of ours."""
        self.skew_ms = -median_low([0, *others])
        skew = abs(self.skew_ms)
        was_skewed, was_off = self.is_skewed, self.is_off
        self.is_skewed = skew > SKEW_MS * (BACK if was_skewed else 1)
        bound = SKEW_MS_MAX * (BACK if was_off else 1)
        self.is_off = skew > bound and len(others) + 1 >= CLOCKS_MIN
        if (self.is_skewed, self.is_off) != (was_skewed, was_off):
            self._tell(node)

    def _tell(self, node: int) -> None:
        seconds = self.skew_ms / 1000
        where = f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} that of most nodes"
        if self.is_off:
            text = f"the clock is {where}: this node leaves the lead to others until it is right"
            event(_log, logging.WARNING, "cluster_clock_off", text, node=node, seconds=seconds)
        elif self.is_skewed:
            text = f"the clock is {where}; synchronise the clocks of all nodes"
            event(_log, logging.WARNING, "cluster_clock_skewed", text, node=node, seconds=seconds)
        else:
            text = "the clock agrees with the other nodes again"
            event(_log, logging.INFO, "cluster_clock_well", text, node=node, seconds=seconds)
