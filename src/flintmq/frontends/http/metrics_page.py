"""`/metrics`: made in small steps, kept for a moment, for keys that may see everything."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from .collectors import Collector
from .exposition import OPEN_METRICS, TEXT, Page
from .identify import access_of
from .limits import HttpLimits
from .state import HttpState
from .turnstile import Turnstile

KEPT_SECONDS = 1.0
"""Requests within this time get the same page."""

_GZIP = 31  # of zlib: the largest window, with gzip's head and tail


class _KeptPage(NamedTuple):
    until: float
    chunks: list[bytes]


class MetricsPage:
    def __init__(self, state: HttpState, limits: HttpLimits, collectors: list[Collector]) -> None:
        self._state = state
        self.limits = limits
        self.collectors = collectors
        """May be added to: each has families of its own."""
        self.turnstile: Turnstile | None = None
        self.rendered = 0
        self._kept: dict[tuple[bool, bool], _KeptPage] = {}
        self._rendering: dict[tuple[bool, bool], asyncio.Task[list[bytes]]] = {}

    def routes(self) -> list[BaseRoute]:
        return [Route("/metrics", self._answer)]

    async def _answer(self, request: Request) -> Response:
        if not self.limits.metrics:
            return PlainTextResponse("metrics disabled\n", 404)  # HermesMQ's own words
        access = await access_of(request, self._state)
        # As for the figures of every topic and group; who only scrapes should not have to be able
        # to delete them.
        access.require_look_at_all()
        is_open = "application/openmetrics-text" in request.headers.get("accept", "")
        is_packed = "gzip" in request.headers.get("accept-encoding", "")
        chunks = await self.chunks(is_open=is_open, is_packed=is_packed)
        headers = {"content-type": OPEN_METRICS if is_open else TEXT, "vary": "accept-encoding"}
        if is_packed:
            headers["content-encoding"] = "gzip"
        return _Chunked(chunks, headers, self.turnstile)

    async def chunks(self, *, is_open: bool = False, is_packed: bool = False) -> list[bytes]:
        """The page as it was within the last second. Who asks while it is made waits for it."""
        key = is_open, is_packed
        loop = asyncio.get_running_loop()
        kept = self._kept.get(key)
        if kept is not None and loop.time() < kept.until:
            return kept.chunks
        task = self._rendering.get(key)
        if task is None:
            work = self._make(is_open, is_packed)
            metered = work if self.turnstile is None else _metered(self.turnstile, work)
            task = self._rendering[key] = loop.create_task(metered)
            task.add_done_callback(lambda _: self._rendering.pop(key, None))
        chunks = await asyncio.shield(task)  # one that leaves does not take it from the others
        if self.turnstile is not None:
            await self.turnstile.pause()  # all who waited are woken at once: they go in turn
        return chunks

    async def _make(self, is_open: bool, is_packed: bool) -> list[bytes]:
        if is_packed:
            plain = await self.chunks(is_open=is_open)
            chunks = await asyncio.to_thread(_packed, plain)  # which leaves the loop alone
        else:
            chunks = await self._render(is_open)
        until = asyncio.get_running_loop().time() + KEPT_SECONDS
        self._kept[is_open, is_packed] = _KeptPage(until, chunks)
        return chunks

    async def _render(self, is_open: bool) -> list[bytes]:
        self.rendered += 1
        page = Page(family for collector in self.collectors for family in collector.families)
        for collector in self.collectors:
            for _ in collector.collect(page):
                await self._breathe()
        chunks = []
        for chunk in page.chunks(is_open=is_open):
            chunks.append(chunk)
            await self._breathe()
        return chunks

    async def _breathe(self) -> None:
        if self.turnstile is not None:
            await self.turnstile.breathe()

    async def close(self) -> None:
        tasks = list(self._rendering.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _metered(turnstile: Turnstile, work: Coroutine[Any, Any, list[bytes]]) -> list[bytes]:
    return await turnstile.metered(work)


def _packed(chunks: Sequence[bytes]) -> list[bytes]:
    packer = zlib.compressobj(1, wbits=_GZIP)
    packed = [packer.compress(chunk) for chunk in chunks]
    packed.append(packer.flush())
    return [b"".join(packed)]


class _Chunked(Response):
    """Written piece by piece, as fast as the client reads and the turnstile lets it."""

    def __init__(
        self, chunks: list[bytes], headers: dict[str, str], turnstile: Turnstile | None
    ) -> None:
        self._chunks, self._turnstile = chunks, turnstile
        headers["content-length"] = str(sum(map(len, chunks)))
        super().__init__(headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for chunk in self._chunks if scope["method"] != "HEAD" else ():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if self._turnstile is not None:
                await self._turnstile.breathe()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
