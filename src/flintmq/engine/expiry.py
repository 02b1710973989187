"""Which rows are still alive. Pure: the caller brings the time."""

from __future__ import annotations

from ..batch import EXPIRY, TIMES, RecordBatch, RowSource
from ..batch.format import moment

ALL: None = None
FOREVER = 1 << 62


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
    if isinstance(source, RecordBatch) and not (columns & TIMES and ttl_ms is not None):
        return _alive_in(source, start, stop, ttl_ms, now_ms)
    rows = [row for row in range(start, stop) if end_of_life(source, row, ttl_ms) > now_ms]
    return ALL if len(rows) == stop - start else rows


def _alive_in(
    batch: RecordBatch, start: int, stop: int, ttl_ms: int | None, now_ms: int
) -> list[int] | None:
    """The same by column: of a batch whose rows differ in nothing but their expiry."""
    entries: list[int] = batch.control_column(EXPIRY).cast("q")[start:stop].tolist()
    time = batch.append_time
    end = FOREVER if ttl_ms is None else time + ttl_ms
    gone = {entry for entry in set(entries) if (moment(entry, time) or end) <= now_ms}
    if not gone:
        return ALL
    return [
        row for row, entry in zip(range(start, stop), entries, strict=True) if entry not in gone
    ]


def end_of_life(source: RowSource, row: int, ttl_ms: int | None) -> int:
    """When a row expires, in milliseconds since 1970; FOREVER if it does not."""
    if expiry := source.expiry(row):
        return expiry
    return FOREVER if ttl_ms is None else source.time(row) + ttl_ms
