"""What stands before every page: limits, errors in JSON, headers, counts.

Routes raise what went wrong; here it becomes an answer. An internal error is logged; the client
learns that there was one, but no details.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Router
from starlette.types import Message, Receive, Scope, Send

from ...errors import FlintError
from ...observe.logs import limited
from .answers import problem_of
from .body import RequestBody
from .connection import HttpConnection
from .faults import HttpRefusal
from .hosts import host_of, is_ours
from .limits import HttpLimits
from .origins import Page, cors_headers, page_of, preflight_headers
from .patience import PATIENCE, Patience
from .state import HttpState
from .turnstile import Turnstile

_log = logging.getLogger(__name__)

ALWAYS = ("/health", "/healthz", "/ready", "/readyz")
"""Answered however many requests are under way."""

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
"""Of every answer, unless a page says otherwise."""

READS = ("GET", "HEAD", "OPTIONS")


class Pages:
    """The ASGI application."""

    def __init__(self, state: HttpState, routes: Sequence[BaseRoute], limits: HttpLimits) -> None:
        self._state = state
        self._router = Router(routes, redirect_slashes=False)
        self.limits = limits
        self.turnstile: Turnstile | None = None
        """Of the server that serves these; without one nothing is measured."""
        self.is_closing = False
        self.under_way = 0
        self.waiting = 0
        """Long polls and streams, which are not under way while they wait."""
        self.answers: Counter[tuple[str, int]] = Counter()
        """By page and status."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        work = self._answer(scope, receive, send)
        await (work if self.turnstile is None else self.turnstile.metered(work))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin, page = self._page(scope)
        sending = _CountedSend(send, cors_headers(origin) if page == "allowed" else [])
        scope["app"] = self  # has the router raise what it cannot find
        self.under_way += 1
        try:
            if page == "allowed" and scope["method"] == "OPTIONS":
                await _allow(scope, sending)
                return
            self._check(scope, page)
            body = RequestBody(scope, receive, self.limits.body_bytes)
            async with asyncio.timeout(self.limits.handler_seconds) as time_limit:
                scope[PATIENCE] = Patience(time_limit, self.limits.handler_seconds, self._waits)
                await self._router(scope, body, sending)
        except ClientDisconnect:
            return  # the client is gone
        except asyncio.CancelledError:
            if not self.is_closing:
                raise
        except Exception as error:
            if not sending.status:
                await self._problem(scope, error, sending)
                return
            # It has begun and cannot be taken back: the client sees that it is not whole.
            if not isinstance(error, TimeoutError):  # else the client does not read
                limited(
                    _log,
                    logging.ERROR,
                    "http_answer_broke_off",
                    scope["path"],
                    "an HTTP answer was cut off because of an internal error; please report it",
                    exc_info=error,
                    path=scope["path"],
                )
            connection = scope.get("flintmq.connection")
            if isinstance(connection, HttpConnection):
                connection.transport.abort()
                await asyncio.sleep(0)  # it hears that it is lost
        finally:
            self.under_way -= 1
            self.answers[counted_page(scope["path"]), sending.status] += 1

    def _waits(self, count: int) -> None:
        self.under_way -= count
        self.waiting += count

    def _page(self, scope: Scope) -> tuple[str, Page]:
        """The origin of a request, and which page that is."""
        found = {name: value for name, value in scope["headers"] if name in (b"origin", b"host")}
        origin, host = found.get(b"origin"), found.get(b"host")
        text = None if origin is None else origin.decode("latin-1")
        name = None if host is None else host.decode("latin-1")
        return text or "", page_of(text, name, self._state.origins)

    def _check(self, scope: Scope, page: Page) -> None:
        if scope["path"] not in ALWAYS:
            if not self._state.can_be_asked():
                why = self._state.why_not_ready() or "the broker is closed"
                raise HttpRefusal(503, "NotReady", f"{why}; try again", retry_after="1")
            if self.under_way > self.limits.requests:
                limit = self.limits.requests
                raise HttpRefusal(
                    503, "Busy", f"{limit} requests are pending; try again", retry_after="1"
                )
            self._check_host(scope)
        if page == "foreign" and (scope["method"] not in READS or _wants_upgrade(scope)):
            raise HttpRefusal(
                403,
                "PermissionDenied",
                "requests of web pages on other sites are not accepted; allow their origin with "
                "http_cors_origins",
            )
        hosts = 0
        for name, value in scope["headers"]:
            hosts += name == b"host"
            if (
                name == b"sec-fetch-site"
                and page != "allowed"
                and value not in (b"same-origin", b"none")
                and scope["method"] not in READS
            ):
                # A browser says that another site's page asks for a change. Nobody meant that.
                raise HTTPException(403, "changes are not accepted from web pages of other sites")
        if hosts != 1 and (hosts or scope["http_version"] != "1.0"):
            raise HTTPException(400, f"HTTP/1.1 requires one Host header, not {hosts or 'none'}")

    def _check_host(self, scope: Scope) -> None:
        """See hosts.py. Who sends no name is no browser."""
        names = self._state.hosts
        if names is None or self._state.gate.is_closed:
            return
        for header, value in scope["headers"]:
            if header == b"host" and not is_ours(given := value.decode("latin-1"), names):
                raise HttpRefusal(
                    421,
                    "UnknownHost",
                    "without keys, this broker does not accept the host name "
                    f"{host_of(given)!r}: use its address, add the name to http_hosts, or "
                    "add keys",
                )

    async def _problem(self, scope: Scope, error: Exception, sending: _CountedSend) -> None:
        if isinstance(error, HttpRefusal) and error.kind in ("NotReady", "Busy") and _is_sse(scope):
            # An EventSource gives up at any other status than 200. From a stream that ends it comes
            # back, with the id of the last event.
            headers = [(b"content-type", b"text/event-stream")]
            await sending({"type": "http.response.start", "status": 200, "headers": headers})
            await sending({"type": "http.response.body", "body": b"retry: 1000\n\n"})
            return
        if isinstance(error, TimeoutError) and not isinstance(error, FlintError):
            seconds = self.limits.handler_seconds
            error = HttpRefusal(
                504,
                "TooSlow",
                f"the request took longer than {seconds:g} s; it may have been carried out",
            )
        answer = problem_of(error)
        if answer.status_code == 500:
            limited(
                _log,
                logging.ERROR,
                "http_request_failed",
                type(error).__name__,
                "an HTTP request failed because of an internal error; please report it",
                exc_info=error,
                method=scope["method"],
                path=scope["path"],
            )
        await answer(scope, _nothing, sending)


def counted_page(path: str) -> str:
    """The first word of a path, for counting; of those that anybody may make up, one for all."""
    first = path[1:].partition("/")[0]
    return first if first in ("health", "ready", "metrics", "api") else "other"


def _is_sse(scope: Scope) -> bool:
    return scope["path"].endswith("/stream") and any(
        name == b"accept" and b"text/event-stream" in value for name, value in scope["headers"]
    )


def _wants_upgrade(scope: Scope) -> bool:
    return any(name == b"upgrade" for name, _ in scope["headers"])


async def _allow(scope: Scope, sending: _CountedSend) -> None:
    """The answer to a browser that asks whether a page may send a request."""
    asked = [v for n, v in scope["headers"] if n == b"access-control-request-headers"]
    headers = preflight_headers(asked[0].decode("latin-1") if asked else "")
    await sending({"type": "http.response.start", "status": 204, "headers": headers})
    await sending({"type": "http.response.body", "body": b""})


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


class _CountedSend:
    """Adds the headers, and remembers the status."""

    __slots__ = ("_more", "_send", "status")

    def __init__(self, send: Send, more: list[tuple[bytes, bytes]]) -> None:
        self._send, self._more = send, more
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"] = list(message.get("headers", ()))
            said = {name for name, _ in headers}
            headers += [header for header in HEADERS if header[0] not in said]
            headers += [header for header in self._more if header[0] not in said]
        await self._send(message)
