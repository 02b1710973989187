"""Hard state: the few bytes a node must never forget, such as the terms and votes of its groups.

One file with two slots of equal content. A write goes to the first and is synced, then to the
second and is synced: at any moment one of them is whole, and damage to either is made good by the
other. If both are bad, opening refuses: to begin again at term 0 would be to vote twice.

    byte  0        4     5     6   8          12        16         24
          +--------+-----+-----+---+----------+---------+----------+--------+
          | "FMQH" | ver | sum | 0 | checksum | length  | sequence | value  |     slots at 0, 64 KiB
          +--------+-----+-----+---+----------+---------+----------+--------+

Numbers are little-endian. `ver` is 1, `sum` 1 is CRC32C, over the slot up to the end of the value
with zeros in the place of the checksum. `sequence` grows by one with each write. The value is
the caller's.
"""

from __future__ import annotations

from struct import Struct

from ..batch.checksum import crc32c
from ..errors import Corrupt, FlintError, InvalidRequest, UnsupportedFormat
from .filesystem import File, FileSystem, directory_of
from .journal_files import REMEDY

MAGIC = b"FMQH"
VERSION = 1
CRC32C = 1
SLOT = Struct("<4sBBHIIQ")
SLOT_BYTES = 64 * 1024
VALUE_BYTES_MAX = SLOT_BYTES - SLOT.size


class HardState:
    """Opened once, written seldom, each time durably. For one thread at a time."""

    def __init__(self, file: File, sequence: int, value: bytes) -> None:
        self._file = file
        self._sequence = sequence
        self._failure: FlintError | None = None
        self.value = value

    @classmethod
    def open(cls, filesystem: FileSystem, name: str) -> HardState:
        """Read it, or make it with an empty value. Raises Corrupt where neither slot is good."""
        if not filesystem.exists(name):
            _create(filesystem, name)
        file = filesystem.open(name, writable=True)
        try:
            file.reread()
            filesystem.sync_directory(directory_of(name))  # perhaps a killed process did not
            slots = [_decode(file.pread(SLOT_BYTES, at), name) for at in (0, SLOT_BYTES)]
            good = [slot for slot in slots if slot is not None]
            if not good:
                raise Corrupt(
                    f"{filesystem.describe(name)} is damaged in both its slots, at bytes 0 and "
                    f"{SLOT_BYTES:,}; {REMEDY}"
                )
            sequence, value = max(good)
            state = cls(file, sequence, value)
            for at, slot in zip((0, SLOT_BYTES), slots, strict=True):
                if slot != (sequence, value):
                    state._write_slot(at, sequence, value)
        except BaseException:
            file.close()
            raise
        return state

    def write(self, value: bytes) -> None:
        """Replace the value; it is on the disk twice when this returns.

        If it raises, the outcome is unknown until the next opening, and no other write is taken.
        """
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidRequest(
                f"{len(value):,} bytes of hard state; {VALUE_BYTES_MAX:,} is the limit"
            )
        if self._failure is not None:
            raise self._failure
        sequence = self._sequence + 1
        try:
            for at in (0, SLOT_BYTES):
                self._write_slot(at, sequence, value)
        except FlintError as error:
            self._failure = error
            raise
        self._sequence, self.value = sequence, value

    def _write_slot(self, at: int, sequence: int, value: bytes) -> None:
        self._file.pwritev([_encode(sequence, value)], at)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _create(filesystem: FileSystem, name: str) -> None:
    beside = name + ".tmp"
    if filesystem.exists(beside):
        filesystem.remove(beside)
    file = filesystem.create(beside)
    try:
        slot = _encode(1, b"").ljust(SLOT_BYTES, b"\0")
        file.pwritev([slot, slot], 0)
        file.sync_all()
    finally:
        file.close()
    filesystem.rename(beside, name)
    filesystem.sync_directory(directory_of(name))


def _encode(sequence: int, value: bytes) -> bytes:
    def packed(checksum: int) -> bytes:
        head = SLOT.pack(MAGIC, VERSION, CRC32C, 0, checksum, len(value), sequence)
        return head + value

    return packed(crc32c(packed(0)))


def _decode(data: bytes, name: str) -> tuple[int, bytes] | None:
    if len(data) < SLOT.size:
        return None
    magic, version, checksum_id, _, checksum, length, sequence = SLOT.unpack_from(data)
    end = SLOT.size + length
    if magic != MAGIC or end > len(data):
        return None
    if crc32c(data[:8] + b"\0\0\0\0" + data[12:end]) != checksum:
        return None
    if version != VERSION or checksum_id != CRC32C:
        raise UnsupportedFormat(
            f"{name} is of version {version} with checksum {checksum_id}; "
            f"this FlintMQ reads version {VERSION} with checksum {CRC32C}: use a newer one"
        )
    return sequence, data[SLOT.size : end]
