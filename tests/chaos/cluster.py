"""Three nodes of a cluster under a chaos run, each a process with a directory of its own."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from flintmq.cluster_model import ClusterStatus, ClusterVerb
from flintmq.errors import FlintError
from flintmq.net.remote.broker import RemoteBroker
from tests.integration.loop_disk import LoopDisk
from tests.patience import free_port, until

from .broker import SMALL, ChaosBroker
from .peer_network import PeerNetwork

NODES = 3
CATCH_UP_SECONDS = 300.0
"""How long a node may take to get everything, on a machine that is busy with other things."""
REMOVED = "this node was removed from the cluster"
"""What a node says at its end that was removed."""
LEADING, GAVE_UP = "cluster_leading", "cluster_gave_up_lead"


class ChaosCluster:
    """Like one broker to its clients and to the run. `place` has the logs; the data is on `disks`,
    one for each node, or below `place`."""

    def __init__(
        self,
        place: Path,
        disks: Sequence[LoopDisk] = (),
        chance: random.Random | None = None,
        options: Sequence[str] = SMALL,
        *,
        is_proxied: bool = True,
    ) -> None:
        """`options` are those of every node. Where they are not proxied, no line can be cut."""
        self._place, self.disks, self._options = place, disks, options
        self._is_proxied = is_proxied
        self.chance = chance or random.Random()
        self._key = place / "cluster.key"
        self._key.write_text(secrets.token_hex(32))
        self._key.chmod(0o600)
        self._peer_ports = [free_port() for _ in range(NODES)]
        self.network = PeerNetwork([("127.0.0.1", port) for port in self._peer_ports])
        self.nodes: list[ChaosBroker] = []
        self.names: list[str] = []
        self._joined = NODES
        self._gone: list[ChaosBroker] = []

    async def open(self) -> None:
        """Lay the lines; nothing runs yet."""
        places = await self.network.open() if self._is_proxied else self.network.targets
        addresses = ["{}:{}".format(*address) for address in places]
        names = self.names = [f"node{number}" for number in range(1, NODES + 1)]
        founders = ",".join(map("=".join, zip(names, addresses, strict=True)))
        for at, (name, port) in enumerate(zip(names, self._peer_ports, strict=True)):
            extra = [*self._own(name, port), "--initial-cluster", founders]
            parent = self.disks[at].path if self.disks else self._place / "data"
            log = self._place / f"{name}.log"
            self.nodes.append(ChaosBroker(parent / name, log, [*self._options, *extra]))

    def _own(self, name: str, port: int) -> list[str]:
        own = ["--node-name", name, "--peer-listen", f"127.0.0.1:{port}"]
        return [*own, "--cluster-key-file", str(self._key)]

    async def close(self) -> None:
        await self.network.close()

    # --- nodes come and go

    async def ask(self, verb: ClusterVerb, name: str = "", address: str = "") -> ClusterStatus:
        """Of whoever can be asked, until it is done."""
        last: FlintError | None = None
        for _ in range(60):
            broker = RemoteBroker(self.url, timeout=5)
            try:
                await broker.open()
                return await broker.cluster(verb, name, address)
            except FlintError as error:
                last = error
                await asyncio.sleep(0.5)
            finally:
                await broker.close()
        raise AssertionError(f"cluster {verb} {name}: {last!r}")

    async def votes(self, name: str) -> int:
        """Wait until a node of that name is a voter that has everything; its number."""
        found: list[int] = []

        async def does() -> bool:
            status = await self.ask("status")
            for node in status.nodes:
                if node.name == name and node.role in ("leader", "follower") and not node.behind:
                    found[:] = [node.id]
                    return len([one for one in status.nodes if one.name == name]) == 1
            return False

        await until(does, f"{name} votes", CATCH_UP_SECONDS)
        return found[0]

    def _seeds(self) -> str:
        return ",".join("{}:{}".format(*door) for door in self.network.doors)

    async def replace(self, at: int) -> None:
        """The disk of a node that is down is lost: another begins with nothing in its place."""
        name, node, port = self.names[at], self.nodes[at], self._peer_ports[at]
        door = "{}:{}".format(*self.network.doors[at])
        await asyncio.to_thread(shutil.rmtree, node.directory)
        await self.ask("replace", name, door)
        own = [*self._own(name, port), "--peer-address", door, "--join", self._seeds()]
        node.begin_with([*self._options, *own])
        await asyncio.to_thread(node.start)
        self.network.places[await self.votes(name)] = at + 1

    async def join(self) -> str:
        """One more node, which is the last of them. No line between it and others is cut."""
        self._joined += 1
        name, port = f"node{self._joined}", free_port()
        own = [*self._own(name, port), "--join", self._seeds()]
        place = self._place / "data" / name
        node = ChaosBroker(place, self._place / f"{name}.log", [*self._options, *own])
        self.nodes.append(node)
        self.names.append(name)
        await asyncio.to_thread(node.start)
        await self.votes(name)
        return name

    async def remove(self, name: str) -> None:
        """It ends by itself."""
        await self.ask("remove", name)
        at = self.names.index(name)
        node = self.nodes[at]
        await until(lambda: not node.is_up(), f"{name} ends")
        self._gone += [node]
        del self.nodes[at], self.names[at]
        node.leave()
        await asyncio.to_thread(shutil.rmtree, node.directory)

    @property
    def url(self) -> str:
        return "flint://" + ",".join("{}:{}".format(*node.address) for node in self.nodes)

    @property
    def starts(self) -> int:
        return sum(node.starts for node in self.nodes)

    @property
    def slowest_start_seconds(self) -> float:
        return max(node.slowest_start_seconds for node in self.nodes)

    async def start(self) -> None:
        """All that are not up. They wait for each other the first time."""
        down = [node for node in self.nodes if not node.is_up()]
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in down))

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    async def stop(self) -> list[int]:
        return await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes))

    def leave(self) -> None:
        for node in self.nodes:
            node.leave()

    def complaints(self) -> list[str]:
        all = [*self.nodes, *self._gone]
        found = [line for node in all for line in node.complaints(was_damaged=False)]
        return [line for line in found if REMOVED not in line]

    # --- who leads

    def leader(self) -> int:
        """Whose log says last that it leads, by its place among the nodes; -1 while nobody does."""
        last = (-1, -1)
        for at, node in enumerate(self.nodes):
            if node.is_up():
                last = max(last, (term_led(node.log), at))
        return last[1] if last[0] > 0 else -1

    async def leading(self) -> int:
        await until(lambda: self.leader() >= 0, "nobody leads")
        return self.leader()

    async def leading_node(self) -> ChaosBroker:
        return self.nodes[await self.leading()]

    async def follower(self) -> int:
        """Any of those that do not lead."""
        leader = await self.leading()
        return self.chance.choice([at for at in range(len(self.nodes)) if at != leader])

    # --- power

    def cut_power(self, at: int) -> None:
        """Nothing reaches the disk of that node any more. It is not told, and goes on a while."""
        self.disks[at].cut_power()

    def power_returns(self, at: int) -> None:
        self.nodes[at].kill()
        self.disks[at].unmount()
        self.disks[at].mount()


def term_led(log: Path) -> int:
    """The term in which a node leads by its log; 0: in none."""
    led = 0
    for line in log.read_text().splitlines():
        if f'"{LEADING}"' in line:
            led = int(json.loads(line)["term"])
        elif f'"{GAVE_UP}"' in line or '"starting"' in line:
            led = 0
    return led


def events(log: Path, name: str) -> int:
    """How often a node has logged this."""
    return sum(f'"{name}"' in line for line in log.read_text().splitlines())
