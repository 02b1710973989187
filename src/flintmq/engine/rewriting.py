"""Segments of a compacted topic are written without what was dropped from it.

What is dropped when its segment is first written mostly never comes to the disk. Sealed segments
never change: sections with much that is dropped are read, in the thread of a checkpoint, and what
is left of them goes into a new segment in their place. Offsets stay. Where rows are gone, the new
section has no batch (`TopicLog` finds a hole there). Every node does that for itself: which files
it has is its own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import NamedTuple

from ..batch import RecordBatch, slice_batch, thin_batch
from ..errors import FlintError
from ..group_model import Ranges
from ..groups.offset_set import OffsetSet
from ..groups.ranges import count_in, near
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

NEAR_ROWS = 16
"""A gap of so few rows does not end a batch: to read and write one more costs more than as many
empty rows."""


LEFT_MAX, FIRST_LEFT_MAX = 0.5, 0.125
"""A batch with a larger part left is written as it is: to cut it up costs more than it saves. When
it is written for the first time, most of what is left will have gone the next time."""

GARBAGE_BYTES = 64 << 20
"""Dropped messages may take so much of the disk, in all topics together, before any section is
written anew: the longer it waits, the less of a section is left to be read."""


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
        self._garbage: dict[int, int] = {}
        """Of each topic, about how many bytes of its sections are dropped."""

    def rewrite(self, sparse: list[Sparse]) -> list[Rewritten]:
        """In a thread: write what has to be written anew."""
        for one in sparse:
            self._garbage[one.topic] = sum(self._wasted(one.gone, each) for each in one.sections)
        is_much = sum(self._garbage.values()) >= GARBAGE_BYTES
        done = []
        for one in sparse:
            for run in self._runs(one, is_much=is_much):
                new = self._write(one, run)
                if new is not None:
                    done.append(Rewritten(one.topic, run, new))
        return done

    def forget(self, topics: Iterable[int], files: Iterable[str]) -> None:
        """These are deleted."""
        for topic in topics:
            self._garbage.pop(topic, None)
        for file in files:
            self._dropped.pop(file, None)

    def written(self, section: Section, gone: OffsetSet, garbage: int) -> None:
        """A section is new; of what was dropped, so many messages are in it."""
        self._dropped[section.file] = _dropped(gone, section) - garbage

    def _wasted(self, gone: OffsetSet, section: Section) -> int:
        before = self._dropped.get(section.file, 0)
        written = section.next - section.base - before
        return section.size * (_dropped(gone, section) - before) // max(written, 1)

    def _runs(self, sparse: Sparse, *, is_much: bool) -> list[list[Section]]:
        runs: list[list[Section]] = []
        run: list[Section] = []
        size, is_due = 0, False
        for section in [*sparse.sections, None]:
            due = is_much and section is not None and self._is_due(sparse.gone, section)
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
        thinner = Thinner(writer, topic, gone, LEFT_MAX)
        try:
            with closing(SegmentStore(self._filesystem, files_max=1)) as store:
                for section in run:
                    segment = store.segment(section.file)
                    for entry in segment.entries(topic):
                        if not section.base <= entry.base < section.next:
                            continue
                        if not thinner.pass_over(entry.base, entry.next):
                            thinner.add(segment.read(entry))
                if not thinner.end():
                    return None
            ((_, new),) = writer.seal()
        except FlintError as error:
            if not is_damage(error):
                raise
            return None
        finally:
            writer.abandon()
        new = new._replace(
            base=run[0].base,
            next=run[-1].next,
            first_time=run[0].first_time,
            last_time=run[-1].last_time,
        )
        self.written(new, gone, thinner.garbage)
        return new


def _dropped(gone: OffsetSet, section: Section) -> int:
    return gone.count_before(section.next) - gone.count_before(section.base)


class Thinner:
    """Writes batches without what was dropped from them, where much of one is."""

    def __init__(self, writer: SegmentWriter, topic: int, gone: OffsetSet, left_max: float) -> None:
        self._writer, self._topic, self._gone = writer, topic, gone
        self._left_max = left_max
        self.garbage = 0
        """How many dropped messages were written all the same."""
        self._last: RecordBatch | None = None
        self._is_empty = True

    def pass_over(self, first: int, behind: int) -> bool:
        """Whether nothing of a batch is left, and it need not be read."""
        return self._last is not None and not self._gone.missing(first, behind)

    def add(self, batch: RecordBatch) -> None:
        self._last = batch
        first, rows = batch.base_offset, batch.row_count
        kept = self._gone.missing(first, first + rows)
        left = count_in(kept)
        if left > self._left_max * rows:
            self._write(batch)
            self.garbage += rows - left
        else:
            for group in near(kept, NEAR_ROWS):
                self._write(part_of(batch, group))

    def _write(self, batch: RecordBatch) -> None:
        self._writer.add(self._topic, batch)
        self._is_empty = False

    def end(self) -> bool:
        """A segment has a batch at least; False if there was none."""
        if self._is_empty and self._last is not None:
            self._write(slice_batch(self._last, 0, 1))
        return not self._is_empty


def part_of(batch: RecordBatch, ranges: Ranges) -> RecordBatch:
    """The rows with these offsets as a batch; what lies between them is empty in it."""
    base = batch.base_offset
    if len(ranges) == 1:
        return slice_batch(batch, ranges[0][0] - base, ranges[0][1] - base)
    rows = [row for start, stop in ranges for row in range(start - base, stop - base)]
    return thin_batch(batch, rows)
