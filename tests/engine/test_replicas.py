"""What is applied follows from what was applied before, and from the command: from nothing else.

A leader decides all verbs, gives the lead up now and then, and takes it again. Two replicas are fed
with its commands as bytes; one of them has another clock and other checkpoints. After every command
all three hold the same, and so does a broker that is opened again from what the leader has on its
disk. `scripts/replicas` runs as many histories as one likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest

from flintmq.batch import BatchBuilder
from flintmq.broker_api import Grant, Joining, Placed, ReaderOpening, TakeMode
from flintmq.engine.broker import Broker
from flintmq.engine.commands import CheckState, Command, decode_command, encode_command
from flintmq.engine.host import durable_broker
from flintmq.engine.leading.member import GroupMember
from flintmq.engine.leading.readers import LeadingReader
from flintmq.engine.state.digests import StateDigests
from flintmq.engine.state.group import GroupState
from flintmq.engine.state.staging import LARGE_BYTES, Staging
from flintmq.engine.state.topic import TopicState
from flintmq.errors import FlintError
from flintmq.group_model import Lease, Ranges
from flintmq.model import Receipt, Start
from flintmq.testing import ManualClock, SimulatedFileSystem
from tests.engine.stepping import JOURNAL_FILE_BYTES, small_sizes

NAMES = ("a", "b", "c")
TOPICS = ("orders", "bills", "jobs")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"retention_count": 6},
    {"retention_count": 6, "keep_until_settled": True},
    {"retention_bytes": 60, "keep_until_settled": True},
    {"retention_age": 5, "keep_until_settled": True, "retention_count": 9},
    {"ttl": 4, "keep_until_settled": True, "retention_count": 4},
    {"retention_count": 8, "overflow": "block"},
    {"partitions": 2, "retention_count": 7, "keep_until_settled": True},
    {"max_deliveries": 2},
    {"compact": "key"},
    {"compact": "key", "partitions": 2},
)
CHANGES: tuple[dict[str, Any], ...] = (
    {"keep_until_settled": True, "retention_count": 5},
    {"keep_until_settled": False},
    {"retention_count": 3},
    {"retention_count": None, "retention_bytes": 80},
    {"partitions": 3},
    {"compact": "key", "retention_count": None, "keep_until_settled": False},
    {"compact": None},
)


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


def digest(broker: Broker) -> dict[str, Any]:
    """All that is applied, as plain values."""
    state = broker.shard.state
    staging, remembered = state.staging, state.remembered
    return {
        "ids": state.last_topic_id,
        "definitions": (state.definitions.all(), state.definitions.last_version),
        "nodes": sorted(state.nodes.items()),
        "remembered": (
            remembered.age_ms,
            remembered.bytes_max,
            remembered.time_ms,
            remembered.bytes,
        ),
        "number": number_of(broker),
        "topics": {name: digest_of(topic) for name, topic in state.topics.items()},
        "staged": {
            name: (
                writer.last,
                writer.places,
                [(number, list(parts)) for number, parts in writer.parts.items()],
            )
            for name, writer in staging.writers.items()
        },
    }


def number_of(broker: Broker) -> int:
    """What the state comes to, worked out at once and from nothing."""
    found: list[int] = []
    digests = StateDigests(broker.shard.state)
    digests.on_done = lambda number, digest: found.append(digest)
    digests.begin(1)
    while digests.is_working:
        digests.step()
    return found[0]


def digest_of(topic: TopicState) -> dict[str, Any]:
    if not topic.is_durable:
        return {"id": topic.id, "options": topic.options}
    log = topic.log
    return {
        "id": topic.id,
        "options": topic.options,
        "log": (log.first_offset, log.next_offset, log.byte_count, log.last_time),
        "names": sorted(topic.names.items()),
        "producers": topic.producers.snapshot().encoded(),
        "groups": {name: digest_of_group(group) for name, group in topic.groups.items()},
        "cancelled": topic.lanes.cancelled.ranges(),
        "discarded": topic.discarded.ranges() if topic.discarded else [],
    }


def digest_of_group(group: GroupState) -> tuple[Any, ...]:
    settled = group.queue.settled.present(group.floor, 1 << 40)
    return group.order, group.filter_text, group.start, group.paused, group.floor, settled


class _Heard:
    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def applied(self) -> None:
        self.future.set_result(None)

    def failed(self, error: BaseException) -> None:
        self.future.set_exception(error)


class Verbs:
    """What a broker can be asked, drawn by lot."""

    def __init__(self, leader: Broker, clock: ManualClock, random: Random) -> None:
        self.leader, self.clock, self.random = leader, clock, random
        self.members: list[GroupMember] = []
        self.held: list[tuple[GroupMember, Grant]] = []
        self.readers: list[LeadingReader] = []
        self.sequence = 0

    async def change_lead(self) -> None:
        """Somebody else leads for a while, and decides nothing."""
        shard = self.leader.shard
        shard.give_up_lead()
        for held in (self.members, self.held, self.readers):
            held.clear()
        if self.random.random() < 0.3:
            await self.clock.advance(self.random.choice([0.1, 3.0]))
        taking = asyncio.ensure_future(
            shard.take_lead(reclaim_seconds=self.random.choice([0, 0, 5]))
        )
        await self.clock.settle()
        await taking

    def one(self) -> Awaitable[object]:
        """Something, drawn by lot."""
        verbs: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (30, self.publish), (20, self.publish_few), (4, self.create), (1, self.delete),
            (4, self.configure),
            (4, self.purge), (3, self.define),
            (8, self.join), (12, self.take), (14, self.settle), (3, self.redrive),
            (8, self.take_and_settle_few),
            (3, self.cancel), (2, self.pause), (2, self.reset), (3, self.settle_before),
            (5, self.delete_group), (8, self.open_reader), (8, self.read), (5, self.close_one),
            (4, self.stage), (4, self.commit_or_abort), (2, self.limit_producers),
        ]  # fmt: skip
        weights = [weight for weight, _ in verbs]
        (chosen,) = self.random.choices([verb for _, verb in verbs], weights)
        return chosen()

    def topic(self) -> str:
        return self.random.choice(TOPICS)

    def plain(self) -> str:
        return self.random.choice(list(self.leader.shard.topics) or TOPICS)

    def rows(self) -> BatchBuilder:
        rows, random, now_ms = BatchBuilder(), self.random, self.clock.now_ms()
        for _ in range(random.choice([1, 1, 2, 5])):
            rows.append_row(
                b"x" * random.randrange(20),
                key=random.choice([None, "k", "l", "m"]),
                priority=random.choice([0, 0, 3]),
                deliver_at=random.choice([0, 0, 0, now_ms + 2000]),
                expiry=random.choice([0, 0, 0, now_ms + 1500]),
            )
        return rows

    async def publish(self) -> None:
        rows: Any = self.rows()
        if self.random.random() < 0.3:
            self.sequence += self.random.choice([0, 5])
            producer = self.random.choice("pqrst")
            rows = rows.seal(producer=producer, base_sequence=self.sequence)
        await self.leader.publish(self.plain(), rows, qos=1, auto_create=True, timeout=None)

    async def publish_few(self) -> None:
        """A few publishes of one turn, in rows and not, to some topics."""
        told: list[Awaitable[object]] = []
        for _ in range(self.random.randint(1, 5)):
            name, values = (
                self.plain(),
                [b"v" * self.random.randint(0, 9)] * self.random.randint(1, 3),
            )
            self.sequence += self.random.choice([0, 3, 3])
            producer = self.random.choice(["", "p", "q", "r"])
            content_type = self.random.choice([None, None, "text/plain"])
            found: Any = self.leader.publish_rows_nowait(
                name, values, content_type, producer, self.sequence
            )
            if found is None:
                found = self.leader.publish(
                    name, self.rows(), qos=1, auto_create=True, timeout=None
                )
            if isinstance(found, Placed):
                heard = asyncio.get_running_loop().create_future()
                found.shared.waiters.append(_Heard(heard))
                found = heard
            if not isinstance(found, Receipt):
                told.append(asyncio.ensure_future(found))
        await asyncio.gather(*told)

    async def limit_producers(self) -> None:
        self.leader.host.set_producer_limits(
            self.random.choice([1.0, 3.0, 3600.0]), self.random.choice([800, 1_600, 1 << 20])
        )

    async def create(self) -> None:
        await self.leader.create_topic(self.topic(), dict(self.random.choice(OPTIONS)))

    async def delete(self) -> None:
        await self.leader.delete_topic(self.topic())

    async def configure(self) -> None:
        await self.leader.configure_topic(self.topic(), dict(self.random.choice(CHANGES)))

    async def purge(self) -> None:
        name = self.plain()
        before = None
        if self.random.random() < 0.8 and name in self.leader.shard.topics:
            log = self.leader.shard.topics[name].log
            before = self.random.randint(log.first_offset, log.next_offset)
        await self.leader.purge_topic(name, before)

    async def define(self) -> None:
        value = self.random.choice([None, b"a", b"bb"])
        version = self.random.choice([None, None, 0])
        await self.leader.define("k", self.topic(), self.random.choice(NAMES), value, version)

    async def join(self) -> None:
        self.members.append(
            await self.leader.join_group(
                Joining(
                    self.plain(),
                    self.random.choice(NAMES),
                    order=self.random.choice([None, "log", "key"]),
                    filter=None,
                    start=self.random.choice([None, "latest", 2]),
                    holder="me",
                    auto_create=True,
                )
            )
        )

    async def take(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            auto_ack = self.random.random() < 0.2
            grant = await member.take(
                self.random.randint(1, 6), 30.0, 0, TakeMode(auto_ack=auto_ack)
            )
            if grant is not None and not auto_ack:
                self.held.append((member, grant))

    async def settle(self) -> None:
        if not self.held:
            return
        member, grant = self.held.pop(self.random.randrange(len(self.held)))
        offsets = [offset for offset in grant.rows.offsets if offset is not None]
        offsets = self.random.sample(offsets, self.random.randint(1, len(offsets)))
        ranges: Ranges = [(offset, offset + 1) for offset in sorted(offsets)]
        leases: list[Lease] = [(grant.token, ranges)]
        how = self.random.choice(["ack", "ack", "ack", "nack", "delay", "reject", "release"])
        if how == "ack":
            await member.ack(leases)
        elif how == "reject":
            await member.reject(leases, "a test")
        elif how == "release":
            await member.release(leases)
        else:
            await member.nack(leases, 2.0 if how == "delay" else 0)

    async def take_and_settle_few(self) -> None:
        """Some groups in one turn."""
        works = [self.random.choice([self.take, self.take, self.settle]) for _ in range(5)]
        told = await asyncio.gather(*(work() for work in works), return_exceptions=True)
        for error in told:
            if isinstance(error, BaseException):
                raise error

    async def redrive(self) -> None:
        verb = self.random.choice([self.leader.redrive, self.leader.discard])
        await verb(self.topic(), self.random.choice(NAMES), None, None)

    async def cancel(self) -> None:
        name = self.plain()
        if name in self.leader.shard.topics:
            end = self.leader.shard.topics[name].log.next_offset
            await self.leader.cancel(name, [(max(0, end - 3), end)])

    async def pause(self) -> None:
        paused = self.random.random() < 0.4
        await self.leader.pause_group(self.topic(), self.random.choice(NAMES), paused)

    async def reset(self) -> None:
        starts: list[Start] = ["earliest", "latest", 3]
        to = self.random.choice(starts)
        await self.leader.reset_group(self.plain(), self.random.choice(NAMES), to)

    async def settle_before(self) -> None:
        await self.leader.settle_before(
            self.plain(), self.random.choice(NAMES), self.random.randrange(40)
        )

    async def delete_group(self) -> None:
        await self.leader.delete_group(self.topic(), self.random.choice(NAMES))

    async def open_reader(self) -> None:
        self.readers.append(
            await self.leader.open_reader(
                ReaderOpening(
                    self.plain(),
                    name=self.random.choice([*NAMES, None]),
                    start=None,
                    filter=None,
                    auto_create=True,
                )
            )
        )

    async def read(self) -> None:
        if self.readers:
            reader = self.random.choice(self.readers)
            reader.take(self.random.randint(1, 6))
            await reader.commit(None)

    async def close_one(self) -> None:
        held: list[Any] = self.random.choice([self.readers, self.members])
        if held:
            await held.pop(self.random.randrange(len(held))).close()

    async def stage(self) -> None:
        batches: list[tuple[str, Any]] = [(self.plain(), self.rows())]
        number = self.random.randrange(6)
        part = self.random.choice(["0", "1"])
        await self.leader.stage("job", number, part, batches, auto_create=True)

    async def commit_or_abort(self) -> None:
        number = self.random.randrange(6)
        if self.random.random() < 0.3:
            await self.leader.abort("job", number)
        else:
            await self.leader.commit("job", number, ["0"])


class Replicas(Verbs):
    """A leader, and who follows it."""

    def __init__(self, seed: int) -> None:
        clock = ManualClock()
        clock.wait_also_for(self._step)
        large_bytes = (0, 1_000, LARGE_BYTES)[seed % 3]
        leader = broker_on(SimulatedFileSystem(), clock, large_bytes)
        super().__init__(leader, clock, Random(seed))
        self.disk = self.leader.host.filesystem
        self.followers = [
            broker_on(SimulatedFileSystem(), ManualClock()),
            broker_on(SimulatedFileSystem(), ManualClock(start_ms=9_000)),
        ]
        self.commands: list[Command] = []
        self.difference: str | None = None
        self.checked: dict[int, set[int]] = {}
        """What the states of all came to, by the number of the check."""

    async def _step(self) -> bool:
        return self.leader.host.step()

    async def open(self) -> Replicas:
        await self.leader.open(threaded=False)
        for follower in self.followers:
            await follower.open(threaded=False)
            follower.shard.give_up_lead()
        self.leader.shard.proposer._apply = self.lead
        for broker in (self.leader, *self.followers):
            broker.shard.state.digests.on_done = self._checked
        return self

    def _checked(self, number: int, digest: int) -> None:
        found = self.checked.setdefault(number, set())
        found.add(digest)
        assert len(found) == 1, f"check {number} came to {found}"

    async def check(self) -> None:
        """Each works it out in its own time, while others are applied."""
        change = self.leader.shard.proposer.change(CheckState(len(self.checked) + 1))
        if change is not None:
            await change

    def work_out(self) -> None:
        for broker in (self.leader, *self.followers):
            for _ in range(self.random.randrange(4)):
                broker.shard.state.digests.step()

    def lead(self, command: Command) -> None:
        """Apply a command here and there, and compare."""
        payload = b"".join(encode_command(command))
        self.leader.shard.state.apply(command)
        self.commands.append(command)
        ours = digest(self.leader)
        for follower in self.followers:
            follower.shard.proposer.propose(decode_command(payload))
            while follower.host.step():
                pass
            theirs = digest(follower)
            if theirs != ours and self.difference is None:
                self.difference = f"after {command!r}: {ours} and {theirs}"
        self.work_out()

    async def reopened(self) -> Broker:
        """The leader as it is after a kill: a broker over all that was written."""
        assert isinstance(self.disk, SimulatedFileSystem)
        again = broker_on(self.disk.crash("everything"), ManualClock(self.clock.now_ms()))
        await again.open(threaded=False)
        return again

    # --- what is done

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.random.random() < 0.1:
                await self.clock.advance(self.random.choice([0.1, 1.0, 3.0, 31.0]))
            if self.random.random() < 0.06:
                await self.checkpoint(self.random.choice([self.leader, self.followers[1]]))
            if self.random.random() < 0.04:
                await self.change_lead()
            if self.random.random() < 0.2:
                checking = asyncio.ensure_future(self.check())
                await self.clock.settle()
                await checking
            # Some at once: what is decided before another is applied.
            works = [self.one() for _ in range(self.random.choice([1, 1, 2, 3]))]
            tasks = [asyncio.ensure_future(work) for work in works]
            if self.random.random() < 0.03:
                await asyncio.sleep(0)  # some have decided, some have proposed
                await self.change_lead()
            await self.clock.settle()
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(
                    result, FlintError | asyncio.CancelledError
                ):
                    raise result
            assert self.difference is None, self.difference
            assert self.leader.shard.proposer.failure is None

    async def checkpoint(self, broker: Broker) -> None:
        task = asyncio.ensure_future(broker.host.checkpoint())
        await self.clock.settle()
        await task


def broker_on(disk: SimulatedFileSystem, clock: ManualClock, large_bytes: int = 0) -> Broker:
    """What is staged leaves memory with the next checkpoint where there are more than so many
    bytes: of one node sooner than of another."""
    staging = Staging(large_bytes=large_bytes)
    return durable_broker(disk, clock=clock, journal_file_bytes=JOURNAL_FILE_BYTES, staging=staging)


async def told_by(seed: int, steps: int) -> int:
    """How many commands that were."""
    replicas = await Replicas(seed).open()
    await replicas.run(steps)
    assert len(replicas.checked) > steps // 50
    assert digest(await replicas.reopened()) == digest(replicas.leader)
    return len(replicas.commands)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_replicas_fed_with_commands_hold_what_the_leader_holds(seed: int) -> None:
    await told_by(seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
async def test_replicas_hold_the_same_after_longer_stories(seed: int) -> None:
    await told_by(seed, 220)
