"""Looking at a data directory that nobody uses: what is there, and whether it is whole.

Reads only. Opening a journal mends a torn tail; this one does not even do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import msgspec

from ..batch import RecordBatch
from ..errors import Corrupt, FlintError, UnsupportedFormat
from ..groups.ranges import without
from .backup import JOURNAL, SEGMENTS
from .filesystem import FileSystem
from .frames import HAS_LEFT, JournalFrame, State
from .group_files import GROUPS, files_of, groups_in, path_in
from .journal import TORN, FileReader
from .journal_files import (
    HEADER_BYTES,
    NEWEST,
    JournalFile,
    newest_is_lost,
    read_header,
    read_newest,
)
from .manifest import COPY_NAME, NAME, Manifest, TopicRecord, read_manifest
from .segments import HIDDEN_TOPIC, Segment


class JournalProblem(msgspec.Struct, frozen=True):
    """Something that is not as it should be. Without `is_damage` it is worth knowing, no more."""

    file: str
    offset: int | None
    what: str
    is_damage: bool = True

    def __str__(self) -> str:
        place = f" at byte {self.offset:,}" if self.offset is not None else ""
        return f"{self.file}{place}: {self.what}"


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


@dataclass
class JournalScan:
    """The journal as far as it can be read, file by file."""

    files: list[tuple[JournalFile, list[tuple[int, int]]]] = field(default_factory=list)
    """Each with the byte and the record count of its frames."""
    problems: list[JournalProblem] = field(default_factory=list)
    cut_at: tuple[str, int] | None = None
    """Where the damage begins, if there is any: file and byte. Nothing behind it is read."""
    indexes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The first and the last index there is of each group."""
    states: dict[int, State] = field(default_factory=dict)

    def first(self, group: int) -> int | None:
        return self.indexes[group][0] if group in self.indexes else None

    def last(self, group: int) -> int:
        """The last index that is known to have been written."""
        known = self.indexes.get(group, (0, 0))[1]
        return max(known, self.states[group].commit) if group in self.states else known

    def term(self, group: int) -> int:
        return self.states[group].term if group in self.states else 0

    def groups(self) -> set[int]:
        """Those that are on this node."""
        left = {group for group, state in self.states.items() if state.flags & HAS_LEFT}
        return (self.indexes.keys() | self.states.keys()) - left


def names_in(filesystem: FileSystem, directory: str, prefix: str = "") -> list[str]:
    if not filesystem.exists(directory):
        return []
    names = [name for name in filesystem.list(directory) if name.startswith(prefix)]
    return [f"{directory}/{name}" for name in names if not name.endswith(".tmp")]


def frames_of(filesystem: FileSystem, scan: JournalScan) -> Iterator[tuple[str, JournalFrame]]:
    """Every good frame, as a scan found it."""
    for file, frames in scan.files:
        if frames:
            last = file.first_frame + len(frames) - 1
            reader = FileReader(filesystem, file)
            for frame in reader.frames(HEADER_BYTES, file.first_frame, last):
                yield file.name, frame


def scan_journal(filesystem: FileSystem) -> JournalScan:
    """Read every frame's checksum; what opening would say of it, without doing anything."""
    scan = JournalScan()
    names = names_in(filesystem, JOURNAL, "journal-")
    due_frame: int | None = None
    due_generation: int | None = None
    for name in names:
        is_last = name == names[-1]
        try:
            file = read_header(filesystem, name, name)
        except UnsupportedFormat:
            raise
        except Corrupt as error:
            _damage(scan, name, 0, str(error).partition(";")[0])
            break
        if due_generation is not None and file.place.generation != due_generation:
            _damage(scan, name, 0, f"the file of generation {due_generation} before it is missing")
            break
        if due_frame is not None and file.first_frame != due_frame:
            previous = scan.files[-1]
            at = _end(previous)
            _damage(scan, previous[0].name, at, f"frame {due_frame} is broken or missing")
            break
        frames, end = _scan_frames(filesystem, scan, file)
        scan.files.append((file, frames))
        due_generation, due_frame = file.place.generation + 1, file.first_frame + len(frames)
        if is_last:
            _look_behind(filesystem, scan, file, end, due_frame)
    if scan.cut_at is None:
        _look_for_newest(filesystem, scan)
    return scan


def note_missing_journal(scan: JournalScan, manifest: Manifest) -> None:
    """A checkpoint leaves a journal behind, if only an empty one."""
    if manifest.position and not scan.files and scan.cut_at is None:
        what = f"is missing; the checkpoint ends with index {manifest.checkpoint} of it"
        scan.problems.append(JournalProblem(JOURNAL, None, what))
        scan.cut_at = (JOURNAL, 0)


def _look_for_newest(filesystem: FileSystem, scan: JournalScan) -> None:
    """Whether the journal ends with the file that was its newest."""
    noted = read_newest(filesystem, f"{JOURNAL}/{NEWEST}")
    last = scan.files[-1] if scan.files else None
    newest = last[0].place.generation if last is not None else 0
    if noted > newest:
        name, end = (last[0].name, _end(last)) if last is not None else (JOURNAL, 0)
        scan.problems.append(JournalProblem(JOURNAL, None, newest_is_lost(noted, newest)))
        scan.cut_at = (name, end)


def _damage(scan: JournalScan, name: str, offset: int, what: str) -> None:
    scan.problems.append(JournalProblem(name, offset, what))
    scan.cut_at = (name, offset)


def _end(scanned: tuple[JournalFile, list[tuple[int, int]]]) -> int:
    return scanned[1][-1][0] if scanned[1] else HEADER_BYTES


def _scan_frames(
    filesystem: FileSystem, scan: JournalScan, file: JournalFile
) -> tuple[list[tuple[int, int]], int]:
    frames: list[tuple[int, int]] = []
    end = HEADER_BYTES
    for frame in FileReader(filesystem, file).frames(HEADER_BYTES, file.first_frame, None):
        for run in frame.runs():
            if run.state is not None:
                scan.states[run.group] = run.state
                continue
            first, _ = scan.indexes.get(run.group, (run.index, 0))
            scan.indexes[run.group] = (first, run.index + run.count - 1)
        end = frame.end
        frames.append((end, frame.count))
    return frames, end


def _look_behind(
    filesystem: FileSystem, scan: JournalScan, file: JournalFile, end: int, number: int
) -> None:
    """Behind the last good frame of the last file: nothing, a torn write, or damage."""
    torn, witness = FileReader(filesystem, file).torn_bytes(end, number)
    if witness is not None:
        where = f"frame {witness.number} at byte {witness.offset:,}"
        _damage(scan, file.name, end, f"frame {number} is broken, but {where} is whole")
    elif torn:
        what = f"a last write of {torn:,} bytes is not whole, the next start cuts it off: {TORN}"
        scan.problems.append(JournalProblem(file.name, end, what, is_damage=False))


def list_directory(filesystem: FileSystem) -> Listing:
    problems: list[JournalProblem] = []
    topics: list[TopicListing] = []
    segments: list[SegmentListing] = []
    groups: list[GroupListing] = []
    scan = scan_journal(filesystem)
    for group in groups_in(filesystem):
        files = files_of(filesystem, group)
        manifest = _manifest(files, group, problems)
        used = manifest.files()
        for name in names_in(files, SEGMENTS):
            path = path_in(files, name)
            try:
                segments.append(_segment_listing(filesystem, path, name in used))
            except FlintError as error:
                problems.append(JournalProblem(path, None, str(error).partition(";")[0]))
        topics += [
            TopicListing(
                topic.name,
                topic.id,
                topic.options.storage,
                topic.first_offset,
                topic.next_offset,
                sum(section.size for section in topic.sections),
                [path_in(files, section.file) for section in topic.sections],
                group,
            )
            for topic in manifest.topics
        ]
        behind = max(0, scan.last(group) - manifest.checkpoint)
        term = max(scan.term(group), manifest.epoch)
        groups.append(GroupListing(group, term, manifest.checkpoint, behind))
    return Listing(
        groups[0].checkpoint,
        topics,
        segments,
        [
            JournalListing(
                file.name,
                filesystem.size_of(file.name),
                file.place.generation,
                file.first_frame,
                len(frames),
                sum(count for _, count in frames),
            )
            for file, frames in scan.files
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
        entries = [entry for topic in segment.topics() for entry in segment.entries(topic)]
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
        problems.append(JournalProblem(path_in(files, NAME), None, str(error).partition(";")[0]))
        return Manifest()
    if found is not None and found.group != group:
        what = f"is the manifest of group {found.group}, not of {group}"
        problems.append(JournalProblem(path_in(files, NAME), None, what))
        return Manifest()
    return found or Manifest()


def verify(
    filesystem: FileSystem, tell: Callable[[str], object] = lambda _: None
) -> list[JournalProblem]:
    """Check every checksum, and that what refers to something finds it. All that is wrong."""
    scan = scan_journal(filesystem)
    problems: list[JournalProblem] = []
    for group in groups_in(filesystem):
        problems += _verify_group(filesystem, group, scan, tell)
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
        note(COPY_NAME, str(error).partition(";")[0])
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
        problems.append(JournalProblem(scan.files[0][0].name, None, what))
    written, last = scan.last(group), scan.indexes.get(group, (0, 0))[1]
    if written > max(last, manifest.checkpoint):
        what = f"says that index {written}{of_group} was written; the checkpoint is "
        problems.append(
            JournalProblem(JOURNAL, None, f"{what}{manifest.checkpoint}, the rest is missing")
        )
    return problems


def verify_segment(filesystem: FileSystem, name: str) -> list[JournalProblem]:
    try:
        segment = Segment(filesystem, name)
    except FlintError as error:
        return [JournalProblem(name, None, str(error).partition(";")[0])]
    problems: list[JournalProblem] = []
    with closing(segment):
        for topic in segment.topics():
            for entry in segment.entries(topic):
                try:
                    segment.read(entry)
                except FlintError as error:
                    problems.append(
                        JournalProblem(name, entry.position, str(error).partition(";")[0])
                    )
        if not problems:
            try:
                segment.verify()
            except FlintError as error:
                problems.append(JournalProblem(name, None, str(error).partition(";")[0]))
    return problems


def messages(
    filesystem: FileSystem, topic: str, from_offset: int = 0
) -> Iterator[tuple[RecordBatch, int, int]]:
    """The messages of a topic that are in segments: a batch, and from which row to before which.
    Dead letters that were discarded are left out."""
    for group in groups_in(filesystem):
        files = files_of(filesystem, group)
        for state in (read_manifest(files) or Manifest()).topics:
            if state.name == topic:
                yield from _messages_of(files, state, from_offset)


def _messages_of(
    files: FileSystem, state: TopicRecord, from_offset: int
) -> Iterator[tuple[RecordBatch, int, int]]:
    offset = max(from_offset, state.first_offset)
    for section in state.sections:
        if section.next <= offset:
            continue
        segment = Segment(files, section.file)
        try:
            for entry in segment.entries(state.id):
                if entry.next > offset and section.base <= entry.base < section.next:
                    batch = segment.read(entry)
                    rest = (max(offset, entry.base), entry.next)
                    for start, stop in without([rest], state.discarded):
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
