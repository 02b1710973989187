"""A chunk of rows in memory without those that compaction has dropped. Pure."""

from __future__ import annotations

from ...batch import BatchBuilder, HoleBatch, RecordBatch, RowSource, hole, thin_batch
from ...group_model import Ranges
from ...groups.offset_set import OffsetSet
from ...groups.ranges import near

NEAR_ROWS = 8
"""A gap of so few rows does not make two chunks of one."""


def thinned(chunk: RowSource, gone: OffsetSet) -> list[RowSource] | None:
    """What is left, and holes between; None where at least half of the chunk is left."""
    base, count = chunk.base_offset, chunk.row_count
    kept = gone.missing(base, base + count)
    if isinstance(chunk, HoleBatch) or 2 * sum(stop - start for start, stop in kept) > count:
        return None
    pieces: list[RowSource] = []
    at = base
    for group in near(kept, NEAR_ROWS):
        first, behind = group[0][0], group[-1][1]
        if first > at:
            pieces.append(hole(at, first - at, chunk.time(at - base)))
        pieces.append(_part(chunk, group))
        at = behind
    if at < base + count:
        pieces.append(hole(at, base + count - at, chunk.time(at - base)))
    return pieces


def _part(chunk: RowSource, ranges: Ranges) -> RowSource:
    base = chunk.base_offset
    if isinstance(chunk, RecordBatch):
        return thin_batch(
            chunk, [row - base for start, stop in ranges for row in range(start, stop)]
        )
    assert isinstance(chunk, BatchBuilder)  # objects, or large values: they are shared, not copied
    part = chunk.empty_like()
    part.base_offset = ranges[0][0]
    part.extend(chunk, ranges[0][0] - base, ranges[-1][1] - base)
    return part
