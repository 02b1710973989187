"""Garbage collection with short pauses, for a process that is a broker and nothing else.

Python goes through everything that is held whenever that has grown by a quarter: with 20,000 topics
everybody waits most of a second for it. Here, what outlives such a collection is taken out of those
to come (`gc.freeze`), right after it, so never with garbage that was there. What is frozen is freed
as ever when nothing refers to it; only what refers to itself in a circle, such as a topic that was
deleted, waits until everything is looked at again: when twice as much is held as the last time.
"""

from __future__ import annotations

import gc
import sys

THRESHOLDS = (4_000, 4, 1)
"""Objects before the young are looked at; how often before those that stayed are, and all."""
WHOLE_BLOCKS_MIN = 10_000_000
"""Below so many pieces of memory, everything is not looked at again."""


class _Frozen:
    def __init__(self) -> None:
        self._limit = WHOLE_BLOCKS_MIN
        self._is_whole = False

    def collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] < 2:
            return
        gc.freeze()
        blocks = sys.getallocatedblocks()
        if self._is_whole:
            self._is_whole = False
            self._limit = max(WHOLE_BLOCKS_MIN, 2 * blocks)
        elif blocks > self._limit:
            gc.unfreeze()
            self._is_whole = True


def keep_pauses_short() -> None:
    """From now on. What was loaded so far stays for good."""
    gc.collect()
    gc.freeze()
    # Python goes through all when a quarter of what the last time left is new: that was much.
    gc.collect()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_Frozen().collected)
