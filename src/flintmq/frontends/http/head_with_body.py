"""The head of an answer leaves with the beginning of its body.

uvicorn writes the two one after the other: two packets, and a client that is woken twice. That was
the largest part of what a small answer costs.
"""

from __future__ import annotations

import asyncio

_BEGINS = b"HTTP/1.1 "


class HeadWithBody:
    """The transport of a connection, as those see it who answer."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if not head and data.startswith(_BEGINS) and data[9:10] != b"1":  # not "100 Continue"
            self._head = data
        else:
            self._transport.write(head + data)

    def flush(self) -> None:
        """There is no body."""
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()
