"""A data source as the guides show them: it yields a tuple for every row."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .jobs import SCHEMA, VALUE_BYTES

TASKS = 2


class TupleReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        now = datetime.datetime.now(datetime.UTC)
        tail = b"x" * (VALUE_BYTES - 12)
        for number in range(partition.value, self._rows, TASKS):
            yield b"%08d" % number, b"%012d" % number + tail, number, now


class TupleSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> TupleReader:
        return TupleReader(int(self.options["rows"]))
