"""Targets of webhooks: small HTTP servers that do as they are told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Got:
    """A request."""

    headers: dict[str, str]
    body: bytes
    path: str = "/"


OK = b"HTTP/1.1 204 No Content\r\n\r\n"
Answering = Callable[[Got], bytes | Iterator[bytes] | None]


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Because", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Target:
    """`answering` gives the bytes to answer with, also one after the other; None: say nothing;
    empty: hang up."""

    answering: Answering = lambda got: OK
    got: list[Got] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    sent: int = 0
    """Bytes that were taken from it."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def wait_for(self, count: int) -> list[Got]:
        while len(self.got) < count:
            self._news.clear()
            await self._news.wait()
        return self.got

    async def wait_a_moment(self) -> None:
        """For the next request, or a little."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self._news.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").strip().split("\r\n")
                pairs = (line.split(": ", 1) for line in lines)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers["content-length"]))
                got = Got(headers, body, first.split()[1])
                self.got.append(got)
                self._news.set()
                said = self.answering(got)
                if said is None:
                    await asyncio.Event().wait()
                elif not said:
                    return
                else:
                    for piece in [said] if isinstance(said, bytes) else said:
                        writer.write(piece)
                        await writer.drain()
                        self.sent += len(piece)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def target(
    answering: Answering = lambda got: OK,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Target]:
    made = Target(answering)
    server = await asyncio.start_server(made._serve, host, port, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        server.close_clients() if hasattr(server, "close_clients") else None
