"""Which rows are still alive. Pure: the caller brings the time."""

from __future__ import annotations

from ..batch import EXPIRY, TIMES, RowSource

ALL: None = None


def alive(
    source: RowSource, start: int, stop: int, ttl_ms: int | None, now_ms: int
) -> list[int] | None:
    """The rows of a range that have not expired; ALL where that is every one of them.

    A message's own expiry counts; where it has none, the topic's ttl from the time of its append.
    """
    columns = source.columns
    if not columns & EXPIRY:
        if ttl_ms is None or source.time(start) + ttl_ms > now_ms:
            return ALL  # times never go back, so the first row is the oldest
        if not columns & TIMES:
            return []
    rows = [row for row in range(start, stop) if end_of_life(source, row, ttl_ms) > now_ms]
    return ALL if len(rows) == stop - start else rows


FOREVER = 1 << 62


def end_of_life(source: RowSource, row: int, ttl_ms: int | None) -> int:
    """When a row expires, in milliseconds since 1970; FOREVER if it does not."""
    if expiry := source.expiry(row):
        return expiry
    return FOREVER if ttl_ms is None else source.time(row) + ttl_ms
