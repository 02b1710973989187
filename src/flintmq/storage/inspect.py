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
from .frames import Frame
from .journal import TORN, FileReader
from .journal_files import (
    HEADER_BYTES,
    NEWEST,
    JournalFile,
    newest_is_lost,
    read_header,
    read_newest,
)
from .manifest import COPY_NAME, NAME, Manifest, read_manifest
from .segments import HIDDEN_TOPIC, Segment


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it should be. Without `is_damage` it is worth knowing, no more."""

    file: str
    offset: int | None
    what: str
    is_damage: bool = True

    def __str__(self) -> str:
        place = f" at byte {self.offset:,}" if self.offset is not None else ""
        return f"{self.file}{place}: {self.what}"


class TopicListing(msgspec.Struct, frozen=True):
    name: str
    id: int
    storage: str
    first_offset: int
    next_offset: int
    bytes: int
    segments: list[str]


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
    problems: list[Problem]


@dataclass
class JournalScan:
    """The journal as far as it can be read, file by file."""

    files: list[tuple[JournalFile, list[tuple[int, int]]]] = field(default_factory=list)
    """Each with the byte and the record count of its frames."""
    problems: list[Problem] = field(default_factory=list)
    cut_at: tuple[str, int] | None = None
    """Where the damage begins, if there is any: file and byte. Nothing behind it is read."""
    first_index: int | None = None
    last_index: int = 0


def names_in(filesystem: FileSystem, directory: str, prefix: str = "") -> list[str]:
    if not filesystem.exists(directory):
        return []
    names = [name for name in filesystem.list(directory) if name.startswith(prefix)]
    return [f"{directory}/{name}" for name in names if not name.endswith(".tmp")]


def frames_of(filesystem: FileSystem, scan: JournalScan) -> Iterator[tuple[str, Frame]]:
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
        scan.problems.append(Problem(JOURNAL, None, what))
        scan.cut_at = (JOURNAL, 0)


def _look_for_newest(filesystem: FileSystem, scan: JournalScan) -> None:
    """Whether the journal ends with the file that was its newest."""
    noted = read_newest(filesystem, f"{JOURNAL}/{NEWEST}")
    last = scan.files[-1] if scan.files else None
    newest = last[0].place.generation if last is not None else 0
    if noted > newest:
        name, end = (last[0].name, _end(last)) if last is not None else (JOURNAL, 0)
        scan.problems.append(Problem(JOURNAL, None, newest_is_lost(noted, newest)))
        scan.cut_at = (name, end)


def _damage(scan: JournalScan, name: str, offset: int, what: str) -> None:
    scan.problems.append(Problem(name, offset, what))
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
            if run.state is not None or run.group:
                continue  # the manifest speaks of group 0
            if scan.first_index is None:
                scan.first_index = run.index
            scan.last_index = run.index + run.count - 1
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
        scan.problems.append(Problem(file.name, end, what, is_damage=False))


def list_directory(filesystem: FileSystem) -> Listing:
    problems: list[Problem] = []
    manifest = _manifest(filesystem, problems)
    used = manifest.files()
    segments = []
    for name in names_in(filesystem, SEGMENTS):
        try:
            segments.append(_segment_listing(filesystem, name, name in used))
        except FlintError as error:
            problems.append(Problem(name, None, str(error).partition(";")[0]))
    scan = scan_journal(filesystem)
    return Listing(
        manifest.checkpoint,
        [
            TopicListing(
                topic.name,
                topic.id,
                topic.options.storage,
                topic.first_offset,
                topic.next_offset,
                sum(section.size for section in topic.sections),
                [section.file for section in topic.sections],
            )
            for topic in manifest.topics
        ],
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
        max(0, scan.last_index - manifest.checkpoint),
        problems + scan.problems,
    )


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


def _manifest(filesystem: FileSystem, problems: list[Problem]) -> Manifest:
    try:
        found = read_manifest(filesystem)
    except UnsupportedFormat:
        raise
    except Corrupt as error:
        problems.append(Problem(NAME, None, str(error).partition(";")[0]))
        return Manifest()
    return found or Manifest()


def verify(filesystem: FileSystem, tell: Callable[[str], object] = lambda _: None) -> list[Problem]:
    """Check every checksum, and that what refers to something finds it. All that is wrong."""
    problems: list[Problem] = []
    tell(NAME)
    manifest = _manifest(filesystem, problems)
    try:
        copy = read_manifest(filesystem, COPY_NAME)
    except Corrupt as error:
        problems.append(Problem(COPY_NAME, None, str(error).partition(";")[0]))
        copy = None
    scan = scan_journal(filesystem)
    segments = names_in(filesystem, SEGMENTS)
    has_manifest = filesystem.exists(NAME)
    if not has_manifest and (copy is not None or (segments and scan.first_index != 1)):
        problems.append(Problem(NAME, None, "is missing, but there is data that it spoke of"))
    used = manifest.files()
    for name in sorted(used - set(segments)):
        problems.append(Problem(name, None, "is missing; the manifest refers to it"))
    for name in segments:
        tell(name)
        problems += verify_segment(filesystem, name)
        if has_manifest and name not in used:
            what = "nothing refers to it; the next start or checkpoint removes it"
            problems.append(Problem(name, None, what, is_damage=False))
    note_missing_journal(scan, manifest)
    problems += scan.problems
    if scan.first_index is not None and scan.first_index > manifest.checkpoint + 1 and has_manifest:
        what = f"begins with index {scan.first_index}; the checkpoint is {manifest.checkpoint}"
        problems.append(Problem(scan.files[0][0].name, None, what))
    return problems


def verify_segment(filesystem: FileSystem, name: str) -> list[Problem]:
    try:
        segment = Segment(filesystem, name)
    except FlintError as error:
        return [Problem(name, None, str(error).partition(";")[0])]
    problems: list[Problem] = []
    try:
        for topic in segment.topics():
            for entry in segment.entries(topic):
                try:
                    segment.read(entry)
                except FlintError as error:
                    problems.append(Problem(name, entry.position, str(error).partition(";")[0]))
        if not problems:
            try:
                segment.verify()
            except FlintError as error:
                problems.append(Problem(name, None, str(error).partition(";")[0]))
    finally:
        segment.close()
    return problems


def messages(
    filesystem: FileSystem, topic: str, from_offset: int = 0
) -> Iterator[tuple[RecordBatch, int, int]]:
    """The messages of a topic that are in segments: a batch, and from which row to before which.
    Dead letters that were discarded are left out."""
    manifest = read_manifest(filesystem) or Manifest()
    state = next((state for state in manifest.topics if state.name == topic), None)
    if state is None:
        return
    offset = max(from_offset, state.first_offset)
    for section in state.sections:
        if section.next <= offset:
            continue
        with closing(Segment(filesystem, section.file)) as segment:
            for entry in segment.entries(state.id):
                if entry.next > offset and section.base <= entry.base < section.next:
                    batch = segment.read(entry)
                    rest = (max(offset, entry.base), entry.next)
                    for start, stop in without([rest], state.discarded):
                        yield batch, start - entry.base, stop - entry.base
                    offset = entry.next


def topic_names(filesystem: FileSystem) -> dict[int, str]:
    manifest = read_manifest(filesystem) or Manifest()
    return {HIDDEN_TOPIC: "(staged)", **{topic.id: topic.name for topic in manifest.topics}}
