"""The body of a request as it arrives: counted, bounded, and read no faster than it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from .answers import too_large
from .connection import HttpConnection

BODY = "flintmq.body"
"""Where the scope of a request has it."""


class RequestBody:
    """`receive` of ASGI. A route that reads a body piece by piece lifts the limit of the whole."""

    __slots__ = ("_connection", "_declared", "_has_ended", "_left", "_limit", "_receive")

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._receive, self._limit = receive, limit
        self._left: int | None = limit
        self._has_ended = False
        connection = scope.get("flintmq.connection")
        self._connection = connection if isinstance(connection, HttpConnection) else None
        lengths = [int(text) for name, text in scope["headers"] if name == b"content-length"]
        self._declared = max(lengths, default=0)
        scope[BODY] = self

    @property
    def limit(self) -> int:
        return self._limit

    def lift(self) -> None:
        """Take as much as comes: the reader bounds the pieces."""
        self._left = None
        if self._connection is not None:
            self._connection.lift_body_limit()

    def made_progress(self) -> None:
        """What came so far is used: the client has its time for the rest."""
        if self._connection is not None:
            self._connection.more_body_time()

    async def __call__(self) -> Message:
        self._check(self._declared)  # before it is sent
        message = await self._receive()
        if self._left is not None:
            self._left -= len(message.get("body", b""))
            self._check(0)
        if self._connection is not None:
            self._connection.body_was_taken()
        return message

    def _check(self, size: int) -> None:
        if self._left is not None and (self._left < 0 or size > self._limit):
            raise too_large(self._limit)

    async def begin(self) -> bytes:
        """As much as it takes to know what comes: up to the first character that is no space. The
        limit counts from here on, unless it is lifted."""
        begun, more, limit = b"", True, self._left
        self._left = None
        while more and not begun.strip():
            message = await self()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            begun += message.get("body", b"")
            if len(begun) > self._limit and not begun.strip():
                raise too_large(self._limit)
        self._left = None if limit is None else limit - len(begun)
        self._has_ended = not more
        return begun

    async def rest(self) -> bytes:
        """What is left of it, whole."""
        self._check(self._declared)
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises ClientDisconnect where it breaks off."""
        more = not self._has_ended
        while more:
            message = await self()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            if body := message.get("body", b""):
                yield body
