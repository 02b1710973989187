"""An HTTP server that runs on a socket, and a client that knows no better. For tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from flintmq.engine.broker import Broker
from flintmq.frontends.http.server import HttpServer
from flintmq.frontends.http.state import HttpState


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        kind: str = self.json["error"]["kind"]
        return kind


class Line:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def answer(self, method: str = "GET") -> Answer:
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
            size = 0 if method == "HEAD" else int(headers.get("content-length", 0))
            body = await self.reader.readexactly(size)
        return Answer(int(first.split()[1]), headers, body)

    async def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items())
        self.send(f"{method} {path} HTTP/1.1\r\nHost: flint\r\n{lines}\r\n")
        return await self.answer(method)

    async def is_closed(self) -> bool:
        """Whether the other side closes it, with nothing more to read."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


class Running(NamedTuple):
    server: HttpServer
    state: HttpState
    broker: Broker
    address: tuple[str, int]

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            yield Line(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        async with self.line() as line:
            return await line.ask(path, method, **headers)


Start = Callable[..., Awaitable[Running]]
