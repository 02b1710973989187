"""Record batches as Arrow batches in the schema that Spark wants.

Rows are never handled one by one: columns are wrapped in place, joined over many batches, and only
the requested ones are touched.

    key           binary or string
    value         binary or string
    topic         string
    partition     int
    offset        bigint
    timestamp     timestamp
    priority      int
    content_type  string
    headers       array<struct<key: string, value: binary>>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..arrow import ColumnView
from ..batch import CONTENT_TYPES, PRIORITY, TIMES, RecordBatch
from ..errors import Corrupt, InvalidRequest

if TYPE_CHECKING:
    import pyarrow

ROWS_MIN = 10_000
"""Smaller Arrow batches cost Spark more than joining them costs here."""

BYTES_ENOUGH = 16 * 1024 * 1024
"""Enough for a batch, even with fewer rows: ten thousand large messages may not fit in memory, and
a column holds at most 2 GiB."""

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "priority int, content_type string"
)
HEADERS = "headers array<struct<key: string, value: binary>>"
_RAMP_ROWS = 1 << 16


def arrow_schema(schema: Any) -> pyarrow.Schema:
    """The Arrow schema of a schema of Spark; names and types are checked."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    known = _types()
    for field in wanted:
        if field.name not in known:
            raise InvalidRequest(f"a topic has no column {field.name!r}; it has {', '.join(known)}")
        if not any(field.type.equals(kind) for kind in known[field.name]):
            names = " or ".join(_sql_name(kind) for kind in known[field.name])
            raise InvalidRequest(f"column {field.name!r} has the type {names}, not {field.type}")
    if len(set(wanted.names)) != len(wanted.names):
        raise InvalidRequest(f"a column appears twice: {', '.join(wanted.names)}")
    assert isinstance(wanted, pa.Schema)
    return wanted


@lru_cache(maxsize=1)
def _types() -> dict[str, tuple[Any, ...]]:
    import pyarrow as pa

    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return {
        "key": (pa.binary(), pa.string()),
        "value": (pa.binary(), pa.string()),
        "topic": (pa.string(),),
        "partition": (pa.int32(),),
        "offset": (pa.int64(),),
        "timestamp": (pa.timestamp("us", tz="UTC"),),
        "priority": (pa.int32(),),
        "content_type": (pa.string(),),
        "headers": (pa.list_(pair),),
    }


def _sql_name(kind: Any) -> str:
    import pyarrow as pa

    names = {pa.int32(): "int", pa.int64(): "bigint", pa.timestamp("us", tz="UTC"): "timestamp"}
    if isinstance(kind, pa.ListType):
        return HEADERS.partition(" ")[2]
    return names.get(kind, str(kind))


RowPicks = Sequence[int] | None


class Columns:
    """Collects rows of record batches, and returns them as one Arrow batch."""

    def __init__(self, schema: pyarrow.Schema) -> None:
        self._schema = schema
        self._parts: dict[str, list[Any]] = {name: [] for name in schema.names}
        self._of_payload = any(
            name in schema.names for name in ("key", "value", "headers", "content_type")
        )
        self.rows = self.bytes = 0

    @property
    def is_enough(self) -> bool:
        """Whether there are enough rows for a batch."""
        return self.rows >= ROWS_MIN or self.bytes >= BYTES_ENOUGH

    def add(
        self, batch: RecordBatch, start: int, stop: int, picks: RowPicks, topic: str, partition: int
    ) -> None:
        """Add the rows of a batch from `start` up to before `stop`, or only the picked ones."""
        count = stop - start if picks is None else len(picks)
        if not count:
            return
        looks = self._of_payload or batch.columns & (TIMES | PRIORITY)
        view = ColumnView(batch) if looks else None
        for name, parts in self._parts.items():
            if name == "topic":
                _lengthen(parts, topic, count)
            elif name == "partition":
                _lengthen(parts, partition, count)
            elif name == "offset":
                _follow_on(parts, batch.base_offset, start, count, picks)
            elif name == "timestamp" and not batch.columns & TIMES:
                _lengthen(parts, batch.append_time, count)
            elif name == "priority" and not batch.columns & PRIORITY:
                _lengthen(parts, 0, count)
            elif name == "content_type" and not batch.columns & CONTENT_TYPES:
                _lengthen(parts, None, count)
            else:
                assert view is not None
                chosen = _chosen(_COLUMNS[name](view), start, stop, picks)
                self.bytes += chosen.nbytes
                parts.append(chosen)
        self.rows += count

    def take(self) -> pyarrow.RecordBatch:
        """The collected rows, as one batch."""
        import pyarrow as pa

        arrays = [_joined(field, self._parts[field.name]) for field in self._schema]
        for field, column in zip(self._schema, arrays, strict=True):
            if not field.nullable and column.null_count:
                raise InvalidRequest(
                    f"column {field.name!r} is NOT NULL in the schema, but some messages have none"
                )
        self._parts = {name: [] for name in self._schema.names}
        self.rows = self.bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


_COLUMNS: dict[str, Callable[[ColumnView], Any]] = {
    "key": ColumnView.keys,
    "value": ColumnView.values,
    "headers": ColumnView.headers,
    "timestamp": ColumnView.times,
    "priority": ColumnView.priorities,
    "content_type": ColumnView.content_types,
}


class _Same:
    """The same value for several rows."""

    __slots__ = ("count", "value")

    def __init__(self, value: Any, count: int) -> None:
        self.value, self.count = value, count


def _lengthen(parts: list[Any], value: Any, count: int) -> None:
    if parts and isinstance(parts[-1], _Same) and parts[-1].value == value:
        parts[-1].count += count
    else:
        parts.append(_Same(value, count))


def _chosen(column: Any, start: int, stop: int, picks: RowPicks) -> Any:
    import pyarrow as pa

    if picks is None:
        return column if stop - start == len(column) else column.slice(start, stop - start)
    return column.take(pa.array(picks, pa.int32()))


class _Ramp:
    """Consecutive numbers."""

    __slots__ = ("count", "first")

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count

    def array(self) -> Any:
        import pyarrow as pa

        from .compute import compute

        first = pa.scalar(self.first, pa.int64())
        if self.count <= _RAMP_ROWS:
            return compute.add(_ramp().slice(0, self.count), first)
        return pa.array(range(self.first, self.first + self.count), pa.int64())


def _follow_on(parts: list[Any], base: int, start: int, count: int, picks: RowPicks) -> None:
    """Add the offsets of rows; consecutive ones become one ramp."""
    import pyarrow as pa

    if picks is not None:
        parts.append(pa.array([base + row for row in picks], pa.int64()))
    elif (
        parts and isinstance(parts[-1], _Ramp) and parts[-1].first + parts[-1].count == base + start
    ):
        parts[-1].count += count
    else:
        parts.append(_Ramp(base + start, count))


@lru_cache(maxsize=1)
def _ramp() -> Any:
    import pyarrow as pa

    return pa.array(range(_RAMP_ROWS), pa.int64())


def _joined(field: Any, parts: list[Any]) -> Any:
    """The parts of one column as one array of the wanted type."""
    import pyarrow as pa

    arrays = [_as_wanted(field, part) for part in parts]
    if not arrays:
        return pa.array([], field.type)
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _as_wanted(field: Any, part: Any) -> Any:
    import pyarrow as pa

    from .compute import compute

    if isinstance(part, _Same):
        if part.value is None:
            return pa.nulls(part.count, field.type)
        if field.name == "timestamp":
            return pa.repeat(pa.scalar(part.value * 1000, field.type), part.count)
        return pa.repeat(pa.scalar(part.value, field.type), part.count)
    if isinstance(part, _Ramp):
        return part.array()
    if part.type.equals(field.type):
        return part
    if field.name == "content_type":
        return compute.if_else(compute.is_valid(part), part.cast(pa.string()), None)
    try:
        return part.cast(field.type)
    except pa.ArrowInvalid as error:
        if field.name in ("key", "value"):
            raise InvalidRequest(
                f"column {field.name!r} is a string in the schema, but a message has bytes that "
                "are not UTF-8; use binary"
            ) from None
        raise Corrupt(f"column {field.name!r} of a record batch: {error}") from error
