"""How two nodes meet: hellos, proofs, and who is turned away. Pure; bytes in, bytes out.

    dialler                         answerer
    hello ->
                                    <- hello, or GOODBYE
    PROOF ->                                                      only where there is no TLS
                                    <- PROOF, or GOODBYE

Each side looks at who the other is once that is proved: by TLS before the hello, by a proof behind
it. Until then no frame of more than a few bytes is kept.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TypeAlias

from ..errors import MalformedFrame
from .peer_frames import (
    HEAD_BYTES,
    HELLO_BYTES,
    MAGIC,
    FrameKind,
    GoodbyeReason,
    PeerFrame,
    PeerFrameDecoder,
    PeerHello,
    decode_goodbye,
    decode_hello,
    encode_frame,
    encode_goodbye,
    encode_hello,
    frame_bytes,
    proof_of,
)

Refusal: TypeAlias = tuple[GoodbyeReason, str]
Look: TypeAlias = Callable[[PeerHello], Refusal | None]
"""Whether the node that says this hello may have a line: None, or why not."""

DIALLER, ANSWERER = b"dialler", b"answerer"
FIRST_BYTES_MAX = 4096


class TurnedAway(Exception):
    """There will be no line. `goodbye` is to be sent; nothing where the other side has said it."""

    def __init__(self, reason: int, text: str, goodbye: bytes = b"") -> None:
        super().__init__(text)
        self.reason, self.text, self.goodbye = reason, text, goodbye


class Handshake:
    """One end of it. `start` and `feed` return what is to be sent; `is_done` says when it is over,
    and `rest` is what came behind it."""

    def __init__(self, ours: PeerHello, *, is_dialler: bool, key: bytes | None, look: Look) -> None:
        """`key`: that of the cluster; None: TLS has proved who is there."""
        self._ours, self._is_dialler, self._key, self._look = ours, is_dialler, key, look
        self._hellos: tuple[bytes, bytes] | None = None
        self.theirs: PeerHello | None = None
        self.is_done = False
        self.rest = b""

    def start(self) -> bytes:
        return encode_hello(self._ours) if self._is_dialler else b""

    def feed(self, data: bytes) -> bytes:
        """Raises TurnedAway."""
        self.rest += data
        try:
            out = b""
            if self.theirs is None:
                if self.rest[:4] != MAGIC[: len(self.rest)]:
                    self._hear_refusal()
                    return b""
                if len(self.rest) < HELLO_BYTES:
                    return b""
                said, self.rest = self.rest[:HELLO_BYTES], self.rest[HELLO_BYTES:]
                out = self._met(said)
            if not self.is_done:
                frame = self._next_frame()
                if frame is not None:
                    out += self._proved(frame)
            return out
        except MalformedFrame as error:
            raise _away(GoodbyeReason.MALFORMED, str(error)) from None

    def _next_frame(self) -> PeerFrame | None:
        """One frame of what has come; what lies behind it may be of any size."""
        if len(self.rest) < HEAD_BYTES:
            return None
        end = frame_bytes(self.rest)
        if end > FIRST_BYTES_MAX:
            raise MalformedFrame(f"a frame of {end:,} bytes before the proof")
        if len(self.rest) < end:
            return None
        first, self.rest = self.rest[:end], self.rest[end:]
        return PeerFrameDecoder(FIRST_BYTES_MAX).feed(first)[0]

    def _met(self, said: bytes) -> bytes:
        """Their hello is here."""
        theirs = decode_hello(said)
        ours = self._ours
        if not max(ours.version_min, theirs.version_min) <= min(
            ours.version_max, theirs.version_max
        ):
            raise _away(
                GoodbyeReason.VERSION,
                f"one node has levels {ours.version_min} to {ours.version_max} of the cluster's "
                f"features, the other {theirs.version_min} to {theirs.version_max}; update the "
                "older of the two",
            )
        if not self._is_dialler:
            self._ours = self._ours._replace(line=theirs.line)
        elif theirs.line != self._ours.line:
            raise _away(GoodbyeReason.LINE, f"it answers for a line of kind {theirs.line.name}")
        self.theirs = theirs
        hello = encode_hello(self._ours)
        self._hellos = (hello, said) if self._is_dialler else (said, hello)
        if self._key is None:
            self._over()
        if not self._is_dialler:
            return hello
        return b"" if self._key is None else self._proof(self._key, DIALLER)

    def _proved(self, frame: PeerFrame) -> bytes:
        """Their proof is here, or a refusal."""
        assert self._key is not None
        assert self._hellos is not None
        if frame.kind == FrameKind.GOODBYE:
            raise TurnedAway(*decode_goodbye(frame))
        role = ANSWERER if self._is_dialler else DIALLER
        wanted = proof_of(self._key, role, *self._hellos)
        if frame.kind != FrameKind.PROOF or not hmac.compare_digest(bytes(frame.body), wanted):
            raise _away(
                GoodbyeReason.CREDENTIAL,
                "the two nodes have different cluster keys; give all nodes the same "
                "cluster_key_file",
            )
        self._over()
        return b"" if self._is_dialler else self._proof(self._key, ANSWERER)

    def _proof(self, key: bytes, role: bytes) -> bytes:
        assert self._hellos is not None
        return encode_frame(FrameKind.PROOF, (proof_of(key, role, *self._hellos),))

    def _over(self) -> None:
        assert self.theirs is not None
        refusal = self._look(self.theirs)
        if refusal is not None:
            raise _away(*refusal)
        self.is_done = True

    def _hear_refusal(self) -> None:
        """Something else came in the place of a hello."""
        if not self._is_dialler:
            decode_hello(self.rest)  # says what is wrong with it
        frame = self._next_frame()
        if frame is not None:
            if frame.kind != FrameKind.GOODBYE:
                raise MalformedFrame("the other side did not begin with a hello")
            raise TurnedAway(*decode_goodbye(frame))


def _away(reason: GoodbyeReason, text: str) -> TurnedAway:
    return TurnedAway(reason, text, encode_goodbye(reason, text))
