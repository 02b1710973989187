"""The client's end of one connection: hello, opening exchange, then frames both ways."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import cast

from ...errors import Disconnected, FlintError, InvalidRequest, TlsFailed
from ..tls.pipe import ALERT, HANDSHAKE, TlsPipe
from ..tls.sentences import why_refused
from ..wire.frames import FRAME_BYTES_MAX, Buffer, Frame, FrameDecoder
from ..wire.hello import HELLO_BYTES, MAGIC, check_server_hello, client_hello, parse_hello
from .address import Address, shown
from .tls import ClientTls

WRITE_BYTES_HIGH = 1024 * 1024


class ClientConnection(asyncio.Protocol):
    def __init__(self, address: Address, tls: TlsPipe | None = None) -> None:
        self._address = address
        self._tls = tls
        self._is_first = True
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._hello: bytes | None = b""
        self.features = 0
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

    async def opening(self, frame: list[Buffer]) -> Frame:
        """Exchange hellos and the first frames."""
        self.write([client_hello(), *frame])
        return await self._first

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
        if self._tls is not None:
            self._tls.advance()
            transport.write(self._tls.outgoing())

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        if self._tls is not None:
            try:
                data = self._decrypted(data)
            except FlintError as error:
                self._why = self._why or error
                if self._transport is not None:
                    self._transport.close()  # what they should hear of it still goes out
                return
            if not data:
                return
        self._take(data)

    def _decrypted(self, data: bytes) -> bytes:
        assert self._tls is not None
        assert self._transport is not None
        if self._is_first:
            self._is_first = False
            if data[0] not in (HANDSHAKE, ALERT):
                raise TlsFailed(shown(self._address), _why_no_tls(data))
        was_open = self._tls.is_open
        self._tls.take(data)
        try:
            plain = self._tls.advance()
        except ssl.SSLError as error:
            self._transport.write(self._tls.outgoing())  # they should know too
            why = why_refused(error, self._address[0])
            if why is not None:
                raise TlsFailed(shown(self._address), why) from None
            raise Disconnected(shown(self._address), f"TLS: {error.reason or error}") from None
        outgoing = self._tls.outgoing()
        if outgoing:
            self._transport.write(outgoing)
        if self._tls.is_open and not was_open:
            self.flush()  # what has waited for the handshake
        if self._tls.is_ended:
            self._transport.close()
        return plain

    def _take(self, data: bytes) -> None:
        self.bytes_received += len(data)
        try:
            if self._hello is not None:
                whole = self._hello + data
                if len(whole) < HELLO_BYTES:
                    self._hello = whole
                    return
                answer = parse_hello(whole[:HELLO_BYTES])
                check_server_hello(answer)
                self.features = answer.features
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

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._why = self._why or exc
        if not self._first.done():
            cause = self._why or ConnectionError(self._why_closed())
            self._first.set_exception(cause)
            self._first.exception()
        if self._on_lost is not None:
            self._on_lost(self._why)

    def _why_closed(self) -> str:
        if self._tls is not None and not self._tls.is_open:
            return "the broker closed the connection during the TLS handshake"
        return "the broker closed the connection"

    # --- the link's side

    def write(self, parts: list[Buffer]) -> None:
        """Send what is gathered in this turn of the loop with one write at its end."""
        self._out += parts
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def write_now(self, work: Callable[[], None]) -> None:
        """Do what writes, and send that at once: this turn of the loop is over."""
        self._flushing = True  # no flush of its own is needed
        try:
            work()
        finally:
            self.flush()

    def flush(self) -> None:
        self._flushing = False
        if self._tls is not None and not self._tls.is_open:
            return
        out, self._out = self._out, []
        if out and self._transport is not None:
            data = out[0] if len(out) == 1 else b"".join(out)
            self.bytes_sent += len(data)
            if self._tls is not None:
                data = self._tls.encrypt(data)
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        if self._transport is not None:
            if self._tls is not None:
                self._transport.write(self._tls.farewell())
            self._transport.close()

    def abort(self, why: Exception | None = None) -> None:
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()


def _why_no_tls(data: bytes) -> str:
    if MAGIC.startswith(data[:4]):
        return (
            "the broker does not use TLS on this port; connect with flint:// instead of "
            "flints://, or set tls_cert and tls_key on the broker"
        )
    return "the server on this port does not use TLS; check that it is the port of a broker"


async def connect(address: Address, tls: ClientTls | None = None) -> ClientConnection:
    loop = asyncio.get_running_loop()
    host, port = address
    pipe = None if tls is None else tls.pipe(host)
    try:
        _, connection = await loop.create_connection(
            lambda: ClientConnection(address, pipe), host, port
        )
    except ValueError as error:  # from the codec of names, or of a NUL in one
        raise InvalidRequest(f"{host!r} is not a valid host name: {error}") from None
    return connection
