"""A broker whose queues are as naive as can be: for what the client makes of them.

Topics are the engine's. A group is a list of what is to be handed out, and a dict of leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import flintmq
from flintmq.broker_api import (
    LEASED,
    BrokerApi,
    Grant,
    Joining,
    LeaseWatcher,
    MemberApi,
    ReaderApi,
    ReaderOpening,
    TakeMode,
)
from flintmq.clock import Clock
from flintmq.engine.broker import Broker
from flintmq.errors import Closed, FlintError, GroupExists, LeaseLost, TopicDeleted
from flintmq.group_model import GroupInfo, Lease, Ranges
from flintmq.groups.ranges import sorted_ranges
from flintmq.rows import Message, Rows, Run
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock

Call = tuple[str, Any]


class FakeGroup:
    def __init__(self, info: GroupInfo, reader: ReaderApi, clock: Clock) -> None:
        self.info, self.reader, self.clock = info, reader, clock
        self.messages: dict[int, Message] = {}
        self.ready: set[int] = set()
        self.leases: dict[int, tuple[int, FakeMember, float]] = {}
        self.counts: dict[int, int] = {}
        self.rejected: dict[int, str] = {}
        self.delays: dict[int, float] = {}
        self.token = 0
        self.waiters: list[asyncio.Future[bool]] = []
        self.dead: FlintError | None = None
        reader.on_ready(self.wake)

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(True)

    def put_back(self, offset: int) -> None:
        self.leases.pop(offset, None)
        self.ready.add(offset)
        self.wake()

    def look(self) -> None:
        """Hear of what was published, and of leases that ran out."""
        for message in self.reader.take(1000):
            assert message.offset is not None
            self.messages[message.offset] = message
            self.ready.add(message.offset)
        for offset, (_, _, ends) in self.leases.items():
            if ends <= self.clock.monotonic():
                self.ready.add(offset)  # until another has it, a late settle counts


class FakeMember:
    """Implements MemberApi."""

    is_instant = True

    def __init__(self, broker: FakeBroker, group: FakeGroup, holder: str) -> None:
        self.broker, self.group, self.holder = broker, group, holder
        self.is_closed = False
        self.failure: FlintError | None = None
        """What the next settle raises."""
        self.gate: asyncio.Event | None = None
        """What every settle waits for before it does anything."""

    @property
    def info(self) -> GroupInfo:
        return self.group.info

    def watch(self, watcher: LeaseWatcher) -> None:
        self.watcher = watcher

    def is_ready(self) -> bool:
        self.group.look()
        return bool(self.group.ready)

    async def take(
        self, max_rows: int, lease_seconds: float, wait: float | None, mode: TakeMode = LEASED
    ) -> Grant | None:
        group, clock = self.group, self.group.clock
        self.broker.calls.append(("take", max_rows))
        late = False

        def ring() -> None:
            nonlocal late
            late = True
            group.wake()

        timer = None if wait is None else clock.call_later(wait, ring)
        try:
            while True:
                if self.is_closed:
                    raise Closed("the member")
                if group.dead is not None:
                    raise group.dead
                group.look()
                if group.ready:
                    return self.grant(sorted(group.ready)[:max_rows], lease_seconds, mode.auto_ack)
                if wait == 0 or late:
                    return None
                waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                group.waiters.append(waiter)
                try:
                    await waiter
                finally:
                    group.waiters.remove(waiter)
        finally:
            if timer is not None:
                timer.cancel()

    def grant(self, offsets: list[int], lease_seconds: float, auto_ack: bool) -> Grant:
        group = self.group
        group.token += 1
        runs = []
        for offset in offsets:
            group.ready.discard(offset)
            message = group.messages[offset]
            runs.append(Run(message._source, message._row, message._row + 1, message._origin))
            group.counts[offset] = group.counts.get(offset, 0) + 1
            if not auto_ack:
                ends = group.clock.monotonic() + lease_seconds
                group.leases[offset] = (group.token, self, ends)
        if not auto_ack:
            group.clock.call_later(lease_seconds, group.wake)
        counts = {offset: group.counts[offset] for offset in offsets if group.counts[offset] > 1}
        return Grant(group.token, Rows(runs), counts)

    async def settle(
        self, verb: str, leases: Sequence[Lease], done: Callable[[int], None], more: Any = None
    ) -> None:
        ranges = [pair for _, of_token in leases for pair in of_token]
        self.broker.calls.append((verb, ranges if more is None else (ranges, more)))
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.is_closed:
            raise Closed("the member")
        lost = []
        for token, of_token in leases:
            for offset in (offset for first, end in of_token for offset in range(first, end)):
                if self.group.leases.get(offset, (0,))[0] == token:
                    done(offset)
                else:
                    lost.append(offset)
        if lost:
            raise LeaseLost(self.info.topic, self.info.name, lost)

    async def ack(self, leases: Sequence[Lease]) -> None:
        await self.settle("ack", leases, lambda offset: self.drop(offset))

    def drop(self, offset: int) -> None:
        del self.group.leases[offset]
        self.group.ready.discard(offset)

    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        def back(offset: int) -> None:
            self.group.delays[offset] = delay
            self.drop(offset)
            if delay:
                self.group.clock.call_later(delay, lambda: self.group.put_back(offset))
            else:
                self.group.put_back(offset)

        await self.settle("nack", leases, back, delay)

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        def dead(offset: int) -> None:
            self.drop(offset)
            self.group.rejected[offset] = reason

        await self.settle("reject", leases, dead, reason)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> None:
        def longer(offset: int) -> None:
            token, member, _ = self.group.leases[offset]
            ends = self.group.clock.monotonic() + seconds
            self.group.leases[offset] = (token, member, ends)
            self.group.clock.call_later(seconds, self.group.wake)

        await self.settle("extend", leases, longer, seconds)

    async def release(self, leases: Sequence[Lease]) -> None:
        def back(offset: int) -> None:
            self.group.counts[offset] -= 1
            self.group.put_back(offset)

        await self.settle("release", leases, back)

    async def close(self) -> None:
        self.broker.calls.append(("close", self.info.topic))
        self.is_closed = True
        for offset, (_, member, _) in list(self.group.leases.items()):
            if member is self:
                self.group.put_back(offset)
        self.group.wake()


class FakeBroker(Broker):
    """The engine's topics with naive queues over them, and a list of what was asked of those."""

    def __init__(self, clock: ManualClock, codec: Codec) -> None:
        super().__init__(clock, codec)
        self.queues: dict[tuple[str, str], FakeGroup] = {}
        self.members: list[FakeMember] = []
        self.calls: list[Call] = []
        self.join_group = self.join_naively  # type: ignore[assignment]

    async def join_naively(self, joining: Joining) -> MemberApi:
        topic, group, order, start = joining.topic, joining.group, joining.order, joining.start
        self.calls.append(("join", topic))
        found = self.queues.get((topic, group))
        if found is None or found.dead is not None:
            reader = await self.open_reader(
                ReaderOpening(
                    topic,
                    name=None,
                    start=start or "earliest",
                    filter=None,
                    auto_create=joining.auto_create,
                )
            )
            info = GroupInfo(
                name=group, topic=topic, kind="queue", order=order or "priority",
                start=str(start or "earliest"),
            )  # fmt: skip
            found = self.queues[topic, group] = FakeGroup(info, reader, self.clock)
        differing: dict[str, tuple[Any, Any]] = {}
        if order is not None and order != found.info.order:
            differing["order"] = (found.info.order, order)
        if start is not None and str(start) != found.info.start:
            differing["start"] = (found.info.start, str(start))
        if differing:
            raise GroupExists(topic, group, differing)
        member = FakeMember(self, found, joining.holder)
        self.members.append(member)
        return member

    def asked(self, verb: str) -> list[Any]:
        """What was asked of members by that verb, in order."""
        return [what for name, what in self.calls if name == verb]

    def queue(self, topic: str, group: str) -> FakeGroup:
        return self.queues[topic, group]

    def leased(self, topic: str, group: str) -> Ranges:
        return sorted_ranges(self.queue(topic, group).leases)

    def kill(self, topic: str, group: str) -> None:
        queue = self.queue(topic, group)
        queue.dead = TopicDeleted(topic)
        queue.wake()


def connect_to_fake(clock: ManualClock) -> tuple[flintmq.Client, FakeBroker]:
    codec = Codec()
    broker = FakeBroker(clock, codec)
    client = flintmq.Client(cast(BrokerApi, broker), codec, auto_create=True, timeout=None)
    return client, broker
