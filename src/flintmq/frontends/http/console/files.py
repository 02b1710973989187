"""The console's page and what it is made of: files of this package, served as they are.

Whoever has the page asks for its parts under a name that changes with any of them, so a browser
keeps them for ever and never has parts of two versions. Nothing comes from elsewhere, and the page
may run nothing that is not a file of its own: see POLICY.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from threading import Lock
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..faults import HttpRefusal

PAGE = "index.html"
MARK = b"{fingerprint}"
"""Stands in the page for the name of this version."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
FOR_EVER = "public, max-age=31536000, immutable"


class ConsoleFile(NamedTuple):
    data: bytes
    packed: bytes
    """With gzip."""
    etag: str


_reading = Lock()


class ConsoleFiles(NamedTuple):
    by_path: dict[str, ConsoleFile]
    fingerprint: str
    """Another one as soon as any of them changes."""


def console_files() -> ConsoleFiles:
    """All of them, read and packed once. Not on the event loop: that takes a while."""
    with _reading:
        return _console_files()


@cache
def _console_files() -> ConsoleFiles:
    found: dict[str, bytes] = {}
    _gather(files(__name__.rpartition(".")[0]).joinpath("static"), "", found)
    fingerprint = _fingerprint(found)
    found[PAGE] = found[PAGE].replace(MARK, fingerprint.encode())
    packed = {
        path: ConsoleFile(
            data, gzip.compress(data, 9, mtime=0), f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        )
        for path, data in found.items()
    }
    return ConsoleFiles(packed, fingerprint)


def _fingerprint(found: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for path in sorted(found):
        if path != PAGE:
            whole.update(path.encode() + b"\0" + found[path] + b"\0")
    return whole.hexdigest()[:12]


def _gather(place: Traversable, prefix: str, found: dict[str, bytes]) -> None:
    for one in place.iterdir():
        if one.is_dir():
            _gather(one, f"{prefix}{one.name}/", found)
        elif one.name.rpartition(".")[2] in KINDS:
            found[prefix + one.name] = one.read_bytes()


def console_routes() -> list[BaseRoute]:
    """Open to everybody: there is nothing of the broker in the page; what it asks needs the key."""

    async def page(request: Request) -> Response:
        files = await asyncio.to_thread(console_files)
        return _answer(request, files.by_path.get(PAGE), "html", "no-cache")

    async def part(request: Request) -> Response:
        files = await asyncio.to_thread(console_files)
        version, path = request.path_params["version"], request.path_params["path"]
        kept = FOR_EVER if version == files.fingerprint else "no-cache"
        return _answer(request, files.by_path.get(path), path.rpartition(".")[2], kept)

    return [
        Route("/", page, methods=["GET"]),
        Route("/console/{version}/{path:path}", part, methods=["GET"]),
    ]


def _answer(request: Request, file: ConsoleFile | None, kind: str, kept: str) -> Response:
    if file is None:
        raise HttpRefusal(404, "NotFound", "the console has no such page; it starts at /")
    headers = {
        "content-type": KINDS[kind],
        "content-security-policy": POLICY,
        "cache-control": kept,
        "etag": file.etag,
        "vary": "accept-encoding",
        "cross-origin-opener-policy": "same-origin",
        "x-frame-options": "DENY",
    }
    if file.etag in request.headers.get("if-none-match", ""):
        del headers["content-type"]
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers=headers | {"content-encoding": "gzip"})
    return Response(file.data, headers=headers)
