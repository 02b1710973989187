"""What a Python worker of Spark does once, so that its tasks are cheap."""

from __future__ import annotations

import gc

_FREEZES = 3
_frozen = 0


def calm_the_collector() -> None:
    """Leave what was imported out of garbage collection.

    Spark collects garbage after every task. With everything that is imported here that takes some
    forty milliseconds; what is frozen is not looked at. A few times: imports come in a while.
    """
    global _frozen
    if _frozen < _FREEZES:
        _frozen += 1
        gc.freeze()
