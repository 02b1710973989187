"""The journal: the one write-ahead log of a node, which is also the log of its Raft groups.

Frames of records, one behind the other, in files that are recycled (`journal_files.py`,
`frames.py`). The proposer's thread calls `prepare`; one writing thread calls `write` and `sync`
(`group_commit.py`); a third may read and release.

What opening does. Frames are read from the oldest file on, each with the number after the one
before it. Where that ends in a file that is not the last, the journal is damaged. In the last file,
let n be the number of the frame that is missing or broken, and look at everything behind it:

- A frame that is whole and says that n had been synced when it was written (its durable mark)
  proves that n was good once: damage. Under `always` any frame behind n says so. The error names
  the file, the place and what to do; nothing is cut, ever.
- Otherwise n was being written when the power went, and it was never acknowledged. (Or it was
  the last, and was damaged later: nothing on the disk tells one from the other.) The tail
  from there on is cut: saved to a file aside, overwritten with zeros so that it cannot come
  back, synced, and reported in `recovered`.

A last frame that was synced and then damaged looks like one that was torn, by nature; a clean
close therefore ends with an empty frame, whose mark vouches for all others.

Hard states (`State`) are records among the others, so that one sync keeps both, in their order. The
last one of each group is repeated in the first frame of every file, before that frame's own records
and whatever led there: a new file, a cut, a write that found no room, the mark of a clean close.
A file is released only when that frame of the file behind it is synced: so recycling never loses a
vote. None goes into a file of version 1; that is left for a new one first.

Sectors of 512 bytes are taken to be written whole or not at all: a frame begins in the sector in
which the one before ended.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import Corrupt, FlintError, InvalidRequest, StorageFull
from .filesystem import Buffer, File, FileSystem, directory_of, replace_file
from .frames import (
    FRAME_BYTES,
    RESTART,
    STATE,
    U32_MAX,
    U64_MAX,
    JournalFrame,
    Record,
    RecordLot,
    RecordRun,
    State,
    bytes_of,
    encode,
    joined,
    seal,
)
from .journal_files import HEADER_BYTES, REMEDY, JournalFile, JournalFiles, file_names
from .journal_index import GroupRange, JournalIndex, RecordSpot
from .journal_scan import FileReader, JournalProblem, frame_damage, scan_journal

FILE_BYTES = 64 << 20
FIRST_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TornTail:
    """A write that is not whole, cut off at the end of the journal."""

    file: str
    offset: int
    bytes: int
    saved_as: str | None
    """Where the cut bytes are; None where the disk had no room for them."""

    def __str__(self) -> str:
        saved = f"saved as {self.saved_as}" if self.saved_as else "not saved: the disk is full"
        return (
            f"the write at byte {self.offset:,} of {self.file} is not whole and was cut off: "
            f"{self.bytes:,} bytes, {saved}"
        )


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening found."""

    files: int
    frames: int
    torn_tail: TornTail | None


class Journal:
    """See the module's text. Positions are frame numbers: they grow by one and never come again."""

    def __init__(self, filesystem: FileSystem, files: JournalFiles) -> None:
        self._filesystem = filesystem
        self._dir = files
        self.wants_spare, self.make_spare = files.wants_spare, files.make_spare
        # Shared between threads, under the lock:
        self._lock = threading.Lock()
        self._files: list[JournalFile] = []
        self._index = JournalIndex()
        self._readers: dict[int, int] = {}
        self._number = 0
        # Of the proposer's thread:
        self._next_indexes: dict[int, int] = {}
        # Of the writing thread:
        self._file: File | None = None
        self._end = 0
        self._durable = 0
        self._ends_with_mark = False
        self._failure: FlintError | None = None
        self.recovered = Recovered(0, 0, None)

    @classmethod
    def open(
        cls,
        filesystem: FileSystem,
        directory: str = "",
        *,
        file_bytes: int = FILE_BYTES,
        first_file_bytes: int = FIRST_FILE_BYTES,
        make_salt: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> Journal:
        """Recover what is there, or begin a new journal. Everything that is read is synced.

        Raises Corrupt with file, place and remedy where anything but a torn tail is wrong.
        """
        if directory and not filesystem.exists(directory):
            filesystem.make_directory(directory)
        # A process before us may have been killed between giving a file its name and syncing that;
        # what we are about to acknowledge from that file must not lose it.
        if directory:
            filesystem.sync_directory(directory_of(directory))
        filesystem.sync_directory(directory)
        files = JournalFiles(
            filesystem,
            directory,
            file_bytes=file_bytes,
            first_file_bytes=first_file_bytes,
            make_salt=make_salt,
        )
        journal = cls(filesystem, files)
        journal._recover()
        return journal

    # --- writing

    def prepare(self, records: Sequence[Record]) -> RecordLot:
        """Check and encode records that are to be kept together. For the proposer's thread.

        Lots must be written in the order in which they were prepared.
        """
        following: dict[int, int] = {}
        for record in records:
            group, index = record.group, record.index
            is_state = record.kind == STATE
            is_index = index == 0 if is_state else 0 < index < U64_MAX
            if not (0 <= group <= U32_MAX and 0 <= record.term <= U64_MAX and is_index):
                raise InvalidRequest(
                    f"no such record: group {group}, term {record.term}, index {index}"
                )
            if is_state:
                continue
            due = following.get(group) or self._next_indexes.get(group)
            if due is not None and index > due and record.kind != RESTART:
                raise InvalidRequest(
                    f"group {group} goes on with index {due}, not {index}: there are no gaps"
                )
            following[group] = index + 1
        lot = encode(records)
        self._next_indexes |= following
        return lot

    def write(self, lots: Sequence[RecordLot]) -> int:
        """Write lots as one frame; its number. For the writing thread; does not sync.

        Raises StorageFull with nothing changed: the same lots may be written again when there is
        room. Anything else that is raised ends the journal.
        """
        self._check_usable()
        if len(lots) == 1:
            buffers, runs = lots[0].buffers, lots[0].runs
        else:
            buffers = [buffer for lot in lots for buffer in lot.buffers]
            runs = joined([run for lot in lots for run in lot.runs])
        return self._write_frame(buffers, runs, bytes_of(lots))

    def sync(self) -> None:
        """Put everything written on the disk. If that fails, the journal is of no use any more:
        the system may take the pages for clean now, and the next sync would lie."""
        self._check_usable()
        if self._durable == self._number:
            return
        assert self._file is not None
        try:
            self._file.sync()
        except FlintError as error:
            self._failure = error
            raise
        self._durable = self._number

    def append(self, records: Sequence[Record]) -> int:
        """Prepare, write and sync."""
        number = self.write([self.prepare(records)])
        self.sync()
        return number

    def close(self) -> None:
        """Sync, and vouch for it with an empty frame."""
        if self._file is None:
            return
        try:
            if self._failure is None:
                self.sync()
                if not self._ends_with_mark and self.has_room(0):
                    self._write_frame([], [], 0)
                    self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    @property
    def written(self) -> int:
        """The number of the last frame."""
        return self._number

    @property
    def durable(self) -> int:
        """The number of the last frame that is known to be on the disk."""
        return self._durable

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        assert self._file is not None, "the journal is open"

    def has_room(self, body_bytes: int) -> bool:
        """Whether a frame fits into the current file. For the writing thread."""
        body_bytes += self._repeated_bytes() if self._end == HEADER_BYTES else 0
        return self._end + FRAME_BYTES + body_bytes <= self._files[-1].bytes

    def _repeated_bytes(self) -> int:
        return sum(state.record(0).size for state in self._index.states.values())

    def _write_frame(
        self, buffers: Sequence[Buffer], runs: Sequence[RecordRun], body_bytes: int
    ) -> int:
        try:
            is_mark = not runs
            is_new = self._files[-1].version < 2 and any(run.kind > RESTART for run in runs)
            if is_new or not self.has_room(body_bytes):
                self._roll(FRAME_BYTES + body_bytes + self._repeated_bytes())
            file, current = self._file, self._files[-1]
            assert file is not None
            number = self._number + 1
            if self._end == HEADER_BYTES and self._index.states:
                repeated = encode(
                    [state.record(group) for group, state in self._index.states.items()]
                )
                buffers, runs = [*repeated.buffers, *buffers], [*repeated.runs, *runs]
                body_bytes += repeated.bytes
            frame = seal(buffers, runs, current.place, number=number, durable=self._durable)
            file.pwritev(frame, self._end)
        except StorageFull:
            raise
        except FlintError as error:
            self._failure = error
            raise
        with self._lock:
            self._index.add(runs, number, current.place.generation, self._end)
            self._number = number
        self._end += FRAME_BYTES + body_bytes
        self._ends_with_mark = is_mark
        return number

    def _roll(self, room: int) -> None:
        # What is in the files before the last one has to be on the disk: opening relies on it.
        if self._file is not None:
            self.sync()
        file, opened = self._dir.begin(
            self._files[-1].place.generation + 1 if self._files else 1, self._number + 1, room
        )
        if self._file is not None:
            self._file.close()
        self._file = opened
        self._end = HEADER_BYTES
        with self._lock:
            self._files.append(file)

    # --- reading

    def groups(self) -> dict[int, GroupRange]:
        """What there is of each group."""
        with self._lock:
            return {
                number: GroupRange(group.first_index, group.next_index, group.last_term)
                for number, group in self._index.groups.items()
            }

    def states(self) -> dict[int, State]:
        """The last hard state of each group that was written."""
        with self._lock:
            return dict(self._index.states)

    def term(self, group: int, index: int) -> int | None:
        """The term of a record; None where it is not there (any more)."""
        with self._lock:
            known = self._index.groups.get(group)
            return None if known is None else known.term(index)

    def needed_from(self, checkpoints: Mapping[int, int]) -> int:
        """Where the journal is needed from, by the last checkpoint of each group: the slowest says.
        An idle group keeps nothing, as the index behind its last has the next position."""
        return min(self.position_of(group, index + 1) for group, index in checkpoints.items())

    def position_of(self, group: int, index: int) -> int:
        """A position at or shortly before that of a record: the journal is still needed from there
        on by those who need the record. Of one before the first, that of the first: all that is
        there is needed. For an index that is not there yet, the next position."""
        with self._lock:
            known = self._index.groups.get(group)
            found = known.find(max(index, known.first_index)) if known is not None else None
            return found[0].frame if found is not None else self._number + 1

    def records(self, group: int, first_index: int) -> Iterator[Record]:
        """The records of one group from an index on, up to the last one there is now.

        Ends early, or at once, where the journal does not have that index (any more).
        """
        with self._lock:
            last = self._index.groups[group].next_index - 1 if group in self._index.groups else 0
        index = first_index
        while index <= last:
            with self._lock:
                found = self._index.groups[group].find(index)
            if found is None:
                return
            spot, behind = found
            got = index
            for frame in self._frames(spot):
                for ordinal, record in enumerate(frame.records()):
                    if record.group != group or (frame.number, ordinal) < spot[:2]:
                        continue
                    if record.index == got:
                        yield record
                        got += 1
                    if got >= behind:
                        break
                if got >= behind:
                    break
            if got == index:
                return
            index = got

    def replay(self, from_position: int = 0) -> Iterator[tuple[int, Record]]:
        """Everything in the order of writing, with its position, without what was replaced."""
        with self._lock:
            start = next(
                (
                    RecordSpot(file.first_frame, 0, file.place.generation, HEADER_BYTES)
                    for file in reversed(self._files)
                    if file.first_frame <= max(from_position, self._files[0].first_frame)
                ),
                None,
            )
        if start is None:
            return
        for frame in self._frames(start):
            if frame.number < from_position:
                continue
            with self._lock:
                records = self._index.in_force(frame)
            for record in records:
                yield frame.number, record

    def _frames(self, start: RecordSpot) -> Iterator[JournalFrame]:
        """The frames from a spot up to the last one written before now."""
        until = self._number
        number, generation, offset = start.frame, start.generation, start.offset
        while number <= until:
            with self._lock:
                file = next((f for f in self._files if f.place.generation == generation), None)
                behind = next(
                    (f for f in self._files if f.place.generation == generation + 1), None
                )
                if file is None:
                    return  # released meanwhile
                self._readers[generation] = self._readers.get(generation, 0) + 1
            try:
                last = min(until, behind.first_frame - 1) if behind is not None else until
                for frame in FileReader(self._filesystem, file).frames(offset, number, last):
                    yield frame
                    number = frame.number + 1
                if number <= last:
                    raise self._damaged(frame_damage(file.name, offset, number))
            finally:
                with self._lock:
                    self._readers[generation] -= 1
            generation, offset = generation + 1, HEADER_BYTES

    # --- releasing

    def release_before(self, position: int) -> int:
        """The frames before this one are not needed any more. How many files that gave back.

        Files go as a whole and oldest first; one that is being read stays, and those behind it.
        For the one thread that also makes spares.
        """
        count = 0
        while True:
            with self._lock:
                if len(self._files) < 2 or self._files[1].first_frame > position:
                    return count
                if self._index.states and self._files[1].first_frame > self._durable:
                    return count  # the states in it are not repeated on the disk yet
                file = self._files[0]
                if self._readers.get(file.place.generation):
                    return count
                del self._files[0]
                self._readers.pop(file.place.generation, None)
                for group in self._index.groups.values():
                    group.forget_before(self._files[0].first_frame)
            self._dir.recycle(file)
            count += 1

    @property
    def file_count(self) -> int:
        return len(self._files)

    # --- opening

    def _recover(self) -> None:
        filesystem, directory = self._filesystem, self._dir.directory
        names = file_names(filesystem, directory)
        if names:
            self._file = filesystem.open(self._dir.path(names[-1]), writable=True)
        try:
            if self._file is not None:
                # What a killed process wrote may be in memory only; what a failed sync left there
                # may not be on the disk. Both are settled before anything is believed.
                self._file.reread()
            scan = scan_journal(filesystem, directory)
            if scan.cut_at is not None:
                raise self._damaged(scan.problems[-1])
            self._files = [scanned.file for scanned in scan.files]
            self._dir.take_up(self._files)
            if self._file is None:
                if self._dir.wants_spare():
                    self._dir.make_spare()
                self._roll(0)
                return
            last, torn = scan.files[-1], scan.torn_bytes
            torn_tail = self._cut(self._file, last.file, last.end, torn) if torn else None
        except BaseException:
            self.abandon()
            raise
        self._index = scan.index
        self._end, self._ends_with_mark = last.end, scan.ends_with_mark
        self._number = self._durable = last.next_frame - 1
        frames = sum(scanned.frames for scanned in scan.files)
        self.recovered = Recovered(len(scan.files), frames, torn_tail)
        groups = self._index.groups.items()
        self._next_indexes = {group: known.next_index for group, known in groups}

    def _cut(self, opened: File, file: JournalFile, end: int, size: int) -> TornTail:
        size = min(size, opened.size() - end)
        saved_as: str | None = self._dir.path(f"torn-{file.place.generation:016d}-{end}")
        try:
            replace_file(self._filesystem, saved_as or "", [opened.pread(size, end)])
        except StorageFull:
            saved_as = None
        opened.pwritev([bytes(size)], end)
        opened.sync()
        return TornTail(
            self._filesystem.describe(file.name),
            end,
            size,
            self._filesystem.describe(saved_as) if saved_as else None,
        )

    def _damaged(self, problem: JournalProblem) -> Corrupt:
        described = msgspec.structs.replace(problem, file=self._filesystem.describe(problem.file))
        return Corrupt(f"{described}; {REMEDY}")
