"""The network between the nodes of a cluster: every directed link can be cut by itself.

There is a proxy in front of the peer address of each node. Who dials is known by the hello that
opens a line, so what passes is from one node to another, and each of both ways can be made silent:
what is sent there is lost, while the line looks well. A link can also be refused, both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import permutations

HELLO_BYTES = 64
DIALLER = slice(24, 32)
"""Where a hello has the number of the node; 0 in one that founds a cluster."""

Directed = tuple[int, int]
"""From a node, to a node; numbers begin at 1."""


class PeerNetwork:
    def __init__(self, targets: list[tuple[str, int]]) -> None:
        """Where each node listens for the others."""
        self.targets = targets
        self.places: dict[int, int] = {}
        """Of nodes that came later, whose numbers are others than those of their places."""
        self._servers: list[asyncio.Server] = []
        self.doors: list[tuple[str, int]] = []
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.silent: set[Directed] = set()
        self.refused: set[Directed] = set()
        self.swallowed = 0

    async def open(self) -> list[tuple[str, int]]:
        """What to dial for each node. In ascending order, so that a cluster that they found by
        these addresses gives them the numbers that they have here."""
        for _ in self.targets:
            self._servers.append(await asyncio.start_server(self._link, "127.0.0.1", 0))
        self.doors = sorted(server.sockets[0].getsockname()[:2] for server in self._servers)
        return self.doors

    def links_of(self, node: int) -> list[Directed]:
        return [link for link in permutations(range(1, len(self.targets) + 1), 2) if node in link]

    def refuse(self, links: Iterable[Directed]) -> None:
        """Connections of these links end, and no other comes about."""
        self.refused.update(links)
        self._cut_all()

    def heal(self) -> None:
        self.silent.clear()
        self.refused.clear()
        self._cut_all()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _cut_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self._writers.add(writer)
        far_writer = None
        try:
            to = self.doors.index(writer.get_extra_info("sockname")[:2]) + 1
            hello = await reader.readexactly(HELLO_BYTES)
            number = int.from_bytes(hello[DIALLER], "little")
            dialler = self.places.get(number, number)
            if self.refused.intersection({(dialler, to), (to, dialler)}):
                return
            far_reader, far_writer = await asyncio.open_connection(*self.targets[to - 1])
            self._writers.add(far_writer)
            pumps = [
                asyncio.ensure_future(self._pump((dialler, to), reader, far_writer, hello)),
                asyncio.ensure_future(self._pump((to, dialler), far_reader, writer, b"")),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, far_writer):
                if one is not None:
                    one.transport.abort()
                    self._writers.discard(one)
            await asyncio.sleep(0)  # what was aborted is gone by then
            self._links.discard(task)

    async def _pump(
        self, way: Directed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
    ) -> None:
        is_silent = False
        while data or (data := await reader.read(65536)):
            # For good: no connection goes on behind what it lost.
            is_silent = is_silent or way in self.silent
            if is_silent:
                self.swallowed += len(data)
            else:
                writer.write(data)
            data = b""
