"""A bad network: forwards bytes between a client and a server, and does to them what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

Way = Literal["up", "down"]
"""Towards the server, and towards the client."""


class Proxy:
    """Cuts each way's stream once behind so many bytes, holds it up, or swallows it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.passed = {"up": 0, "down": 0}
        self.cut_at: tuple[Way, int] | None = None
        self.cuts = 0
        self.delay = 0.0
        self.silent: set[Way] = set()
        self.swallowed = 0
        self.refusing = False
        self.on_cut: Callable[[], None] = lambda: None

    async def start(self) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self._writers.add(writer)
        try:
            if self.refusing:
                return
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._writers.add(far_writer)
            up = asyncio.ensure_future(self._pump("up", reader, far_writer))
            down = asyncio.ensure_future(self._pump("down", far_reader, writer))
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            for pump in (up, down):
                pump.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            far_writer.transport.abort()
            self._writers.discard(far_writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._links.discard(task)

    async def _pump(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        is_silent = False
        while data := await reader.read(65536):
            if self.delay:
                await asyncio.sleep(self.delay)
            is_silent = is_silent or way in self.silent
            if is_silent:
                self.swallowed += len(data)
                continue  # for good: no connection goes on behind what it lost
            if self.cut_at is not None and self.cut_at[0] == way:
                left = self.cut_at[1] - self.passed[way]
                if len(data) >= left:
                    writer.write(data[:left])
                    self.passed[way] += left
                    self.cut_at = None
                    self.cuts += 1
                    await asyncio.sleep(0)
                    self.on_cut()
                    return
            writer.write(data)
            self.passed[way] += len(data)

    def cut(self) -> None:
        """Cut everything that is connected right now."""
        self.cuts += 1
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
