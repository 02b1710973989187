"""One connection of the native protocol: hello, frames, one write per turn of the event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from typing import TYPE_CHECKING

from ...errors import (
    Disconnected,
    FlintError,
    MalformedFrame,
    NotAuthenticated,
    NotLeader,
    TlsFailed,
)
from ...observe.logs import limited
from ..tls.pipe import HANDSHAKE, TlsPipe
from ..tls.sentences import in_short
from ..wire.faults import fault_of
from ..wire.frames import Buffer, FrameDecoder, encode_frame
from ..wire.hello import (
    FEATURES,
    HELLO_BYTES,
    MAGIC,
    VERSION,
    Hello,
    other_hello,
    parse_hello,
    server_hello,
)
from ..wire.operations import Op, encode
from .peer import WRITE_BYTES_HIGH, Peer

if TYPE_CHECKING:
    from .native import NativeServer
    from .session import Session

_log = logging.getLogger(__name__)

OPEN_FRAME_BYTES_MAX = 64 * 1024
"""Who has not said who they are gets no more room than this."""
LINGER_SECONDS = 1.0
"""How long somebody may take to hear why they are not let in."""
_numbers = itertools.count(1)


class ServerConnection(Peer):
    """Bytes of one socket. What frames mean is the session's business."""

    def __init__(self, server: NativeServer) -> None:
        super().__init__()
        self._server = server
        self.number = next(_numbers)
        self.since_ms = server.broker.clock.now_ms()
        self._decoder = FrameDecoder(OPEN_FRAME_BYTES_MAX)
        self._hello: bytes | None = b""
        self.features = 0
        """What both sides know of beyond the version of the protocol."""
        self._out: list[Buffer] = []
        self._flushing = False
        self.session: Session | None = None
        self._out_bytes = 0
        self._paused = False
        self._tls: TlsPipe | None = None
        self._is_plain = server.tls is None
        self._is_leaving = False
        self.heard_at = self._loop.time()
        self.idle_seconds = 0.0
        """How long it may be silent, as agreed when it was opened."""
        self._refusal: FlintError | None = None
        self._late: asyncio.TimerHandle | None = None

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._meet(transport)
        self._refusal = self._server.admit(self)
        self.set_deadline(self._server.limits.handshake_seconds, self._handshake_over)

    def data_received(self, data: bytes) -> None:
        if self._is_plain:
            self._take(data)
        elif self._tls is not None and self._tls.is_open:
            self._tls.take(data)
            self._decrypt()
        elif not self._is_leaving:
            self._shake_hands(data)

    # --- TLS

    def _shake_hands(self, data: bytes) -> None:
        assert self._server.tls is not None
        if self._tls is None:
            if data[0] != HANDSHAKE:
                self._refuse_plain(data)
                return
            # Not before: who says nothing costs next to nothing.
            self._tls = self._server.tls.pipe()
        self._tls.take(data)
        self.hold("handshake")
        self._server.shake_hands_later(self)

    def shake_hands(self) -> None:
        """One step of the handshake, which is costly: the server takes one in each turn."""
        if not self.is_open or self._is_leaving:
            return
        self._decrypt()
        self.go_on("handshake")

    def _decrypt(self) -> None:
        assert self._tls is not None
        try:
            data = self._tls.advance()
        except ssl.SSLError as error:
            self._complain(in_short(error))
            self._see_off(self._tls.outgoing())  # the alert that says why
            return
        outgoing = self._tls.outgoing()
        if outgoing and self._transport is not None:
            self._transport.write(outgoing)
        if data:
            self._take(data)
        if self._tls.is_ended:
            self.close()

    def _refuse_plain(self, data: bytes) -> None:
        """Somebody speaks to us without TLS. Our own clients understand the answer."""
        self._complain("it does not use TLS")
        if not MAGIC.startswith(data[:4]):
            self.abort()
            return
        why = "this port uses TLS; connect with flints:// instead of flint://"
        fault = fault_of(TlsFailed("the broker", why))
        answer, _ = server_hello(Hello(VERSION, VERSION, 0))
        self._see_off(b"".join([answer, *encode_frame(Op.ERROR, 0, encode(fault))]))

    def _complain(self, why: str) -> None:
        self._server.handshakes_failed += 1
        limited(
            _log,
            logging.WARNING,
            "tls_refused",
            why,
            f"{self.peer} was rejected: {why}",
            peer=self.peer,
        )

    def _see_off(self, last_words: bytes) -> None:
        """Say why, then end. Closed at once, what is still on its way to us would have the kernel
        take our last words back."""
        if self._transport is None or self._is_leaving:
            return
        self._is_leaving = True
        self._out.clear()
        self._transport.write(last_words)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self.abort)

    # --- frames

    def _take(self, data: bytes) -> None:
        if self._is_leaving:
            return
        self.bytes_received += len(data)
        try:
            if self._hello is not None:
                data = self._take_hello(data)
            frames = self._decoder.feed(data)
            # What could be answered at once is written below; no timer is needed.
            self._flushing = True
            if frames:
                self.heard_at = self._loop.time()  # bytes that never make a frame are no sign
            for frame in frames:
                if self._late is not None or not self.is_open:
                    break
                if self._refusal is not None:
                    raise self._refusal
                if self.session is not None:
                    self.session.receive(frame)
                elif frame.op == Op.OPEN:
                    self._server.open_session(self, frame)
                else:
                    raise MalformedFrame("the first frame of a connection must be OPEN")
            if self._server.looking:  # deliveries go first, then our replies
                self._loop.call_soon(self.flush)
            elif self._out or (self.session is not None and self.session.receipts.places):
                self.flush()
            else:
                self._flushing = False
        except FlintError as error:
            self.refuse(error)
        except Exception as error:
            self.tell_fault(error)
            self.abort()

    def _take_hello(self, data: bytes) -> bytes:
        assert self._hello is not None
        whole = self._hello + data
        if self._is_plain and whole[0] == HANDSHAKE:
            self._complain("it uses TLS, but this port does not")
            self._see_off(other_hello())
            return b""
        if len(whole) < HELLO_BYTES:
            if whole[:4] != b"FLNT"[: len(whole[:4])]:
                parse_hello(whole)
            self._hello = whole
            return b""
        theirs = parse_hello(whole[:HELLO_BYTES])
        answer, is_understood = server_hello(theirs)
        self.features = theirs.features & FEATURES
        self._hello = None
        self.write([answer])
        if not is_understood:
            self.close()
            return b""
        return whole[HELLO_BYTES:]

    def opened(self, session: Session) -> None:
        self.session = session
        self._decoder.frame_bytes_max = self._server.limits.frame_bytes
        self.set_deadline(None)

    def pause_writing(self) -> None:
        self._paused = True
        self.hold("replies")  # who does not read what was asked for asks for nothing more

    def resume_writing(self) -> None:
        self._paused = False
        self.go_on("replies")
        if self.session is not None:
            self.session.has_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self.set_deadline(None)
        if self._late is not None:
            self._late.cancel()
            self._let_go()
        self._server.left(self)
        session, self.session = self.session, None
        if session is not None:
            session.lost(self)

    def _handshake_over(self) -> None:
        seconds = self._server.limits.handshake_seconds
        self.refuse(Disconnected(self.peer, f"its handshake took longer than {seconds:g} s"))

    # --- the session's side

    @property
    def is_full(self) -> bool:
        """The other side reads slower than we write, or much is to be written in this turn."""
        return self._paused or self._out_bytes > WRITE_BYTES_HIGH

    @property
    def is_held_by_us(self) -> bool:
        """It is not read from because our disk is slow: its silence is no fault of its own."""
        return "publishes" in self._holding

    def write(self, parts: list[Buffer]) -> None:
        """Send what is gathered in this turn of the loop with one write at its end."""
        self._out += parts
        self._out_bytes += sum(map(len, parts))
        self.flush_later()

    def flush_later(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush_soon(self) -> None:
        """Send what there is, now if nothing is known that comes in this turn of the loop. It is
        called by the engine while that tells of what was stored, and does not ask anything of it.
        """
        if self._flushing:
            return
        if self._server.looking or self.is_full:
            self.flush_later()
            return
        try:
            self.flush()
        except Exception as error:
            self.tell_fault(error)
            self.abort()

    def flush(self) -> None:
        if self.session is not None and self.session.receipts.places:
            self._flushing = True
            self.session.receipts.send()
        self._flushing = False
        out, self._out = self._out, []
        was_full = self._out_bytes > WRITE_BYTES_HIGH
        self._out_bytes = 0
        if out and self._transport is not None and self.is_open and not self._is_leaving:
            data = out[0] if len(out) == 1 else b"".join(out)
            self.bytes_sent += len(data)
            if self._tls is not None:
                data = self._tls.encrypt(data)
            self._transport.write(data)
        if was_full and not self._paused and self.session is not None:
            self.session.has_room()

    def go_on(self, why: str) -> None:
        super().go_on(why)
        if self.is_open and not self._holding:
            # What was heard before it was held says nothing of how long it has been silent.
            self.heard_at = self._loop.time()

    def refuse(self, error: FlintError) -> None:
        """Say what is wrong with the connection as a whole, and end it."""
        limited(
            _log,
            logging.INFO,
            "client_disconnected",
            self.peer.rpartition(":")[0],
            f"{self.peer} was disconnected: {error}",
            peer=self.peer,
            error=type(error).__name__,
        )
        if self._hello is None:
            self.write(encode_frame(Op.ERROR, 0, encode(fault_of(error))))
        self.close()

    def turn_away(self, error: NotLeader) -> None:
        """Clients are welcome elsewhere: nothing that needs a line in the log."""
        self.write(encode_frame(Op.ERROR, 0, encode(fault_of(error))))
        self.close()

    def refuse_login(self, error: NotAuthenticated) -> None:
        """Answer a failed login, but not at once. Meanwhile nothing is read, and one timer is all
        it costs; where too many wait already, nothing is answered."""
        seconds = self._server.gate.hold_back(self.host)
        if seconds is None:
            self.abort()
            return
        self.hold("login")
        self.set_deadline(None)
        self._late = self._loop.call_later(seconds, self._answer_login, error)

    def _answer_login(self, error: NotAuthenticated) -> None:
        self._let_go()
        self.write(encode_frame(Op.ERROR, 0, encode(fault_of(error))))
        self.close()

    def _let_go(self) -> None:
        self._late = None
        self._server.gate.let_go(self.host)

    def close(self) -> None:
        """Close once everything written so far is sent."""
        self.flush()
        if self._transport is not None and self.is_open and not self._is_leaving:
            if self._tls is not None:
                self._transport.write(self._tls.farewell())
            self._transport.close()
