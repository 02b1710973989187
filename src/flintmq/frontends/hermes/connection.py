"""One connection of a HermesMQ client: frames in, replies out in the order of requests.

Requests are begun as they come and run beside each other, so a produce behind a long poll may be
what the poll waits for. Only their replies keep the order. A Subscribe takes the connection over.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, ClassVar

from ...access import Access
from ...errors import FlintError
from ...model import Receipt
from ...net.server.peer import Peer
from ...net.wire.hello import MAGIC
from ...observe.logs import limited
from . import codec as hermes
from . import rules
from .holds import Hold
from .requests import Requests
from .subscription import HermesSubscription

if TYPE_CHECKING:
    from .server import HermesServer

_log = logging.getLogger(__name__)

SEE_OFF_SECONDS = 0.1
"""How long somebody who has said goodbye and was then answered is watched: a socket that is closed
on their side answers with a reset, which comes at once."""
NO_KEY = rules.failed(
    FlintError(
        "this broker requires keys, which HermesMQ's protocol cannot send: set "
        "hermes_key_file on the broker"
    )
)

Reply = bytes | Awaitable[Any]
"""A frame, or what becomes one: a future of a frame, or a receipt that waits for the disk."""


class HermesConnection(Peer):
    reads_at_will: ClassVar[bool] = True

    def __init__(self, server: HermesServer) -> None:
        super().__init__()
        self.server = server
        self.held: set[tuple[Hold, int]] = set()
        """Where from, and the offset."""
        """What was polled by this connection and is not settled."""
        self.writable = asyncio.Event()
        self.writable.set()
        self.is_lost = False
        self._reader = hermes.FrameReader()
        self._requests = Requests(self)
        self._replies: deque[tuple[Reply, int]] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._flying_bytes = 0
        self._out: list[bytes] = []
        self._is_flushing = False
        self._late: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._is_over = False  # nothing more is read
        self._has_said_goodbye = False
        self._first: bytes | None = None if server.native is None else b""
        """What has come while it is not known yet which protocol it is."""
        self._subscription: HermesSubscription | None = None

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._meet(transport)
        if not self.server.admit(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._first is not None:
            data = self._choose(self._first + data)
            if not data:
                return
        self.bytes_received += len(data)
        for body in self._reader.feed(data):
            if self._subscription is not None:
                self._subscription.receive(body)
            else:
                self._receive(body)
        if self._reader.is_broken:
            self._finish()
            return
        if not self._reader.is_within_frame:
            if self._late is not None:
                self._late.cancel()
                self._late = None
            return
        self._heard_at = self._loop.time()
        if self._late is None:
            self._late = self._loop.call_later(self.server.limits.frame_seconds, self._is_late)
        self.acknowledge()  # some clients write length and body apart

    def _is_late(self) -> None:
        """Part of a request has come; whoever does not go on is let go. Time in which it was not
        read from does not count."""
        self._late = None
        if self._holding:
            self._heard_at = self._loop.time()
        left = self._heard_at + self.server.limits.frame_seconds - self._loop.time()
        if left > 0:
            self._late = self._loop.call_later(left, self._is_late)
        else:
            self.abort()

    def _choose(self, first: bytes) -> bytes:
        """What is to be read as this protocol. A client of the native one goes to its server."""
        if first.startswith(MAGIC):
            transport = self._transport
            assert transport is not None
            self.set_deadline(None)
            connection = self.server.hand_over(self)
            transport.set_protocol(connection)
            connection.connection_made(transport)
            connection.data_received(first)
            return b""
        if MAGIC.startswith(first):
            if not self._first:
                self.set_deadline(self.server.limits.handshake_seconds)
            self._first = first
            return b""
        self._first = None
        self.set_deadline(None)
        self.server.keep_connection()
        return first

    def eof_received(self) -> bool:
        """It says nothing more, and may still listen: what it asked for is answered. But nothing
        is handed out unleased any more, as it may as well be gone."""
        self._has_said_goodbye = True
        self._requests.end_polls(auto_only=True)
        if self._subscription is not None:
            return False
        self._finish()
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = self._is_over = True
        self.server.left(self)
        self.writable.set()
        if self._late is not None:
            self._late.cancel()
        self._requests.end_polls()
        self.set_deadline(None)
        if self._subscription is not None:
            self._subscription.end()
        # What is under way is finished, and told to nobody: it may be shared with others.
        if self._has_said_goodbye and exc is not None:
            self._give_back()
        self.server.give_back_later(self, self.held)
        self.held = set()

    def pause_writing(self) -> None:
        self.writable.clear()
        self.hold("unread")

    def resume_writing(self) -> None:
        self.writable.set()
        self.go_on("unread")

    def go_on(self, why: str) -> None:
        if self._is_over:  # there is nothing more to read
            self._holding.discard(why)
        else:
            super().go_on(why)

    # --- requests

    def _receive(self, body: hermes.Body) -> None:
        size = 0
        try:
            if not body.is_whole:
                reply: Reply = self._too_long(body)
            else:
                request = hermes.decode_request(body.data)
                if isinstance(request, hermes.Subscribe):
                    self._take_over(request)
                    return
                reply = self._answer(request)
                if isinstance(request, hermes.Produce):
                    size = body.length
        except hermes.Undecodable as error:
            reply = rules.bad_request(str(error))
        except FlintError as error:
            reply = self.server.failed(error)
        if type(reply) is bytes and not self._replies:
            self.send(reply)
            return
        self._replies.append((reply, size))
        self._flying_bytes += size
        if self._writer is None:
            self._writer = self.server.spawn(self._write_replies())
        limits = self.server.limits
        if len(self._replies) >= limits.pending or self._flying_bytes > limits.in_flight_bytes:
            self.hold("pending")

    def _answer(self, request: hermes.Request | None) -> Reply:
        if request is None:
            return rules.bad_request("empty request")
        access = self.server.access
        if access is None:
            return NO_KEY
        return self._requests.begin(request, access)

    def _too_long(self, body: hermes.Body) -> bytes:
        length = hermes.payload_length_in(body.data)
        if length is not None and length > rules.PAYLOAD_BYTES_MAX:
            return rules.too_large(length)
        return rules.bad_request(
            f"a request of {body.length} bytes; the maximum is {hermes.KEPT_BYTES_MAX}"
        )

    async def _write_replies(self) -> None:
        replies = self._replies
        try:
            while replies:
                if not self.writable.is_set():
                    self._flush()
                    await self.writable.wait()
                reply, size = replies[0]
                frame = reply if isinstance(reply, bytes) else await self._framed(reply)
                self._out.append(frame)
                replies.popleft()
                if isinstance(reply, asyncio.Task):
                    self._requests.was_told(reply)
                self._flying_bytes -= size
                if "pending" in self._holding and self._has_room():
                    self.go_on("pending")
        finally:
            self._writer = None
        self._flush()  # here and now: a turn of the loop less than `send` would take
        self._is_answered()

    def _has_room(self) -> bool:
        limits = self.server.limits
        return (
            len(self._replies) <= limits.pending // 2
            and self._flying_bytes <= limits.in_flight_bytes // 2
        )

    async def _framed(self, reply: Awaitable[Any]) -> bytes:
        try:
            if not isinstance(reply, asyncio.Future) or not reply.done():
                self._flush()  # what can be told is not kept back by what has to wait
            outcome = await reply
            if not isinstance(outcome, bytes | Receipt):
                self._flush()
                outcome = await outcome  # it has waited in line, and now waits for the disk
        except FlintError as error:
            return self.server.failed(error)
        except Exception as error:
            limited(
                _log,
                logging.ERROR,
                "hermes_request_failed",
                type(error).__name__,
                "a HermesMQ request failed because of an internal error; please report it",
                exc_info=error,
            )
            return rules.failed(error)
        if isinstance(outcome, Receipt):
            return rules.produced(outcome)
        assert isinstance(outcome, bytes)
        return outcome

    def _is_answered(self) -> None:
        """Everything that was asked is answered: what waited for that goes on."""
        if self.is_lost:
            return
        if self._subscription is not None:
            self._subscription.begin()
        elif self._is_over and self._has_said_goodbye and self.held and self._socket is not None:
            self._loop.call_later(SEE_OFF_SECONDS, self._see_off)
        elif self._is_over:
            self.close()

    def _see_off(self) -> None:
        """Whether they are gone or only done with asking cannot be told before they are written to.
        Who is gone has not read what it was leased: the next one gets that at once."""
        if not self.is_lost and self._socket is not None:
            if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._give_back()
            self.close()

    def _give_back(self) -> None:
        for hold, offset in list(self.held):
            hold.give_back(offset, self)

    def _finish(self) -> None:
        """Nothing more is read; close once everything is answered."""
        self._is_over = True
        if self._writer is None:
            self._is_answered()

    def _take_over(self, request: hermes.Subscribe) -> None:
        self._subscription = HermesSubscription(self, request)
        if self._writer is None:
            self._subscription.begin()

    # --- the way out

    def send(self, frame: bytes) -> None:
        """One write for everything that is said in one turn of the loop."""
        if self.is_lost:
            return
        self._out.append(frame)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        out, self._out = self._out, []
        if out and self._transport is not None and self.is_open:
            data = b"".join(out) if len(out) > 1 else out[0]
            self.bytes_sent += len(data)
            self._transport.write(data)

    # --- what the server says

    def resolved(self, hold: Hold, offset: int) -> None:
        self.held.discard((hold, offset))

    def access_changed(self, access: Access | None) -> None:
        if self._subscription is not None and not self._subscription.is_allowed(access):
            self.close()

    def is_busy(self) -> bool:
        return bool(self._replies or self._out)

    def drain(self) -> None:
        """The node is about to stop: parked polls end, subscribers look for another node once
        they have settled what they have."""
        self._requests.end_polls()
        if self._subscription is not None:
            self._subscription.drain()

    def close(self) -> None:
        self._is_over = True
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._is_over = True
        super().abort()
