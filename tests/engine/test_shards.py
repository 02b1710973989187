"""Several shards over one journal and one sync: each has what it was told, whatever the others do.

After every write the power is cut, in a copy of the disk, and that is opened: each shard holds what
a replica of it holds that was fed with its commands, and none of those that were applied is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from flintmq.engine.broker import Broker
from flintmq.engine.command_log import KeptLog, LogEntry
from flintmq.engine.commands import Command, decode_command, encode_command
from flintmq.engine.host import Host, durable_broker
from flintmq.errors import Corrupt, FlintError, InvalidRequest
from flintmq.storage.filesystem import FileSystem
from flintmq.testing import ManualClock, SimulatedFileSystem
from flintmq.testing.simulated_filesystem import Keep

from .stepping import JOURNAL_FILE_BYTES, small_sizes
from .test_replicas import Verbs, digest

GROUPS = (0, 1, 2)


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


class Node:
    """One process with a shard of each group."""

    def __init__(
        self, disk: FileSystem, clock: ManualClock, groups: tuple[int, ...] = GROUPS
    ) -> None:
        self.host = Host(disk, journal_file_bytes=JOURNAL_FILE_BYTES)
        self.brokers = {group: Broker(clock, host=self.host, group=group) for group in groups}

    async def open(self) -> Node:
        await self.host.open(threaded=False)
        return self

    async def run(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        for _ in range(200):
            for _ in range(6):
                await asyncio.sleep(0)
            if task.done():
                break
            self.host.step()
        return await task

    async def publish(self, group: int, value: bytes, topic: str = "t") -> None:
        broker = self.brokers[group]
        if topic not in broker.shard.topics:
            await self.run(broker.create_topic(topic, {}))
        pending = broker.publish_value_nowait(topic, value)
        await asyncio.sleep(0)
        while self.host.step():
            pass
        assert pending is not None

    def values(self, group: int, topic: str = "t") -> list[bytes]:
        log = self.brokers[group].shard.topics[topic].log
        found = []
        for offset in range(log.first_offset, log.next_offset):
            source, row, _ = log.locate(offset)
            found.append(source.value(row))
        return found


class Story:
    """Random verbs on all shards. Of each: its commands in the order of its log, and what a replica
    holds after each of them."""

    def __init__(self, seed: int, every: int) -> None:
        self.random, self.every = Random(seed), every
        self.clock = ManualClock()
        self.node: Node
        self.commands: dict[int, list[bytes]] = {group: [] for group in GROUPS}
        self.digests: dict[int, list[Any]] = {}
        self.replicas: dict[int, Broker] = {}
        self.images: list[tuple[str, SimulatedFileSystem, dict[int, int], dict[int, int]]] = []
        self.begun: set[int] = set()
        """The groups that go on in this process, behind what it found of them."""
        self.crashes = self.seen = 0

    async def live(self, disk: SimulatedFileSystem, steps: int) -> SimulatedFileSystem:
        """One process: open, do, and what a power cut leaves in the end."""
        self.clock = ManualClock(start_ms=self.clock.now_ms())
        self.node = node = Node(disk, self.clock)
        self.begun.clear()
        for group in GROUPS:
            self._listen(group, node.host.kept[group].log)
        disk._change = self._watched(disk)  # type: ignore[method-assign]
        self.clock.wait_also_for(self._step)
        await node.open()
        for group, broker in node.brokers.items():
            if group not in self.begun:
                self._begin(group, broker.shard.proposer.applied)
        shards = [Verbs(broker, self.clock, self.random) for broker in node.brokers.values()]
        for _ in range(steps):
            await self._act(shards)
        del disk._change
        return self.image(disk)

    def image(self, disk: SimulatedFileSystem) -> SimulatedFileSystem:
        keep: list[Keep] = ["nothing", "everything", self.random]
        return disk.crash(self.random.choice(keep))

    async def _step(self) -> bool:
        return self.node.host.step()

    def _listen(self, group: int, log: KeptLog) -> None:
        submit = log.submit

        def listening(command: Command, on_written: Any = None, **how: Any) -> LogEntry:
            payload = b"".join(encode_command(command))
            entry = submit(command, on_written, **how)
            if group not in self.begun:
                self._begin(group, entry.at - 1)
            assert entry.at == len(self.commands[group]) + 1
            self.commands[group].append(payload)
            self._feed(group, payload)
            return entry

        log.submit = listening  # type: ignore[method-assign]

    def _begin(self, group: int, index: int) -> None:
        """The log of a group goes on behind that index: what was behind it is gone for good."""
        self.begun.add(group)
        del self.commands[group][index:]
        assert len(self.commands[group]) == index
        self.replicas[group] = durable_broker(SimulatedFileSystem(), clock=ManualClock())
        self.digests[group] = [digest(self.replicas[group])]
        for payload in self.commands[group]:
            self._feed(group, payload)

    def _feed(self, group: int, payload: bytes) -> None:
        replica = self.replicas[group]
        replica.shard.state.apply(decode_command(payload))
        self.digests[group].append(digest(replica))

    def _watched(self, disk: SimulatedFileSystem) -> Any:
        change = disk._change

        def watched(operation: str, name: str) -> None:
            self.seen += 1
            if self.seen % self.every == 0:
                applied = {
                    group: broker.shard.proposer.applied
                    for group, broker in self.node.brokers.items()
                }
                terms = {g: kept_term(broker) for g, broker in self.node.brokers.items()}
                where = f"before {operation} of {name}, call {self.seen}"
                self.images.append((where, self.image(disk), applied, terms))
            change(operation, name)

        return watched

    async def _act(self, shards: list[Verbs]) -> None:
        random = self.random
        if random.random() < 0.1:
            await self.clock.advance(random.choice([0.1, 1.0, 3.0, 31.0]))
        if random.random() < 0.1:
            kept = self.node.host.kept[random.choice(GROUPS)]
            checkpoint = asyncio.ensure_future(kept.checkpoints.checkpoint())
            await self.clock.settle()
            await checkpoint
        if random.random() < 0.04:
            await random.choice(shards).change_lead()
        works = [random.choice(shards).one() for _ in range(random.choice([1, 2, 3, 4]))]
        tasks = [asyncio.ensure_future(work) for work in works]
        await self.clock.settle()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(
                result, FlintError | asyncio.CancelledError
            ):
                raise result
        images, self.images = self.images, []
        for image in images:
            await self._check(*image)

    async def _check(
        self,
        where: str,
        disk: SimulatedFileSystem,
        applied: dict[int, int],
        terms: dict[int, int],
    ) -> None:
        """What a power cut left: opened, each shard is as its replica was."""
        self.crashes += 1
        node = await Node(disk, ManualClock(start_ms=self.clock.now_ms())).open()
        for group, broker in node.brokers.items():
            index = broker.shard.proposer.applied
            assert applied[group] <= index, f"{where}: group {group} lost what was applied"
            assert digest(broker) == self.digests[group][index], f"{where}: group {group}"
            assert broker.shard.term > terms[group], f"{where}: group {group}, an old term"
        node.host._journal.abandon()


def kept_term(broker: Broker) -> int:
    """The term that tokens may begin with; 0 while that has to wait for the disk."""
    begun = broker.shard.proposer._term_begun
    return broker.shard.term if begun is not None and begun.future.done() else 0


async def cut_off(seed: int, steps: int, every: int = 1) -> int:
    """How many power cuts that were."""
    story = Story(seed, every)
    disk = SimulatedFileSystem()
    for _ in range(2):
        disk = await story.live(disk, steps)
    return story.crashes


@pytest.mark.parametrize("seed", range(3))
async def test_shards_have_what_they_were_told_after_a_power_cut_at_some_writes(seed: int) -> None:
    assert await cut_off(seed, 12, every=31)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
async def test_shards_have_what_they_were_told_after_a_power_cut_at_every_write(seed: int) -> None:
    assert await cut_off(seed, 25)


# --- what keeps the journal


async def test_each_group_has_its_files_where_it_belongs() -> None:
    disk = SimulatedFileSystem()
    node = await Node(disk, ManualClock()).open()
    for group in GROUPS:
        await node.publish(group, b"of %d" % group)
    await node.run(node.host.close())

    assert {"manifest", "manifest.copy", "segments", "journal", "groups"} <= set(disk.list(""))
    assert disk.list("groups") == ["1", "2"]
    for group in (1, 2):
        assert {"manifest", "manifest.copy", "segments"} <= set(disk.list(f"groups/{group}"))
        assert len(disk.list(f"groups/{group}/segments")) == 1
    again = await Node(disk.crash("nothing"), ManualClock()).open()
    assert [again.values(group) for group in GROUPS] == [[b"of 0"], [b"of 1"], [b"of 2"]]
    assert {kept.checkpoints.manifest.head.group for kept in again.host.kept.values()} == {0, 1, 2}


async def test_a_slow_group_keeps_the_journal_and_an_idle_one_keeps_nothing() -> None:
    node = await Node(SimulatedFileSystem(), ManualClock()).open()
    for group in GROUPS:
        await node.publish(group, b"first")
    await node.run(node.host.checkpoint())  # from here on, group 2 is idle
    await node.publish(1, b"slow")
    for number in range(20):
        await node.publish(0, bytes(500) + b"%d" % number)
    journal = node.host._journal
    slow = node.brokers[1].shard.proposer.applied

    await node.run(node.host.kept[0].checkpoints.checkpoint())
    assert journal.term(1, slow) is not None, "group 1 has something there that is nowhere else"
    await node.run(node.host.kept[1].checkpoints.checkpoint())
    assert journal.term(1, slow) is None
    assert journal.file_count == 1


async def test_a_group_that_writes_little_has_a_checkpoint_before_it_keeps_too_much() -> None:
    node = await Node(SimulatedFileSystem(), ManualClock()).open()
    node.host.set_sizes(checkpoint_bytes=4000, queue_bytes_max=1 << 20)
    await node.publish(1, b"little")
    for number in range(60):
        await node.publish(0, bytes(500) + b"%d" % number)
        await node.run(node.host.settled())

    assert not node.host.kept[1].has_news()
    assert node.host._journal.file_count < 10


# --- what is not as it should be


async def test_a_broker_alone_does_not_open_the_directory_of_several_groups() -> None:
    disk = SimulatedFileSystem()
    node = await Node(disk, ManualClock()).open()
    await node.run(node.host.close())

    with pytest.raises(InvalidRequest, match="holds groups 1, 2 of a cluster"):
        await Node(disk, ManualClock(), (0,)).open()
    with pytest.raises(InvalidRequest, match="holds group 2 of a cluster"):
        await Node(disk, ManualClock(), (0, 1)).open()
    await Node(disk, ManualClock()).open()


async def test_files_of_a_group_that_are_gone_or_of_another_are_noticed() -> None:
    disk = SimulatedFileSystem()
    node = await Node(disk, ManualClock()).open()
    for group in GROUPS:
        await node.publish(group, b"of %d" % group)
    await node.run(node.host.close())

    gone, mixed = disk.crash("nothing"), disk.crash("nothing")
    for name in ("manifest", "manifest.copy"):
        mixed.remove(f"groups/2/{name}")
        mixed.rename(f"groups/1/{name}", f"groups/2/{name}")
    with pytest.raises(Corrupt, match="is of group 1, not 2"):
        await Node(mixed, ManualClock()).open()

    for path in ("groups/2/segments", "groups/2"):
        for name in gone.list(path):
            if name != "segments":
                gone.remove(f"{path}/{name}")
    gone.remove_directory("groups/2/segments")
    gone.remove_directory("groups/2")
    with pytest.raises(Corrupt, match="the files of group 2 are missing"):
        await Node(gone, ManualClock()).open()


async def test_damage_of_any_group_is_found_and_told_where_it_belongs() -> None:
    disk = SimulatedFileSystem()
    node = await Node(disk, ManualClock()).open()
    for group in GROUPS:
        await node.publish(group, b"of %d" % group, f"t{group}")
    await node.run(node.host.checkpoint())
    (name,) = disk.list("groups/1/segments")
    position = disk.contents(f"groups/1/segments/{name}").index(b"of 1")
    disk.flip(f"groups/1/segments/{name}", position)

    node.host.damages.scrubber.run_pass()
    assert [damage[:2] for damage in node.host.damages.known()["t1"]] == [(0, 1)]
    assert list(node.host.damages.known()) == ["t1"]
    assert node.host.damages.scrubber.passes == 1


async def test_a_backup_has_every_group() -> None:
    node = await Node(SimulatedFileSystem(), ManualClock()).open()
    for group in GROUPS:
        await node.publish(group, b"of %d" % group)
    copy = SimulatedFileSystem()
    await node.run(node.host.back_up_to(copy))
    await node.publish(1, b"later")

    again = await Node(copy.crash("nothing"), ManualClock()).open()
    assert [again.values(group) for group in GROUPS] == [[b"of 0"], [b"of 1"], [b"of 2"]]
