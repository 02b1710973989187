"""The columns of a message, and how Spark's Arrow columns become those of a record batch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow

TEXT_OR_BYTES = re.compile(r"binary|string( collate \w+)?|varchar\(\d+\)|char\(\d+\)")
TEXT = re.compile(r"string( collate \w+)?|varchar\(\d+\)|char\(\d+\)")
WHOLE = re.compile(r"tinyint|smallint|int|bigint")
SECONDS = re.compile(
    r"tinyint|smallint|int|bigint|float|double|decimal\(.*\)|interval day.*|interval .*second"
)
TIME = re.compile(r"timestamp")
PAIRS = re.compile(
    r"map<string,(binary|string)>|array<struct<(key|name):string,value:(binary|string)>>"
)


class MessageColumn(NamedTuple):
    types: re.Pattern[str]
    said: str
    """The types, for people."""


COLUMNS = {
    "value": MessageColumn(TEXT_OR_BYTES, "binary or string"),
    "key": MessageColumn(TEXT_OR_BYTES, "binary or string"),
    "headers": MessageColumn(
        PAIRS, "map<string,binary> or array<struct<key:string,value:binary>>, or string values"
    ),
    "topic": MessageColumn(TEXT, "string"),
    "partition": MessageColumn(WHOLE, "a whole number"),
    "priority": MessageColumn(WHOLE, "a whole number from 0 to 7"),
    "ttl": MessageColumn(SECONDS, "seconds as a number, or a day-time interval"),
    "expires_at": MessageColumn(TIME, "timestamp"),
    "delay": MessageColumn(SECONDS, "seconds as a number, or a day-time interval"),
    "deliver_at": MessageColumn(TIME, "timestamp"),
    "content_type": MessageColumn(TEXT, "string"),
}
GIVEN_BY_THE_BROKER = frozenset({"offset", "timestamp", "timestampType"})
EITHER_OR = (("ttl", "expires_at"), ("delay", "deliver_at"))


def check_columns(fields: Iterable[tuple[str, str]], topic: str | None) -> list[str]:
    """The names of the columns, in order, if each is known and has a suitable type."""
    names = []
    for name, kind in fields:
        column = COLUMNS.get(name)
        if name in GIVEN_BY_THE_BROKER:
            raise InvalidRequest(f"column {name!r} is set by the broker; drop it before writing")
        if column is None:
            raise InvalidRequest(
                f"column {name!r} ({kind}) is not a column of a message. Select from "
                f"{', '.join(COLUMNS)}, or put other columns into the value with "
                "flintmq.spark.to_value"
            )
        if not column.types.fullmatch(kind):
            raise InvalidRequest(f"column {name!r} is {kind}; cast it to {column.said}")
        if name in names:
            raise InvalidRequest(f"column {name!r} appears twice")
        names.append(name)
    if "value" not in names:
        raise InvalidRequest(
            f"a message needs a column 'value'; the rows have {', '.join(names) or 'no columns'}"
        )
    for one, other in EITHER_OR:
        if one in names and other in names:
            raise InvalidRequest(f"columns {one!r} and {other!r} mean the same; keep one of them")
    if topic is None and "topic" not in names:
        raise InvalidRequest("set the topic: .option('topic', 'orders'), or a column 'topic'")
    return names


class TaskRows(NamedTuple):
    """Rows of one Arrow batch: the columns of a record batch, and where the rows go."""

    columns: pyarrow.RecordBatch
    topics: pyarrow.Array | None
    partitions: pyarrow.Array | None

    def take(self, indices: Any) -> TaskRows:
        return TaskRows(*(None if part is None else part.take(indices) for part in self))

    def slice(self, start: int, count: int) -> TaskRows:
        return TaskRows(*(None if part is None else part.slice(start, count) for part in self))


def rows_of(batch: pyarrow.RecordBatch, names: list[str]) -> TaskRows:
    """Rows from Spark, as the columns of a record batch."""
    import pyarrow as pa

    kept: dict[str, Any] = {}
    topics = partitions = None
    for name, column in zip(names, batch.columns, strict=True):
        if name == "topic":
            topics = _narrow(pa, column)
        elif name == "partition":
            partitions = column.cast(pa.int64())
        elif name in ("ttl", "delay"):
            kept[name] = _duration(pa, column)
        else:
            kept[name] = _narrow(pa, column)
    return TaskRows(pa.RecordBatch.from_arrays(list(kept.values()), list(kept)), topics, partitions)


def _narrow(pa: Any, column: Any) -> Any:
    """Spark may be set to 64-bit offsets; a record batch has 32-bit ones."""
    if pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    return column


def _duration(pa: Any, seconds: Any) -> Any:
    """Seconds as a duration, counted from when the broker stores the row; null stays null."""
    from .compute import compute

    if pa.types.is_duration(seconds.type):
        ms = seconds.cast(pa.duration("ms"), safe=False).cast(pa.int64())
    else:
        exact = compute.multiply(seconds.cast(pa.float64()), 1000.0)
        ms = compute.round(exact).cast(pa.int64())
    lowest = compute.min(ms).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidRequest(f"ttl and delay must not be negative, as {lowest / 1000:g} is")
    return ms.cast(pa.duration("ms"))
