"""The client's end of one connection: hello, opening exchange, then frames both ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from ..errors import FlintError, InvalidRequest
from ..wire.frames import FRAME_BYTES_MAX, Buffer, Frame, FrameDecoder
from ..wire.hello import HELLO_BYTES, check_server_hello, client_hello, parse_hello
from .address import Address

WRITE_BYTES_HIGH = 1024 * 1024


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._hello: bytes | None = b""
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._flushing = False
        self._first: asyncio.Future[Frame] = self._loop.create_future()
        self._early: list[Frame] = []
        self._on_frames: Callable[[list[Frame]], None] | None = None
        self._on_lost: Callable[[Exception | None], None] | None = None
        self._why: Exception | None = None
        self.heard_at = self._loop.time()
        self.bytes_sent = self.bytes_received = 0

    @property
    def frame_bytes_max(self) -> int:
        return self._decoder.frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, value: int) -> None:
        self._decoder.frame_bytes_max = value

    # --- opening

    async def opening(self, frame: list[Buffer], seconds: float) -> Frame:
        """Exchange hellos and the first frames."""
        self.write([client_hello(), *frame])
        return await asyncio.wait_for(self._first, seconds)

    def listen(
        self,
        on_frames: Callable[[list[Frame]], None],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        self._on_frames, self._on_lost = on_frames, on_lost
        early, self._early = self._early, []
        if early:
            self._handle(early)
        if self._transport is None:
            self._loop.call_soon(on_lost, self._why)

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        self.bytes_received += len(data)
        try:
            if self._hello is not None:
                whole = self._hello + data
                if len(whole) < HELLO_BYTES:
                    self._hello = whole
                    return
                check_server_hello(parse_hello(whole[:HELLO_BYTES]))
                self._hello = None
                data = whole[HELLO_BYTES:]
            frames = self._decoder.feed(data)
        except FlintError as error:
            self.abort(error)
            return
        if frames and not self._first.done():
            self._first.set_result(frames.pop(0))
        if not frames:
            return
        if self._on_frames is None:
            self._early += frames
        else:
            self._handle(frames)

    def _handle(self, frames: list[Frame]) -> None:
        assert self._on_frames is not None
        try:
            self._on_frames(frames)
        except FlintError as error:
            self.abort(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._why = self._why or error
        if not self._first.done():
            cause = self._why or ConnectionError("it closed the connection")
            self._first.set_exception(cause)
            self._first.exception()
        if self._on_lost is not None:
            self._on_lost(self._why)

    # --- the link's side

    def write(self, parts: list[Buffer]) -> None:
        """Send what is gathered in this turn of the loop with one write at its end."""
        self._out += parts
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flushing = False
        out, self._out = self._out, []
        if out and self._transport is not None:
            data = out[0] if len(out) == 1 else b"".join(out)
            self.bytes_sent += len(data)
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, why: Exception | None = None) -> None:
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()


async def connect(address: Address, seconds: float) -> Connection:
    loop = asyncio.get_running_loop()
    host, port = address
    try:
        _, connection = await asyncio.wait_for(
            loop.create_connection(Connection, host, port), seconds
        )
    except ValueError as error:  # from the codec of names, or of a NUL in one
        raise InvalidRequest(f"{host!r} is no name of a host: {error}") from None
    return connection
