"""Messages that have not expired, where no broker says so. Pure."""

from __future__ import annotations

from ..batch import EXPIRY, RecordBatch


def living(
    batch: RecordBatch, start: int, stop: int, ttl_ms: int | None, now_ms: int
) -> list[int] | None:
    """The rows that have not expired; None if that is all of them."""
    has_expiry = bool(batch.columns & EXPIRY)
    if not has_expiry and (ttl_ms is None or batch.time(start) + ttl_ms > now_ms):
        return None  # times never go back, so the first row is the oldest
    picks = []
    for row in range(start, stop):
        ends = batch.expiry(row) if has_expiry else 0
        if not ends and ttl_ms is not None:
            ends = batch.time(row) + ttl_ms
        if not ends or ends > now_ms:
            picks.append(row)
    return None if len(picks) == stop - start else picks
