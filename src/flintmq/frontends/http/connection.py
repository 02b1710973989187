"""One connection of the HTTP server: uvicorn's protocol, bounded in size and time.

uvicorn parses and answers; here is what it leaves open: bytes are parsed in small portions when it
is their turn, headers are bounded, and who dribbles is let go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ...access import Access
from ...observe.logs import event
from .answers import problem
from .head_with_body import HeadWithBody

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from .server import HttpServer

_log = logging.getLogger(__name__)

HEAD_PORTION_BYTES = 1024
"""What is parsed at a time outside of bodies: it may hold some thirty requests already."""

BODY_PORTION_BYTES = 64 * 1024

Phase = Literal["idle", "headers", "body"]


class StreamConnection(Protocol):
    """What a stream hears of its connection."""

    is_web_socket: bool

    def received(self, data: bytes) -> None: ...
    def has_room(self) -> None: ...
    def lost(self) -> None: ...


class HttpConnection(HttpToolsProtocol):
    def __init__(self, server: HttpServer, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.logger = _log
        self._http = server
        self._input = bytearray()
        self._answers: Any = None
        self._is_in_line = False
        self._phase: Phase = "idle"
        self._header_bytes = self._body_bytes = 0
        self._is_body_bounded = True
        self._deadline: asyncio.TimerHandle | None = None
        self.known_access: tuple[str | None, Access] | None = None
        """The credential it showed last, and what that may do."""
        self.stream: StreamConnection | None = None
        """What is written to it beside HTTP's answers, if it is a stream."""

    # --- the transport's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._answers = HeadWithBody(transport)
        self._arm(self._http.limits.header_seconds, "no request came")
        self._http.came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.stream is not None:
            self.stream.lost()
        self._unset_keepalive_if_required()
        self._disarm()
        self._input.clear()
        self._http.left(self)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.stream is not None and self.stream.is_web_socket:
            self.stream.received(data)
            return
        if self._phase == "idle" and self._deadline is None and not self.is_answering:
            self._arm(self._http.limits.header_seconds, "its headers took too long")
        self._input += data
        if len(self._input) > HEAD_PORTION_BYTES:
            self.flow.pause_reading()
        self._enter_line()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.stream is not None:
            self.stream.has_room()

    @property
    def http(self) -> HttpServer:
        return self._http

    def upgrade(self, stream: StreamConnection, answer: bytes) -> None:
        """Speak another protocol from here on: the stream gets all that comes."""
        self.stream = stream
        self.cycle.response_started = self.cycle.response_complete = True
        self._disarm()
        self._unset_keepalive_if_required()
        self.transport.write(answer)
        self.flow.resume_reading()

    # --- parsing, in turn

    @property
    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _enter_line(self) -> None:
        if not self._is_in_line:
            self._is_in_line = True
            self._http.turnstile.enter(self._parse_portion)

    def _parse_portion(self) -> None:
        self._is_in_line = False
        if self.parser is None or self.transport.is_closing():
            self._input.clear()
            return
        if self._phase != "body" and self.is_answering:
            return  # what was sent behind a request waits for its answer
        if self._is_body_bounded and self._body_bytes > self._http.limits.body_bytes:
            return  # whoever answers says so, and closes
        if self._phase == "body" and len(self.cycle.body) > BODY_PORTION_BYTES:
            return  # body_was_taken comes back to it
        size = BODY_PORTION_BYTES if self._phase == "body" else HEAD_PORTION_BYTES
        portion = bytes(self._input[:size])
        del self._input[: len(portion)]
        if self._phase != "body":
            self._header_bytes += len(portion)
        try:
            self.parser.feed_data(portion)
        except httptools.HttpParserUpgrade:
            self._input.clear()  # no other protocol is spoken here: it is answered as it is
            if self.cycle is not None:
                self.cycle.keep_alive = False
            return
        except httptools.HttpParserError as error:
            event(_log, logging.DEBUG, "http_not_understood", f"not an HTTP request: {error}")
            self.send_400_response("not a valid HTTP request")
            return
        if self._phase == "headers" and self._header_bytes > self._http.limits.header_bytes:
            limit = self._http.limits.header_bytes
            self._refuse(
                431, "HeadersTooLarge", f"headers can have at most {limit:,} bytes together"
            )
            return
        if self._input:
            self._enter_line()
        elif not self.pipeline:
            self.flow.resume_reading()

    # --- what the reader of a body tells

    def lift_body_limit(self) -> None:
        self._is_body_bounded = False
        self.body_was_taken()

    def body_was_taken(self) -> None:
        if self._phase == "body" and self._input:
            self._enter_line()

    def more_body_time(self) -> None:
        if self._phase == "body":
            self._arm(self._http.limits.body_seconds, "its body took too long")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope  # typed by ASGI, which has no key of ours
        scope["flintmq.connection"] = self
        self._phase = "headers"
        self._body_bytes, self._is_body_bounded = 0, True

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.cycle.transport = self._answers
        self._http.is_busy(self)
        self._phase, self._header_bytes = "body", 0
        self._arm(self._http.limits.body_seconds, "its body took too long")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._phase = "idle"
        self._disarm()

    def on_response_complete(self) -> None:
        self._answers.flush()
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._phase == "body":  # answered before it was read to its end
            self.transport.close()
            return
        if not self.pipeline:
            self._http.is_idle(self)
        if self._input:
            self._unset_keepalive_if_required()
            self._arm(self._http.limits.header_seconds, "its headers took too long")
            self._enter_line()

    # --- time, and refusals

    def _arm(self, seconds: float, why: str) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._too_slow, why)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self, why: str) -> None:
        self._deadline = None
        if self._input and self._is_in_line:
            # It has sent what it had to: it is we who have not come to it yet.
            self._arm(self._http.limits.header_seconds, why)
            return
        self._http.too_slow += 1
        if self._phase == "idle":
            self.transport.close()
        else:
            self._refuse(408, "TooSlow", f"{why}: the connection was closed")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "NoHttp", msg)

    def _refuse(self, status: int, kind: str, message: str) -> None:
        """Answer what never became a request, and close."""
        self._input.clear()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            answer = problem(status, kind, message, {"connection": "close"})
            head = [f"HTTP/1.1 {status} {kind}\r\n".encode()]
            head += [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
            self.transport.write(b"".join(head) + b"\r\n" + bytes(answer.body))
        self.transport.close()
