"""One target: connections that are kept, and requests over them.

Redirects are not followed: a target that moves has to be told to the broker. An answer is read as
far as it is of use; one that goes on for longer costs its connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from .addresses import IpNetwork, resolved
from .request import request_bytes

TEXT_BYTES = 1024
"""Of an answer's body, for the reason of a dead letter."""
ANSWER_BYTES_MAX = 256 * 1024
"""Of head and body; what is longer is not read."""
CONNECT_SECONDS = 10.0
READ_BYTES = 64 * 1024


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class TargetUnreachable(Exception):
    """There is no connection, or no secure one: nothing was sent."""


class NoHttpAnswer(Exception):
    """What came is not HTTP, or goes on in another protocol, or its head does not end."""


class _Parsed:
    """What httptools finds in an answer."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_whole = self.has_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self.has_head = self.status >= 200  # not one that only announces the next

    def on_body(self, data: bytes) -> None:
        if len(self.body) < TEXT_BYTES:
            self.body += data[: TEXT_BYTES - len(self.body)]

    def on_message_complete(self) -> None:
        self.is_whole = self.has_head

    def answer(self) -> HttpAnswer:
        return HttpAnswer(self.status, self.headers, self.body.decode(errors="replace"))


class _Line(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class PostTarget:
    def __init__(self, url: str, allowed: Sequence[IpNetwork], tls: ssl.SSLContext) -> None:
        parts = urlsplit(url)
        self._tls = tls if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls is not None else 80)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._shown_host = shown if parts.port is None else f"{shown}:{parts.port}"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._allowed = allowed
        self._idle: list[_Line] = []

    async def post(self, headers: list[tuple[str, str]], body: bytes, seconds: float) -> HttpAnswer:
        """The answer. Where there is none, raises AddressRefused or TargetUnreachable; or, once the
        request is on its way, TimeoutError after `seconds`, OSError, EOFError or NoHttpAnswer."""
        data = request_bytes(self._path, self._shown_host, headers, body)
        if self._idle:
            line = self._idle.pop()
            try:
                return await self._ask(line, data, seconds)
            except (ConnectionError, EOFError):
                pass  # the target has closed it meanwhile, as it may
        return await self._ask(await self._connect(), data, seconds)

    async def _connect(self) -> _Line:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await resolved(self._host, self._port, self._allowed)
                name = self._host if self._tls is not None else None
                for address in addresses[:-1]:
                    with suppress(OSError):
                        return await self._open(address, name)
                return await self._open(addresses[-1], name)
        except TimeoutError:
            raise TargetUnreachable(f"no connection within {CONNECT_SECONDS:g} s") from None
        except (OSError, UnicodeError) as error:  # a name may be none that can be looked up
            raise TargetUnreachable(str(error) or type(error).__name__) from None

    async def _open(self, address: str, name: str | None) -> _Line:
        return _Line(
            *await asyncio.open_connection(
                address, self._port, ssl=self._tls, server_hostname=name, limit=READ_BYTES
            )
        )

    async def _ask(self, line: _Line, data: bytes, seconds: float) -> HttpAnswer:
        found = _Parsed()
        is_kept = False
        try:
            line.writer.write(data)
            read = 0
            try:
                async with asyncio.timeout(seconds):
                    while not found.is_whole and read < ANSWER_BYTES_MAX:
                        if (got := await line.reader.read(READ_BYTES)) == b"":
                            break
                        read += len(got)
                        found.parser.feed_data(got)
            except (TimeoutError, ConnectionError):
                if not found.has_head:
                    raise
            except (httptools.HttpParserError, httptools.HttpParserUpgrade):
                raise NoHttpAnswer from None
            if not found.has_head:
                if read >= ANSWER_BYTES_MAX:
                    raise NoHttpAnswer
                raise EOFError("the connection was closed without an answer")
            is_kept = found.is_whole and found.parser.should_keep_alive()
            return found.answer()
        finally:
            if is_kept:
                self._idle.append(line)
            else:
                line.writer.transport.abort()

    def close(self) -> None:
        idle, self._idle = self._idle, []
        for line in idle:
            line.writer.close()
