"""Routes rows to plain topics: by topic, then by partition, whole columns at a time.

The rule is that of the client (`client.routing`): a given partition, else the hash of the key;
rows without a key go to one partition after the other, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..batch.from_arrow import key_hashes
from ..client.routing import partition_name
from ..errors import InvalidRequest
from .write_columns import TaskRows

if TYPE_CHECKING:
    import pyarrow


class Spreader:
    """Routes the rows of one task. `partitions_of` gives the number of partitions of a topic, None
    for a plain one."""

    def __init__(
        self, topic: str | None, partitions_of: Callable[[str], int | None], *, turn: int = 0
    ) -> None:
        self._topic, self._partitions_of = topic, partitions_of
        self._first_turn = turn
        self._turns: dict[str, int] = {}

    def spread(self, rows: TaskRows) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
        """The rows by plain topic; each keeps their order."""
        for topic, some in self._by_topic(rows):
            partitions = self._partitions_of(topic)
            if partitions is None:
                _check_partitions(topic, 1, some.partitions)
                yield topic, some.columns
            else:
                yield from self._by_partition(topic, partitions, some)

    def _by_topic(self, rows: TaskRows) -> Iterator[tuple[str, TaskRows]]:
        if self._topic is not None:
            yield self._topic, rows._replace(topics=None)
            return
        assert rows.topics is not None
        if rows.topics.null_count:
            raise InvalidRequest("a row has no topic: its column topic is null")
        named = rows.topics.dictionary_encode()
        names = named.dictionary.to_pylist()
        for number, some in grouped(rows, named.indices, len(names)):
            yield names[number], some

    def _by_partition(
        self, topic: str, count: int, rows: TaskRows
    ) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
        import pyarrow as pa

        from .compute import compute

        columns = rows.columns
        wanted = None
        if "key" in columns.schema.names:
            keys = columns.column("key")
            if keys.null_count < len(keys):
                hashes = key_hashes(keys)
                columns = columns.append_column("key_hash", hashes)
                turns = compute.divide(hashes, pa.scalar(count, pa.uint32()))
                by_key = compute.subtract(
                    hashes, compute.multiply(turns, pa.scalar(count, pa.uint32()))
                ).cast(pa.int64())
                wanted = compute.if_else(keys.is_valid(), by_key, pa.scalar(None, pa.int64()))
        if rows.partitions is not None:
            _check_partitions(topic, count, rows.partitions)
            named = rows.partitions
            wanted = named if wanted is None else compute.coalesce(named, wanted)
        if wanted is None or wanted.null_count:
            keyless = self._next(topic, count)
            if wanted is None:
                yield partition_name(topic, keyless), columns
                return
            wanted = compute.fill_null(wanted, keyless)
        for number, some in grouped(TaskRows(columns, None, None), wanted, count):
            yield partition_name(topic, number), some.columns

    def _next(self, topic: str, count: int) -> int:
        turn = self._turns.get(topic, self._first_turn)
        self._turns[topic] = turn + 1
        return turn % count


def grouped(rows: TaskRows, numbers: Any, count: int) -> Iterator[tuple[int, TaskRows]]:
    """The rows by their number, from 0 to `count` - 1; each keeps their order."""
    from .compute import compute

    if count == 1:
        yield 0, rows
        return
    counts = {item["values"]: item["counts"] for item in compute.value_counts(numbers).to_pylist()}
    if len(counts) == 1:
        yield next(iter(counts)), rows
        return
    sorted_rows = rows.take(compute.array_sort_indices(numbers))  # which is stable
    start = 0
    for number in sorted(counts):
        yield number, sorted_rows.slice(start, counts[number])
        start += counts[number]


def _check_partitions(topic: str, count: int, partitions: Any) -> None:
    from .compute import compute

    if partitions is None or partitions.null_count == len(partitions):
        return
    lowest, highest = compute.min_max(partitions).as_py().values()
    if lowest < 0 or highest >= count:
        wrong = lowest if lowest < 0 else highest
        raise InvalidRequest(f"no partition {wrong} in {topic!r}: it has {count}, 0 to {count - 1}")
