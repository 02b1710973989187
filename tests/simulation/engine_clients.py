"""Clients of the engine: they ask any node that is up, and ask again where that was in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from flintmq.batch import BatchBuilder, RecordBatch
from flintmq.broker_api import BrokerApi, Fetch, Grant, Joining, MemberApi
from flintmq.errors import FlintError, GroupNotFound, LeaseLost, NotLeader, TopicNotFound
from flintmq.model import Receipt

if TYPE_CHECKING:
    from tests.simulation.engine_world import EngineWorld

T = TypeVar("T")

PATIENCE_SECONDS = 3.0
LEASE_SECONDS = 4.0
LONGEST_SECONDS = 12.0
"""After that no lease lasts, and none that the last leader did not know of is waited for."""
SLOWEST = 1.02
"""How much longer a lease lasts by the clock of who gave it, at most."""


class EngineClient:
    def __init__(self, world: EngineWorld, name: str) -> None:
        self.world, self.name = world, name
        self.random, self.judges = world.random, world.judges

    async def run(self) -> None:
        raise NotImplementedError

    async def ask(self, verb: Callable[[BrokerApi], Awaitable[T]]) -> T:
        """Of one node, within the patience of a client. Raises FlintError or TimeoutError."""
        up = [life for life in self.world.lives.values() if life.is_up]
        if not up:
            await asyncio.sleep(0.2)
            raise TimeoutError
        broker = self.random.choice(up).node.broker
        return await asyncio.wait_for(verb(broker), PATIENCE_SECONDS)

    async def join(self, topic: str) -> MemberApi:
        """The group of a topic."""
        joining = Joining(topic, "g", self.name, order=self.world.plan.order, start="earliest")
        return await self.ask(lambda broker: broker.join_group(joining))

    async def rest(self) -> None:
        await asyncio.sleep(self.random.uniform(0.0, self.world.plan.rest_seconds))

    def topic(self) -> str:
        return self.random.choice(self.world.plan.topics)


class EnginePublisher(EngineClient):
    """Publishes under its name, and sends again what was not acknowledged. A plain one has no name:
    it sends again only what surely was not done."""

    def __init__(self, world: EngineWorld, name: str, *, is_plain: bool) -> None:
        super().__init__(world, name)
        self._is_plain = is_plain

    async def run(self) -> None:
        sequences = dict.fromkeys(self.world.plan.topics, 0)
        while not self.world.is_calm:
            topic, count = self.topic(), self.random.randint(1, 5)
            first = sequences[topic]
            values = [b"%s %s %d" % (self.name.encode(), topic.encode(), first + at)
                      for at in range(count)]  # fmt: skip
            values = [value.ljust(self.world.plan.value_bytes, b".") for value in values]
            sequences[topic] += count
            await self._publish(topic, values, first)
            await self.rest()

    async def _publish(self, topic: str, values: list[bytes], sequence: int) -> None:
        known = self.judges.end_of(topic)
        while True:
            builder = BatchBuilder()
            for value in values:
                builder.append_row(value, key=key_of(value))
            rows: BatchBuilder | RecordBatch = builder
            if not self._is_plain:
                rows = builder.seal(producer=self.name, base_sequence=sequence)
            try:
                receipt = await self.ask(
                    lambda broker, rows=rows: broker.publish(  # type: ignore[misc]
                        topic, rows, qos=1, auto_create=True, timeout=None
                    )
                )
            except (FlintError, TimeoutError) as error:
                self.judges.note("failed", self.name, type(error).__name__)
                if self._is_plain and not isinstance(error, NotLeader):
                    self.world.counts["publishes left unknown"] += 1
                    return
                self.world.counts["publishes sent again"] += 1
                await self.rest()
                continue
            assert receipt.offset is not None
            self.judges.acknowledged(topic, receipt.offset, values, known=known)
            return


class EngineReader(EngineClient):
    """Reads topics from somewhere on; what it saw must stay."""

    async def run(self) -> None:
        while not self.world.is_calm:
            topic, offset = self.topic(), self.random.randrange(400)
            wanted = Fetch(topic, offset, max_rows=20)
            with suppress(FlintError, TimeoutError):
                fetched = await self.ask(lambda broker: broker.fetch(wanted))  # noqa: B023
                for message in fetched.rows:
                    assert message.offset is not None
                    self.judges.saw(topic, message.offset, bytes(message.value))
                self.world.counts["reads"] += 1
                self.judges.note("read", topic, offset, fetched.position)
            await self.rest()


class EngineLooker(EngineClient):
    """Asks where topics end."""

    async def run(self) -> None:
        while not self.world.is_calm:
            topic = self.topic()
            known = self.judges.end_of(topic)
            with suppress(FlintError, TimeoutError):
                (extent,) = await self.ask(lambda broker: broker.extents(topic, None))  # noqa: B023
                self.judges.looked(topic, extent.next_offset, known=known)
                self.world.counts["looks"] += 1
            await self.rest()


class EngineConsumer(EngineClient):
    """Takes messages of a group and settles them. When the lead changes it joins again, under its
    name, and goes on with what it holds: as a client does that comes back."""

    async def run(self) -> None:
        topic = self.topic()
        while not self.world.is_calm:
            try:
                member = await self.join(topic)
                await self._work(topic, member)
            except (FlintError, TimeoutError) as error:
                self.judges.note("ended", self.name, type(error).__name__)
            await self.rest()

    async def _work(self, topic: str, member: MemberApi) -> None:
        while not self.world.is_calm:
            asked, now = self.world.loop.time(), self.world.loop.time
            most = self.random.randint(1, 6)
            grant = await asyncio.wait_for(
                member.take(most, LEASE_SECONDS, self.random.choice((0, 0.5))), PATIENCE_SECONDS
            )
            if grant is None:
                await self.rest()
                continue
            # It began when it was asked for or later, by a clock that is fast or slow.
            ends = asked + LEASE_SECONDS / SLOWEST
            self.judges.granted(
                topic, self.name, grant.token, offsets_of(grant), asked=asked, now=now(), ends=ends
            )
            self._look_at(topic, grant)
            if self.random.random() < 0.7:
                await self.rest()
            if self.random.random() < 0.15:
                member = await self._come_back(topic, grant)
            await self._settle(topic, member, grant, now)

    def _look_at(self, topic: str, grant: Grant) -> None:
        for message in grant.rows:
            assert message.offset is not None
            value = bytes(message.value)
            self.judges.saw(topic, message.offset, value)
            if self.world.plan.order == "key" and message.key is not None:
                self.judges.in_turn(topic, message.offset, message.key)

    async def _come_back(self, topic: str, grant: Grant) -> MemberApi:
        """To whoever leads, and claim what is held: as a client does whose connection was lost."""
        member = await self.join(topic)
        leases = [(grant.token, [(offset, offset + 1)]) for offset in offsets_of(grant)]
        try:
            await asyncio.wait_for(member.extend(leases, LEASE_SECONDS), PATIENCE_SECONDS)
            self.world.counts["leases reclaimed"] += len(leases)
        except LeaseLost as lost:
            self.world.counts["leases reclaimed"] += len(leases) - len(lost.offsets)
            self.world.counts["leases lost"] += len(lost.offsets)
        return member

    async def _settle(
        self, topic: str, member: MemberApi, grant: Grant, now: Callable[[], float]
    ) -> None:
        offsets = offsets_of(grant)
        leases = [(grant.token, [(offset, offset + 1)]) for offset in offsets]
        draw = self.random.random()
        if draw < 0.7:
            # Settled or not, its lease is over from here on.
            self.judges.given_up(topic, grant.token, offsets)
            self.judges.acks(topic, offsets)
            try:
                await self._until_known(topic, member, leases)
            except LeaseLost as lost:
                self.judges.refused(topic, list(lost.offsets))
                self.world.counts["leases lost"] += len(lost.offsets)
                offsets = [offset for offset in offsets if offset not in lost.offsets]
            self.judges.settled(topic, offsets, now())
        elif draw < 0.8:
            self.judges.given_up(topic, grant.token, offsets)
            await asyncio.wait_for(member.nack(leases, 0.1), PATIENCE_SECONDS)
        elif draw < 0.9:
            self.judges.given_up(topic, grant.token, offsets)
            await asyncio.wait_for(member.release(leases), PATIENCE_SECONDS)
        else:
            self.world.counts["leases left to expire"] += len(offsets)

    async def _until_known(
        self, topic: str, member: MemberApi, leases: list[tuple[int, list[tuple[int, int]]]]
    ) -> None:
        """Ack, and where that was in vain come back to whoever leads and ack again."""
        for _ in range(8):
            try:
                return await asyncio.wait_for(member.ack(leases), PATIENCE_SECONDS)
            except LeaseLost:
                raise
            except (FlintError, TimeoutError):
                self.world.counts["acks sent again"] += 1
            await self.rest()
            with suppress(FlintError, TimeoutError):
                member = await self.join(topic)
        raise TimeoutError


class EngineStager(EngineClient):
    """Stages rows of two topics in parts, and commits them, or gives them up."""

    async def run(self) -> None:
        number = 0
        while not self.world.is_calm:
            number += 1
            name = f"{self.name} {number}"
            parts = [f"part {part}" for part in range(self.random.randint(1, 3))]
            rows = {
                part: [(topic, b"%s %s %s" % (name.encode(), part.encode(), topic.encode()))
                       for topic in self.world.plan.topics]
                for part in parts
            }  # fmt: skip
            self.judges.stages(name, [value for lot in rows.values() for _, value in lot])
            for part, lot in rows.items():
                await self._until_done(partial(self._stage, number, part, lot))
                await self.rest()
            known = {topic: self.judges.end_of(topic) for topic in self.world.plan.topics}
            for receipt in await self._until_done(partial(self._commit, number, parts)):
                assert receipt.offset is not None
                self.judges.placed(receipt.topic, receipt.offset, 1, known=known[receipt.topic])
            self.judges.committed(name)
            await self.rest()

    async def _stage(
        self, number: int, part: str, lot: list[tuple[str, bytes]], broker: BrokerApi
    ) -> None:
        batches = [(topic, BatchBuilder.of([value])) for topic, value in lot]
        await broker.stage(self.name, number, part, batches, auto_create=True)

    async def _commit(self, number: int, parts: list[str], broker: BrokerApi) -> list[Receipt]:
        return await broker.commit(self.name, number, parts)

    async def _until_done(self, verb: Callable[[BrokerApi], Awaitable[T]]) -> T:
        """Stages and commits may be asked for twice: they say by their number what they are."""
        while True:
            try:
                return await self.ask(verb)
            except (FlintError, TimeoutError) as error:
                self.world.counts["stages sent again"] += 1
                self.judges.note("failed", self.name, type(error).__name__)
            await self.rest()


class EngineDrainer(EngineClient):
    """In calm weather: takes what is left of a group, until that has nothing left."""

    def __init__(self, world: EngineWorld, name: str, topic: str) -> None:
        super().__init__(world, name)
        self._topic = topic

    async def run(self) -> None:
        while True:
            try:
                return await self._drain(self._topic)
            except (TopicNotFound, GroupNotFound):
                return None  # nobody ever came to work on it
            except (FlintError, TimeoutError):
                await self.rest()

    async def _drain(self, topic: str) -> None:
        await self.ask(lambda broker: broker.group_stats(topic, "g"))
        member = await self.join(topic)
        while True:
            asked = self.world.loop.time()
            grant = await member.take(100, LEASE_SECONDS, LONGEST_SECONDS)
            if grant is None:
                break
            offsets, now = offsets_of(grant), self.world.loop.time()
            self.judges.granted(
                topic, self.name, grant.token, offsets, asked=asked, now=now, ends=now
            )
            for message in grant.rows:
                assert message.offset is not None
                self.judges.saw(topic, message.offset, bytes(message.value))
            await member.ack([(grant.token, [(offset, offset + 1)]) for offset in offsets])
            self.judges.acks(topic, offsets)
            self.judges.settled(topic, offsets, self.world.loop.time())
        stats = await self.ask(lambda broker: broker.group_stats(topic, "g"))
        self.judges.drained(topic, stats.position, stats.lag)


def key_of(value: bytes) -> bytes | None:
    """Of a few keys, or none."""
    number = crc32(value) % 4
    return b"key %d" % number if number else None


def offsets_of(grant: Grant) -> list[int]:
    return [message.offset or 0 for message in grant.rows]


async def everything(broker: BrokerApi, topic: str) -> list[tuple[int, bytes]]:
    """All that a topic holds."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        try:
            fetched = await broker.fetch(Fetch(topic, offset))
        except TopicNotFound:
            return found
        found += [(message.offset or 0, bytes(message.value)) for message in fetched.rows]
        offset = fetched.position
        if offset >= fetched.next_offset:
            return found
