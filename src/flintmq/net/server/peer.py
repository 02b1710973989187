"""The other side of a connection: its address, its socket, whether it is read from, whether it is
still there.

What is sent over it is each protocol's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, NamedTuple, cast

from ...observe.logs import limited

_log = logging.getLogger(__name__)

WRITE_BYTES_HIGH = 1024 * 1024
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux only."""
GONE_SECONDS = 30.0
"""How long what was sent may stay unacknowledged by the other machine."""
LOOKS = 3
"""How many times in that time it is looked."""


class Peer(asyncio.Protocol):
    reads_at_will: ClassVar[bool] = False
    """Whether it may leave unread what is sent to it, for as long as it likes. The system's own
    watch over machines that are gone takes that for one: then we look by ourselves."""

    def __init__(self) -> None:
        self.peer = self.host = "?"
        self.bytes_received = self.bytes_sent = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: Any = None
        self._holding: set[str] = set()
        self._deadline: asyncio.TimerHandle | None = None
        self._acknowledged = 0  # of bytes_sent, when it was last looked
        self._unheard = 0  # how many times in a row

    def _meet(self, transport: asyncio.BaseTransport) -> asyncio.Transport:
        """Who it is, and the socket as we want it."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._socket = transport.get_extra_info("socket")
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.host, self.peer = str(address[0]), f"{address[0]}:{address[1]}"
        else:
            self.host, self.peer = "local", str(address or "local")
        set_socket_options(self._transport, is_watched=self.reads_at_will and CAN_LOOK)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        return self._transport

    def tell_fault(self, error: Exception) -> None:
        """Log what should never have been raised; the connection ends by it."""
        limited(
            _log,
            logging.ERROR,
            "connection_failed",
            type(error).__name__,
            "a connection failed because of an internal error; please report it",
            exc_info=error,
            peer=self.peer,
        )

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def set_deadline(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        """Until when something has to be heard; else `then` is called, or the connection is cut
        off. None: for as long as it likes."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self._loop.call_later(seconds, then or self.abort)

    def acknowledge(self) -> None:
        """Have the system acknowledge what was received and is not answered.

        A client that writes in small pieces, without TCP_NODELAY, waits for that before its next
        piece (Nagle's algorithm), and the system would keep it back for 40 ms.
        """
        if QUICK_ACK is not None and is_tcp(self._socket):
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)

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

    def is_gone(self) -> bool:
        """Whether its machine has not answered for GONE_SECONDS. Asked LOOKS times in that time.

        Somebody who only does not read is not gone: their system acknowledges what it has room
        for, and answers when it is asked for more."""
        if self.bytes_sent == self._acknowledged or self._transport is None:
            return False
        sock = self._transport.get_extra_info("socket")
        state = tcp_state(sock) if CAN_LOOK and is_tcp(sock) else None
        if state is None or not state.unacknowledged:
            if state is None or not state.is_waiting_for_room:
                self._acknowledged = self.bytes_sent
            self._unheard = 0
            return False
        is_silent = state.silent_ms >= GONE_SECONDS / LOOKS * 1000
        self._unheard = self._unheard + 1 if is_silent else 0
        return self._unheard >= LOOKS

    def abort(self) -> None:
        """End it at once; what is written and not sent is lost."""
        if self._transport is not None:
            self._transport.abort()


class TcpState(NamedTuple):
    unacknowledged: int
    """Segments on their way, or lost."""
    silent_ms: int
    """Since the other machine has acknowledged anything."""
    is_waiting_for_room: bool
    """Whether it has none for more, and is asked now and then."""


CAN_LOOK = hasattr(socket, "TCP_INFO") and hasattr(socket, "TCP_USER_TIMEOUT")  # Linux
_TCP_INFO = Struct("=8B13I")
"""The beginning of Linux' `struct tcp_info`."""
_WINDOW = Struct("=228xI")
"""The same up to what the other side has room for, which older systems do not tell."""


def tcp_state(sock: Any) -> TcpState | None:
    try:
        data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WINDOW.size)
    except OSError:
        return None  # it is closed already
    _, _, _, probes, backoff, _, _, _, *numbers = _TCP_INFO.unpack_from(data)
    has_room = len(data) < _WINDOW.size or bool(_WINDOW.unpack(data)[0])
    # What was on its way when its room ran out counts as unacknowledged, and is asked for.
    unacknowledged = numbers[4] if has_room else 0
    return TcpState(unacknowledged, numbers[12], bool(probes or backoff) or not has_room)


def is_tcp(sock: Any) -> bool:
    return sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6)


def set_socket_options(transport: asyncio.Transport, *, is_watched: bool = False) -> None:
    """No delay, and the kernel looks whether the other side is still there.

    `is_watched`: we do where something was sent to it."""
    sock = transport.get_extra_info("socket")
    if not is_tcp(sock):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    if hasattr(socket, "TCP_USER_TIMEOUT") and not is_watched:
        milliseconds = round(GONE_SECONDS * 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
