"""Segments of a compacted topic are written anew, without what was dropped from them.

Sealed segments never change: sections with much that is dropped are read, in the thread of a
checkpoint, and what is left of them goes into a new segment in their place. Offsets stay. Where
rows are gone, the new section has no batch (`TopicLog` finds a hole there). Every node does that
for itself: which files it has is its own business.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from ..batch import RecordBatch, slice_batch, thin_batch
from ..errors import FlintError
from ..group_model import Ranges
from ..groups.offset_set import OffsetSet
from ..groups.ranges import near
from ..storage.filesystem import FileSystem
from ..storage.segment_store import SegmentStore
from ..storage.segments import Section, SegmentWriter, is_damage
from ..storage.topic_log import TopicLog

DROPPED_MIN = 256
"""A section with fewer dropped messages than this is left alone."""

SMALL_BYTES = 256 * 1024
SMALL_MAX = 8
"""So many small sections in a row are written anew as one."""

RUN_BYTES_MAX = 64 << 20
"""What is read at most for one new section."""

NEAR_ROWS = 8
"""A gap of so few rows does not end a batch: a header is larger than as many empty rows."""


class Sparse(NamedTuple):
    """A compacted topic, and what of it is dropped."""

    topic: int
    log: TopicLog
    sections: list[Section]
    gone: OffsetSet


class Rewritten(NamedTuple):
    """A section that takes the place of others."""

    topic: int
    old: list[Section]
    new: Section


class Rewriter:
    """Remembers how much of each section was dropped when it was written: what is left of one is
    written again only when half of it is gone as well."""

    def __init__(self, filesystem: FileSystem, new_segment: Callable[[], SegmentWriter]) -> None:
        self._filesystem, self._new_segment = filesystem, new_segment
        self._dropped: dict[str, int] = {}

    def rewrite(self, sparse: Sparse) -> list[Rewritten]:
        """In a thread: write what has to be written anew."""
        done = []
        for run in self._runs(sparse):
            new = self._write(sparse, run)
            if new is not None:
                self._dropped[new.file] = _dropped(sparse.gone, new)
                done.append(Rewritten(sparse.topic, run, new))
        files = {section.file for section in sparse.sections} | {one.new.file for one in done}
        self._dropped = {file: n for file, n in self._dropped.items() if file in files}
        return done

    def _runs(self, sparse: Sparse) -> list[list[Section]]:
        runs: list[list[Section]] = []
        run: list[Section] = []
        size, is_due = 0, False
        for section in [*sparse.sections, None]:
            due = section is not None and self._is_due(sparse.gone, section)
            small = section is not None and section.size < SMALL_BYTES
            if section is None or not (due or small) or size >= RUN_BYTES_MAX:
                if is_due or len(run) >= SMALL_MAX:
                    runs.append(run)
                run, size, is_due = [], 0, False
            if section is not None and (due or small):
                run.append(section)
                size += section.size
                is_due = is_due or due
        return runs

    def _is_due(self, gone: OffsetSet, section: Section) -> bool:
        before = self._dropped.get(section.file, 0)
        left = section.next - section.base - before
        newly = _dropped(gone, section) - before
        return newly >= DROPPED_MIN and 2 * newly >= left

    def _write(self, sparse: Sparse, run: list[Section]) -> Section | None:
        """None where something of it is damaged: then it stays as it is."""
        topic, gone = sparse.topic, sparse.gone
        writer = self._new_segment()
        try:
            with closing(SegmentStore(self._filesystem, files_max=1)) as store:
                last = None
                is_empty = True
                for section in run:
                    segment = store.segment(section.file)
                    for entry in segment.entries(topic):
                        if not section.base <= entry.base < section.next:
                            continue
                        kept = gone.missing(entry.base, entry.next)
                        if kept or last is None:
                            last = segment.read(entry)
                        for group in near(kept, NEAR_ROWS):
                            is_empty = False
                            writer.add(topic, part_of(last, group))
                if is_empty:  # a segment has a batch at least
                    if last is None:
                        return None
                    writer.add(topic, slice_batch(last, 0, 1))
            ((_, new),) = writer.seal()
        except FlintError as error:
            if not is_damage(error):
                raise
            return None
        finally:
            writer.abandon()
        return new._replace(
            base=run[0].base,
            next=run[-1].next,
            first_time=run[0].first_time,
            last_time=run[-1].last_time,
        )


def _dropped(gone: OffsetSet, section: Section) -> int:
    return gone.count_before(section.next) - gone.count_before(section.base)


def part_of(batch: RecordBatch, ranges: Ranges) -> RecordBatch:
    """The rows with these offsets as a batch; what lies between them is empty in it."""
    base = batch.base_offset
    if len(ranges) == 1:
        return slice_batch(batch, ranges[0][0] - base, ranges[0][1] - base)
    rows = [row for start, stop in ranges for row in range(start - base, stop - base)]
    return thin_batch(batch, rows)
