"""A batch read: the messages there are when it is planned, or those between two places."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .columns import arrow_schema
from .connecting import line_to
from .fetching import Fetches, arrow_batches
from .options import ReadOptions
from .planning import TopicExtents, extents, offsets_at, ranges
from .pushdown import Narrowing, narrowing
from .ranges import Range, spread, tasks_wanted
from .telling import each_told_plainly, told_plainly
from .worker import calm_the_collector


class RangesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        shown = ", ".join(f"{one.plain}[{one.start}:{one.end}]" for one in self.ranges)
        return f"RangesPartition({shown})"


def planned(found: Sequence[Range], options: ReadOptions) -> list[RangesPartition]:
    """Ranges as tasks."""
    rows = sum(one.rows for one in found)
    tasks = tasks_wanted(rows, os.cpu_count() or 1, options.min_tasks, options.task_rows_max)
    return [RangesPartition(one) for one in spread(found, tasks)]


def read_partition(partition: RangesPartition, options: ReadOptions, schema: Any) -> Iterator[Any]:
    """The rows of one task, as Arrow batches."""
    calm_the_collector()
    if not partition.ranges:
        return
    fetches = Fetches(
        line_to(options.settings, patient=True),
        partition.ranges,
        filter=options.filter,
        with_expired=options.expired,
        fail_on_loss=options.fail_on_loss,
    )
    yield from arrow_batches(fetches, schema)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._narrowing = Narrowing()

    @told_plainly
    def partitions(self) -> Sequence[InputPartition]:
        # Spark wants one at least, also of nothing.
        return planned(self._ranges(), self._options) or [RangesPartition(())]

    @each_told_plainly
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._options, self._schema)

    def _ranges(self) -> list[Range]:
        options, narrow = self._options, self._narrowing
        line = line_to(options.settings)
        known = extents(line, options)

        def at_time(time: datetime) -> TopicExtents:
            return extents(line, options, time)

        starts = offsets_at(options.start, known, "startingOffsets", at_time)
        ends = offsets_at(options.end, known, "endingOffsets", at_time)
        found = [
            one for one in ranges(known, starts, ends) if narrow.wants(one.topic, one.partition)
        ]
        if narrow.since is not None:
            since = offsets_at(narrow.since, known, "timestamp", at_time)
            found = [_later(one, since[one.topic, one.partition]) for one in found]
        if narrow.until is not None:
            until = offsets_at(narrow.until, known, "timestamp", at_time)
            found = [_earlier(one, until[one.topic, one.partition]) for one in found]
        if narrow.first is not None:
            found = [_later(one, narrow.first) for one in found]
        if narrow.end is not None:
            found = [_earlier(one, narrow.end) for one in found]
        return [one for one in found if one.rows]


def _later(one: Range, start: int) -> Range:
    return replace(one, start=max(one.start, start))


def _earlier(one: Range, end: int) -> Range:
    return replace(one, end=min(one.end, end))


class NarrowedBatchReader(BatchReader):
    """The same where Spark hands over its filters. A class of its own: Spark refuses every reader
    that could take filters where that is not switched on."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._narrowing = narrowing(filters)
        return filters
