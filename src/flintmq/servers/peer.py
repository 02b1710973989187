"""The other side of a connection: its address, its socket, whether it is read from.

What is said over it is each protocol's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import cast

WRITE_BYTES_HIGH = 1024 * 1024


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.peer = self.host = "?"
        self.bytes_received = self.bytes_sent = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._holding: set[str] = set()
        self._deadline: asyncio.TimerHandle | None = None

    def _meet(self, transport: asyncio.BaseTransport) -> asyncio.Transport:
        """Who it is, and the socket as we want it."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.host, self.peer = str(address[0]), f"{address[0]}:{address[1]}"
        else:
            self.host, self.peer = "local", str(address or "local")
        set_socket_options(self._transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        return self._transport

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def set_deadline(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        """Until when something has to be heard, and what is done else: it is cut off, unless told
        otherwise. None: for as long as it likes."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self._loop.call_later(seconds, then or self.abort)

    def hold(self, why: str) -> None:
        """Read no more for now: the other side feels it."""
        self._holding.add(why)
        if self.is_open:
            assert self._transport is not None
            with contextlib.suppress(RuntimeError):
                self._transport.pause_reading()

    def go_on(self, why: str) -> None:
        self._holding.discard(why)
        if self.is_open and not self._holding:
            assert self._transport is not None
            with contextlib.suppress(RuntimeError):
                self._transport.resume_reading()

    def abort(self) -> None:
        """End it at once; what is written and not sent is lost."""
        if self._transport is not None:
            self._transport.abort()


def set_socket_options(transport: asyncio.Transport) -> None:
    """No delay, and the kernel looks whether the other side is still there."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
