"""BlipMQ's first protocol: FlatBuffers behind a length. Pure, and only what it uses of them.

    client to server   u32 length (big-endian), ClientCommand
    server to client   u32 length (big-endian), u8 kind (0 SubAck, 1 Message), table

Inside a buffer all is little-endian and lies at a multiple of its size:

    0    u32 where the table is
         vtable: u16 its bytes, u16 the table's bytes, then for each field u16 where it is in the
                 table, 0 for one that is left out (then it is 0, or empty)
         table:  i32 how far before it the vtable is; then numbers as they are, and for texts and
                 byte vectors u32 how far behind this field they are
         vector: u32 length, bytes; of a text, a NUL behind them

    ClientCommand  action i8 (0 PUB, 1 SUB, 2 UNSUB, 3 QUIT), topic text, payload bytes, ttl_ms u64
    Message        id u64, payload bytes, timestamp u64 (ms since 1970), ttl_ms u64
    SubAck         topic text, info text
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ...errors import MalformedFrame

LENGTH = Struct(">I")

TOPIC_BYTES_MAX = 256
FORBIDDEN = frozenset(b"/\0\n\r")
"""What no topic of this protocol may hold."""

_KIND = Struct(">IB")
_U16 = Struct("<H")
_U32 = Struct("<I")
_I32 = Struct("<i")
_U64 = Struct("<Q")
_MESSAGE = Struct("<I6HiIQQQI")
_SUBACK = Struct("<I4HiII")
_COMMAND = Struct("<I6HiIQIb3x")


class FlatAction(IntEnum):
    PUB = 0
    SUB = 1
    UNSUB = 2
    QUIT = 3


class Command(NamedTuple):
    action: int
    topic: bytes
    payload: bytes
    ttl_ms: int = 0


class FlatMessage(NamedTuple):
    id: int
    payload: bytes
    timestamp_ms: int
    ttl_ms: int


class SubAck(NamedTuple):
    topic: bytes
    info: bytes


class LengthDecoder:
    """Cuts a byte stream into bodies; a length of 0 or beyond the limit is MalformedFrame."""

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes, bodies: list[bytes]) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= LENGTH.size:
                (length,) = LENGTH.unpack_from(buffer, at)
                if not 0 < length <= self.body_bytes_max:
                    raise MalformedFrame(
                        f"a command has 1 to {self.body_bytes_max:,} bytes, not {length:,}"
                    )
                stop = at + LENGTH.size + length
                if stop > len(buffer):
                    break
                bodies.append(bytes(buffer[at + LENGTH.size : stop]))
                at = stop
        finally:
            del buffer[:at]


class _FlatTable:
    """The root table of a buffer. Every look stays inside the buffer, or is MalformedFrame."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = self._number(_U32, 0)
        vtable = self._at - self._number(_I32, self._at)
        size = self._number(_U16, vtable)
        if size < 4 or size % 2 or vtable % 2 or vtable + size > len(data):
            raise MalformedFrame("the vtable of a buffer is not inside it")
        self._size = self._number(_U16, vtable + 2)
        if self._size < 4 or self._at % 4 or self._at + self._size > len(data):
            raise MalformedFrame("the table of a buffer is not inside it")
        self._fields = [self._number(_U16, vtable + at) for at in range(4, size, 2)]

    def _number(self, kind: Struct, at: int) -> int:
        if not 0 <= at <= len(self._data) - kind.size:
            raise MalformedFrame("a field of a buffer is not inside it")
        number: int = kind.unpack_from(self._data, at)[0]
        return number

    def _place(self, slot: int, size: int) -> int:
        """Where a field is; 0 if it is left out."""
        field = self._fields[slot] if slot < len(self._fields) else 0
        if not field:
            return 0
        place = self._at + field
        if field < 4 or field + size > self._size or place % size:
            raise MalformedFrame("a field of a table is not inside it")
        return place

    def byte(self, slot: int) -> int:
        place = self._place(slot, 1)
        return self._data[place] if place else 0

    def number(self, slot: int) -> int:
        place = self._place(slot, 8)
        return self._number(_U64, place) if place else 0

    def vector(self, slot: int, *, is_text: bool = False) -> bytes:
        place = self._place(slot, 4)
        if not place:
            return b""
        at = place + self._number(_U32, place)
        stop = at + 4 + self._number(_U32, at)
        if at % 4 or stop + is_text > len(self._data):
            raise MalformedFrame("a vector of a buffer is not inside it")
        found = self._data[at + 4 : stop]
        if is_text:
            if self._data[stop]:
                raise MalformedFrame("a text of a buffer has no end")
            try:
                found.decode()
            except UnicodeDecodeError:
                raise MalformedFrame("a text of a buffer is not UTF-8") from None
        return found


def decode_command(body: bytes) -> Command:
    table = _FlatTable(body)
    action = table.byte(0)
    return Command(
        action if action <= FlatAction.QUIT else FlatAction.PUB,  # as their broker reads it
        table.vector(1, is_text=True),
        table.vector(2),
        table.number(3),
    )


def decode_answer(body: bytes) -> FlatMessage | SubAck:
    """What a server sends, from its kind on."""
    table = _FlatTable(body[1:])
    if body[0] == 0:
        return SubAck(table.vector(0, is_text=True), table.vector(1, is_text=True))
    if body[0] == 1:
        return FlatMessage(table.number(0), table.vector(1), table.number(2), table.number(3))
    raise MalformedFrame(f"unknown kind of answer {body[0]}")


def _vector(data: bytes, *, is_text: bool = False) -> bytes:
    """Padded, so that the next one is aligned."""
    whole = _U32.pack(len(data)) + data + (b"\0" if is_text else b"")
    return whole + bytes(-len(whole) % 4)


def encode_message(message: FlatMessage) -> bytes:
    """With length and kind."""
    id, payload, timestamp_ms, ttl_ms = message
    tail = payload + bytes(-len(payload) % 4)
    table = _MESSAGE.pack(
        *(16, 12, 32, 8, 4, 16, 24),  # the table at 16; the vtable before it
        *(12, 28, id, timestamp_ms, ttl_ms, len(payload)),
    )
    return _KIND.pack(1 + len(table) + len(tail), 1) + table + tail


def encode_sub_ack(topic: bytes, info: bytes) -> bytes:
    said = _vector(info, is_text=True)
    tail = said + _vector(topic, is_text=True)
    # The topic comes behind the info, which comes behind the table.
    table = _SUBACK.pack(12, 8, 12, 4, 8, 8, 8 + len(said), 4)
    return _KIND.pack(1 + len(table) + len(tail), 0) + table + tail


def encode_command(command: Command) -> bytes:
    """With its length."""
    action, topic, payload, ttl_ms = command
    name = _vector(topic, is_text=True)
    # At 20 where the topic is (behind all numbers, at 40), at 24 the ttl, at 32 where the payload
    # is (behind the topic), at 36 the action.
    table = _COMMAND.pack(16, 12, 24, 20, 4, 16, 8, 12, 20, ttl_ms, 8 + len(name), action)
    body = table + name + _vector(payload)
    return LENGTH.pack(len(body)) + body
