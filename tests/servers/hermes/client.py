"""A HermesMQ client for tests: a socket, frames, the protobuf runtime. Nothing of ours."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any, Self

from .schema import Response, frame_of, request

SECONDS = 60


class Refused(Exception):
    """The server answered with an Error."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.code, self.message = error.code, error.message
        self.leader_addr, self.retry_after_ms = error.leader_addr, error.retry_after_ms


class HermesClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, address: tuple[str, int], **options: Any) -> Self:
        return cls(*await asyncio.open_connection(*address, **options))

    # --- frames

    def send(self, kind: str, **fields: Any) -> None:
        self.writer.write(frame_of(request(kind, **fields)))

    async def read(self, seconds: float = SECONDS) -> Any:
        """The next Response, whatever it is."""
        async with asyncio.timeout(seconds):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return Response.FromString(await self.reader.readexactly(length))

    async def read_ok(self, seconds: float = SECONDS) -> Any:
        """The part that the next Response has; an Error is raised."""
        response = await self.read(seconds)
        kind = response.WhichOneof("kind")
        if kind == "error":
            raise Refused(response.error)
        return getattr(response, kind)

    async def is_closed(self, seconds: float = SECONDS) -> bool:
        """Whether the server closes the connection without a further word."""
        try:
            async with asyncio.timeout(seconds):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def is_silent(self, seconds: float = 0.02) -> bool:
        try:
            await self.read(seconds)
        except TimeoutError:
            return True
        return False

    async def call(self, kind: str, **fields: Any) -> Any:
        self.send(kind, **fields)
        return await self.read_ok(SECONDS + fields.get("wait_ms", 0) / 1000)

    # --- the operations

    async def produce(self, topic: str, payload: bytes = b"", **fields: Any) -> int:
        offset: int = (await self.call("produce", topic=topic, payload=payload, **fields)).offset
        return offset

    async def poll(self, topic: str, group: str = "g", **fields: Any) -> list[Any]:
        return list((await self.call("poll", topic=topic, group=group, **fields)).items)

    async def payloads(self, topic: str, group: str = "g", **fields: Any) -> list[bytes]:
        return [item.payload for item in await self.poll(topic, group, **fields)]

    async def ack(self, topic: str, lease_id: int, group: str = "g") -> None:
        await self.call("ack", topic=topic, group=group, lease_id=lease_id)

    async def nack(self, topic: str, lease_id: int, group: str = "g") -> None:
        await self.call("nack", topic=topic, group=group, lease_id=lease_id)

    async def commit(self, topic: str, offset: int, group: str = "g") -> None:
        await self.call("commit", topic=topic, group=group, offset=offset)

    async def pushed(self, seconds: float = SECONDS) -> Any:
        """The message that a subscription gets next."""
        items = (await self.read_ok(seconds)).items
        assert len(items) == 1, "a push has exactly one message"
        return items[0]

    # --- the end

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):  # the server was faster
            await self.writer.wait_closed()

    def abort(self) -> None:
        """As a process that dies: no goodbye."""
        transport: asyncio.WriteTransport = self.writer.transport
        transport.abort()

    def reset(self) -> None:
        """As a machine that dies and comes back: what is under way is not waited for."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def without_nodelay(address: tuple[str, int]) -> socket.socket:
    """A blocking socket as most programs have it: Nagle's algorithm is on."""
    made = socket.create_connection(address)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    return made
