"""All nodes of a cluster on one machine: a supervisor that starts, watches and stops them."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..errors import FlintError, InvalidRequest
from ..net.remote.broker import RemoteBroker

PLAN_FILE = "cluster.json"
KEY_FILE = "cluster.key"
HOST = "127.0.0.1"
AGAIN_SECONDS = (1.0, 30.0)
"""How long a node that has ended is left alone before it is started again."""
STOP_SECONDS = 30.0
ANSWER_SECONDS = 5.0
"""How long one attempt to ask a node takes at most."""


class PlannedNode(msgspec.Struct, frozen=True):
    name: str
    clients: int
    http: int
    peers: int
    """Ports."""


class ClusterPlan(msgspec.Struct, frozen=True):
    """Which nodes there are, and where. Written once: nodes keep their addresses."""

    nodes: list[PlannedNode]
    directory: str = ""

    @classmethod
    def of(cls, directory: Path, count: int, port: int) -> ClusterPlan:
        """The plan of a directory; a new one gets this many nodes. Raises InvalidRequest."""
        path = directory / PLAN_FILE
        where = str(directory.absolute())
        if path.is_file():
            plan = msgspec.json.decode(path.read_bytes(), type=cls)
            if len(plan.nodes) != count:
                raise InvalidRequest(
                    f"{directory} has a cluster of {len(plan.nodes)} nodes, not {count}; pass "
                    f"--nodes {len(plan.nodes)}, or choose another --data-dir"
                )
            return cls(plan.nodes, where)
        directory.mkdir(parents=True, exist_ok=True)
        ports = free_ports(3 * count) if port == 0 else []
        if not ports:
            ports = [port + 10 * node + kind for node in range(count) for kind in range(3)]
        nodes = [
            PlannedNode(f"n{number + 1}", *ports[3 * number : 3 * number + 3])
            for number in range(count)
        ]
        plan = cls(nodes, where)
        with open(os.open(directory / KEY_FILE, os.O_CREAT | os.O_WRONLY, 0o600), "w") as key:
            key.write(secrets.token_hex(32) + "\n")
        path.write_bytes(msgspec.json.format(msgspec.json.encode(cls(nodes))) + b"\n")
        return plan

    @property
    def url(self) -> str:
        return "flint://" + ",".join(f"{HOST}:{node.clients}" for node in self.nodes)

    def arguments(self, node: PlannedNode) -> list[str]:
        """Of `flintmq serve`."""
        directory = Path(self.directory)
        members = ",".join(f"{one.name}={HOST}:{one.peers}" for one in self.nodes)
        return [
            *("--data-dir", str(directory / node.name)),
            *("--listen", f"{HOST}:{node.clients}", "--http", f"{HOST}:{node.http}"),
            *("--node-name", node.name, "--peer-listen", f"{HOST}:{node.peers}"),
            *("--initial-cluster", members, "--cluster-key-file", str(directory / KEY_FILE)),
        ]


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return sorted(one.getsockname()[1] for one in sockets)


class Supervisor:
    """`tell` gets what people should read."""

    def __init__(self, plan: ClusterPlan, tell: Callable[[str], None]) -> None:
        self.plan, self._tell = plan, tell
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._ready: dict[str, asyncio.Event] = {node.name: asyncio.Event() for node in plan.nodes}

    async def run(self) -> None:
        """Until Ctrl-C or SIGTERM; then all nodes stop in good order. The second one kills them."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_stop)
        tasks = [loop.create_task(self._keep_up(node)) for node in self.plan.nodes]
        tasks.append(loop.create_task(self._tell_ready()))
        try:
            await self._stopping.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _told_to_stop(self) -> None:
        if self._stopping.is_set():
            self._send(signal.SIGKILL)
        self._stopping.set()

    def _send(self, number: signal.Signals) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.send_signal(number)

    async def _tell_ready(self) -> None:
        for event in self._ready.values():
            await event.wait()
        for node in self.plan.nodes:
            await self._wait_until_it_knows_all(node)
        self._tell(f"{len(self.plan.nodes)} nodes are ready at {self.plan.url}")
        self._tell(
            f"logs and data in {self.plan.directory}; `flintmq cluster status --server "
            f"{self.plan.url}` shows who leads"
        )

    async def _wait_until_it_knows_all(self, node: PlannedNode) -> None:
        """A leader, and the addresses of all nodes: whoever asks it is told the whole cluster."""
        while True:
            broker = RemoteBroker(f"flint://{HOST}:{node.clients}", timeout=ANSWER_SECONDS)
            broker.link.dialer.follows = False
            with suppress(FlintError):
                await broker.open()
            found = broker.link.dialer.map
            await broker.close()
            if (
                found is not None
                and found.groups[0].leader
                and all(node.addresses for node in found.nodes)
            ):
                return
            await asyncio.sleep(AGAIN_SECONDS[0] / 10)

    async def _keep_up(self, node: PlannedNode) -> None:
        least, most = AGAIN_SECONDS
        pause = least
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._one_life(node)
            if asyncio.get_running_loop().time() - began > most:
                pause = least
            self._tell(
                f"node {node.name} has ended ({_how(code)}); starting it again in {pause:g} s; its "
                f"log is {Path(self.plan.directory) / node.name}.log"
            )
            await asyncio.sleep(pause)
            pause = min(most, pause * 2)

    async def _one_life(self, node: PlannedNode) -> int:
        with self._log_of(node) as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "flintmq.cli", "serve", *self.plan.arguments(node)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we stop it in good order
            )
        self.processes[node.name] = process
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if b"ready at " in line:
                self._ready[node.name].set()
        return await process.wait()

    def _log_of(self, node: PlannedNode) -> BinaryIO:
        return open(Path(self.plan.directory) / f"{node.name}.log", "ab")

    async def _stop(self) -> None:
        self._send(signal.SIGTERM)
        kill = asyncio.get_running_loop().call_later(STOP_SECONDS, self._send, signal.SIGKILL)
        for process in self.processes.values():
            await process.wait()
        kill.cancel()
        self._tell("all nodes have stopped")


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
