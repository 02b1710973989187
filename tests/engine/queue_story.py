"""What was asked of queue groups over the lives of a broker, and where each message may be then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flintmq.broker_api import Grant, Joining
from flintmq.engine.dead_letters import REDRIVE, dead_letter_name
from flintmq.engine.leading.member import GroupMember
from flintmq.fsync_policy import ALWAYS, FsyncPolicy
from flintmq.group_model import Order, Ranges
from flintmq.groups.ranges import offsets_in
from flintmq.testing import SimulatedFileSystem
from tests.engine.stepping import Life, Story

DELAYS_LAST = 120.0
TOPIC, LETTERS, NOWHERE = "topic", "letters", "nowhere"


@dataclass
class GroupTold:
    """A group as its members know it: of each message, the places where it may be."""

    topic: str
    name: str
    order: Order = "priority"
    created: bool = False
    places: dict[bytes, set[str]] = field(default_factory=dict)
    paused: set[bool] = field(default_factory=lambda: {False})
    deliveries: dict[bytes, int] = field(default_factory=dict)
    unanswered: int = 0
    """Takes that a crash came before: nobody knows what they would have got."""

    def move(self, values: list[bytes], to: str) -> None:
        """It is asked for: they may be there from now on."""
        for value in values:
            self.places[value].add(to)

    def moved(self, values: list[bytes], to: str) -> None:
        for value in values:
            self.places[value] = {to}


class QueueStory(Story):
    """Every message is unsettled in its topic, or among the dead letters, or settled: one of them,
    and the one that was acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, GroupTold] = {}
        self._members: dict[str, GroupMember] = {}
        self._held: dict[str, list[tuple[int, list[tuple[int, bytes]]]]] = {}

    async def open(self, disk: SimulatedFileSystem, policy: FsyncPolicy = ALWAYS) -> Life:
        self._members.clear()
        self._held.clear()
        return await super().open(disk, policy)

    # --- asking

    async def create(self, name: str, **options: Any) -> None:
        await self.life.run(self.life.broker.create_topic(name, options))

    async def join(self, topic: str, name: str, order: Order = "priority") -> None:
        told = self.groups.setdefault(name, GroupTold(topic, name, order))
        self._members[name] = await self.life.run(
            self.life.broker.join_group(
                Joining(
                    topic,
                    name,
                    order=order,
                    filter=None,
                    start=None,
                    holder="me",
                    auto_create=False,
                )
            )
        )
        told.created = True

    async def publish(self, name: str, count: int = 1, *, size: int = 0, **columns: Any) -> None:
        await self.put(name, count, size=size, **columns)

    async def put(self, topic: str, count: int, *, size: int = 0, **columns: Any) -> int:
        values = list(self.values(count, size))
        groups = [told for told in self.groups.values() if told.topic == topic]
        for told in groups:
            told.places |= {value: {NOWHERE, TOPIC} for value in values}
        receipt = await self.life.publish(topic, *values, **columns)
        for told in groups:
            told.moved(values, TOPIC)
        assert receipt.offset is not None
        return receipt.offset

    async def take(self, name: str, count: int) -> list[bytes]:
        told, found = self.groups[name], []
        told.unanswered += 1
        grant: Grant | None = await self.life.run(self._members[name].take(count, 30.0, 0))
        told.unanswered -= 1
        if grant is None:
            return []
        for offset, value in zip(grant.rows.offsets, grant.rows.values, strict=True):
            assert offset is not None
            assert TOPIC in told.places[value], f"{value!r} was settled"
            told.places[value] = {TOPIC}
            told.deliveries[value] = told.deliveries.get(value, 0) + 1
            count_now = grant.counts.get(offset, 1)
            assert count_now <= told.deliveries[value] + told.unanswered
            found.append((offset, value))
        self._held.setdefault(name, []).append((grant.token, found))
        return [value for _, value in found]

    def _leases(self, name: str, count: int) -> tuple[list[tuple[int, Ranges]], list[bytes]]:
        """The first so many that this group's member holds."""
        leases: list[tuple[int, Ranges]] = []
        values: list[bytes] = []
        for token, found in self._held.get(name, []):
            mine = found[: count - len(values)]
            del found[: len(mine)]
            if mine:
                leases.append((token, [(offset, offset + 1) for offset, _ in mine]))
                values += [value for _, value in mine]
        return leases, values

    async def ack(self, name: str, count: int) -> None:
        leases, values = self._leases(name, count)
        self.groups[name].move(values, NOWHERE)
        await self.life.run(self._members[name].ack(leases))
        self.groups[name].moved(values, NOWHERE)

    async def reject(self, name: str, count: int) -> None:
        leases, values = self._leases(name, count)
        self.groups[name].move(values, LETTERS)
        await self.life.run(self._members[name].reject(leases, "a test"))
        self.groups[name].moved(values, LETTERS)

    async def nack(self, name: str, count: int, delay: float) -> None:
        leases, _ = self._leases(name, count)
        await self.life.run(self._members[name].nack(leases, delay))

    async def redrive(self, name: str) -> None:
        told = self.groups[name]
        dead = [value for value, places in told.places.items() if LETTERS in places]
        told.move(dead, TOPIC)
        await self.life.run(self.life.broker.redrive(told.topic, name, None, None))
        told.moved(dead, TOPIC)

    async def cancel(self, topic: str, offset: int, value: bytes) -> None:
        groups = [told for told in self.groups.values() if told.topic == topic]
        for told in groups:
            told.move([value], NOWHERE)
        assert await self.life.run(self.life.broker.cancel(topic, [(offset, offset + 1)])) == 1
        for told in groups:
            told.moved([value], NOWHERE)

    async def pause(self, name: str, paused: bool) -> None:
        told = self.groups[name]
        told.paused.add(paused)
        await self.life.run(self.life.broker.pause_group(told.topic, name, paused))
        told.paused = {paused}

    async def reset(self, name: str) -> None:
        """Back to the beginning: of groups without dead letters only, or they would be doubled."""
        told = self.groups[name]
        values = list(told.places)
        told.move(values, TOPIC)
        self._held.pop(name, None)
        await self.life.run(self.life.broker.reset_group(told.topic, name, 0))
        told.moved(values, TOPIC)

    # --- judging

    def check(self, life: Life) -> None:
        for told in self.groups.values():
            found = self._found(life, told)
            if found is None:
                assert not told.created, f"group {told.name} is gone"
                continue
            for value, allowed in told.places.items():
                there = found.pop(value, [NOWHERE])
                assert len(there) == 1, f"{value!r} is doubled in {told.name}: {there}"
                assert there[0] in allowed, f"{value!r}: {there} in {told.name}, not {allowed}"
            assert not found, "nothing else is there"
        assert set(life.segments()) == life.referenced(), "files are neither missing nor left over"

    def _found(self, life: Life, told: GroupTold) -> dict[bytes, list[str]] | None:
        topic = life.topic(told.topic)
        group = None if topic is None else topic.queues.get(told.name)
        if group is None:
            return None
        assert group.order == told.order
        assert group.state.paused in told.paused
        assert len(group.queue.places.leased) == 0, "leases do not last"
        found: dict[bytes, list[str]] = {}
        letters = dead_letter_name(told.topic, told.name)
        for place, name, queue in ((TOPIC, told.topic, told.name), (LETTERS, letters, REDRIVE)):
            for value in self._unsettled(life, name, queue):
                found.setdefault(value, []).append(place)
        return found

    def _unsettled(self, life: Life, name: str, group: str) -> list[bytes]:
        topic = life.topic(name)
        if topic is None or group not in topic.queues:
            return []
        queue, log = topic.queues[group].queue, topic.log
        values = dict(life.messages(name))
        first = max(queue.floor, log.first_offset)
        return [values[o] for o in offsets_in(queue.settled.missing(first, log.next_offset))]

    def take_over(self, life: Life) -> None:
        """From now on, what was found is what there is."""
        self.life = life
        for told in list(self.groups.values()):
            found = self._found(life, told)
            if found is None:
                del self.groups[told.name]
                continue
            told.created = True
            told.places = {value: {found.get(value, [NOWHERE])[0]} for value in told.places}
            group = life.topic(told.topic)
            assert group is not None
            told.paused = {group.queues[told.name].state.paused}

    async def go_on(self, life: Life) -> None:
        """The groups can be used: what is there can be had, settled, buried and brought back."""
        self.take_over(life)
        self._members.clear()
        self._held.clear()
        for name, told in self.groups.items():
            await self.join(told.topic, name, told.order)
            await self.pause(name, False)
            await life.clock.advance(DELAYS_LAST)
            there = {value for value, places in told.places.items() if TOPIC in places}
            got: list[bytes] = []
            while values := await self.take(name, 4):
                got += values
                if told.order == "key":
                    await self.ack(name, len(values))  # it is the others' turn then only
            assert sorted(got) == sorted(there), "whatever is not settled can be had, once"
            await self.ack(name, 2)
            await self.redrive(name)
            await self.reject(name, 1)
            await self.publish(told.topic)
