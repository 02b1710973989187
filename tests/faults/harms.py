"""The faults F1 to F20: each does harm once, waits, and makes good again.

What each was found in is in the text of its row. Where a fault needs what only our clusters have
here (proxies in front of peer lines, a node that is replaced), it is done to those alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.chaos.broker import BrokerFailed
from tests.chaos.faults import fill, injected
from tests.patience import until

from .subjects import (
    NODES,
    FlintCluster,
    Subject,
    cut_power,
    follower,
    go_on,
    pause,
    power_returns,
    start_all,
)

SYNCS = "fdatasync,fsync"
FILES_SECONDS = 120.0


class Harm:
    """What a fault is done to, and what it has to say."""

    def __init__(self, subject: Subject, chance: random.Random) -> None:
        self.subject, self.chance = subject, chance
        self.notes: list[str] = []

    @property
    def ours(self) -> FlintCluster:
        assert isinstance(self.subject, FlintCluster)
        return self.subject


async def nothing(harm: Harm) -> None:
    await asyncio.sleep(3)


async def power_of_all(harm: Harm) -> None:
    for at in harm.chance.sample(range(NODES), NODES):
        cut_power(harm.subject, at)
    await asyncio.sleep(harm.chance.choice((0.0, 0.1)))
    for at in range(NODES):
        power_returns(harm.subject, at)
    await start_all(harm.subject)


async def power_of_one_while_another_is_paused(harm: Harm) -> None:
    subject = harm.subject
    leader = await subject.leader()
    one, other = [at for at in range(NODES) if at != leader]
    pause(subject, one)
    await asyncio.sleep(1)
    cut_power(subject, other)
    await asyncio.sleep(0.2)
    power_returns(subject, other)
    await subject.start(other)
    await asyncio.sleep(1)
    go_on(subject, one)
    subject.kill(leader)  # who has all of it is not there now
    await asyncio.sleep(2)
    await subject.start(leader)


def flip(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as file:
        size = path.stat().st_size
        if size:
            at = chance.randrange(size)
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1 << chance.randrange(8)]))


async def _damaged(harm: Harm, damage: Callable[[Path], object]) -> None:
    """Of one node; then that one leads, if it will."""
    subject = harm.subject
    at = await follower(subject)
    # On a slow machine that takes a while.
    await until(lambda: bool(subject.data_files(at)), "there are files to damage", FILES_SECONDS)
    subject.kill(at)
    files = subject.data_files(at)
    for path in harm.chance.sample(files, min(3, len(files))):
        damage(path)
    harm.notes.append(f"{min(3, len(files))} files")
    await subject.start(at)
    await asyncio.sleep(3)
    await subject.lead_elsewhere(at)


async def flipped_bits(harm: Harm) -> None:
    def flip_some(path: Path) -> None:
        for _ in range(3):
            flip(path, harm.chance)

    await _damaged(harm, flip_some)


async def cut_files(harm: Harm) -> None:
    def cut(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(harm.chance.randrange(max(1, path.stat().st_size)))

    await _damaged(harm, cut)


async def damaged_snapshot(harm: Harm) -> None:
    subject = harm.subject
    at = await follower(subject)
    subject.kill(at)
    for path in subject.snapshot_files(at):
        flip(path, harm.chance)
    try:
        await subject.start(at)
    except BrokerFailed as error:
        harm.notes.append(f"refused to start: {str(error)[:100]}; replaced")
        await subject.wipe(at)
    await asyncio.sleep(2)
    await subject.lead_elsewhere(at)


async def kill_loops(harm: Harm) -> None:
    for _ in range(6):
        at = harm.chance.randrange(NODES)
        harm.subject.kill(at)
        await asyncio.sleep(harm.chance.choice((0.0, 0.3, 1.0)))
        await harm.subject.start(at)


async def full_disks(harm: Harm) -> None:
    with ExitStack() as full:
        for disk in harm.subject.disks:
            full.enter_context(fill(disk, 0))
        await asyncio.sleep(1)
        at = await follower(harm.subject)
        harm.subject.kill(at)
        try:
            await harm.subject.start(at)
        except BrokerFailed:
            harm.notes.append("did not start while its disk was full")
    await start_all(harm.subject)


async def leader_killed(harm: Harm) -> None:
    at = await harm.subject.leader()
    harm.subject.kill(at)
    await asyncio.sleep(harm.chance.choice((0.2, 3.0)))
    await harm.subject.start(at)


async def leader_paused(harm: Harm) -> None:
    at = await harm.subject.leader()
    pause(harm.subject, at)
    await asyncio.sleep(6)
    go_on(harm.subject, at)


async def majority_killed(harm: Harm) -> None:
    leader = await harm.subject.leader()
    killed = [leader, await follower(harm.subject)]
    for at in killed:
        harm.subject.kill(at)
    await asyncio.sleep(3)
    await start_all(harm.subject)


async def partition_and_heal(harm: Harm) -> None:
    cluster = harm.ours.cluster
    cluster.network.refuse(cluster.network.links_of(await cluster.leading() + 1))
    await asyncio.sleep(4)
    cluster.network.heal()


async def change_and_kill(harm: Harm) -> None:
    """A node is replaced; while it is sent everything, who leads is killed."""
    subject = harm.ours
    at = await follower(subject)
    subject.kill(at)
    replacing = asyncio.ensure_future(subject.cluster.replace(at))
    await asyncio.sleep(harm.chance.choice((0.5, 1.0, 2.0)))
    leader = await subject.leader()
    subject.kill(leader)
    await asyncio.sleep(0.5)
    await subject.start(leader)
    await replacing


async def all_at_once(harm: Harm) -> None:
    for _ in range(3):
        for at in range(NODES):
            harm.subject.kill(at)
        await start_all(harm.subject)
        await asyncio.sleep(1)


async def lines_that_flap(harm: Harm) -> None:
    """What was on its way is sent again, over what has arrived."""
    network = harm.ours.cluster.network
    for _ in range(10):
        network.heal()
        await asyncio.sleep(harm.chance.choice((0.05, 0.3)))


async def failing_sync(harm: Harm) -> None:
    at = await harm.subject.leader()
    number = harm.chance.randint(1, 20)
    async with injected(harm.subject.pid(at), f"{SYNCS}:error=EIO:when={number}+"):
        try:
            await asyncio.wait_for(until(lambda: not harm.subject.is_up(at), "it stops"), 5)
        except (AssertionError, TimeoutError):
            harm.notes.append("went on after a failed sync")
    cut_power(harm.subject, at)
    power_returns(harm.subject, at)
    await harm.subject.start(at)


async def damaged_journal(harm: Harm) -> None:
    """The last record, as a torn write leaves it; then one in the middle, which must not be taken
    for that."""
    subject = harm.ours
    at = await follower(subject)
    subject.kill(at)
    journal = _journal(subject, at)
    content = journal.read_bytes()
    end = len(content.rstrip(b"\0"))
    journal.write_bytes(content[: end - 1] + bytes([content[end - 1] ^ 1]) + content[end:])
    try:
        await subject.start(at)
        harm.notes.append("torn tail: cut, and started")
    except BrokerFailed as error:
        harm.notes.append(f"torn tail: refused: {str(error)[:80]}")
        await subject.wipe(at)
    await asyncio.sleep(1)
    subject.kill(at)
    journal = _journal(subject, at)
    content = journal.read_bytes()
    middle = len(content.rstrip(b"\0")) // 2
    journal.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    try:
        await subject.start(at)
        harm.notes.append("middle: started")
    except BrokerFailed:
        harm.notes.append("middle: refused; replaced")
        await subject.wipe(at)


def _journal(subject: FlintCluster, at: int) -> Path:
    """The file that is written to: of the last number, of those with something in them."""
    files = sorted((subject.cluster.nodes[at].directory / "journal").glob("journal-*"))
    return [path for path in files if len(path.read_bytes().rstrip(b"\0")) > 4096][-1]


async def follower_hangs_then_is_lost(harm: Harm) -> None:
    at = await follower(harm.subject)
    pause(harm.subject, at)
    await asyncio.sleep(5)
    go_on(harm.subject, at)
    harm.subject.kill(at)
    await harm.subject.wipe(at)
    await asyncio.sleep(2)


async def one_way(harm: Harm) -> None:
    """First nothing of the leader arrives, then nothing arrives there."""
    cluster = harm.ours.cluster
    for way in (0, 1):
        leader = await cluster.leading() + 1
        links = cluster.network.links_of(leader)
        cluster.network.silent.update(link for link in links if link[way] == leader)
        await asyncio.sleep(4)
        cluster.network.heal()
        await asyncio.sleep(2)


async def killed_at_a_sync(harm: Harm) -> None:
    for _ in range(3):
        at = await harm.subject.leader()
        number = harm.chance.randint(1, 30)
        async with injected(harm.subject.pid(at), f"{SYNCS}:signal=SIGKILL:when={number}"):
            try:
                await asyncio.wait_for(until(lambda at=at: not harm.subject.is_up(at), ""), 5)  # type: ignore[misc]
            except (AssertionError, TimeoutError):
                harm.subject.kill(at)
        await harm.subject.start(at)


class Row(NamedTuple):
    number: str
    what: str
    do: Callable[[Harm], Awaitable[None]]
    is_ours_alone: bool = False


ROWS = (
    Row("F1", "power of all nodes at once", power_of_all),
    Row("F2", "power of one node while another is paused, then the leader is killed",
        power_of_one_while_another_is_paused),
    Row("F3", "bits flipped in data files of one node, which then leads", flipped_bits),
    Row("F4", "data files of one node cut short, which then leads", cut_files),
    Row("F5", "a bit flipped in what says what is stored (manifest, snapshot)", damaged_snapshot),
    Row("F6", "six kill -9 of any nodes", kill_loops),
    Row("F7", "all disks full, one node started meanwhile", full_disks),
    Row("F8", "leader killed under idempotent producers", leader_killed),
    Row("F9", "nothing goes wrong", nothing),
    Row("F10", "leader paused for 6 s, then it goes on", leader_paused),
    Row("F11", "two of three killed", majority_killed),
    Row("F12", "leader cut off, then healed", partition_and_heal, True),
    Row("F13", "leader killed while a replaced node is sent everything", change_and_kill, True),
    Row("F14", "all killed and started, three times", all_at_once),
    Row("F15", "lines between nodes break ten times, appends overlap", lines_that_flap, True),
    Row("F16", "a sync fails, and what it was to store is gone", failing_sync),
    Row("F17", "journal: last record torn; then one in the middle damaged", damaged_journal, True),
    Row("F18", "a follower hangs for 5 s, then its disk is lost", follower_hangs_then_is_lost),
    Row("F19", "leader mute, then deaf, one way only", one_way, True),
    Row("F20", "leader killed at a sync, three times", killed_at_a_sync),
)  # fmt: skip
