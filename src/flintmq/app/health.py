"""The health endpoint of `flintmq worker`: GET /health, /ready and /metrics, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

HEAD_BYTES_MAX = 8192
HEAD_SECONDS = 5.0


class WorkerHealth(msgspec.Struct):
    """What /health and /ready answer."""

    status: str
    troubles: list[str] = []


class HealthServer:
    def __init__(self, troubles: Callable[[], list[str]], metrics: Callable[[], str]) -> None:
        self._troubles, self._metrics = troubles, metrics

    async def start(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self.answer(head))
                await writer.drain()
        writer.close()

    def answer(self, head: bytes) -> bytes:
        """What a request is answered with."""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"GET only\n")
        if path == b"/metrics":
            return _response("200 OK", "text/plain; version=0.0.4", self._metrics().encode())
        if path not in (b"/health", b"/ready"):
            text = b"there are /health, /ready and /metrics\n"
            return _response("404 Not Found", "text/plain", text)
        troubles = self._troubles()
        body = msgspec.json.encode(WorkerHealth("failing" if troubles else "ok", troubles))
        status = "503 Service Unavailable" if troubles else "200 OK"
        return _response(status, "application/json", body)


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
