"""A batch read: all messages at the time of planning, or those between a start and an end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .columns import arrow_schema
from .connecting import line_to
from .far_reads import FarReads
from .fetching import Fetches, arrow_batches
from .last_values import LastValues
from .options import ReadOptions
from .planning import TopicExtents, extents, offsets_at, ranges
from .pushdown import Narrowing, narrowing
from .ranges import Range, spread, tasks_wanted
from .tracebacks import each_without_traceback, without_traceback
from .worker import PARALLELISM, calm_the_collector


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        shown = ", ".join(f"{one.plain}[{one.start}:{one.end}]" for one in self.ranges)
        return f"RangesPartition({shown})"


def planned(found: Sequence[Range], options: ReadOptions) -> list[RangesPartition]:
    """Ranges as tasks. Spark wants at least one, even for no rows."""
    rows = sum(one.rows for one in found)
    parallelism = options.parallelism or _known_parallelism()
    tasks = tasks_wanted(rows, parallelism, options.min_tasks, options.task_rows_max)
    return [RangesPartition(one) for one in spread(found, tasks)] or [RangesPartition(())]


def _known_parallelism() -> int | None:
    """How many tasks our session runs at a time. The number of cores here says nothing: Spark plans
    on the driver, and tasks run in the cluster."""
    told = os.environ.get(PARALLELISM, "")
    return int(told) if told.isdecimal() and int(told) else None


def read_partition(partition: InputPartition, options: ReadOptions, schema: Any) -> Iterator[Any]:
    """The rows of one task, as Arrow batches."""
    calm_the_collector()
    assert isinstance(partition, RangesPartition)
    if not partition.ranges:
        return
    line = line_to(options.settings, patient=True)
    if options.view == "latest":
        yield from arrow_batches(LastValues(line, partition.ranges, options.filter), schema)
        return

    def fetches(ranges: Sequence[Range]) -> Fetches:
        return Fetches(
            line,
            ranges,
            filter=options.filter,
            with_expired=options.expired,
            fail_on_loss=options.fail_on_loss,
        )

    if options.filter is None and any(one.start < one.far_end for one in partition.ranges):
        reads = FarReads(line, partition.ranges, fetches, with_expired=options.expired)
        yield from arrow_batches(reads, schema)
        return
    yield from arrow_batches(fetches(partition.ranges), schema)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._narrowing = Narrowing()

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        found = self._ranges()
        if self._options.view == "latest":  # a partition is looked through as a whole
            return [RangesPartition([one]) for one in found] or [RangesPartition(())]
        return planned(found, self._options)

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._options, self._schema)

    def _ranges(self) -> list[Range]:
        options, narrow = self._options, self._narrowing
        line = line_to(options.settings)
        known = extents(line, options)

        def at_time(time: datetime) -> TopicExtents:
            return extents(line, options, time)

        starts = [offsets_at(options.start, known, "startingOffsets", at_time)]
        ends = [offsets_at(options.end, known, "endingOffsets", at_time)]
        if narrow.since is not None:
            starts.append(offsets_at(narrow.since, known, "timestamp", at_time))
        if narrow.until is not None:
            ends.append(offsets_at(narrow.until, known, "timestamp", at_time))
        if narrow.first is not None:
            starts.append(dict.fromkeys(starts[0], narrow.first))
        if narrow.end is not None:
            ends.append(dict.fromkeys(ends[0], narrow.end))
        if options.view == "latest":  # offsets of the state say nothing about its size
            starts, ends = starts[:1], ends[:1]
        first = {place: max(one[place] for one in starts) for place in starts[0]}
        last = {place: min(one[place] for one in ends) for place in ends[0]}
        found = ranges(known, first, last)
        return [one for one in found if narrow.wants(one.topic, one.partition)]


class NarrowedBatchReader(BatchReader):
    """The same with pushed filters. A class of its own: where filter pushdown is off, Spark refuses
    readers that have `pushFilters`."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._narrowing = narrowing(filters)
        return filters
