"""The files of the journal: made ahead of use, put into service in one step, recycled.

A file that is written with zeros before its use costs about half per sync, because a sync then
has data to write and no file length. So the next file, the spare, is made in the background while
the current one fills. Files double from a small first one up to `file_bytes`; those of full size
become spares again once the journal has no need of them. A frame that is larger than any file gets
one of its own size.

    journal-<generation>    in use. The name is given after the header was synced, so a file of
                            this name with a broken header is damaged, not half made
    spare-<number>          zeros, or an old file: nothing in it is ever looked at
    torn-<generation>-<at>  a torn tail that was cut off, kept for inspection
    newest                  the generation of the newest file, noted once that has its name for
                            good. A journal that ends with an older one has lost files

The header fills the first 512 bytes, a sector of its own. Numbers are little-endian.

    byte  0        4     5     6   8          12   16           24            32     40           48
          +--------+-----+-----+---+----------+----+------------+-------------+------+------------+
          | "FMQJ" | ver | sum | 0 | checksum | 0  | generation | first frame | salt | file bytes |
          +--------+-----+-----+---+----------+----+------------+-------------+------+------------+

`ver` is 2; a file of version 1 has no STATE and no MEMBERSHIP among its records, and is written on
without them. `sum` names the checksum of header and frames: 1 is CRC32C. The header's covers all
512 bytes with zeros in its own place. `generation` counts the files of a journal; `first frame` is
the number of the first frame here, which is one behind the last of the file before; everything in
the files before was synced when this one came into use. `salt` is random.

`newest` is one sector too, and is written in place: that needs no room on a full disk.

    byte  0            8     12         16           24
          +------------+-----+----------+------------+
          | "FMQJNEW\\0" | ver | checksum | generation |    checksum: CRC32C of the generation
          +------------+-----+----------+------------+
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from struct import Struct

from ..batch.checksum import crc32c
from ..errors import Corrupt, StorageFailed, StorageFull, UnsupportedFormat
from .filesystem import File, FileSystem
from .frames import FileSeed

MAGIC = b"FMQJ"
VERSION = 2
VERSIONS = (1, 2)
CRC32C = 1
HEADER = Struct("<4sBBHIIQQQQ")
HEADER_BYTES = 512
SPARES_MAX = 2
SHORT_FILE_BYTES = 4 << 20
"""How small files get where the disk is nearly full. Below this, publishers are refused: the rest
of the current file is then for what makes room."""
NEWEST = "newest"
_NEWEST = Struct("<8sIIQ")
_NEWEST_MAGIC = b"FMQJNEW\0"
_NEWEST_VERSION = 1

_ZEROS = bytes(1 << 20)
_SYNC_EVERY = 8 << 20
"""Spares are synced as they grow: one large sync would hold up those of the current file."""
_JOURNAL_NAME = re.compile(r"journal-(\d{16})")
_SPARE_NAME = re.compile(r"spare-(\d{16})")


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A file in use. `bytes` is the length frames may fill, header included."""

    name: str
    place: FileSeed
    first_frame: int
    bytes: int
    version: int = VERSION


def encode_header(
    place: FileSeed, first_frame: int, file_bytes: int, version: int = VERSION
) -> bytes:
    def packed(checksum: int) -> bytes:
        return HEADER.pack(
            MAGIC, version, CRC32C, 0, checksum, 0,
            place.generation, first_frame, place.salt, file_bytes,
        ).ljust(HEADER_BYTES, b"\0")  # fmt: skip

    return packed(crc32c(packed(0)))


def read_header(filesystem: FileSystem, name: str) -> JournalFile:
    with closing(filesystem.open(name)) as file:
        data = file.pread(HEADER_BYTES, 0)
    if len(data) < HEADER_BYTES:
        raise Corrupt("it is too short for a journal file")
    magic, version, checksum_id, _, checksum, _, generation, first_frame, salt, size = (
        HEADER.unpack_from(data)
    )
    blank = data[:8] + b"\0\0\0\0" + data[12:]
    if magic != MAGIC or crc32c(blank) != checksum:
        raise Corrupt("its header is damaged")
    if version not in VERSIONS or checksum_id != CRC32C:
        raise UnsupportedFormat(
            f"{filesystem.describe(name)} is of version {version} with checksum {checksum_id}; "
            f"this FlintMQ reads version {VERSION} with checksum {CRC32C}: use a newer one"
        )
    return JournalFile(name, FileSeed(generation, salt), first_frame, size, version)


REMEDY = (
    "restore the data directory from a backup, or see what can be saved with "
    "'flintmq log verify' and 'flintmq log repair'"
)


def read_newest(filesystem: FileSystem, path: str) -> int:
    """The generation that was noted as the newest; 0 where none is, or it cannot be read: then
    nothing is known, and nothing is lost."""
    if not filesystem.exists(path):
        return 0
    try:
        with closing(filesystem.open(path)) as file:
            data = file.pread(_NEWEST.size, 0)
    except StorageFailed:
        return 0
    if len(data) < _NEWEST.size:
        return 0
    magic, version, checksum, generation = _NEWEST.unpack(data)
    is_good = (
        magic == _NEWEST_MAGIC and version == _NEWEST_VERSION and crc32c(data[16:]) == checksum
    )
    return int(generation) if is_good else 0


def path_of(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def file_names(filesystem: FileSystem, directory: str) -> list[str]:
    """The names of the files in use, oldest first."""
    names = filesystem.list(directory) if filesystem.exists(directory) else []
    return [name for name in names if _JOURNAL_NAME.fullmatch(name)]


class JournalFiles:
    """The directory of a journal.

    `begin` is called by the writing thread; `make_spare` and `recycle` by one other at a time.
    They share the deque of spares alone.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        *,
        file_bytes: int,
        first_file_bytes: int,
        make_salt: Callable[[], int],
    ) -> None:
        self._filesystem = filesystem
        self.directory = directory
        self._file_bytes = file_bytes
        self._next_bytes = min(first_file_bytes, file_bytes)
        self._make_salt = make_salt
        self._spares: deque[tuple[str, int]] = deque()
        self._next_spare = 1

    def take_up(self, files: list[JournalFile]) -> None:
        """These are in use. What an unfinished preparation left is removed."""
        filesystem = self._filesystem
        for name in filesystem.list(self.directory):
            path = self.path(name)
            if found := _SPARE_NAME.fullmatch(name):
                self._next_spare = max(self._next_spare, int(found[1]) + 1)
                self._spares.append((path, filesystem.size_of(path)))
            elif name.startswith("spare-"):
                filesystem.remove(path)
        if files:
            self._next_bytes = min(max(files[-1].bytes * 2, self._next_bytes), self._file_bytes)
            newest = files[-1].place.generation
            if read_newest(filesystem, self.path(NEWEST)) < newest:
                self._note(newest)
        for _ in range(len(self._spares)):
            path, size = self._spares.popleft()
            if size == self._next_bytes and len(self._spares) < SPARES_MAX:
                self._spares.append((path, size))
            else:
                filesystem.remove(path)

    def _note(self, generation: int) -> None:
        """Note the newest file, whose name is durable already. Nothing rests on it: where a full
        disk has no room for it, the next file is noted again."""
        filesystem, path = self._filesystem, self.path(NEWEST)
        number = generation.to_bytes(8, "little")
        data = _NEWEST.pack(_NEWEST_MAGIC, _NEWEST_VERSION, crc32c(number), generation)
        is_new = not filesystem.exists(path)
        with suppress(StorageFull):
            opened = filesystem.create(path) if is_new else filesystem.open(path, writable=True)
            with closing(opened) as file:
                file.pwritev([data.ljust(HEADER_BYTES, b"\0")], 0)
                file.sync_all()
            if is_new:
                filesystem.sync_directory(self.directory)

    def path(self, name: str) -> str:
        return path_of(self.directory, name)

    def begin(self, generation: int, first_frame: int, room: int) -> tuple[JournalFile, File]:
        """Put the next file into service, with at least `room` bytes for frames.

        Raises StorageFull with nothing changed: it may be called again.
        """
        filesystem = self._filesystem
        needed = HEADER_BYTES + room
        spare = self._spares.popleft() if self._spares else None
        if spare is not None and spare[1] < needed:
            self._spares.appendleft(spare)
            spare = None
        if spare is None:
            # Either the background is behind or the frame is larger than a file. A file that
            # grows as it is written is slower to sync, and just as safe.
            path, size = self.path("spare-growing"), max(self._bytes_to_make(), needed)
            if filesystem.exists(path):
                filesystem.remove(path)
            file = filesystem.create(path)
            file.truncate(size)  # so that a file that was cut short is recognized
        else:
            path, size = spare
            file = filesystem.open(path, writable=True)
        try:
            place = FileSeed(generation, self._make_salt())
            file.pwritev([encode_header(place, first_frame, size)], 0)
            file.sync_all()
            name = self.path(f"journal-{generation:016d}")
            filesystem.rename(path, name)
            filesystem.sync_directory(self.directory)
        except BaseException as error:
            file.close()
            if spare is not None and isinstance(error, StorageFull):
                self._spares.appendleft(spare)
            raise
        self._note(generation)
        if size <= self._file_bytes:
            self._next_bytes = min(max(self._next_bytes, size * 2), self._file_bytes)
        return JournalFile(name, place, first_frame, size), file

    def wants_spare(self) -> bool:
        return not self._spares

    def _bytes_to_make(self) -> int:
        """How large the next file is made: it takes no more than half of what is free, so that
        there is room for segments too, unless it is one of the smallest."""
        size = self._next_bytes
        room = self._filesystem.free_bytes() // 2
        while size > room and size > SHORT_FILE_BYTES:
            size = max(size // 2, SHORT_FILE_BYTES)
        return size

    def make_spare(self) -> None:
        """Write a file of zeros for later. Raises StorageFull, having taken back what it took."""
        filesystem, size = self._filesystem, self._bytes_to_make()
        making = self.path(f"spare-{self._next_spare:016d}.tmp")
        file = filesystem.create(making)
        try:
            unsynced = 0
            for position in range(0, size, len(_ZEROS)):
                part = min(len(_ZEROS), size - position)
                file.pwritev([_ZEROS[:part]], position)
                unsynced += part
                if unsynced >= _SYNC_EVERY:
                    file.sync()
                    unsynced = 0
            file.sync_all()
        except StorageFull:
            file.close()
            filesystem.remove(making)
            raise
        finally:
            file.close()
        self._shelve(making, size)

    def recycle(self, file: JournalFile) -> None:
        """Take a file out of service: as a spare where it is of use, else it is removed.

        Files leave oldest first, each for good before the next: a crash never leaves a gap. Only
        then is it a spare: its header must not change while the old name might come back.
        """
        filesystem = self._filesystem
        whole = filesystem.size_of(file.name) == file.bytes == self._file_bytes
        if whole and self._next_bytes == self._file_bytes and len(self._spares) < SPARES_MAX:
            self._shelve(file.name, file.bytes)
        else:
            filesystem.remove(file.name)
            filesystem.sync_directory(self.directory)

    def _shelve(self, path: str, size: int) -> None:
        """Make a file a spare."""
        name = self.path(f"spare-{self._next_spare:016d}")
        self._next_spare += 1
        self._filesystem.rename(path, name)
        self._filesystem.sync_directory(self.directory)
        self._spares.append((name, size))
