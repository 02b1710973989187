"""The end of a durable topic, in memory: what the journal has and no segment yet.

Batches stay as they came; of a large commit there is only where the rows lie. Rows that came one by
one are joined, and become a batch when there are enough of them, when a batch follows, or when a
checkpoint takes what there is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ..batch import BatchBuilder, DecodeCache, RecordBatch, RestingRows
from ..loop.disposal import let_go

OPEN_ROWS_MAX = 1024
OPEN_BYTES_MAX = 256 * 1024
"""What makes a batch of rows that came one by one."""

StoredRows = BatchBuilder | RecordBatch
"""A batch, or rows that are still being joined to one: their last row may not be the last."""


class Tail:
    """Always true: batches follow each other without a gap; only the last one may be open."""

    def __init__(self, cache: DecodeCache) -> None:
        self._cache = cache
        self.all: list[StoredRows | RestingRows] = []
        self._bases: list[int] = []
        self.open: BatchBuilder | None = None
        """The last of them, while rows are joined there."""

    def holds(self, offset: int) -> bool:
        return bool(self._bases) and offset >= self._bases[0]

    def at(self, offset: int) -> StoredRows | RestingRows:
        """What holds `offset`."""
        return self.all[bisect_right(self._bases, offset) - 1]

    def at_time(self, time_ms: int) -> StoredRows | RestingRows | None:
        """The first whose last row was appended then or later."""
        at = bisect_left(self.all, time_ms, key=lambda rows: rows.time(rows.row_count - 1))
        return self.all[at] if at < len(self.all) else None

    def append(self, batch: RecordBatch | RestingRows) -> None:
        if self.open is not None:
            self.close()
        if isinstance(batch, RecordBatch):
            batch.cache = self._cache
        self.all.append(batch)
        self._bases.append(batch.base_offset)

    def begin(self, offset: int) -> BatchBuilder:
        """Rows that come one by one are joined there from now on."""
        rows = self.open = BatchBuilder(offset)
        self.all.append(rows)
        self._bases.append(offset)
        return rows

    def close(self) -> None:
        """What was joined is a batch from now on."""
        rows, self.open = self.open, None
        if rows is None:
            return
        batch = rows.seal()
        batch.cache = self._cache
        # Readers that keep up get the publisher's own objects back: nothing to decode.
        self._cache.keep(batch, tuple(rows.values()))
        self.all[-1] = batch

    def batches(self, first: int) -> list[RecordBatch | RestingRows]:
        """What there is from an offset on, to be written to a segment."""
        self.close()
        return [
            rows
            for rows in self.all
            if not isinstance(rows, BatchBuilder) and rows.base_offset + rows.row_count > first
        ]

    def written(self, before: int) -> None:
        """A segment has everything before an offset, where a batch begins."""
        self._forget(bisect_left(self._bases, before))

    def drop_to(self, offset: int) -> None:
        """Nobody asks for what lies before an offset."""
        count = 0
        for rows in self.all:
            if rows.base_offset + rows.row_count > offset:
                break
            count += 1
        if count:
            let_go(self._forget(count))

    def clear(self) -> None:
        let_go(self._forget(len(self.all)))

    def _forget(self, count: int) -> list[StoredRows | RestingRows]:
        if count == len(self.all):
            self.open = None
        gone = self.all[:count]
        del self.all[:count], self._bases[:count]
        return gone
