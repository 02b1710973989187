"""Clients of streams, for tests: Server-Sent Events by hand, WebSockets by `websockets`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from .running import Line, Running

STREAM = "/api/v1/topics/orders/stream"


class Events:
    """The events of an SSE stream, as a browser takes them apart."""

    def __init__(self, line: Line, head: str) -> None:
        self._line = line
        self.status = int(head.split()[1])
        self.head = head
        self.id: str | None = None
        self.comments = 0
        self._text = ""

    async def next(self) -> Any:
        """The data of the next event; None when the stream has ended."""
        async with asyncio.timeout(60):
            while True:
                block, separator, rest = self._text.partition("\n\n")
                if not separator:
                    piece = await self._chunk()
                    if piece is None:
                        return None
                    self._text += piece
                    continue
                self._text = rest
                fields = [line.partition(": ") for line in block.split("\n")]
                if block.startswith(":"):
                    self.comments += 1
                for name, _, value in fields:
                    if name == "id":
                        self.id = value
                for name, _, value in fields:
                    if name == "data":
                        return json.loads(value)

    async def comment(self) -> None:
        """Wait for a heartbeat."""
        async with asyncio.timeout(60):
            while ":\n\n" not in self._text:
                self._text += await self._chunk() or ""

    async def place(self) -> str:
        """Wait for an event that has only an id; a browser remembers it."""
        async with asyncio.timeout(60):
            while (found := re.search(r"^id: (.+)\n\n", self._text, re.MULTILINE)) is None:
                self._text += await self._chunk() or ""
        return found[1]

    async def values(self, count: int) -> list[str]:
        return [(await self.next())["value"] for _ in range(count)]

    async def _chunk(self) -> str | None:
        try:
            size = int((await self._line.reader.readuntil(b"\r\n")).strip(), 16)
            data = await self._line.reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return data[:-2].decode() if size else None


@asynccontextmanager
async def events(
    running: Running, query: str = "", path: str = STREAM, **headers: str
) -> AsyncIterator[Events]:
    async with running.line() as line:
        lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items())
        line.send(f"GET {path}?{query} HTTP/1.1\r\nHost: f\r\n{lines}\r\n")
        head = (await line.reader.readuntil(b"\r\n\r\n")).decode()
        yield Events(line, head)


def web_socket(running: Running, query: str = "", path: str = STREAM, **more: Any) -> connect:
    host, port = running.address
    return connect(f"ws://{host}:{port}{path}?{query}", proxy=None, **more)


async def text(socket: ClientConnection) -> Any:
    async with asyncio.timeout(60):
        return json.loads(await socket.recv())
