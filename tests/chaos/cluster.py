"""Three nodes of a cluster under a chaos run, each a process with a directory of its own.

Nodes reach each other through a proxy in front of each one's peer address. Who of a pair is dialled
is the one with the higher id: so the proxy of the second carries what the first two say to each
other, that of the third all that the third says and hears.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.patience import free_port, until
from tests.remote.proxy import Proxy

from .broker import ChaosBroker

NODES = 3
LEADING, GAVE_UP = "cluster_leading", "cluster_gave_up_lead"


class ChaosCluster:
    """Like one broker to its clients and to the run. `place` has the logs, `directory` the data."""

    def __init__(self, directory: Path, place: Path) -> None:
        self.directory = directory
        self._place = place
        self._key = place / "cluster.key"
        self._key.write_text(secrets.token_hex(32))
        self._key.chmod(0o600)
        self._peer_ports = [free_port() for _ in range(NODES)]
        self.links = [Proxy(("127.0.0.1", port)) for port in self._peer_ports]
        self.nodes: list[ChaosBroker] = []

    async def open(self) -> None:
        """Lay the lines; nothing runs yet."""
        addresses = ["{}:{}".format(*(await link.start())) for link in self.links]
        names = [f"node{number}" for number in range(1, NODES + 1)]
        founders = ",".join(map("=".join, zip(names, addresses, strict=True)))
        for name, port in zip(names, self._peer_ports, strict=True):
            extra = ["--node-name", name, "--peer-listen", f"127.0.0.1:{port}"]
            extra += ["--initial-cluster", founders, "--cluster-key-file", str(self._key)]
            log = self._place / f"{name}.log"
            self.nodes.append(ChaosBroker(self.directory / name, log, extra))

    async def close(self) -> None:
        for link in self.links:
            await link.close()

    @property
    def address(self) -> tuple[str, int]:
        return self.nodes[0].address

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
        return [line for node in self.nodes for line in node.complaints(was_damaged=False)]

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


def term_led(log: Path) -> int:
    """The term in which a node leads by its log; 0: in none."""
    led = 0
    for line in log.read_text().splitlines():
        if f'"{LEADING}"' in line:
            led = int(json.loads(line)["term"])
        elif f'"{GAVE_UP}"' in line or '"starting"' in line:
            led = 0
    return led


ClusterFault = Callable[[ChaosCluster, random.Random], Awaitable[None]]


async def kill_leader(cluster: ChaosCluster, chance: random.Random) -> None:
    node = cluster.nodes[await cluster.leading()]
    node.kill()
    await asyncio.sleep(chance.choice((0.2, 3.0, 5.0)))
    await asyncio.to_thread(node.start)


async def kill_follower(cluster: ChaosCluster, chance: random.Random) -> None:
    leader = await cluster.leading()
    node = cluster.nodes[chance.choice([at for at in range(NODES) if at != leader])]
    node.kill()
    await asyncio.sleep(chance.choice((0.2, 3.0)))
    await asyncio.to_thread(node.start)


async def kill_all(cluster: ChaosCluster, chance: random.Random) -> None:
    cluster.kill()
    await asyncio.sleep(chance.choice((0.0, 1.0)))
    await cluster.start()


async def stop_leader(cluster: ChaosCluster, chance: random.Random) -> None:
    """In good order: it hands over first."""
    node = cluster.nodes[await cluster.leading()]
    code = await asyncio.to_thread(node.stop)
    assert code == 0, f"the node ended with {code}"
    await asyncio.to_thread(node.start)


async def pause_leader(cluster: ChaosCluster, chance: random.Random) -> None:
    node = cluster.nodes[await cluster.leading()]
    node.pause()
    await asyncio.sleep(chance.choice((0.5, 2.0, 6.0)))
    node.go_on()


async def cut_off_third(cluster: ChaosCluster, chance: random.Random) -> None:
    await _cut(cluster.links[2], chance)


async def cut_first_from_second(cluster: ChaosCluster, chance: random.Random) -> None:
    """Both still hear the third."""
    await _cut(cluster.links[1], chance)


async def _cut(link: Proxy, chance: random.Random) -> None:
    """Both ways, or one: what is sent there is lost, and the line looks well."""
    match chance.randrange(3):
        case 0:
            link.refusing = True
            link.cut()
        case 1:
            link.silent = {"up"}
        case _:
            link.silent = {"down"}
    await asyncio.sleep(chance.choice((1.0, 4.0, 8.0)))
    link.refusing, link.silent = False, set()
    link.cut()


CLUSTER_FAULTS: dict[str, ClusterFault] = {
    "leader-kill": kill_leader,
    "follower-kill": kill_follower,
    "all-kill": kill_all,
    "leader-stop": stop_leader,
    "leader-pause": pause_leader,
    "cut-third": cut_off_third,
    "cut-first-second": cut_first_from_second,
}
