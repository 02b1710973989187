"""What is done to a broker, its disk, its network and its clients, and undone again.

Each fault is one function: it does harm, waits, and makes good. It tells when it began and ended,
and whom it concerned, so that the checker knows where leases may have been lost.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.loop_disk import LoopDisk
from tests.patience import PATIENCE_SECONDS
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
    chance: random.Random
    story: Story
    kill_client: Callable[[], str]
    """Kill one client process and start another in its place; whom it was."""
    pause_client: Callable[[float], Awaitable[str]]
    counts: dict[str, int] = field(default_factory=dict)

    def disk_of_ours(self) -> LoopDisk:
        assert self.disk is not None, "asked for where there is one"
        return self.disk

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


# --- the disk


async def cut_power(harm: Harm) -> None:
    """Nothing reaches the disk from some moment on, and the broker is not told."""
    disk = harm.disk_of_ours()
    disk.cut_power()
    await asyncio.sleep(harm.chance.choice((0, 0.05, 0.5)))
    harm.broker.kill()
    disk.unmount()
    disk.mount()
    await asyncio.to_thread(harm.broker.start)


async def fill_disk(harm: Harm) -> None:
    with fill(harm.disk_of_ours(), harm.chance.choice((0, 64 << 10, 1 << 20))):
        await asyncio.sleep(2)
        if harm.chance.random() < 0.5:
            harm.broker.kill()
            await asyncio.to_thread(harm.broker.start)


@contextmanager
def fill(disk: LoopDisk, left_bytes: int) -> Iterator[None]:
    """Leave no more than so much room on a disk."""
    ballast = disk.path / "ballast"
    free = os.statvfs(disk.path)  # also what is reserved for root, as whom we are here
    with ballast.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, free.f_bfree * free.f_frsize - left_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    try:
        yield
    finally:
        ballast.unlink()


async def slow_syncs(harm: Harm) -> None:
    microseconds = harm.chance.choice((20_000, 300_000))
    async with injected(harm.broker.pid, f"fdatasync,fsync:delay_enter={microseconds}"):
        await asyncio.sleep(2)


async def failing_sync(harm: Harm) -> None:
    """And what it was to put on the disk is not there afterwards, where we can see to that."""
    number = harm.chance.randint(1, 20)
    async with injected(harm.broker.pid, f"fdatasync,fsync:error=EIO:when={number}+"):
        await asyncio.sleep(1.5)
    if harm.disk is not None:
        harm.disk.cut_power()
    harm.broker.kill()
    if harm.disk is not None:
        harm.disk.unmount()
        harm.disk.mount()
    await asyncio.to_thread(harm.broker.start)


@asynccontextmanager
async def injected(pid: int, what: str) -> AsyncIterator[None]:
    """Have the kernel's answers to a process altered for a while."""
    tracer = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-p", str(pid), "-o", os.devnull),
        *("-e", "trace=fdatasync,fsync", "-e", f"inject={what}"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert tracer.stderr is not None
    try:
        said = await asyncio.wait_for(tracer.stderr.readline(), PATIENCE_SECONDS)
        if b"attached" not in said:
            raise CannotDo(f"strace: {said.decode().strip()}")
        yield
    finally:
        if tracer.returncode is None:
            tracer.terminate()
        await tracer.communicate()


async def damage(harm: Harm) -> None:
    """One bit of one sealed segment, under a running broker or one that is started afterwards."""
    segments = sorted((harm.broker.directory / "segments").glob("*.seg"))
    if not segments:
        return
    is_stopped = harm.chance.random() < 0.5
    if is_stopped:
        harm.broker.kill()
    path = harm.chance.choice(segments)
    with suppress(FileNotFoundError):  # it may have been let go meanwhile
        flip(path, harm.chance)
    if is_stopped:
        await asyncio.to_thread(harm.broker.start)


def flip(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as file:
        position = chance.randrange(path.stat().st_size)
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))
        file.flush()
        os.fsync(file.fileno())


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
    "power-cut": cut_power,
    "full-disk": fill_disk,
    "slow-sync": slow_syncs,
    "failing-sync": failing_sync,
    "damage": damage,
}
NEED_DISK = ("power-cut", "full-disk")
NEED_STRACE = ("slow-sync", "failing-sync")
