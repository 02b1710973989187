"""Readers as Spark would make and call them, without Spark."""

from __future__ import annotations

import pickle
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flintmq.spark.source import FlintDataSource

_TYPES: dict[str, Any] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "priority": IntegerType(),
    "content_type": StringType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def schema(*names: str) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in names or _TYPES])


def batch_reader(url: str, *columns: str, **options: str) -> Any:
    return FlintDataSource({"servers": url, **options}).reader(schema(*columns))


def stream_reader(url: str, *columns: str, **options: str) -> Any:
    return FlintDataSource({"servers": url, **options}).streamReader(schema(*columns))


def read_all(reader: Any, partitions: Any = None) -> list[dict[str, Any]]:
    """The rows of all tasks. What a task gets was pickled, as Spark does it."""
    rows: list[dict[str, Any]] = []
    for partition in reader.partitions() if partitions is None else partitions:
        theirs, part = pickle.loads(pickle.dumps((reader, partition)))
        for batch in theirs.read(part):
            rows += batch.to_pylist()
    return rows


def column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]
