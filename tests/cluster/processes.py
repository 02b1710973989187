"""Nodes as processes of their own, each started, killed and started again by hand."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from flintmq.cluster_model import ClusterStatus, NodeStatus
from flintmq.errors import FlintError
from flintmq.net.remote.broker import RemoteBroker

from ..patience import free_port, until

READY_SECONDS = 90.0
_given: set[int] = set()


def own_port() -> int:
    """One that no other node of these tests has: it is not listened on until its process runs."""
    while (port := free_port()) in _given:
        pass
    _given.add(port)
    return port


class NodeProcess:
    def __init__(
        self, directory: Path, name: str, key: Path, *credential: str, scheme: str = "flint"
    ) -> None:
        """`credential`: the options by which nodes know it, if not by the key of all."""
        self.name, self.directory, self._scheme = name, directory / name, scheme
        self._credential = credential or ("--cluster-key-file", str(key))
        self.clients, self.peers, self.http = own_port(), own_port(), own_port()
        self.process: asyncio.subprocess.Process | None = None
        self.environment: dict[str, str] = {}
        self.log = directory / f"{name}.log"

    @property
    def peer(self) -> str:
        return f"127.0.0.1:{self.peers}"

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.clients}"

    async def start(self, *arguments: str) -> None:
        """The process runs; it may not be ready yet."""
        with self._opened_log() as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "flintmq.cli", "serve"),
                *("--data-dir", str(self.directory), "--listen", f"127.0.0.1:{self.clients}"),
                *("--http", f"127.0.0.1:{self.http}", "--node-name", self.name),
                *("--peer-listen", self.peer, *self._credential, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment},
            )

    def _opened_log(self) -> BinaryIO:
        return open(self.log, "ab")

    async def ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = b"not in time"
        with suppress(TimeoutError):
            line = await asyncio.wait_for(self.process.stdout.readline(), READY_SECONDS)
        assert b"ready at" in line, f"{self.name} is not ready: {self.log.read_text()[-4000:]}"

    async def kill(self) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def ended(self) -> int:
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), READY_SECONDS)


def make_key(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    key = directory / "cluster.key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    return key


@asynccontextmanager
async def founded(
    directory: Path,
    *names: str,
    extra: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
) -> AsyncIterator[dict[str, NodeProcess]]:
    """A cluster of these; what is added to the dict ends with it."""
    key = make_key(directory)
    nodes = {name: NodeProcess(directory, name, key) for name in names}
    members = ",".join(f"{node.name}={node.peer}" for node in nodes.values())
    try:
        for node in nodes.values():
            node.environment = environment or {}
            await node.start("--initial-cluster", members, *extra)
        await asyncio.gather(*(node.ready() for node in nodes.values()))  # the first to fail tells
        yield nodes
    finally:
        for node in nodes.values():
            await node.kill()


async def seen_by(node: NodeProcess, api_key: str | None = None) -> ClusterStatus | None:
    """The cluster as one node sees it; None: it cannot be asked now."""
    broker = RemoteBroker(node.url, timeout=5, api_key=api_key)
    broker.link.dialer.follows = False
    try:
        await broker.open()
        return await broker.cluster("status")
    except FlintError:
        return None
    finally:
        await broker.close()


def of(status: ClusterStatus, name: str) -> NodeStatus | None:
    return next((node for node in status.nodes if node.name == name), None)


async def leader_of(nodes: dict[str, NodeProcess]) -> NodeProcess:
    found: list[str] = []

    async def is_led() -> bool:
        for node in nodes.values():
            if node.process is not None and node.process.returncode is None:
                status = await seen_by(node)
                if status is not None and status.leader in nodes:
                    leader = nodes[status.leader]
                    if leader.process is not None and leader.process.returncode is None:
                        found[:] = [status.leader]
                        return True
        return False

    await until(is_led, "somebody leads")
    return nodes[found[0]]


async def votes(nodes: dict[str, NodeProcess], name: str) -> None:
    """Wait until a node is a voter that has everything, by the word of whoever leads."""

    async def does() -> bool:
        status = await seen_by(await leader_of(nodes))
        node = None if status is None else of(status, name)
        return node is not None and node.role in ("follower", "leader") and not node.behind

    await until(does, f"{name} votes")
