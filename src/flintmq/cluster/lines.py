"""One connection between two nodes, from its first byte to its last.

A line meets the other node (`handshake`), cuts what comes into frames, and ends with a GOODBYE that
says why. What frames mean is its owner's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Protocol, cast

from ..errors import MalformedFrame, MalformedRaftMessage
from .handshake import Handshake, Refusal, TurnedAway
from .peer_frames import (
    FRAME_BYTES_MAX,
    OPENING_BYTES_MAX,
    FrameKind,
    GoodbyeReason,
    LineKind,
    PeerFrame,
    PeerFrameDecoder,
    PeerHello,
    decode_goodbye,
    encode_goodbye,
)

HANDSHAKE_SECONDS = 5.0
QUEUE_BYTES_MAX = 16 << 20
"""What may wait for a slow line before messages are dropped. Raft sends them again."""


class LineOwner(Protocol):
    """Whose line it is; called on the event loop, in this order."""

    def line_made(self, line: PeerLine) -> None:
        """There is a connection; the nodes have not met yet."""

    def look(self, line: PeerLine, theirs: PeerHello) -> Refusal | None:
        """Whether that node may have this line."""

    def line_opened(self, line: PeerLine) -> None: ...

    def line_frames(self, line: PeerLine, frames: list[PeerFrame]) -> None:
        """Raises MalformedFrame or MalformedRaftMessage: then the line ends."""

    def line_lost(self, line: PeerLine) -> None:
        """Over; `line.why` says why. Told of every line that was made, opened or not."""


class PeerLine(asyncio.Protocol):
    """`dials`: the node that is called, or None on the side that was called."""

    def __init__(
        self,
        owner: LineOwner,
        ours: PeerHello,
        key: bytes | None,
        *,
        dials: int | None = None,
    ) -> None:
        self.dials = dials
        self.why: TurnedAway | None = None
        self.heard_at = 0.0
        self.bytes_received = self.bytes_sent = 0
        self._owner, self._ours, self._key = owner, ours, key
        self._handshake: Handshake | None = None
        self._theirs: PeerHello | None = None
        self._decoder = PeerFrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- what others ask

    @property
    def theirs(self) -> PeerHello:
        assert self._theirs is not None, "the nodes have not met yet"
        return self._theirs

    @property
    def was_open(self) -> bool:
        """Whether the nodes have met."""
        return self._theirs is not None

    def certificate_names(self) -> list[str]:
        """The names in the certificate that the other side has shown; none without TLS."""
        assert self._transport is not None
        shown = self._transport.get_extra_info("peercert") or {}
        names: list[tuple[str, str]] = shown.get("subjectAltName", ())
        return [name for _, name in names]

    def has_room(self) -> bool:
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() <= QUEUE_BYTES_MAX

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self.bytes_sent += len(data)
            self._transport.write(data)

    def end(self, reason: GoodbyeReason, text: str) -> None:
        """Say why, and close."""
        if self.why is None:
            self.why = TurnedAway(reason, text)
            self.write(encode_goodbye(reason, text))
            self._close()

    async def wait_ended(self) -> None:
        await asyncio.shield(self._ended)

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        loop = asyncio.get_running_loop()
        self._transport = transport
        self.heard_at = loop.time()
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._handshake = Handshake(
            self._ours,
            is_dialler=self.dials is not None,
            key=self._key,
            look=lambda theirs: self._owner.look(self, theirs),
        )
        self._timer = loop.call_later(
            HANDSHAKE_SECONDS, self.end, GoodbyeReason.SILENT, "no handshake within 5 s"
        )
        self._owner.line_made(self)
        self.write(self._handshake.start())

    def data_received(self, data: bytes) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self.bytes_received += len(data)
        if self.why is not None:
            return
        if self._theirs is None:
            try:
                data = self._meet(data)
            except TurnedAway as refusal:
                self.why = refusal
                self.write(refusal.goodbye)
                self._close()
                return
        if data:
            self._take(data)

    def _meet(self, data: bytes) -> bytes:
        assert self._handshake is not None
        self.write(self._handshake.feed(data))
        if not self._handshake.is_done:
            return b""
        self._theirs, rest = self._handshake.theirs, self._handshake.rest
        self._handshake = None
        is_founding = self.theirs.line is LineKind.FOUNDING
        self._decoder.frame_bytes_max = OPENING_BYTES_MAX if is_founding else FRAME_BYTES_MAX
        if self._timer is not None:
            self._timer.cancel()
        self._owner.line_opened(self)
        return rest

    def _take(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
            for frame in frames:
                if frame.kind == FrameKind.GOODBYE:
                    self.why = TurnedAway(*decode_goodbye(frame))
            if frames:
                self._owner.line_frames(self, frames)
        except (MalformedFrame, MalformedRaftMessage) as error:
            self.end(GoodbyeReason.MALFORMED, str(error))
        if self.why is not None:
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self.why is None:
            text = why_no_connection(exc) if exc else "the connection was closed"
            self.why = TurnedAway(0, text)
        self._owner.line_lost(self)
        if not self._ended.done():
            self._ended.set_result(None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        """Close once what was written has gone; a peer that does not read is cut off."""
        if self._transport is not None:
            self._transport.close()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(1.0, self.abort)


def why_no_connection(error: BaseException) -> str:
    """In words, for logs and errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError):
        # What asyncio says names the address, and uvloop does not: the number says the same.
        named = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        return named or str(error)
    return str(error)
