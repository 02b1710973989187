"""Frames of the native protocol: bytes in, frames out, and back. Pure.

    byte 0          4    5       6    8                    16
         +----------+----+-------+----+--------------------+
         | length   | op | flags | 0  | id                 |
         +----------+----+-------+----+--------------------+
    byte 16                       24                28     32
         +------------------------+-----------------+------+---------+---------+---------+
         | received               | control length  | 0    | control | padding | batches |
         +------------------------+-----------------+------+---------+---------+---------+

All numbers are little-endian. `length` counts everything behind itself. `id` is the request that a
frame belongs to, 0 where it belongs to none. `received` is how many frames of this session the
sender of this has received. The control part is one MessagePack array, padded with zeros to a
multiple of 8; record batches follow one behind the other, each a multiple of 8 itself, up to the
end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Generic, TypeVar

from ...errors import MalformedFrame

Buffer = bytes | memoryview
F = TypeVar("F")

HEADER = Struct("<IBBHQQII")
HEADER_BYTES = HEADER.size
LENGTH = Struct("<I")
LENGTH_BYTES = LENGTH.size
FRAME_BYTES_MAX = 64 * 1024 * 1024
"""What a frame may have unless the other side has agreed to more."""

_PADDING = [bytes(count) for count in range(8)]
CONTROL_BYTES_MAX = 16 * 1024 * 1024


class Frame:
    """One frame. Control and batches are views into what was received; batches may be none."""

    __slots__ = ("batches", "byte_length", "control", "flags", "id", "op", "received")

    def __init__(
        self,
        op: int,
        id: int,
        received: int,
        control: memoryview,
        batches: memoryview,
        byte_length: int,
        flags: int = 0,
    ) -> None:
        self.op = op
        self.id = id
        self.received = received
        self.control = control
        self.batches = batches
        self.byte_length = byte_length
        self.flags = flags


def encode_frame(
    op: int,
    id: int,
    control: bytes,
    batches: Sequence[Buffer] = (),
    *,
    received: int = 0,
    flags: int = 0,
) -> list[Buffer]:
    """A frame as buffers to be written one behind the other; batches are not copied."""
    size = len(control)
    padding = _PADDING[-size & 7]
    length = HEADER_BYTES - LENGTH_BYTES + size + len(padding)
    for batch in batches:
        length += len(batch)
    head = HEADER.pack(length, op, flags, 0, id, received, size, 0)
    return [head + control + padding, *batches]


class FrameCutter(Generic[F]):
    """Cuts a byte stream into frames that begin with their length. Feed it any amount; it keeps the
    remainder.

    A length that is over the limit, or too short for a header, is refused before anything of that
    size is kept. After an error the stream is beyond repair: the connection has to go.
    `read(view, at, length)` makes a frame of what is there in full.
    """

    def __init__(
        self, head_bytes: int, read: Callable[[memoryview, int, int], F], frame_bytes_max: int
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._head_bytes = head_bytes
        self._read = read
        self._parts: list[bytes] = []
        self._kept = 0
        self._needed = LENGTH_BYTES

    @property
    def kept_bytes(self) -> int:
        """How much of a frame that is not complete yet is held."""
        return self._kept

    def feed(self, data: bytes) -> list[F]:
        """The frames that are complete now, in order."""
        if self._kept:
            self._parts.append(data)
            self._kept += len(data)
            if self._kept < self._needed:
                return []
            data = b"".join(self._parts)
            self._parts, self._kept = [], 0
        frames: list[F] = []
        position, end = 0, len(data)
        view = memoryview(data)
        self._needed = LENGTH_BYTES
        while end - position >= LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(data, position)
            whole = LENGTH_BYTES + length
            if whole < self._head_bytes or whole > self.frame_bytes_max:
                raise MalformedFrame(
                    f"a frame of {whole:,} bytes; {self._head_bytes} to {self.frame_bytes_max:,} "
                    "are allowed"
                )
            if end - position < whole:
                self._needed = whole
                break
            frames.append(self._read(view, position, whole))
            position += whole
        if position < end:
            self._parts = [data[position:]]
            self._kept = end - position
        return frames


class FrameDecoder(FrameCutter[Frame]):
    """Cuts what a connection of the native protocol receives."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        super().__init__(HEADER_BYTES, _frame, frame_bytes_max)


def _frame(view: memoryview, at: int, length: int) -> Frame:
    _, op, flags, zero, id, received, control_length, zeros = HEADER.unpack_from(view, at)
    batches_at = (HEADER_BYTES + control_length + 7) & ~7
    if zero or zeros or control_length > CONTROL_BYTES_MAX or batches_at > length:
        raise MalformedFrame(
            f"operation {op} with a control part of {control_length:,} bytes in a frame of "
            f"{length:,}"
        )
    control_at = at + HEADER_BYTES
    control = view[control_at : control_at + control_length]
    return Frame(op, id, received, control, view[at + batches_at : at + length], length, flags)
