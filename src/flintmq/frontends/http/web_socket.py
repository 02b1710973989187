"""The other side's half of a WebSocket: the handshake and what clients send, by `websockets`.

What the broker sends is framed by events.py, once for all streams that get it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from starlette.requests import Request
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from ...errors import InvalidRequest

_library_log = logging.getLogger(f"{__name__}.library")
# The library would log every connection that opens and closes; our events do, where it matters.
_library_log.setLevel(logging.WARNING)

TEXT_BYTES_MAX = 64 * 1024
"""What a client may send in one message: leases, mostly."""


SUBPROTOCOL = Subprotocol("flintmq")


def _ours(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """A browser that offers some, to bring its key, has to hear which is spoken."""
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


class WebSocketLine:
    def __init__(
        self, request: Request, said: Callable[[bytes], None], write: Callable[[bytes], None]
    ) -> None:
        self._protocol = ServerProtocol(
            select_subprotocol=_ours,
            max_size=TEXT_BYTES_MAX,
            state=State.CONNECTING,
            logger=_library_log,
        )
        self._request, self._said, self._write = request, said, write
        self._parts: list[bytes] = []

    def accept(self) -> bytes:
        """The answer to the handshake. Raises InvalidRequest where it is none."""
        headers = Headers()
        for name, value in self._request.headers.items():
            headers[name] = value
        handshake = Handshake(self._request.url.path, headers)
        self._protocol.receive_data(handshake.serialize())  # it wants to have parsed it itself
        self._protocol.events_received()
        response = self._protocol.accept(handshake)
        if response.status_code != 101:
            cause = self._protocol.handshake_exc
            why = str(cause) if isinstance(cause, InvalidHandshake) else "it is not complete"
            raise InvalidRequest(f"invalid WebSocket handshake: {why}")
        self._protocol.send_response(response)
        return b"".join(self._protocol.data_to_send())

    def received(self, data: bytes) -> bool:
        """Bytes of the client; whether it goes on."""
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        for out in protocol.data_to_send():
            if out:
                self._write(out)
        return protocol.state is State.OPEN

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if frame.fin:
                text, self._parts = b"".join(self._parts), []
                self._said(text)
