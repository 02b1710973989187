"""A BlipMQ client written from its byte tables. It shares no code with the codecs it tests."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import NamedTuple

HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL, DELIVER = range(1, 11)
WAIT = 10.0


class Got(NamedTuple):
    type: int
    id: int
    payload: bytes


class Delivery(NamedTuple):
    qos: int
    tag: int
    topic: str
    message: bytes


def frame(type: int, id: int, payload: bytes = b"") -> bytes:
    return (9 + len(payload)).to_bytes(4, "big") + bytes([type]) + id.to_bytes(8, "big") + payload


def text(data: str | bytes) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return len(raw).to_bytes(2, "big") + raw


def publish_payload(
    topic: str | bytes,
    message: bytes,
    qos: int,
    *,
    ttl: int | None = None,
    key: bytes | None = None,
) -> bytes:
    flags = qos | (0x80 if ttl is not None else 0) | (0x40 if key is not None else 0)
    optional = (b"" if ttl is None else ttl.to_bytes(4, "big")) + (
        b"" if key is None else text(key)
    )
    return bytes([flags]) + optional + text(topic) + message


def nack_of(got: Got) -> tuple[int, str]:
    assert got.type == NACK, got
    code, length = struct.unpack(">HH", got.payload[:4])
    assert len(got.payload) == 4 + length
    return code, got.payload[4:].decode()


class RawBlip:
    """One connection. `ask` sends a frame and returns the next that comes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.last_id = 0

    async def __aenter__(self) -> RawBlip:
        self.reader, self.writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, type: int, payload: bytes = b"", id: int | None = None) -> int:
        if id is None:
            self.last_id += 1
            id = self.last_id
        self.writer.write(frame(type, id, payload))
        return id

    async def next(self) -> Got:
        head = await asyncio.wait_for(self.reader.readexactly(4), WAIT)
        body = await asyncio.wait_for(self.reader.readexactly(int.from_bytes(head, "big")), WAIT)
        return Got(body[0], int.from_bytes(body[1:9], "big"), body[9:])

    async def ask(self, type: int, payload: bytes = b"", id: int | None = None) -> Got:
        self.send(type, payload, id)
        return await self.next()

    async def refused(
        self, type: int, payload: bytes = b"", id: int | None = None
    ) -> tuple[int, str]:
        sent = self.send(type, payload, id)
        got = await self.next()
        assert got.id == sent
        return nack_of(got)

    async def is_closed(self) -> bool:
        """Whether the other side has ended it, without a word."""
        try:
            return await asyncio.wait_for(self.reader.read(1), WAIT) == b""
        except ConnectionResetError:
            return True

    # --- the verbs

    async def login(self, version: int = 1, key: str = "any") -> RawBlip:
        got = await self.ask(HELLO, version.to_bytes(2, "big"))
        assert got == Got(ACK, self.last_id, bytes(8))
        got = await self.ask(AUTH, text(key))
        assert got == Got(ACK, self.last_id, bytes(8)), nack_of(got)
        return self

    async def ping(self) -> None:
        """Answered after everything before it; nothing else may come first."""
        got = await self.ask(PING)
        assert got == Got(PONG, self.last_id, b""), got

    async def subscribe(
        self,
        topic: str | bytes,
        qos: int = 0,
        *,
        group: str | None = None,
        offset: int | None = None,
    ) -> int:
        flags = qos | (0x80 if group is not None else 0) | (0x40 if offset is not None else 0)
        payload = text(topic) + bytes([flags])
        payload += b"" if group is None else text(group)
        payload += b"" if offset is None else offset.to_bytes(8, "big")
        sent = self.send(SUBSCRIBE, payload)
        got = await self.next()
        assert got.type == ACK, nack_of(got)
        assert got.id == sent
        number = int.from_bytes(got.payload, "big")
        assert number
        return number

    def publish(
        self,
        topic: str | bytes,
        message: bytes,
        qos: int = 0,
        *,
        ttl: int | None = None,
        key: bytes | None = None,
    ) -> int:
        return self.send(PUBLISH, publish_payload(topic, message, qos, ttl=ttl, key=key))

    async def poll(self, number: int) -> Delivery | None:
        """A PING behind the POLL: its answer shows that the POLL was met with silence."""
        asked = self.send(POLL, number.to_bytes(8, "big"))
        ping = self.send(PING)
        got = await self.next()
        if got == Got(PONG, ping, b""):
            return None
        assert got.type == PUBLISH, nack_of(got)
        assert await self.next() == Got(PONG, ping, b"")
        (length,) = struct.unpack(">H", got.payload[1:3])
        topic, message = got.payload[3 : 3 + length], got.payload[3 + length :]
        if got.payload[0] == 0:
            assert got.id == asked
        return Delivery(got.payload[0], got.id, topic.decode(), message)

    async def delivery(self) -> Delivery:
        got = await self.next()
        assert got.type == DELIVER, got
        qos, tag, length = struct.unpack(">BQH", got.payload[:11])
        assert got.id == tag
        topic, message = got.payload[11 : 11 + length], got.payload[11 + length :]
        return Delivery(qos, tag, topic.decode(), message)

    def ack(self, number: int, tag: int) -> None:
        self.send(ACK, number.to_bytes(8, "big"), tag)


# --- the first protocol


def command(action: int, topic: bytes, payload: bytes = b"", ttl: int = 0) -> bytes:
    """A ClientCommand, laid out as the official library does for SUB, with all fields there."""
    name = len(topic).to_bytes(4, "little") + topic + b"\0"
    name += bytes(-len(name) % 4)
    data = len(payload).to_bytes(4, "little") + payload
    vtable = struct.pack("<HHHHHH", 12, 24, 20, 4, 8, 12)  # action, topic, payload, ttl
    # the table is at 20: i32 back to the vtable, topic, payload, ttl (at 32), action
    head = struct.pack("<I", 20) + bytes(4) + vtable
    table = struct.pack("<iIIQB3x", 12, 20, 16 + len(name), ttl, action)
    body = head + table + name + data
    return len(body).to_bytes(4, "big") + body


class FlatMessage(NamedTuple):
    id: int
    payload: bytes
    timestamp: int
    ttl: int


class RawFlat:
    """One connection of the first protocol."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    async def __aenter__(self) -> RawFlat:
        self.reader, self.writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, action: int, topic: bytes, payload: bytes = b"", ttl: int = 0) -> None:
        self.writer.write(command(action, topic, payload, ttl))

    async def next(self) -> bytes:
        head = await asyncio.wait_for(self.reader.readexactly(4), WAIT)
        return await asyncio.wait_for(self.reader.readexactly(int.from_bytes(head, "big")), WAIT)

    async def subscribe(self, topic: bytes) -> None:
        self.send(1, topic)
        body = await self.next()
        assert body[0] == 0
        assert _vector(body[1:], 0) == topic
        assert _vector(body[1:], 1) == b"subscribed"

    async def message(self) -> FlatMessage:
        body = await self.next()
        assert body[0] == 1
        data = body[1:]
        return FlatMessage(_number(data, 0), _vector(data, 1), _number(data, 2), _number(data, 3))

    async def is_closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), WAIT) == b""
        except ConnectionResetError:
            return True


def _field(data: bytes, slot: int) -> int:
    (table,) = struct.unpack_from("<I", data, 0)
    (back,) = struct.unpack_from("<i", data, table)
    (place,) = struct.unpack_from("<H", data, table - back + 4 + 2 * slot)
    assert place
    return int(table + place)


def _number(data: bytes, slot: int) -> int:
    at = _field(data, slot)
    assert at % 8 == 0
    return int(struct.unpack_from("<Q", data, at)[0])


def _vector(data: bytes, slot: int) -> bytes:
    at = _field(data, slot)
    at += struct.unpack_from("<I", data, at)[0]
    assert at % 4 == 0
    (length,) = struct.unpack_from("<I", data, at)
    return data[at + 4 : at + 4 + length]
