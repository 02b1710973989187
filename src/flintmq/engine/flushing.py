"""What topics hold in memory, and what a large commit has staged, goes into segments of the topics.

In the thread of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from ..batch import RecordBatch, RestingRows
from ..errors import FlintError
from ..groups.offset_set import OffsetSet
from ..storage.filesystem import FileSystem
from ..storage.resting import batches_of
from ..storage.scrub import FoundDamage
from ..storage.segment_store import SegmentStore
from ..storage.segments import Section, SegmentWriter, cause_of, is_damage, joined
from ..storage.topic_log import TopicLog
from .recovery import SEGMENTS
from .rewriting import FIRST_LEFT_MAX, Rewriter, Thinner
from .state.memory_log import CHUNK_BYTES, CHUNK_ROWS

OWN_SEGMENT_BYTES = 256 * 1024
"""Topics with less than this to flush share a segment."""

OWN_SEGMENT_BYTES_MAX = 256 << 20
"""About how large a segment becomes at most: a large commit is written to several."""


class Flush(NamedTuple):
    topic: int
    log: TopicLog
    tail: list[RecordBatch | RestingRows]
    merge: int
    merged: list[Section]
    gone: OffsetSet | None
    """What is not written, of a compacted topic."""

    def whole(self, section: Section) -> Section:
        """The section reaches from the first to the last message, whatever is left of them."""
        first, last = self.tail[0], self.tail[-1]
        return section._replace(
            base=first.base_offset,
            next=last.base_offset + last.row_count,
            first_time=first.time(0),
            last_time=last.time(last.row_count - 1),
        )


class Flushing:
    def __init__(
        self, files: FileSystem, new_segment: Callable[[], SegmentWriter], rewriter: Rewriter
    ) -> None:
        self._files, self._new_segment, self._rewriter = files, new_segment, rewriter

    def write(
        self, flushes: list[Flush]
    ) -> tuple[dict[int, list[Section]], dict[int, int], list[FoundDamage]]:
        """The new sections by topic, how many earlier ones the first takes the place of, and what
        of those was found damaged: then it takes the place of none."""
        sections: dict[int, list[Section]] = {}
        merged: dict[int, int] = {}
        garbage: dict[int, int] = {}
        all_found: list[FoundDamage] = []
        shared: SegmentWriter | None = None
        own: SegmentWriter | None = None
        try:
            for flush in flushes:
                earlier, found = self._read_sections(flush)
                all_found += found
                size = sum(batch.byte_length for batch in flush.tail)
                if not found:
                    merged[flush.topic] = flush.merge
                    size += sum(section.size for section in flush.merged)
                if size >= OWN_SEGMENT_BYTES:
                    writer = own = self._new_segment()
                else:
                    own = None
                    writer = shared = shared or self._new_segment()
                batches = joined(self._in_memory([*earlier, *flush.tail]), CHUNK_ROWS, CHUNK_BYTES)
                if flush.gone is not None:
                    thinner = Thinner(writer, flush.topic, flush.gone, FIRST_LEFT_MAX)
                    for batch in batches:
                        thinner.add(batch)
                    thinner.end()
                    garbage[flush.topic] = thinner.garbage
                else:
                    for batch in batches:
                        if own is not None and own.size >= OWN_SEGMENT_BYTES_MAX:
                            _note_sections(sections, own.seal())
                            writer = own = self._new_segment()
                        writer.add(flush.topic, batch)
                if own is not None:
                    _note_sections(sections, own.seal())
            if shared is not None:
                _note_sections(sections, shared.seal())
            for flush in flushes:
                if flush.gone is not None:
                    section = flush.whole(sections[flush.topic][0])
                    sections[flush.topic] = [section]
                    self._rewriter.written(section, flush.gone, garbage[flush.topic])
        finally:
            for opened in (own, shared):
                if opened is not None:
                    opened.abandon()
        if flushes:
            self._files.sync_directory(SEGMENTS)
        return sections, merged, all_found

    def _in_memory(self, tail: list[RecordBatch | RestingRows]) -> Iterator[RecordBatch]:
        """The batches of a tail, one by one: those of a large commit are read from where they were
        staged."""
        with closing(SegmentStore(self._files, files_max=2, bytes_max=1)) as store:
            for rows in tail:
                if isinstance(rows, RestingRows):
                    yield from batches_of(store, rows)
                else:
                    yield rows

    def _read_sections(self, flush: Flush) -> tuple[list[RecordBatch], list[FoundDamage]]:
        """The batches to be written anew; none where anything of them is damaged."""
        store, id = SegmentStore(self._files, files_max=1), flush.topic
        batches: list[RecordBatch] = []
        found: list[FoundDamage] = []
        with closing(store):
            for section in flush.merged:
                try:
                    entries = store.segment(section.file).entries(id)
                except FlintError as error:
                    if not is_damage(error):
                        raise
                    found.append(FoundDamage("index", section.file, cause_of(error)))
                    continue
                for entry in entries:
                    if section.base <= entry.base < section.next:
                        try:
                            batches.append(store.segment(section.file).read(entry))
                        except FlintError as error:
                            if not is_damage(error):
                                raise
                            place = (id, entry.base, entry.next)
                            found.append(
                                FoundDamage("messages", section.file, cause_of(error), *place)
                            )
        return ([] if found else batches), found


def _note_sections(found: dict[int, list[Section]], sealed: Iterable[tuple[int, Section]]) -> None:
    for topic, section in sealed:
        found.setdefault(topic, []).append(section)
