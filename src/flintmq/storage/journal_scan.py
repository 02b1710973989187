"""Reading a journal that is not open: frame by frame, and all of it, to find what is wrong with it.

Reads only. `Journal.open` and `flintmq log verify` judge by the same scan: the first cuts off a
torn tail and refuses anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import msgspec

from ..errors import Corrupt, UnsupportedFormat
from .filesystem import File, FileSystem
from .frames import (
    FRAME_BYTES,
    HAS_LEFT,
    FileSeed,
    JournalFrame,
    begins_frame,
    frame_at,
    number_in,
    salt_bytes,
)
from .journal_files import (
    HEADER_BYTES,
    NEWEST,
    JournalFile,
    file_names,
    path_of,
    read_header,
    read_newest,
)
from .journal_index import JournalIndex

_READ_BYTES = 1 << 20

TORN = (
    "the broker died while it was writing, or the disk damaged it later, which looks the same; "
    "only in the first case is nothing in it that was acknowledged as synced"
)
"""What is known of a last write that is not whole."""


class JournalProblem(msgspec.Struct, frozen=True):
    """Something that is not as it should be. Without `is_damage` it is worth knowing, no more."""

    file: str
    offset: int | None
    what: str
    is_damage: bool = True

    def __str__(self) -> str:
        place = f" at byte {self.offset:,}" if self.offset is not None else ""
        return f"{self.file}{place}: {self.what}"


def frame_damage(name: str, offset: int, number: int, why: str = "") -> JournalProblem:
    what = f"it is damaged where frame {number} should be" + (f" ({why})" if why else "")
    return JournalProblem(name, offset, what)


@dataclass
class ScannedFile:
    file: JournalFile
    end: int = HEADER_BYTES
    """Behind its last good frame."""
    frames: int = 0
    records: int = 0

    @property
    def next_frame(self) -> int:
        return self.file.first_frame + self.frames


@dataclass
class JournalScan:
    """The journal as far as it can be read, file by file."""

    files: list[ScannedFile] = field(default_factory=list)
    problems: list[JournalProblem] = field(default_factory=list)
    cut_at: tuple[str, int] | None = None
    """Where the damage begins, if there is any: file and byte. Nothing behind it is read."""
    index: JournalIndex = field(default_factory=JournalIndex)
    torn_bytes: int = 0
    """How long the unfinished write behind the last frame is."""
    ends_with_mark: bool = False

    def first(self, group: int) -> int | None:
        known = self.index.groups.get(group)
        return None if known is None else known.first_index

    def last(self, group: int) -> int:
        """The last index that is there; 0 if none is."""
        known = self.index.groups.get(group)
        return 0 if known is None else known.next_index - 1

    def last_written(self, group: int) -> int:
        """The last index that is known to have been written."""
        state = self.index.states.get(group)
        return max(self.last(group), state.commit) if state is not None else self.last(group)

    def term(self, group: int) -> int:
        state = self.index.states.get(group)
        return state.term if state is not None else 0

    def groups(self) -> set[int]:
        """Those that are on this node."""
        states = self.index.states
        left = {group for group, state in states.items() if state.flags & HAS_LEFT}
        return (self.index.groups.keys() | states.keys()) - left

    def damaged(self, problem: JournalProblem, cut_at: tuple[str, int] | None = None) -> None:
        self.problems.append(problem)
        self.cut_at = cut_at or (problem.file, problem.offset or 0)


def scan_journal(filesystem: FileSystem, directory: str) -> JournalScan:
    """Read every frame's checksum; what opening would say of it, without doing anything."""
    scan = JournalScan()
    for name in file_names(filesystem, directory):
        problem = _scan_file(filesystem, scan, path_of(directory, name), int(name[-16:]))
        if problem is not None:
            scan.damaged(problem)
            return scan
    last = scan.files[-1] if scan.files else None
    if last is not None:
        _look_behind(filesystem, scan, last)
    noted = read_newest(filesystem, path_of(directory, NEWEST))
    newest = last.file.place.generation if last is not None else 0
    if noted > newest and scan.cut_at is None:
        end = f"; it ends with generation {newest}" if newest else ", and all others"
        what = f"it lacks its newest file, generation {noted}{end}"
        what += ": what was acknowledged since is missing"
        place = (last.file.name, last.end) if last is not None else None
        scan.damaged(JournalProblem(directory, None, what), place)
    return scan


def _scan_file(
    filesystem: FileSystem, scan: JournalScan, name: str, generation: int
) -> JournalProblem | None:
    """Index the good frames of the next file; what is wrong with it, or with the one before."""
    try:
        file = read_header(filesystem, name)
    except UnsupportedFormat:
        raise
    except Corrupt as error:
        return JournalProblem(name, 0, str(error))
    if file.place.generation != generation:
        what = f"it says of itself that it is generation {file.place.generation}"
        return JournalProblem(name, 0, what)
    if scan.files:
        before = scan.files[-1]
        due = before.file.place.generation + 1
        if generation != due:
            what = f"the directory lacks the journal file of generation {due} before it"
            return JournalProblem(name, 0, what)
        if file.first_frame != before.next_frame:
            return frame_damage(before.file.name, before.end, before.next_frame)
    scanned = ScannedFile(file)
    scan.files.append(scanned)
    for frame in FileReader(filesystem, file).frames(HEADER_BYTES, file.first_frame, None):
        try:
            runs = frame.runs()
            scan.index.add(runs, frame.number, generation, frame.offset)
        except Corrupt as error:
            return frame_damage(name, frame.offset, frame.number, str(error))
        scanned.end, scanned.frames = frame.end, scanned.frames + 1
        scanned.records += frame.count
        scan.ends_with_mark = not runs
    size = filesystem.size_of(name)
    if size < file.bytes:
        what = f"it is {size:,} bytes long, and was made with {file.bytes:,}: it was cut short"
        return JournalProblem(name, scanned.end, what)
    return None


def _look_behind(filesystem: FileSystem, scan: JournalScan, last: ScannedFile) -> None:
    """Behind the last good frame of the last file: nothing, a torn write, or damage."""
    name, end, number = last.file.name, last.end, last.next_frame
    scan.torn_bytes, witness = FileReader(filesystem, last.file).torn_bytes(end, number)
    if witness is not None:
        why = f"frame {witness.number} at byte {witness.offset:,} is whole"
        scan.damaged(frame_damage(name, end, number, why))
    elif scan.torn_bytes:
        what = f"a last write of {scan.torn_bytes:,} bytes is not whole, the next start cuts it off"
        scan.problems.append(JournalProblem(name, end, f"{what}: {TORN}", is_damage=False))


def frames_of(filesystem: FileSystem, scan: JournalScan) -> Iterator[tuple[str, JournalFrame]]:
    """Every good frame, as a scan found it."""
    for scanned in scan.files:
        file, reader = scanned.file, FileReader(filesystem, scanned.file)
        for frame in reader.frames(HEADER_BYTES, file.first_frame, scanned.next_frame - 1):
            yield file.name, frame


class FileReader:
    """Reads one file in large pieces."""

    def __init__(self, filesystem: FileSystem, file: JournalFile) -> None:
        self._filesystem = filesystem
        self._file = file

    def frames(self, offset: int, number: int, last: int | None) -> Iterator[JournalFrame]:
        """The frames from one that begins at `offset`, while each has the number after the last."""
        place = self._file.place
        with closing(self._filesystem.open(self._file.name)) as opened:
            start, data = offset, memoryview(b"")
            while last is None or number <= last:
                at = offset - start
                size = begins_frame(data, at, place)
                if at + (size or FRAME_BYTES) > len(data):
                    wanted = min(max(size or 0, _READ_BYTES), self._file.bytes - offset)
                    data, start, at = memoryview(opened.pread(wanted, offset)), offset, 0
                    size = begins_frame(data, 0, place)
                    if size is not None and size > len(data) and offset + size <= self._file.bytes:
                        data = memoryview(opened.pread(size, offset))
                frame = frame_at(data, at, place, offset)
                if frame is None or frame.number != number:
                    return
                yield frame
                offset, number = frame.end, number + 1

    def torn_bytes(self, end: int, number: int) -> tuple[int, JournalFrame | None]:
        """How many bytes behind the last frame belong to unfinished writes; and, where frame
        `number` was good once and is damaged, a whole frame that says so."""
        dirty = end + self._claimed_bytes(end, number)
        for offset, size, frame in self._remains(end):
            if frame is not None and (frame.durable >= number or frame.number <= number):
                return 0, frame
            dirty = max(dirty, offset + size)
        return dirty - end, None

    def _claimed_bytes(self, offset: int, number: int) -> int:
        """How long the frame of that number says it is, whatever else is wrong with it; or 0.

        What an earlier use of the file left has lower numbers.
        """
        with closing(self._filesystem.open(self._file.name)) as opened:
            head = opened.pread(FRAME_BYTES, offset)
            if len(head) < FRAME_BYTES or number_in(head) != number:
                return 0
            claimed = begins_frame(memoryview(head), 0, self._file.place)
            room = opened.size() - offset
            return claimed if claimed is not None and claimed <= room else room

    def _remains(self, end: int) -> Iterator[tuple[int, int, JournalFrame | None]]:
        """Where behind the last frame others seem to begin: place, size in the file, and the frame
        if it is whole. They carry the salt of the file: what was in it before has another."""
        place, salt = self._file.place, salt_bytes(self._file.place)
        with closing(self._filesystem.open(self._file.name)) as opened:
            size = opened.size()
            start = end
            while start < size:
                data = opened.pread(_READ_BYTES + len(salt), start)
                at = data.find(salt)
                while 0 <= at < _READ_BYTES:
                    offset = start + at
                    if offset % 8 == 0:
                        yield self._remain(opened, offset, size, place)
                    at = data.find(salt, at + 1)
                start += _READ_BYTES

    @staticmethod
    def _remain(
        opened: File, offset: int, size: int, place: FileSeed
    ) -> tuple[int, int, JournalFrame | None]:
        claimed = begins_frame(memoryview(opened.pread(FRAME_BYTES, offset)), 0, place)
        if claimed is None or offset + claimed > size:
            return offset, size - offset, None
        data = memoryview(opened.pread(claimed, offset))
        return offset, claimed, frame_at(data, 0, place, offset)
