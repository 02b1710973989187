"""A directory of segments, looked at without a broker and without touching it.

What is in segments is seen, which is everything up to the last checkpoint; what is newer lies in
the journal and is not. `direct_bounds` says up to where that is.

A directory that holds segments and no manifest has no names: there a topic is called by its id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..batch import RecordBatch
from ..errors import FlintError, InvalidRequest, MessagesLost, TopicNotFound
from ..group_model import Ranges
from ..groups.ranges import without
from ..storage.backup import SEGMENTS
from ..storage.filesystem import LocalFileSystem
from ..storage.manifest import NAME, read_manifest
from ..storage.segments import HIDDEN_TOPIC, BatchEntry, Section, Segment, sections
from .ranges import Range

_REMEDY = (
    "Retention has removed them, or a segment was not copied. Read again from what is there now, "
    "or copy the directory with `flintmq backup` and read the copy."
)


@dataclass(frozen=True)
class StoredTopic:
    """A plain topic as its segments have it."""

    name: str
    id: int
    ttl_ms: int | None
    first_offset: int
    sections: tuple[Section, ...]
    discarded: Ranges
    """Messages that nobody is to read."""

    @property
    def next_offset(self) -> int:
        return self.sections[-1].next if self.sections else self.first_offset

    @property
    def topic(self) -> str:
        return self.name.partition("/")[0]

    @property
    def partition(self) -> int:
        return int(self.name.partition("/")[2] or 0)


class SegmentDirectory:
    """A data directory, or one of copied segments, looked at without touching it."""

    def __init__(self, path: str) -> None:
        root = Path(path.removeprefix("file://"))
        if not root.is_dir():
            raise InvalidRequest(f"path: {path!r} is no directory on this machine")
        self._files = LocalFileSystem(root)
        self._path = path

    def stored(self) -> dict[str, StoredTopic]:
        """The plain topics, by name."""
        manifest = read_manifest(self._files)
        if manifest is None:
            return self._without_names()
        return {
            state.name: StoredTopic(
                state.name,
                state.id,
                None if state.options.ttl is None else max(1, round(state.options.ttl * 1000)),
                state.first_offset,
                tuple(state.sections),
                [(first, end) for first, end in state.discarded],
            )
            for state in manifest.topics
            if state.options.storage == "durable"
        }

    def _without_names(self) -> dict[str, StoredTopic]:
        found: dict[int, list[Section]] = {}
        for name in self._segment_files():
            segment = Segment(self._files, name)
            try:
                entries = [entry for one in segment.topics() for entry in segment.entries(one)]
            finally:
                segment.close()
            for id, section in sections(name, entries).items():
                if id != HIDDEN_TOPIC:
                    found.setdefault(id, []).append(section)
        if not found:
            raise InvalidRequest(
                f"path: {self._path!r} has neither a file {NAME!r} nor segments (*.seg): name the "
                "data directory of a broker, or one that segments were copied to"
            )
        stored = {}
        for id, parts in found.items():
            parts.sort(key=lambda section: (section.base, -section.next))
            stored[str(id)] = StoredTopic(str(id), id, None, parts[0].base, tuple(parts), [])
        return stored

    def _segment_files(self) -> list[str]:
        directories = ["", SEGMENTS] if self._files.exists(SEGMENTS) else [""]
        return [
            f"{directory}/{name}".lstrip("/")
            for directory in directories
            for name in self._files.list(directory)
            if name.endswith(".seg")
        ]

    def segment(self, name: str) -> Segment | None:
        """None where it is not there any more."""
        try:
            return Segment(self._files, name)
        except FlintError:
            if self._files.exists(name):
                raise
            return None

    def batches(self, one: Range) -> Iterator[tuple[RecordBatch, int, int]]:
        """The rows of a range, in order: a batch, and from which row to before which.

        A broker that works beside us joins small segments into new ones and removes the old: what
        is not where it was is looked up anew. What retention took is an error.
        """
        offset = one.start
        looks = 0
        while offset < one.end:
            stored = self.stored().get(one.plain)
            if stored is None or stored.id != one.id:
                raise TopicNotFound(one.plain)
            if stored.first_offset > offset:
                count = min(stored.first_offset, one.end) - offset
                raise MessagesLost(one.plain, offset, stored.first_offset, count, _REMEDY)
            before = offset
            for batch in self._of(stored, offset, one.end):
                stop = min(batch.row_count, one.end - batch.base_offset)
                kept = without([(offset, batch.base_offset + stop)], stored.discarded)
                offset = batch.base_offset + stop
                for first, end in kept:
                    yield batch, first - batch.base_offset, end - batch.base_offset
            looks = looks + 1 if offset == before else 0
            if looks == 3:
                after = next((part.base for part in stored.sections if part.base > offset), one.end)
                raise MessagesLost(one.plain, offset, after, after - offset, _REMEDY)

    def _of(self, stored: StoredTopic, offset: int, end: int) -> Iterator[RecordBatch]:
        """Batches that follow each other, up to the end or to where one is missing."""
        for section in stored.sections:
            if section.next <= offset:
                continue
            if section.base >= end:
                return
            segment = self.segment(section.file)
            if segment is None:
                return
            try:
                for entry in segment.entries(stored.id):
                    if entry.next <= offset or entry.base >= section.next:
                        continue
                    if entry.base > offset:
                        return
                    yield segment.read(entry)
                    offset = entry.next
                    if offset >= end:
                        return
            finally:
                segment.close()

    def offset_at(self, stored: StoredTopic, time_ms: int) -> int:
        """The first offset that was appended at a time or later."""
        at = bisect_left(stored.sections, time_ms, key=lambda section: section.last_time)
        if at == len(stored.sections):
            return stored.next_offset
        segment = self.segment(stored.sections[at].file)
        if segment is None:
            raise InvalidRequest(
                f"segment {stored.sections[at].file} was removed while it was looked at; try again"
            )
        try:
            entry: BatchEntry | None = segment.entry_at_time(stored.id, time_ms)
            if entry is None:
                return stored.sections[at].next
            batch = segment.read(entry)
        finally:
            segment.close()
        row = bisect_left(range(batch.row_count), time_ms, key=batch.time)
        return max(stored.first_offset, batch.base_offset + row)


def direct_bounds(path: str) -> dict[str, dict[int, tuple[int, int]]]:
    """What a direct read of this directory sees right now: by topic and partition, the first
    offset and the one behind the last. Newer messages are in the journal, and not seen."""
    bounds: dict[str, dict[int, tuple[int, int]]] = {}
    for stored in SegmentDirectory(path).stored().values():
        bounds.setdefault(stored.topic, {})[stored.partition] = (
            stored.first_offset,
            max(stored.first_offset, stored.next_offset),
        )
    return {topic: dict(sorted(parts.items())) for topic, parts in sorted(bounds.items())}
