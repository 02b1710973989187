"""Reads segments without a broker: of a data directory, also of a running broker, or of a copy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..errors import InvalidRequest
from ..model import Extent
from .batch_reader import RangesPartition, planned
from .columns import Columns, arrow_schema
from .directory import SegmentDirectory, StoredTopic, offset_at
from .living import living
from .options import ReadOptions
from .planning import TopicExtents, offsets_at, ranges
from .tracebacks import each_without_traceback, without_traceback
from .worker import calm_the_collector

_log = logging.getLogger(__name__)


class DirectReader(DataSourceReader):
    """A batch read over a directory."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._now_ms = round(time.time() * 1000)  # the same for all tasks and attempts

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        assert options.path is not None
        stored = SegmentDirectory(options.path).stored()
        known = _extents(options, stored)

        def at_time(moment: datetime) -> TopicExtents:
            time_ms = -int(-moment.timestamp() * 1000 // 1)
            return _extents(options, stored, lambda one: offset_at(one, time_ms))

        starts = offsets_at(options.start, known, "startingOffsets", at_time)
        ends = offsets_at(options.end, known, "endingOffsets", at_time)
        found = ranges(known, starts, ends)
        for one in found:
            _log.info("direct read of %s: offsets %d to %d", one.plain, one.start, one.end - 1)
        return planned(found, options)

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[Any]:
        calm_the_collector()
        assert self._options.path is not None
        assert isinstance(partition, RangesPartition)
        directory = SegmentDirectory(self._options.path)
        columns = Columns(self._schema)
        for one in partition.ranges:
            stored = directory.stored().get(one.plain)
            ttl_ms = None if stored is None else stored.ttl_ms
            for batch, start, stop in directory.batches(one):
                picks = None
                if not self._options.expired:
                    picks = living(batch, start, stop, ttl_ms, self._now_ms)
                columns.add(batch, start, stop, picks, one.topic, one.partition)
                if columns.is_enough:
                    yield columns.take()
        if columns.rows:
            yield columns.take()


def _extents(
    options: ReadOptions,
    stored: dict[str, StoredTopic],
    at: Callable[[StoredTopic], int] | None = None,
) -> TopicExtents:
    known: TopicExtents = {}
    for one in stored.values():
        if options.wants(one.topic):
            known.setdefault(one.topic, []).append(
                Extent(
                    one.name,
                    one.partition,
                    one.id,
                    one.first_offset,
                    max(one.first_offset, one.next_offset),
                    sum(section.size for section in one.sections),
                    one.first_offset if at is None else at(one),
                )
            )
    for topic in options.topics:
        if topic not in known:
            there = sorted({one.topic for one in stored.values()})
            shown = ", ".join(there[:10]) + (" ..." if len(there) > 10 else "")
            raise InvalidRequest(
                f"no topic {topic!r} in {options.path!r}; it has {shown or 'no topics'}. New "
                "messages are in segments only after the next checkpoint of the broker"
            )
    for parts in known.values():
        parts.sort(key=lambda part: part.partition)
    return known
