"""How long to wait before a message that failed is tried again."""

from __future__ import annotations


def backoff_seconds(failures: int, *, base: float, cap: float, spread: float) -> float:
    """Twice as long after each failure, from `base` up to `cap`.

    `spread` from 0 to 1 is the caller's chance: the wait lies between half and the whole of it, so
    that messages that failed together do not come back together.
    """
    if failures <= 0 or base <= 0:
        return 0.0
    # 2.0 ** 1024 overflows; long before that every cap is reached.
    whole = min(cap, base * 2.0 ** min(failures - 1, 512))
    return whole * (0.5 + 0.5 * spread)
