"""Messages as streams send them: Server-Sent Events, or texts of a WebSocket. Pure.

SSE          id: 42                                  a chunk of HTTP/1.1 each
             data: {"id": "42", "topic": "orders", "offset": "42", "value": ...}

WebSocket    {"id": "42", "topic": "orders", ...}    a text frame each, never fragmented
"""

from __future__ import annotations

from struct import pack
from typing import Any, Protocol

import msgspec

RETRY_MS = 1000
"""How soon a browser comes back to a stream that ended."""


class EventForm(Protocol):
    """How a stream writes."""

    heartbeat: bytes

    def event(self, data: bytes, id: str | None) -> bytes:
        """A message, or what is said of several: JSON in one line."""
        ...

    def place(self, id: str) -> bytes:
        """Where a stream begins, for a client that comes back before its first message."""
        ...

    def error(self, said: dict[str, Any]) -> bytes: ...
    def end(self, code: int, reason: str) -> bytes:
        """The last that is sent."""
        ...


class ServerSentEvents:
    heartbeat = b"3\r\n:\n\n\r\n"

    def event(self, data: bytes, id: str | None) -> bytes:
        text = (
            b"data: %b\n\n" % data
            if id is None
            else b"id: %b\ndata: %b\n\n"
            % (
                id.encode(),
                data,
            )
        )
        return chunk(text)

    def place(self, id: str) -> bytes:
        return chunk(b"id: %b\n\n" % id.encode())  # browsers remember it, and tell no page

    def error(self, said: dict[str, Any]) -> bytes:
        # Not "error": browsers use that name for a connection that was lost.
        return chunk(b"event: failed\ndata: %b\n\n" % msgspec.json.encode(said))

    def end(self, code: int, reason: str) -> bytes:
        return b""  # the last chunk is the server's


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


TEXT, CLOSE, PING = 0x81, 0x88, 0x89


class WebSocketTexts:
    heartbeat = bytes((PING, 0))

    def event(self, data: bytes, id: str | None) -> bytes:
        return frame(TEXT, data)

    def place(self, id: str) -> bytes:
        return frame(TEXT, msgspec.json.encode({"id": id}))

    def error(self, said: dict[str, Any]) -> bytes:
        return frame(TEXT, msgspec.json.encode(said))

    def end(self, code: int, reason: str) -> bytes:
        return frame(CLOSE, pack(">H", code) + reason.encode()[:120])


def frame(kind: int, data: bytes) -> bytes:
    """RFC 6455, 5.2: what a server sends is not masked."""
    size = len(data)
    if size < 126:
        return bytes((kind, size)) + data
    if size < 1 << 16:
        return pack(">BBH", kind, 126, size) + data
    return pack(">BBQ", kind, 127, size) + data


SSE, WEB_SOCKET = ServerSentEvents(), WebSocketTexts()
