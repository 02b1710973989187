"""A directory of segments, read without a broker. Nothing is written or locked.

Segments hold everything up to the last checkpoint. Newer messages are in the journal, and are not
read; `direct_bounds` tells where a direct read ends. All groups of the directory are read.

Without a manifest there are no topic names: a topic then goes by its id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ..batch import RecordBatch
from ..errors import InvalidRequest, MessagesLost, StorageFailed, TopicNotFound
from ..group_model import Ranges
from ..groups.ranges import without
from ..storage.backup import SEGMENTS
from ..storage.filesystem import LocalFileSystem, Opens
from ..storage.group_files import files_of, groups_in
from ..storage.manifest import NAME, read_manifest
from ..storage.objects import FilesAndObjects, ObjectStores
from ..storage.segments import HIDDEN_TOPIC, Section, Segment, sections
from ..storage.tiered import all_sections
from .ranges import Range

_REMEDY = (
    "Retention has removed them, or a segment was not copied. Start the read again, or make a copy "
    "with `flintmq backup` and read that."
)


@dataclass(frozen=True)
class StoredTopic:
    """A plain topic as its segments have it."""

    files: Opens
    """Those of its group, and objects."""
    name: str
    id: int
    ttl_ms: int | None
    first_offset: int
    sections: tuple[Section, ...]
    discarded: Ranges
    """Messages that must not be read."""

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
    """A data directory, or one with copied segments."""

    def __init__(self, path: str) -> None:
        root = Path(path.removeprefix("file://"))
        if not root.is_dir():
            raise InvalidRequest(f"path: {path!r} is not a directory on this machine")
        self._files = LocalFileSystem(root)
        self._path, self._objects = path, ObjectStores()

    def stored(self) -> dict[str, StoredTopic]:
        """The plain topics of all groups, by name."""
        stored: dict[str, StoredTopic] = {}
        groups: dict[str, int] = {}
        has_manifest = False
        for group in groups_in(self._files):
            files = files_of(self._files, group)
            if (manifest := read_manifest(files)) is None:
                continue
            has_manifest = True
            for state in manifest.topics:
                if state.options.storage != "durable":
                    continue
                if groups.setdefault(state.name, group) != group:
                    raise InvalidRequest(
                        f"path: topic {state.name!r} is in groups {groups[state.name]} and {group} "
                        f"of {self._path!r}, and only a running broker knows which one is current. "
                        "Read it through the broker: use the option servers instead of path"
                    )
                ttl = state.options.ttl
                stored[state.name] = StoredTopic(
                    FilesAndObjects(files, self._objects),
                    state.name,
                    state.id,
                    None if ttl is None else max(1, round(ttl * 1000)),
                    state.first_offset,
                    tuple(all_sections(state)),
                    list(state.gone()),
                )
        return stored if has_manifest else self._without_names()

    def _without_names(self) -> dict[str, StoredTopic]:
        found: dict[int, list[Section]] = {}
        for name in self._segment_files():
            with closing(Segment(self._files, name)) as segment:
                entries = [entry for one in segment.topics() for entry in segment.entries(one)]
            for id, section in sections(name, entries).items():
                if id != HIDDEN_TOPIC:
                    found.setdefault(id, []).append(section)
        if not found:
            raise InvalidRequest(
                f"path: {self._path!r} has no file {NAME!r} and no segments (*.seg). Name the data "
                "directory of a broker, or a directory with copied segments"
            )
        stored = {}
        for id, parts in found.items():
            parts.sort(key=lambda section: (section.base, -section.next))
            stored[str(id)] = StoredTopic(
                self._files, str(id), id, None, parts[0].base, tuple(parts), []
            )
        return stored

    def _segment_files(self) -> list[str]:
        directories = ["", SEGMENTS] if self._files.exists(SEGMENTS) else [""]
        return [
            f"{directory}/{name}".lstrip("/")
            for directory in directories
            for name in self._files.list(directory)
            if name.endswith(".seg")
        ]

    def batches(self, one: Range) -> Iterator[tuple[RecordBatch, int, int]]:
        """The rows of a range, in order: a batch, and from which row to before which.

        A running broker joins small segments into new ones and removes the old: a segment that is
        gone is looked up again in the manifest. Messages that retention removed are an error.
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
            for batch in _batches_of(stored, offset, one.end):
                stop = min(batch.row_count, one.end - batch.base_offset)
                kept = without([(offset, batch.base_offset + stop)], stored.discarded)
                offset = batch.base_offset + stop
                for first, end in kept:
                    yield batch, first - batch.base_offset, end - batch.base_offset
            looks = looks + 1 if offset == before else 0
            if looks == 3:
                after = next((part.base for part in stored.sections if part.base > offset), one.end)
                raise MessagesLost(one.plain, offset, after, after - offset, _REMEDY)


def offset_at(stored: StoredTopic, time_ms: int) -> int:
    """The first offset that was appended at a time or later."""
    at = bisect_left(stored.sections, time_ms, key=lambda section: section.last_time)
    if at == len(stored.sections):
        return stored.next_offset
    section = stored.sections[at]
    segment = _segment(stored.files, section.file)
    if segment is None:
        raise InvalidRequest(f"segment {section.file} was removed during the read; try again")
    with closing(segment):
        entry = segment.entry_at_time(stored.id, time_ms)
        if entry is None:
            return section.next
        batch = segment.read(entry)
    row = bisect_left(range(batch.row_count), time_ms, key=batch.time)
    return max(stored.first_offset, batch.base_offset + row)


def _batches_of(stored: StoredTopic, offset: int, end: int) -> Iterator[RecordBatch]:
    """Consecutive batches, up to the end or to the first one that is missing."""
    for section in stored.sections:
        if section.next <= offset:
            continue
        segment = None if section.base >= end else _segment(stored.files, section.file)
        if segment is None:
            return
        with closing(segment):
            for entry in segment.entries(stored.id):
                if entry.next <= offset or entry.base >= section.next:
                    continue
                if entry.base > offset:
                    return
                yield segment.read(entry)
                offset = entry.next
                if offset >= end:
                    return


def _segment(files: Opens, name: str) -> Segment | None:
    """None if it was removed meanwhile."""
    try:
        return Segment(files, name)
    except StorageFailed as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def direct_bounds(path: str) -> dict[str, dict[int, tuple[int, int]]]:
    """What a direct read of this directory would return now: by topic and partition, the first
    offset and the one after the last. Newer messages are in the journal, and are not read."""
    bounds: dict[str, dict[int, tuple[int, int]]] = {}
    for stored in SegmentDirectory(path).stored().values():
        bounds.setdefault(stored.topic, {})[stored.partition] = (
            stored.first_offset,
            max(stored.first_offset, stored.next_offset),
        )
    return {topic: dict(sorted(parts.items())) for topic, parts in sorted(bounds.items())}
