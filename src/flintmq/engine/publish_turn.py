"""What is published in one turn of the event loop, to all topics of a shard: one command.

Places are decided as publishes come. The command is proposed at the end of the turn, or when it has
grown, or before any other: what was decided earlier is earlier in the log.
"""

from __future__ import annotations

from ..batch import RecordBatch
from ..broker_api import Waiter
from ..observe.metrics import Histogram
from .commands import Append, AppendedRows, Appends

TURN_BYTES_MAX = 256 * 1024
TURN_ROWS_MAX = 1024
"""What makes a command of its own."""


ROW_COST = 32
"""What a row is counted for beside its bytes."""
_IN_BATCH: list[bytes] = []


class PublishTurn:
    """All of it becomes safe together: a `SharedPublish`."""

    __slots__ = (
        "_batches",
        "_producers",
        "_rows",
        "bytes",
        "count",
        "measures",
        "time_ms",
        "waiters",
    )

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        """When it began: what is published in rows is published then."""
        self.waiters: list[Waiter] = []
        self.measures: list[Histogram] = []
        self.bytes = self.count = 0
        """What is in it: messages, and batches as one each."""
        self._rows: list[AppendedRows] = []
        self._batches: list[RecordBatch] = []
        self._producers: dict[str, int] = {}

    def add_rows(
        self,
        topic: int,
        offset: int,
        values: list[bytes],
        size: int,
        content_type: str | None,
        producer: str,
        sequence: int,
    ) -> None:
        number = -1
        if producer:
            number = self._producers.setdefault(producer, len(self._producers))
        self._rows.append((topic, offset, values, content_type, number, sequence))
        self.count += len(values)
        self.bytes += size + ROW_COST

    def add_value(self, topic: int, offset: int, value: bytes) -> bool:
        """Of nobody; whether it is not the next of those before."""
        rows = self._rows
        self.count += 1
        self.bytes += len(value) + ROW_COST
        if rows:
            last = rows[-1]
            if last[0] == topic and last[4] < 0 and last[2] and last[3] is None:
                last[2].append(value)
                return False
        rows.append((topic, offset, [value], None, -1, 0))
        return True

    def add_batch(self, topic: int, batch: RecordBatch) -> None:
        self._rows.append((topic, batch.base_offset, _IN_BATCH, None, -1, 0))
        self._batches.append(batch)
        self.count += 1
        self.bytes += batch.byte_length

    def is_due(self) -> bool:
        """Whether it is enough."""
        return self.bytes >= TURN_BYTES_MAX or self.count >= TURN_ROWS_MAX

    def command(self) -> Append | Appends:
        if len(self._rows) == len(self._batches) == 1:
            return Append(self._rows[0][0], self._batches[0])
        return Appends(self.time_ms, list(self._producers), self._rows, self._batches)
