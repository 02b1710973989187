"""BlipMQ's binary protocol, versions 1 (POLL) and 2 (pushed deliveries): bytes and values. Pure.

    byte 0          4      5                  13
         +----------+------+------------------+---------+
         | length   | type | correlation id   | payload |    big-endian everywhere
         +----------+------+------------------+---------+
                    |<----------- length -------------->|    9 to 16,777,216

    HELLO      u16 version
    AUTH       u16 length, key
    PUBLISH    1: u8 qos, u16 length, topic, message
               2: u8 flags, [u32 ttl_ms], [u16 length, key], u16 length, topic, message
    SUBSCRIBE  1: u16 length, topic, u8 qos, anything
               2: u16 length, topic, u8 flags, [u16 length, group], [u64 offset]
    ACK, POLL  u64 subscription
    NACK       u16 code, u16 length, text
    PING, PONG anything, nothing
    DELIVER    u8 qos, u64 tag, u16 length, topic, message

The two lowest bits of flags are the QoS; bit 7 says that the first of the optional fields is there,
bit 6 the second. To acknowledge a message, ACK has its tag as the correlation id.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ...errors import MalformedFrame

HEAD = Struct(">IBQ")
HEAD_BYTES = HEAD.size
NUMBERED = Struct(">IBQQ")
"""A whole frame of ACK or POLL."""
LENGTH_BYTES = 4
LENGTH_MIN = 9
LENGTH_MAX = 16 * 1024 * 1024
TOPIC_BYTES_MAX = 65_535

_LENGTH = Struct(">I")
_U16 = Struct(">H")
_U32 = Struct(">I")
_U64 = Struct(">Q")
_DELIVER = Struct(">IBQBQH")
_PUBLISH = Struct(">IBQBH")

FIRST_FIELD, SECOND_FIELD, QOS_BITS = 0x80, 0x40, 0x03


class Type(IntEnum):
    HELLO = 0x01
    AUTH = 0x02
    PUBLISH = 0x03
    SUBSCRIBE = 0x04
    ACK = 0x05
    NACK = 0x06
    PING = 0x07
    PONG = 0x08
    POLL = 0x09
    DELIVER = 0x0A


class BlipFrame(NamedTuple):
    type: int
    id: int
    """The correlation id."""
    payload: bytes


class BlipFrameDecoder:
    """Cuts a byte stream into frames. Feed it any amount; it keeps the remainder.

    A length that is not allowed is found as soon as it is there, a type that is not known once its
    frame is whole: MalformedFrame, and what came before it is in `frames` all the same.
    """

    def __init__(self, *, length_max: int = LENGTH_MAX, type_max: int = Type.POLL) -> None:
        self.length_max = length_max
        self.type_max = type_max
        self._buffer = bytearray()

    @property
    def kept_bytes(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes, frames: list[BlipFrame]) -> None:
        """Add the whole frames to `frames`."""
        buffer = self._buffer
        if buffer:
            buffer += data
            whole = bytes(buffer) if self._has_frame(buffer) else b""
            if not whole:
                return
            buffer.clear()
        else:
            whole = data
        at, end = 0, len(whole)
        length_max, type_max = self.length_max, self.type_max
        try:
            while end - at >= HEAD_BYTES:
                length, type, id = HEAD.unpack_from(whole, at)
                if not LENGTH_MIN <= length <= length_max:
                    raise self._no_length(length)
                stop = at + LENGTH_BYTES + length
                if stop > end:
                    return
                if not 1 <= type <= type_max:
                    raise MalformedFrame(f"unknown frame type {type:#04x}")
                frames.append(BlipFrame(type, id, whole[at + HEAD_BYTES : stop]))
                at = stop
            if end - at >= LENGTH_BYTES:
                (length,) = _LENGTH.unpack_from(whole, at)
                if not LENGTH_MIN <= length <= length_max:
                    raise self._no_length(length)
        finally:
            if at < end:
                buffer += whole[at:] if at else whole

    def _no_length(self, length: int) -> MalformedFrame:
        return MalformedFrame(
            f"a frame has {LENGTH_MIN} to {self.length_max:,} bytes, not {length:,}"
        )

    def _has_frame(self, buffer: bytearray) -> bool:
        """Whether there is something to cut off, so that a large frame is not copied at each of
        its pieces."""
        if len(buffer) < LENGTH_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(buffer)
        return not LENGTH_MIN <= length <= self.length_max or len(buffer) >= LENGTH_BYTES + length


class BlipPublish(NamedTuple):
    qos: int
    topic: bytes
    message: bytes
    ttl_ms: int = 0
    key: bytes | None = None


class BlipSubscribe(NamedTuple):
    qos: int
    topic: bytes
    group: bytes | None = None
    from_offset: int | None = None


# --- what clients send; None where the bytes are none


def decode_hello(payload: bytes) -> int | None:
    return _U16.unpack(payload)[0] if len(payload) == 2 else None


def decode_auth(payload: bytes) -> str | None:
    if len(payload) < 2 or len(payload) != 2 + _U16.unpack_from(payload)[0]:
        return None
    return _text(payload[2:])


def decode_number(payload: bytes) -> int | None:
    """The subscription of ACK and POLL."""
    return _U64.unpack(payload)[0] if len(payload) == 8 else None


def decode_publish(payload: bytes, version: int) -> BlipPublish | None:
    """The topic is UTF-8, and as long as it says; the QoS may be any."""
    if len(payload) < 3:
        return None
    flags, at = payload[0], 1
    ttl_ms, key = 0, None
    if version > 1:
        if flags & FIRST_FIELD:
            if len(payload) < at + 4:
                return None
            (ttl_ms,) = _U32.unpack_from(payload, at)
            at += 4
        if flags & SECOND_FIELD:
            key = _counted(payload, at)
            if key is None:
                return None
            at += 2 + len(key)
        flags &= ~(FIRST_FIELD | SECOND_FIELD)
    topic = _counted(payload, at)
    if topic is None:
        return None
    return BlipPublish(flags, topic, payload[at + 2 + len(topic) :], ttl_ms, key)


def decode_subscribe(payload: bytes, version: int) -> BlipSubscribe | None:
    topic = _counted(payload, 0)
    if topic is None or len(payload) < 3 + len(topic):
        return None
    at = 2 + len(topic)
    flags = payload[at]
    at += 1
    group = from_offset = None
    if version > 1:
        if flags & FIRST_FIELD:
            group = _counted(payload, at)
            if group is None:
                return None
            at += 2 + len(group)
        if flags & SECOND_FIELD:
            if len(payload) < at + 8:
                return None
            (from_offset,) = _U64.unpack_from(payload, at)
        flags &= ~(FIRST_FIELD | SECOND_FIELD)
    return BlipSubscribe(flags, topic, group, from_offset)


def _counted(payload: bytes, at: int) -> bytes | None:
    """A field with its length before it."""
    if len(payload) < at + 2:
        return None
    stop = at + 2 + _U16.unpack_from(payload, at)[0]
    return payload[at + 2 : stop] if stop <= len(payload) else None


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# --- what we send


def encode_frame(type: int, id: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(LENGTH_MIN + len(payload), type, id) + payload


def encode_ack(id: int, subscription: int = 0) -> bytes:
    return NUMBERED.pack(LENGTH_MIN + 8, Type.ACK, id, subscription)


def encode_nack(id: int, code: int, text: str) -> bytes:
    said = text.encode()[:1024].decode(errors="ignore").encode()
    return encode_frame(Type.NACK, id, _U16.pack(code) + _U16.pack(len(said)) + said)


def encode_publish(id: int, qos: int, topic: bytes, message: bytes) -> bytes:
    """A message of version 1, as the answer to a POLL."""
    length = LENGTH_MIN + 3 + len(topic) + len(message)
    return _PUBLISH.pack(length, Type.PUBLISH, id, qos, len(topic)) + topic + message


def encode_deliver(qos: int, tag: int, topic: bytes, message: bytes) -> bytes:
    """A message of version 2; its tag is the correlation id, too."""
    length = LENGTH_MIN + 11 + len(topic) + len(message)
    return _DELIVER.pack(length, Type.DELIVER, tag, qos, tag, len(topic)) + topic + message
