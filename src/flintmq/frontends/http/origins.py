"""Which web pages may ask, by the Origin header of their browser. Pure.

A browser lets any page send requests anywhere. It names the page's origin in all that could change
something, and in what opens a WebSocket. Pages of this broker's own address may ask everything;
those of `http_cors_origins` too, and their browser is told that they may read the answers (CORS).
Any other page may change nothing. A program that is no browser sends no Origin.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal
from urllib.parse import urlsplit

Page = Literal["none", "own", "allowed", "foreign"]

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
PREFLIGHT_SECONDS = 600


def page_of(origin: str | None, host: str | None, allowed: Collection[str]) -> Page:
    """What page a request comes from. `allowed` are origins in lower case, or `*` for all."""
    if origin is None:
        return "none"
    origin = origin.strip().lower()
    if origin in allowed or ("*" in allowed and origin != "null"):
        return "allowed"
    try:
        at = urlsplit(origin).netloc
    except ValueError:
        return "foreign"
    return "own" if at and host is not None and at == host.strip().lower() else "foreign"


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    """What lets a page read an answer. No cookies are used here, so none are allowed."""
    return [
        (b"access-control-allow-origin", origin.strip().encode("latin-1")),
        (b"access-control-expose-headers", b"retry-after"),
        (b"vary", b"origin"),
    ]


def preflight_headers(asked: str) -> list[tuple[bytes, bytes]]:
    """What tells a browser that it may send a request with these headers."""
    return [
        (b"access-control-allow-methods", METHODS.encode()),
        (b"access-control-allow-headers", asked.encode("latin-1") or b"*"),
        (b"access-control-max-age", str(PREFLIGHT_SECONDS).encode()),
    ]
