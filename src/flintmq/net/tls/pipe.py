"""TLS between a protocol and its socket: bytes in, bytes out. No socket, no loop.

The same on every event loop; one write of many frames stays one write; and what the other side did
wrong can be reported to it before the connection ends, which the loops' own TLS does not do.
"""

from __future__ import annotations

import contextlib
import ssl

READ_BYTES = 16 * 1024
"""What one record holds at most: TLS gives no more at a time."""

HANDSHAKE = 0x16
"""The first byte of a TLS handshake."""
ALERT = 0x15


class TlsPipe:
    """One end of a connection. `take` what came from the socket, then `advance`; write `outgoing`
    to the socket after either, and after an error too: it holds the alert that tells why."""

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, host: str | None = None
    ) -> None:
        self._from_socket, self._to_socket = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._from_socket, self._to_socket, server_side=server_side, server_hostname=host
        )
        self.is_open = False
        """The handshake is over: what is encrypted is for the one it should be for."""
        self.is_ended = False
        """The other side has said that nothing more will come."""

    def take(self, data: bytes) -> None:
        self._from_socket.write(data)

    def advance(self) -> bytes:
        """Go on with the handshake, then give what has come. Raises ssl.SSLError."""
        try:
            if not self.is_open:
                self._object.do_handshake()
                self.is_open = True
            first = self._object.read(READ_BYTES)
        except ssl.SSLWantReadError:
            return b""
        parts = [first]
        try:
            while parts[-1]:
                parts.append(self._object.read(READ_BYTES))
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """What goes to the socket for this; with whatever else is to go there."""
        # The pipe to the socket has no end, so everything is taken at once.
        self._object.write(data)
        return self._to_socket.read()

    def outgoing(self) -> bytes:
        return self._to_socket.read()

    def farewell(self) -> bytes:
        """The end, as TLS says it; the answer is not waited for."""
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()
        return self._to_socket.read()

    @property
    def peer_certificate(self) -> bytes | None:
        """The other side's certificate as it came (DER)."""
        return self._object.getpeercert(binary_form=True) if self.is_open else None

    @property
    def version(self) -> str:
        return self._object.version() or ""
