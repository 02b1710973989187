"""Set-up of a Python worker of Spark that makes its tasks cheap."""

from __future__ import annotations

import gc

PARALLELISM = "FLINTMQ_SPARK_PARALLELISM"
"""Environment variable of our sessions for workers: how many tasks run at a time, if known."""
_FREEZES = 3
_frozen = 0


def calm_the_collector() -> None:
    """Exclude imported modules from garbage collection.

    Spark collects garbage after every task, which takes about forty milliseconds with everything
    that is imported here. Frozen objects are skipped. Done a few times, since imports come late.
    """
    global _frozen
    if _frozen < _FREEZES:
        _frozen += 1
        gc.freeze()
