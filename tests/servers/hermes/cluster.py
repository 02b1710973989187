"""Nodes of `flintmq hermesd` as processes, and a client that finds the leader as theirs does."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.patience import free_port, until

from .client import HermesClient, Refused

READY_SECONDS = 60.0
LOST = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


class HermesdNode:
    """One node. It keeps its directory and its address for other nodes over restarts."""

    def __init__(self, directory: Path, id: int, *flags: str) -> None:
        self.id, self._flags = id, flags
        self.directory = directory / f"node-{id}"
        self.data = self.directory / "data"
        self.peer_addr = f"127.0.0.1:{free_port()}"
        self.address = ("", 0)
        self.http = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "stderr.txt").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "flintmq.cli", "hermesd", "--node-id", str(self.id)),
                *("--data-dir", str(self.data), "--client-addr", "127.0.0.1:0"),
                *("--metrics-addr", "127.0.0.1:0", "--peer-addr", self.peer_addr, *self._flags),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), READY_SECONDS)).decode()
        host, _, port = line.split("hermes://")[1].split(",")[0].rpartition(":")
        self.address = host, int(port)
        self.http = "http://" + line.split("http://")[1].split(",")[0]

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def kill(self) -> None:
        if self.process is not None and self.is_running:
            self.process.kill()
            await self.process.wait()

    async def call(self, kind: str, **fields: Any) -> Any:
        """Ask this node, by a connection of its own, as HermesMQ's own tests do."""
        async with await HermesClient.connect(self.address) as client:
            return await client.call(kind, **fields)

    async def page(self, name: str) -> tuple[int, str]:
        return await asyncio.to_thread(_page, f"{self.http}/{name}")

    async def is_ready(self) -> bool:
        return (await self.page("ready"))[0] == 200

    async def leads(self) -> bool:
        if not self.is_running:
            return False
        try:
            return bool((await self.call("stats")).is_leader)
        except LOST:
            return False


def _page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@asynccontextmanager
async def hermesd_nodes(
    directory: Path, ids: Sequence[int] = (1, 2, 3), *flags: str
) -> AsyncIterator[list[HermesdNode]]:
    """Blank nodes that run."""
    nodes = [HermesdNode(directory, id, *flags) for id in ids]
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        yield nodes
    finally:
        for node in nodes:
            await node.kill()


def listed(nodes: Sequence[HermesdNode]) -> list[tuple[int, str]]:
    """As a Bootstrap names them."""
    return [(node.id, node.peer_addr) for node in nodes]


@asynccontextmanager
async def bootstrapped(
    directory: Path, ids: Sequence[int] = (1, 2, 3), *flags: str
) -> AsyncIterator[list[HermesdNode]]:
    """A cluster that is ready."""
    async with hermesd_nodes(directory, ids, *flags) as nodes:
        await nodes[0].call("bootstrap", nodes=listed(nodes))
        for node in nodes:
            await until(node.is_ready, f"node {node.id} is ready")
        yield nodes


async def leader_of(nodes: Sequence[HermesdNode], *, but: HermesdNode | None = None) -> HermesdNode:
    """Wait for a node that says it leads, other than one that was killed."""
    leaders: list[HermesdNode] = []

    async def one_leads() -> bool:
        leaders[:] = [node for node in nodes if node is not but and await node.leads()]
        return len(leaders) == 1

    await until(one_leads, "one node leads")
    return leaders[0]


class RoamingClient:
    """Asks the leader, wherever it is: by `leader_addr` of a refusal if that is a peer address it
    knows, else the next node. What fails by the connection is sent again."""

    def __init__(self, nodes: Sequence[HermesdNode], is_over: Callable[[], bool]) -> None:
        self._nodes, self._is_over = list(nodes), is_over
        self._at = 0
        self._client: HermesClient | None = None
        self.repeats = 0

    async def call(self, kind: str, **fields: Any) -> Any:
        """Raises asyncio.CancelledError once `is_over`, without an answer."""
        while not self._is_over():
            try:
                if self._client is None:
                    self._client = await HermesClient.connect(self._nodes[self._at].address)
                return await self._client.call(kind, **fields)
            except Refused as refused:
                if refused.code != "not_leader":
                    raise
                await self._go(refused.leader_addr)
            except LOST:
                self.repeats += 1
                await self._go("")
        raise asyncio.CancelledError

    async def _go(self, peer_addr: str) -> None:
        await self.close()
        known = [at for at, node in enumerate(self._nodes) if node.peer_addr == peer_addr]
        self._at = known[0] if known else (self._at + 1) % len(self._nodes)
        await asyncio.sleep(0.05)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(*LOST):
                await client.close()
