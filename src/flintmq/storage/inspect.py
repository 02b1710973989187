"""Looking at a data directory that is not in use: what is there, and whether it is whole.

Reads only. Opening a journal mends a torn tail; this one does not even do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec

from ..batch import RecordBatch
from ..errors import Corrupt, FlintError, UnsupportedFormat
from ..groups.ranges import without
from .backup import JOURNAL, SEGMENTS
from .filesystem import FileSystem, Opens
from .group_files import GROUPS, files_of, groups_in, path_in
from .journal_scan import JournalProblem, JournalScan, scan_journal
from .manifest import COPY_NAME, NAME, Manifest, TopicRecord, read_manifest
from .objects import FilesAndObjects, Objects, ObjectStores, is_object
from .segments import HIDDEN_TOPIC, Section, Segment, cause_of, sections
from .tiered import all_sections


class GroupListing(msgspec.Struct, frozen=True):
    group: int
    term: int
    checkpoint: int
    records_behind_checkpoint: int


class TopicListing(msgspec.Struct, frozen=True):
    name: str
    id: int
    storage: str
    first_offset: int
    next_offset: int
    bytes: int
    segments: list[str]
    group: int = 0


class SegmentListing(msgspec.Struct, frozen=True):
    file: str
    bytes: int
    batches: int
    rows: int
    topics: int
    is_in_use: bool


class JournalListing(msgspec.Struct, frozen=True):
    file: str
    bytes: int
    generation: int
    first_frame: int
    frames: int
    records: int


class Listing(msgspec.Struct, frozen=True):
    """What a data directory holds. Topics are as of the checkpoint; the journal may have more."""

    checkpoint: int
    topics: list[TopicListing]
    segments: list[SegmentListing]
    journal: list[JournalListing]
    records_behind_checkpoint: int
    problems: list[JournalProblem]
    groups: list[GroupListing] = []
    """Where there are others than group 0, which is what the two above speak of."""


def names_in(filesystem: FileSystem, directory: str, prefix: str = "") -> list[str]:
    if not filesystem.exists(directory):
        return []
    names = [name for name in filesystem.list(directory) if name.startswith(prefix)]
    return [f"{directory}/{name}" for name in names if not name.endswith(".tmp")]


def note_missing_journal(scan: JournalScan, manifest: Manifest) -> None:
    """A checkpoint leaves a journal behind, if only an empty one."""
    if manifest.position and not scan.files and scan.cut_at is None:
        what = f"is missing; the checkpoint ends with index {manifest.checkpoint} of it"
        scan.damaged(JournalProblem(JOURNAL, None, what))


def list_directory(filesystem: FileSystem) -> Listing:
    problems: list[JournalProblem] = []
    topics: list[TopicListing] = []
    segments: list[SegmentListing] = []
    groups: list[GroupListing] = []
    scan = scan_journal(filesystem, JOURNAL)
    for group in groups_in(filesystem):
        files = files_of(filesystem, group)
        manifest = _manifest(files, group, problems)
        used = manifest.files()
        for name in names_in(files, SEGMENTS):
            path = path_in(files, name)
            try:
                segments.append(_segment_listing(filesystem, path, name in used))
            except FlintError as error:
                problems.append(JournalProblem(path, None, cause_of(error)))
        topics += [
            TopicListing(
                topic.name,
                topic.id,
                topic.options.storage,
                topic.first_offset,
                topic.next_offset,
                sum(section.size for section in all_sections(topic)),
                [
                    section.file if is_object(section.file) else path_in(files, section.file)
                    for section in all_sections(topic)
                ],
                group,
            )
            for topic in manifest.topics
        ]
        behind = max(0, scan.last_written(group) - manifest.checkpoint)
        term = max(scan.term(group), manifest.epoch)
        groups.append(GroupListing(group, term, manifest.checkpoint, behind))
    return Listing(
        groups[0].checkpoint,
        topics,
        segments,
        [
            JournalListing(
                scanned.file.name,
                filesystem.size_of(scanned.file.name),
                scanned.file.place.generation,
                scanned.file.first_frame,
                scanned.frames,
                scanned.records,
            )
            for scanned in scan.files
        ],
        groups[0].records_behind_checkpoint,
        [*problems, *_missing_groups(filesystem, scan), *scan.problems],
        groups if groups[1:] else [],
    )


def _missing_groups(filesystem: FileSystem, scan: JournalScan) -> list[JournalProblem]:
    what = "is missing, but the journal has records of that group"
    lost = scan.groups() - set(groups_in(filesystem))
    return [JournalProblem(f"{GROUPS}/{group}", None, what) for group in sorted(lost)]


def _segment_listing(filesystem: FileSystem, name: str, is_in_use: bool) -> SegmentListing:
    with closing(Segment(filesystem, name)) as segment:
        entries = segment.all_entries()
        return SegmentListing(
            name,
            filesystem.size_of(name),
            len(entries),
            sum(entry.rows for entry in entries),
            len(segment.topics()),
            is_in_use,
        )


def _manifest(files: FileSystem, group: int, problems: list[JournalProblem]) -> Manifest:
    """The manifest of a group; an empty one where it is damaged, which is noted."""
    try:
        found = read_manifest(files)
    except UnsupportedFormat:
        raise
    except Corrupt as error:
        problems.append(JournalProblem(path_in(files, NAME), None, cause_of(error)))
        return Manifest()
    if found is not None and found.group != group:
        what = f"is the manifest of group {found.group}, not of {group}"
        problems.append(JournalProblem(path_in(files, NAME), None, what))
        return Manifest()
    return found or Manifest()


def verify(
    filesystem: FileSystem,
    tell: Callable[[str], object] = lambda _: None,
    *,
    objects: Objects | None = None,
) -> list[JournalProblem]:
    """Check every checksum, and that what refers to something finds it, also in object storage. All
    that is wrong."""
    scan = scan_journal(filesystem, JOURNAL)
    problems: list[JournalProblem] = []
    for group in groups_in(filesystem):
        problems += _verify_group(filesystem, group, scan, tell)
        manifest = _manifest(files_of(filesystem, group), group, [])
        for topic in manifest.topics:
            for tiered in topic.tiered:
                tell(tiered.section.file)
                problems += verify_object(objects or ObjectStores(), tiered.section, topic.id)
    return [*problems, *_missing_groups(filesystem, scan), *scan.problems]


def _verify_group(
    filesystem: FileSystem, group: int, scan: JournalScan, tell: Callable[[str], object]
) -> list[JournalProblem]:
    """The manifest of a group, its segments, and whether the journal goes on from there. What the
    journal lacks is noted with the scan."""
    files = files_of(filesystem, group)
    problems: list[JournalProblem] = []

    def note(name: str, what: str, is_damage: bool = True) -> None:
        problems.append(JournalProblem(path_in(files, name), None, what, is_damage))

    tell(path_in(files, NAME))
    manifest = _manifest(files, group, problems)
    try:
        copy = read_manifest(files, COPY_NAME)
    except Corrupt as error:
        note(COPY_NAME, cause_of(error))
        copy = None
    segments = names_in(files, SEGMENTS)
    has_manifest, first = files.exists(NAME), scan.first(group)
    if not has_manifest and (copy is not None or (segments and first != 1)):
        note(NAME, "is missing, but there is data that it spoke of")
    used = manifest.files()
    for name in sorted(used - set(segments)):
        note(name, "is missing; the manifest refers to it")
    for name in segments:
        path = path_in(files, name)
        tell(path)
        problems += verify_segment(filesystem, path)
        if has_manifest and name not in used:
            note(name, "nothing refers to it; the next start or checkpoint removes it", False)
    note_missing_journal(scan, manifest)
    of_group = f" of group {group}" if group else ""
    is_told = not has_manifest and segments
    if first is not None and first > manifest.checkpoint + 1 and not is_told:
        what = f"begins with index {first}{of_group}; the checkpoint is {manifest.checkpoint}"
        problems.append(JournalProblem(scan.files[0].file.name, None, what))
    written = scan.last_written(group)
    if written > max(scan.last(group), manifest.checkpoint):
        what = f"says that index {written}{of_group} was written; the checkpoint is "
        problems.append(
            JournalProblem(JOURNAL, None, f"{what}{manifest.checkpoint}, the rest is missing")
        )
    return problems


def verify_object(objects: Objects, wanted: Section, topic: int) -> list[JournalProblem]:
    """Whether an object is there, whole, and has what the manifest says of it."""
    problems = verify_segment(objects, wanted.file)
    if not problems:
        with closing(Segment(objects, wanted.file)) as segment:
            found = sections(wanted.file, segment.entries(topic)).get(topic)
        if found is None or found.base > wanted.base or found.next < wanted.next:
            what = f"does not hold offsets {wanted.base} to {wanted.next - 1} as the manifest says"
            problems.append(JournalProblem(wanted.file, None, what))
    return problems


def verify_segment(filesystem: Opens, name: str) -> list[JournalProblem]:
    try:
        segment = Segment(filesystem, name)
    except FlintError as error:
        return [JournalProblem(name, None, cause_of(error))]
    problems: list[JournalProblem] = []
    with closing(segment):
        for entry in segment.all_entries():
            try:
                segment.read(entry)
            except FlintError as error:
                problems.append(JournalProblem(name, entry.position, cause_of(error)))
        if not problems:
            try:
                segment.verify()
            except FlintError as error:
                problems.append(JournalProblem(name, None, cause_of(error)))
    return problems


def messages(
    filesystem: FileSystem,
    topic: str,
    from_offset: int = 0,
    *,
    objects: Objects | None = None,
) -> Iterator[tuple[RecordBatch, int, int]]:
    """The messages of a topic that are in segments, here or in object storage: a batch, and from
    which row to before which. Dead letters that were discarded are left out."""
    for group in groups_in(filesystem):
        files = files_of(filesystem, group)
        for state in (read_manifest(files) or Manifest()).topics:
            if state.name == topic:
                places = FilesAndObjects(files, objects or ObjectStores())
                yield from _messages_of(places, state, from_offset)


def _messages_of(
    files: Opens, state: TopicRecord, from_offset: int
) -> Iterator[tuple[RecordBatch, int, int]]:
    offset = max(from_offset, state.first_offset)
    for section in all_sections(state):
        if section.next <= offset:
            continue
        segment = Segment(files, section.file)
        try:
            for entry in segment.entries(state.id):
                if entry.next > offset and entry.base < section.next:
                    batch = segment.read(entry)
                    rest = (max(offset, entry.base), entry.next)
                    for start, stop in without([rest], state.gone()):
                        yield batch, start - entry.base, stop - entry.base
                    offset = entry.next
        finally:
            segment.close()


def topic_names(filesystem: FileSystem) -> dict[tuple[int, int], str]:
    """The names of topics, by group and id."""
    names: dict[tuple[int, int], str] = {}
    for group in groups_in(filesystem):
        manifest = read_manifest(files_of(filesystem, group)) or Manifest()
        names[group, HIDDEN_TOPIC] = "(staged)"
        names |= {(group, topic.id): topic.name for topic in manifest.topics}
    return names
