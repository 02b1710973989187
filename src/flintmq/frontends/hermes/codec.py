"""HermesMQ's client protocol: frames, and the protobuf messages in them. Pure.

        0        4             4 + length
        +--------+-------------+
        | length | body        |    length: u32 big-endian, counts the body only, at most 64 MiB
        +--------+-------------+

A client's body is one Request, a server's one Response: proto3 messages with a oneof `kind`. There
is no hello, no version and no request id; replies come in the order of requests. A scalar that is
zero or empty is not on the wire, so a frame of length 0 is an empty Request.

    Request     produce 1   poll 2   ack 3   nack 4   commit 5   create_topic 6   delete_topic 7
                stats 8   bootstrap 9   set_rate_limit 10   set_retention 11   subscribe 12
    Response    produced 1   polled 2   ok 3   error 4   stats 5

The fields of each are in the order of their numbers below, from 1 on. Defaults and limits are not
applied here: 0 stays 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ...errors import MalformedFrame

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
KEPT_BYTES_MAX: Final = 2 * 1024 * 1024
"""No request that can be carried out is longer; of one that is, only the beginning is kept."""

LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct("<d")
_U32 = 0xFFFF_FFFF
_U64 = 0xFFFF_FFFF_FFFF_FFFF


class Undecodable(MalformedFrame):
    """A frame whose body is no Request. Those behind it are not affected."""


class Body(NamedTuple):
    """What came in one frame: all of it, or the beginning of one that is too long to keep."""

    length: int
    data: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.length


class FrameReader:
    """Cuts a stream into frames. Nothing is allocated for a length before its bytes have come."""

    def __init__(self, *, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._kept_bytes_max = kept_bytes_max
        self._head: bytes | None = None  # of a frame whose rest is passed over
        self._length = 0
        self._to_skip = 0
        self.is_broken = False
        """Whether a length beyond 64 MiB has come: nothing behind it can be read."""

    def feed(self, data: bytes) -> list[Body]:
        """The frames that are complete now; none any more once it is broken."""
        if self.is_broken:
            return []
        buffer = self._buffer
        buffer += data
        at, size = 0, len(buffer)
        bodies: list[Body] = []
        while True:
            if self._head is not None:
                skipped = min(self._to_skip, size - at)
                at += skipped
                self._to_skip -= skipped
                if self._to_skip:
                    break
                bodies.append(Body(self._length, self._head))
                self._head = None
            if size - at < LENGTH.size:
                break
            (length,) = LENGTH.unpack_from(buffer, at)
            begin = at + LENGTH.size
            if length > FRAME_BYTES_MAX:
                self.is_broken = True
                at = size
                break
            kept = min(length, self._kept_bytes_max)
            if size - begin < kept:
                break
            at = begin + kept
            head = bytes(buffer[begin:at])
            if kept == length:
                bodies.append(Body(length, head))
            else:
                self._head, self._length, self._to_skip = head, length, length - kept
        del buffer[:at]
        return bodies

    @property
    def is_within_frame(self) -> bool:
        """Whether part of a frame has come, and the rest is awaited."""
        return bool(self._buffer) or self._head is not None


# --- requests


class OfTopic(msgspec.Struct, frozen=True, gc=False):
    topic: str = ""


class OfGroup(OfTopic, frozen=True, gc=False):
    group: str = ""


class Produce(OfTopic, frozen=True, gc=False):
    priority: int = 0
    content_type: int = 0
    payload: bytes = b""
    producer_id: str = ""
    seq: int = 0


class Poll(OfGroup, frozen=True, gc=False):
    max: int = 0
    visibility_timeout_ms: int = 0
    ack_mode: str = ""
    wait_ms: int = 0


class Ack(OfGroup, frozen=True, gc=False):
    lease_id: int = 0


class Nack(OfGroup, frozen=True, gc=False):
    lease_id: int = 0


class Commit(OfGroup, frozen=True, gc=False):
    offset: int = 0


class CreateTopic(OfTopic, frozen=True, gc=False):
    pass


class DeleteTopic(OfTopic, frozen=True, gc=False):
    pass


class Stats(msgspec.Struct, frozen=True, gc=False):
    pass


class Node(msgspec.Struct, frozen=True, gc=False):
    id: int = 0
    peer_addr: str = ""


class Bootstrap(msgspec.Struct, frozen=True, gc=False):
    nodes: tuple[Node, ...] = ()


class SetRateLimit(OfTopic, frozen=True, gc=False):
    rate_per_sec: float = 0.0
    burst: int = 0


class SetRetention(OfTopic, frozen=True, gc=False):
    max_messages: int = 0
    max_age_ms: int = 0


class Subscribe(OfGroup, frozen=True, gc=False):
    prefetch: int = 0
    visibility_timeout_ms: int = 0
    ack_mode: str = ""


Request = (
    Produce
    | Poll
    | Ack
    | Nack
    | Commit
    | CreateTopic
    | DeleteTopic
    | Stats
    | Bootstrap
    | SetRateLimit
    | SetRetention
    | Subscribe
)

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_STRING, _BLOB, _UINT32, _UINT64, _FLOAT, _NODES = "string", "bytes", "u32", "u64", "double", "node"
_WIRE_TYPES = {
    _STRING: _BYTES,
    _BLOB: _BYTES,
    _NODES: _BYTES,
    _UINT32: _VARINT,
    _UINT64: _VARINT,
    _FLOAT: _FIXED64,
}
_TOPIC, _GROUPS = (_STRING,), (_STRING, _STRING)

_KINDS: Mapping[int, tuple[type[Any], tuple[str, ...]]] = {
    1: (Produce, (_STRING, _UINT32, _UINT32, _BLOB, _STRING, _UINT64)),
    2: (Poll, (*_GROUPS, _UINT32, _UINT64, _STRING, _UINT64)),
    3: (Ack, (*_GROUPS, _UINT64)),
    4: (Nack, (*_GROUPS, _UINT64)),
    5: (Commit, (*_GROUPS, _UINT64)),
    6: (CreateTopic, _TOPIC),
    7: (DeleteTopic, _TOPIC),
    8: (Stats, ()),
    9: (Bootstrap, (_NODES,)),
    10: (SetRateLimit, (_STRING, _FLOAT, _UINT32)),
    11: (SetRetention, (_STRING, _UINT64, _UINT64)),
    12: (Subscribe, (*_GROUPS, _UINT32, _UINT64, _STRING)),
}
_NODE = (_UINT64, _STRING)
_ZEROS: Mapping[str, Any] = {
    _STRING: "",
    _BLOB: b"",
    _UINT32: 0,
    _UINT64: 0,
    _FLOAT: 0.0,
    _NODES: (),
}


def decode_request(body: bytes) -> Request | None:
    """What a client asks for; None for a Request without a kind that we know. Raises Undecodable.

    As protobuf has it: unknown fields are passed over, of repeated scalars the last one counts, and
    so does the last kind; a kind that is said twice is put together of both.
    """
    at, end = 0, len(body)
    known: int | None = None
    values: list[Any] = []
    try:
        while at < end:
            key = body[at]
            at += 1
            if key >= 0x80:
                key, at = _varint(body, at - 1, end)
            number, wire_type = _key(key)
            kind = _KINDS.get(number)
            if kind is None:
                at = _skip(body, at, end, number, wire_type)
                continue
            if wire_type != _BYTES:
                raise Undecodable(f"field {number} of Request has wire type {wire_type}")
            length, at = _varint(body, at, end)
            if length > end - at:
                raise Undecodable(f"field {number} of Request is cut off")
            if number != known:
                known, values = number, [_ZEROS[one] for one in kind[1]]
            _fill(body, at, at + length, kind[1], values)
            at += length
    except IndexError:
        raise Undecodable("the request is cut off") from None
    if known is None:
        return None
    made: Request = _KINDS[known][0](*values)
    return made


def payload_length_in(head: bytes) -> int | None:
    """How long the payload of a produce is that was too long to keep; None if that is none."""
    try:
        key, at = _varint(head, 0, len(head))
        _, at = _varint(head, at, len(head))
        if key != 1 << 3 | _BYTES:
            return None
        while True:
            key, at = _varint(head, at, len(head))
            number, wire_type = _key(key)
            if number == 4 and wire_type == _BYTES:
                return _varint(head, at, len(head))[0]
            at = _skip(head, at, len(head), number, wire_type)
    except (IndexError, Undecodable):
        return None


def _fill(body: bytes, at: int, end: int, fields: Sequence[str], values: list[Any]) -> None:
    """Put the fields of one message into their places."""
    count = len(fields)
    while at < end:
        key = body[at]
        at += 1
        if key >= 0x80:
            key, at = _varint(body, at - 1, end)
        number, wire_type = _key(key)
        if number > count:
            at = _skip(body, at, end, number, wire_type)
            continue
        kind = fields[number - 1]
        if _WIRE_TYPES[kind] != wire_type:
            raise Undecodable(f"field {number} is a {kind}, not of wire type {wire_type}")
        if wire_type == _FIXED64:
            if at + 8 > end:
                raise Undecodable(f"field {number} is cut off")
            values[number - 1] = _DOUBLE.unpack_from(body, at)[0]
            at += 8
            continue
        found, at = _varint(body, at, end)
        if wire_type == _VARINT:
            values[number - 1] = found & _U32 if kind is _UINT32 else found
            continue
        stop = at + found
        if stop > end:
            raise Undecodable(f"field {number} is cut off")
        if kind is _STRING:
            try:
                values[number - 1] = body[at:stop].decode()
            except UnicodeDecodeError:
                raise Undecodable(f"field {number} is a string, and no UTF-8") from None
        elif kind is _BLOB:
            values[number - 1] = body[at:stop]
        else:
            node: list[Any] = [0, ""]
            _fill(body, at, stop, _NODE, node)
            values[number - 1] = (*values[number - 1], Node(*node))
        at = stop


def _key(key: int) -> tuple[int, int]:
    number = key >> 3
    if not number or key > _U32:
        raise Undecodable(f"{key} is no key of a field")
    return number, key & 7


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where it ends."""
    result = shift = 0
    while True:
        if at >= end:
            raise Undecodable("a number is cut off")
        byte = body[at]
        at += 1
        if byte < 0x80:
            if shift == 63 and byte > 1:
                raise Undecodable("a number of more than 64 bits")
            return result | byte << shift, at
        result |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise Undecodable("a number of more than 64 bits")


def _skip(body: bytes, at: int, end: int, number: int, wire_type: int) -> int:
    """Pass over a field that nobody knows; where it ends. Groups may be within groups."""
    groups: list[int] = []
    while True:
        match wire_type:
            case 0:  # _VARINT
                _, at = _varint(body, at, end)
            case 1:
                at += 8
            case 2:
                length, at = _varint(body, at, end)
                at += length
            case 3:
                groups.append(number)
                if len(groups) > 100:
                    raise Undecodable("groups within groups, more than 100 deep")
            case 4:
                if not groups or groups.pop() != number:
                    raise Undecodable(f"a group {number} ends that has not begun")
            case 5:
                at += 4
            case _:
                raise Undecodable(f"wire type {wire_type} is none")
        if at > end:
            raise Undecodable(f"field {number} is cut off")
        if not groups:
            return at
        key, at = _varint(body, at, end)
        number, wire_type = _key(key)


# --- responses


class Delivered(msgspec.Struct, frozen=True, gc=False):
    lease_id: int = 0
    offset: int = 0
    priority: int = 0
    content_type: int = 0
    payload: bytes = b""
    ts_ms: int = 0


class StatsResult(msgspec.Struct, frozen=True, gc=False):
    last_applied: int = 0
    current_leader: int = 0
    """0: there is none."""
    current_term: int = 0
    last_log_index: int = 0
    is_leader: bool = False
    topics: int = 0
    messages: int = 0
    in_flight: int = 0


OK: Final = bytes.fromhex("000000021a00")
"""The frame that says Ok."""


def produced(offset: int) -> bytes:
    if not offset:
        return b"\x00\x00\x00\x02\x0a\x00"
    number = _number(offset)
    size = len(number) + 1
    return b"\x00\x00\x00%c\x0a%c\x08%b" % (size + 2, size, number)


def polled(items: Iterable[Delivered]) -> bytes:
    return framed(2, b"".join(delivered(one) for one in items))


def polled_of(encoded: Iterable[bytes]) -> bytes:
    """A reply of items that `delivered` has encoded."""
    return framed(2, b"".join(encoded))


def delivered(one: Delivered) -> bytes:
    """An item of Polled, with its key and length before it."""
    parts = []
    if one.lease_id:
        parts.append(b"\x08" + _number(one.lease_id))
    if one.offset:
        parts.append(b"\x10" + _number(one.offset))
    if one.priority:
        parts.append(b"\x18" + _number(one.priority))
    if one.content_type:
        parts.append(b"\x20" + _number(one.content_type))
    if one.payload:
        parts.append(b"\x2a" + _number(len(one.payload)))
        parts.append(one.payload)
    if one.ts_ms:
        parts.append(b"\x30" + _number(one.ts_ms))
    item = b"".join(parts)
    return b"\x0a" + _number(len(item)) + item


def error(code: str, message: str, *, leader_addr: str = "", retry_after_ms: int = 0) -> bytes:
    body = _text(1, code) + _text(2, message) + _text(3, leader_addr)
    if retry_after_ms:
        body += b"\x20" + _number(retry_after_ms)
    return framed(4, body)


def stats(figures: StatsResult) -> bytes:
    values = (getattr(figures, name) for name in figures.__struct_fields__)
    return framed(
        5,
        b"".join(
            _number(number << 3) + _number(int(value))
            for number, value in enumerate(values, 1)
            if value
        ),
    )


def framed(kind: int, message: bytes) -> bytes:
    """A frame with one Response of that kind."""
    head = _number(kind << 3 | _BYTES) + _number(len(message))
    return LENGTH.pack(len(head) + len(message)) + head + message


def _text(number: int, text: str) -> bytes:
    data = text.encode()
    return _number(number << 3 | _BYTES) + _number(len(data)) + data if data else b""


_SMALL = [bytes((n,)) for n in range(128)]


def _number(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    parts = bytearray()
    value &= _U64
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
