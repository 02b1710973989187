"""Makes record batches of a good size: joins small ones, cuts large ones.

Record batches of some thousand rows work best for brokers, queues and readers. If a task writes to
many topics, each gets few rows at a time: they are kept here until there are more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..batch.from_arrow import key_hashes

if TYPE_CHECKING:
    import pyarrow

ROWS_MAX = 2_500
"""A quarter of the rows that Spark delivers at a time."""
BYTES_MAX = 512 * 1024
HELD_BYTES_MAX = 16 * 1024 * 1024
"""Maximum of what is kept, over all topics."""

Cut = tuple[str, "pyarrow.RecordBatch"]


class RowGatherer:
    def __init__(self, *, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._held: dict[str, list[pyarrow.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def add(self, topic: str, rows: pyarrow.RecordBatch) -> Iterator[Cut]:
        """Take rows for a topic; yields batches that are large enough."""
        if not rows.num_rows:
            return
        self._held.setdefault(topic, []).append(rows)
        self._rows[topic] = self._rows.get(topic, 0) + rows.num_rows
        self._bytes[topic] = self._bytes.get(topic, 0) + rows.nbytes
        if self._rows[topic] >= self._rows_max or self._bytes[topic] >= self._bytes_max:
            yield from self._released(topic)
        elif sum(self._bytes.values()) > HELD_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Cut]:
        """Everything that is still kept."""
        for topic in list(self._held):
            yield from self._released(topic)

    def _released(self, topic: str) -> Iterator[Cut]:
        import pyarrow as pa

        held, rows, size = self._held.pop(topic), self._rows.pop(topic), self._bytes.pop(topic)
        if len(held) > 1:
            names = {name for part in held for name in part.schema.names}
            if any(set(part.schema.names) != names for part in held):
                # Only parts with keys have hashes of keys; they are computed again below.
                held = [
                    part.drop_columns(["key_hash"]) if "key_hash" in part.schema.names else part
                    for part in held
                ]
            held = pa.Table.from_batches(held).combine_chunks().to_batches()
        pieces = max(-(-rows // self._rows_max), -(-size // self._bytes_max))
        each = -(-rows // pieces)
        for part in held:
            if "key" in part.schema.names and "key_hash" not in part.schema.names:
                # Once, before the rows are cut.
                part = part.append_column("key_hash", key_hashes(part.column("key")))
            for start in range(0, part.num_rows, each):
                for cut in _halved(part.slice(start, each), 2 * self._bytes_max):
                    yield topic, cut


def _halved(rows: pyarrow.RecordBatch, bytes_max: int) -> Iterator[pyarrow.RecordBatch]:
    """Halve batches that are far too large: many large rows may follow many small ones."""
    if rows.num_rows < 2 or rows.nbytes <= bytes_max:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _halved(rows.slice(0, half), bytes_max)
    yield from _halved(rows.slice(half), bytes_max)
