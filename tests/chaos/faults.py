"""What is done to a broker, its disk, its network and its clients, and undone again.

Each fault is one function: it does harm, waits, and makes good. It tells when it began and ended,
and whom it concerned, so that the checker knows where leases may have been lost.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.integration.loop_disk import LoopDisk
from tests.remote.proxy import Proxy, Way

from .broker import ChaosBroker
from .story import Story

EVERYBODY = "*"


class CannotDo(Exception):
    """This machine does not allow the fault; the text says why."""


@dataclass
class Harm:
    """Whom faults can reach."""

    broker: ChaosBroker
    proxy: Proxy
    proxied: list[str]
    """Workers behind the proxy."""
    disk: LoopDisk | None
    no_disk_because: str
    chance: random.Random
    story: Story
    kill_client: Callable[[], str]
    """Kill one client process and start another in its place; whom it was."""
    pause_client: Callable[[float], Awaitable[str]]
    counts: dict[str, int] = field(default_factory=dict)

    async def do(self, kind: str) -> None:
        targets = self.proxied if kind.startswith("net-") else [EVERYBODY]
        if kind.startswith("client-"):
            targets = []
        self.story.tell("fault", kind=kind, phase="begin", targets=targets)
        try:
            hit = await FAULTS[kind](self)
        finally:
            self.story.tell("fault", kind=kind, phase="end", targets=targets)
        if hit:
            self.story.tell("fault", kind=kind, phase="hit", targets=[hit])
        self.counts[kind] = self.counts.get(kind, 0) + 1


async def kill(harm: Harm) -> None:
    harm.broker.kill()
    await asyncio.sleep(harm.chance.choice((0, 0.2, 3.0)))
    await asyncio.to_thread(harm.broker.start)


async def kill_while_opening(harm: Harm) -> None:
    """The next life ends before it is ready, or just then."""
    harm.broker.kill()
    harm.broker.launch()
    await asyncio.sleep(harm.chance.random() * 0.8)
    harm.broker.kill()
    await asyncio.to_thread(harm.broker.start)


async def stop(harm: Harm) -> None:
    """In good order."""
    code = await asyncio.to_thread(harm.broker.stop)
    assert code == 0, f"the broker ended with {code}"
    await asyncio.to_thread(harm.broker.start)


async def pause(harm: Harm) -> None:
    harm.broker.pause()
    await asyncio.sleep(harm.chance.choice((0.3, 1.0, 3.0)))
    harm.broker.go_on()


async def cut_network(harm: Harm) -> None:
    for _ in range(harm.chance.choice((1, 3))):
        harm.proxy.cut()
        await asyncio.sleep(harm.chance.random() * 0.3)


async def cut_mid_frame(harm: Harm) -> None:
    ways: tuple[Way, Way] = ("up", "down")
    way = harm.chance.choice(ways)
    harm.proxy.cut_at = (way, harm.proxy.passed[way] + harm.chance.randrange(20_000))
    await asyncio.sleep(1)
    harm.proxy.cut_at = None


async def no_network(harm: Harm) -> None:
    """For longer than a session is kept."""
    harm.proxy.refusing = True
    harm.proxy.cut()
    await asyncio.sleep(harm.chance.choice((0.5, 3.5)))
    harm.proxy.refusing = False


async def slow_network(harm: Harm) -> None:
    harm.proxy.delay = harm.chance.choice((0.02, 0.2))
    await asyncio.sleep(2)
    harm.proxy.delay = 0.0


async def kill_client(harm: Harm) -> str:
    return harm.kill_client()


async def pause_client(harm: Harm) -> str:
    """For longer than most leases last."""
    return await harm.pause_client(harm.chance.choice((1.0, 8.0)))


FAULTS: dict[str, Callable[[Harm], Awaitable[str | None]]] = {
    "kill": kill,
    "kill-opening": kill_while_opening,
    "stop": stop,
    "pause": pause,
    "net-cut": cut_network,
    "net-cut-mid-frame": cut_mid_frame,
    "net-away": no_network,
    "net-slow": slow_network,
    "client-kill": kill_client,
    "client-pause": pause_client,
}


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise CannotDo(f"there is no {name}")
    return path
