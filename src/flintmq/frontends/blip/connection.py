"""One connection of a BlipMQ client: its protocol, its frames in order, one write per turn.

What frames mean is the session's business. Frames are carried out one after the other; while one
has to wait, nothing more is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...errors import FlintError, MalformedFrame
from ...net.server.peer import Peer
from ...observe.logs import limited
from .binary import BinarySession
from .codec import HEAD, LENGTH_BYTES, LENGTH_MIN, Type
from .flat import FlatSession
from .flat_codec import LENGTH, decode_command
from .options import UNKNOWN_BYTES_MAX

if TYPE_CHECKING:
    from .server import BlipServer

_log = logging.getLogger(__name__)

HELLO_LENGTH = 11
"""No command of the first protocol is as short."""
OUT_BYTES_MAX = 1024 * 1024
"""Answers that are gathered before they are sent; who does not read them waits for the rest."""
LEAVE_SECONDS = 5.0
"""How long what a client has published may wait for room once its connection is gone."""


class BlipSession(Protocol):
    """What speaks one of the protocols."""

    @property
    def protocol(self) -> str: ...
    def answer_at_once(self, data: bytes) -> bytes | None:
        """The answer to one small request that came by itself, or b"" if it has none; None where
        the data has to be cut into frames."""
        ...

    def cut(self, data: bytes, frames: list[Any]) -> None:
        """Bytes into frames. Raises MalformedFrame; what came before it is in `frames`."""
        ...

    def receive(self, frame: Any) -> Awaitable[None] | None:
        """Carry a frame out; what comes back is to be waited for before the next."""
        ...

    def end_turn(self) -> Awaitable[None] | None:
        """Everything that came together was received."""
        ...

    def refuse_publishes(self, ids: Sequence[int], qos: int, error: BaseException) -> None: ...
    def keys_changed(self) -> None: ...
    def is_publish(self, frame: Any) -> bool: ...
    def is_busy(self) -> bool: ...
    async def finish(self) -> None:
        """Let go of everything it holds, once the connection is gone."""
        ...


class BlipConnection(Peer):
    reads_at_will: ClassVar[bool] = True

    def __init__(self, server: BlipServer) -> None:
        super().__init__()
        self.server = server
        self.session: BlipSession | None = None
        self._first = bytearray()
        self._todo: deque[Any] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        self._room = asyncio.Event()
        self._room.set()
        self._is_ending = False

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._meet(transport)
        if not self.server.admit(self):
            self.abort()
            return
        # Somebody may sit at a shell of the first protocol; but not for ever.
        self.set_deadline(self.server.limits.idle_seconds)

    def data_received(self, data: bytes) -> None:
        sent = self.bytes_sent
        self._take_in(data)
        if self.bytes_sent == sent:
            self.acknowledge()  # an ACK has no answer, and a POLL follows it

    def _take_in(self, data: bytes) -> None:
        self.bytes_received += len(data)
        if self._is_ending:
            return
        if self.session is not None and self._worker is None and not self._out:
            answer = self.session.answer_at_once(data)
            if answer is not None:
                if answer:
                    self._send(answer)
                return
        frames: list[Any] = []
        try:
            if self.session is None:
                data = self._choose(data)
            if self.session is not None and data:
                self.session.cut(data, frames)
        except FlintError as error:  # malformed, or not let in
            self._complain(error)
            self._is_ending = True
        self._todo += frames
        if self._worker is None:
            self._flushing = True  # at the end of `_work`, without another turn of the loop
            self._work()

    def eof_received(self) -> bool:
        """What was asked for is still answered."""
        self._is_ending = True
        if self._worker is None:
            self._work()
        # TLS knows no half-closed connections.
        return self._transport is not None and not self._transport.get_extra_info("sslcontext")

    def pause_writing(self) -> None:
        self._room.clear()
        self.hold("replies")  # who does not read what was asked for asks for nothing more

    def resume_writing(self) -> None:
        self._room.set()
        self.go_on("replies")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_ending = True
        self._room.set()
        self._out.clear()
        self.set_deadline(None)
        self.server.left(self)
        session = self.session
        if session is not None:
            # What it has published counts; what it wanted to have is nobody's any more.
            self._todo = deque(frame for frame in self._todo if session.is_publish(frame))
            self.server.spawn(self._finish(session))

    async def _finish(self, session: BlipSession) -> None:
        if self._worker is not None:
            _, waiting = await asyncio.wait([self._worker], timeout=LEAVE_SECONDS)
            for worker in waiting:
                worker.cancel()  # it waits in line for room; others must not wait for it
        await session.finish()

    # --- which protocol it is

    def _choose(self, data: bytes) -> bytes:
        """The first frame tells. What comes back is for the session that was made."""
        first = self._first
        first += data
        if len(first) < LENGTH_BYTES:
            return b""
        (length,) = LENGTH.unpack_from(first)
        if length == HELLO_LENGTH:
            self.session = BinarySession(self)
        else:
            server = self.server
            most = UNKNOWN_BYTES_MAX if server.gate.is_closed else server.options.max_command_bytes
            if not LENGTH_MIN <= length <= most:
                raise MalformedFrame(f"the first frame cannot have {length:,} bytes")
            if len(first) < LENGTH_BYTES + length:
                return b""
            self.session = self._session_for(bytes(first), length)
        self._first = bytearray()
        return bytes(first)

    def _session_for(self, data: bytes, length: int) -> BlipSession:
        try:
            decode_command(data[LENGTH_BYTES : LENGTH_BYTES + length])
        except MalformedFrame:
            _, type, _ = HEAD.unpack_from(data)
            if not Type.HELLO <= type <= Type.DELIVER:
                raise
            return BinarySession(self)  # it begins with something else than HELLO, and hears so
        return FlatSession(self)

    # --- frames, one after the other

    def _work(self) -> None:
        session = self.session
        if session is not None:
            try:
                waits = self._next(session)
            except Exception as error:
                self._fail(error)
                return
            if waits is not None:
                self.hold("work")
                self._worker = self.server.spawn(self._go_on(session, waits))
                self.flush()
                return
        self.flush()
        if self._is_ending:
            self.close()

    def _next(self, session: BlipSession) -> Awaitable[None] | None:
        """Carry out what can be without waiting."""
        while self._todo:
            try:
                waits = session.receive(self._todo.popleft())
            except FlintError as error:
                # What came before it counts.
                self._complain(error)
                self._todo.clear()
                self._is_ending = True
                break
            if waits is not None:
                return waits
            if self._out_bytes > OUT_BYTES_MAX:
                self.flush()
                if not self._room.is_set():
                    return self.room()
        return session.end_turn()

    async def _go_on(self, session: BlipSession, waits: Awaitable[None] | None) -> None:
        try:
            while waits is not None:
                await waits
                waits = self._next(session)
        except Exception as error:
            self._fail(error)
        finally:
            self._worker = None
        self.go_on("work")
        self.flush()
        if self._is_ending:
            self.close()

    def _fail(self, error: Exception) -> None:
        if isinstance(error, FlintError):
            self._complain(error)
        else:
            self.tell_fault(error)
        self._todo.clear()
        self._flushing = False
        self.abort()

    @property
    def has_room(self) -> bool:
        """Whether the other side reads."""
        return self._room.is_set()

    def _complain(self, error: FlintError) -> None:
        self.server.counters.malformed += 1
        limited(
            _log,
            logging.INFO,
            "client_disconnected",
            self.host,
            f"{self.peer} was disconnected: {error}",
            peer=self.peer,
            error=type(error).__name__,
        )

    def session_refuses(self, ids: Sequence[int], qos: int, error: BaseException) -> None:
        if self.session is not None:
            self.session.refuse_publishes(ids, qos, error)

    # --- the session's side

    def is_busy(self) -> bool:
        return self._worker is not None or (self.session is not None and self.session.is_busy())

    async def room(self) -> None:
        """Wait until the other side reads."""
        await self._room.wait()

    def write(self, data: bytes) -> None:
        """Send what is gathered in this turn of the loop with one write at its end."""
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flushing = False
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self._send(out[0] if len(out) == 1 else b"".join(out))

    def _send(self, data: bytes) -> None:
        if self._transport is not None and self.is_open:
            self.bytes_sent += len(data)
            self.server.counters.writes += 1
            self._transport.write(data)

    def close(self) -> None:
        """Close once everything written so far is sent."""
        self._is_ending = True
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._is_ending = True
        super().abort()
