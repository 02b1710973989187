"""A topic with partitions, which BlipMQ's clients take for a plain one.

Its messages are told apart by one number, which becomes the delivery tag: the partition above, the
offset below. Of a plain topic, and of partition 0, that is the offset itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ...batch import key_hash
from ...broker_api import (
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
from ...client.partitioned_reader import PartitionedReader
from ...client.routing import partition_name
from ...client.sending import partitions_of
from ...errors import FlintError, InvalidRequest, LeaseLost, TopicNotFound
from ...group_model import GroupInfo, Lease, Order, Ranges
from ...model import Start
from ...rows import Message, Run

PARTITION_BITS = 52
"""Below the partition: room for any offset, and 1024 partitions are still a positive number."""
_OFFSET = (1 << PARTITION_BITS) - 1


def place_of(run: Run) -> int:
    """The number of a run's row 0."""
    return (run.origin.partition << PARTITION_BITS) + run.source.base_offset


def place_of_message(message: Message) -> int:
    assert message.offset is not None, "it was leased, so it is stored"
    return (message.partition << PARTITION_BITS) + message.offset


def partitions(broker: BrokerApi, topic: str) -> int | None:
    """How many it has; None for a plain topic, and for one that is not there."""
    return partitions_of(topic, broker.known_options(topic))


class Routes:
    """Which plain topic a connection's publishes go to: by key, else in turn from read to read."""

    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker
        self._turns: dict[str, int] = {}
        self._this_turn: set[str] = set()

    def plain(self, topic: str, key: bytes | None) -> str:
        count = partitions(self._broker, topic)
        if count is None:
            return topic
        if key is not None:
            return partition_name(topic, key_hash(key) % count)
        if topic not in self._this_turn:
            self._this_turn.add(topic)
            self._turns[topic] = self._turns.get(topic, -1) + 1
        return partition_name(topic, self._turns[topic] % count)

    def end_turn(self) -> None:
        self._this_turn.clear()


async def join(
    broker: BrokerApi, topic: str, group: str, *, order: Order, start: Start, holder: str
) -> MemberApi:
    """Become a member of a group, of every partition if there are some. What is made by it has
    this order and begins at `start`; what is known is as it is."""

    async def join_plain(name: str) -> MemberApi:
        if await _is_known(broker, name, group):
            return await broker.join_group(Joining(name, group, holder))
        return await broker.join_group(Joining(name, group, holder, order, start=start))

    count = partitions(broker, topic)
    if count is None:
        return await join_plain(topic)
    if isinstance(start, int):
        start = _start_of_row(topic, start)
    row = RowMember(
        topic,
        group,
        lambda number: join_plain(partition_name(topic, number)),
        lambda: partitions(broker, topic) or 0,
    )
    try:
        await row.grow()
    except BaseException:
        await row.close()
        raise
    return row


async def open_reader(broker: BrokerApi, topic: str, start: int) -> ReaderApi:
    count = partitions(broker, topic)
    if count is None:
        return await broker.open_reader(
            ReaderOpening(topic, name=None, start=start, filter=None, auto_create=True)
        )

    async def open_partition(number: int, start: Start | None) -> ReaderApi:
        return await broker.open_reader(
            ReaderOpening(
                partition_name(topic, number),
                name=None,
                start=start,
                filter=None,
                auto_create=False,
            )
        )

    row = PartitionedReader(broker.clock, open_partition, lambda: partitions(broker, topic) or 0)
    await row.open(range(count), _start_of_row(topic, start))
    return row


def _start_of_row(topic: str, offset: int) -> Start:
    if offset:
        raise InvalidRequest(
            f"{topic!r} has partitions, and each has its own offsets: start at 0, which is "
            "the earliest in all of them, or with new messages"
        )
    return "earliest"


async def _is_known(broker: BrokerApi, topic: str, group: str) -> bool:
    try:
        return any(info.name == group for info in await broker.groups(topic))
    except TopicNotFound:
        return False


class RowMember:
    """A member of a group of each partition, as if they were one. Implements MemberApi.

    Offsets are those of `place_of`. Partitions that are added meanwhile are joined.
    """

    is_instant = False

    def __init__(
        self,
        topic: str,
        group: str,
        join_partition: Callable[[int], Awaitable[MemberApi]],
        count: Callable[[], int],
    ) -> None:
        self._topic, self._group = topic, group
        self._join_partition, self._count = join_partition, count
        self._members: list[MemberApi] = []
        self._turn = 0
        self._ahead: deque[Grant] = deque()
        """What came from several partitions in one moment."""
        self._growing = asyncio.Lock()

    async def grow(self) -> None:
        """Join those partitions that are there and not joined."""
        async with self._growing:
            while len(self._members) < self._count():
                self._members.append(await self._join_partition(len(self._members)))

    @property
    def info(self) -> GroupInfo:
        return self._members[0].info

    def watch(self, watcher: LeaseWatcher) -> None:
        for member in self._members:
            member.watch(watcher)

    def is_ready(self) -> bool:
        return (
            bool(self._ahead)
            or len(self._members) < self._count()
            or any(member.is_ready() for member in self._members)
        )

    async def take(
        self, max_rows: int, lease_seconds: float, wait: float | None, mode: TakeMode = LEASED
    ) -> Grant | None:
        """From one partition after the other, so that none is starved."""
        assert not mode.auto_ack, "a grant may be set aside here, and be given back"
        if len(self._members) < self._count():
            await self.grow()
        count = len(self._members)
        first, self._turn = self._turn, self._turn + 1
        if self._ahead:
            return self._ahead.popleft()
        for number in (place % count for place in range(first, first + count)):
            if self._members[number].is_ready():
                grant = await self._members[number].take(max_rows, lease_seconds, 0)
                if grant is not None:
                    return _widened(grant, number)
        return None if wait == 0 else await self._wait_for_any(max_rows, lease_seconds, wait)

    async def _wait_for_any(
        self, max_rows: int, lease_seconds: float, wait: float | None
    ) -> Grant | None:
        async def take_from(number: int) -> None:
            grant = await self._members[number].take(max_rows, lease_seconds, wait)
            if grant is not None:
                self._ahead.append(_widened(grant, number))

        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(take_from(number)) for number in range(len(self._members))]
        try:
            # The first may end without a message where partitions were added.
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()  # who is cancelled while it waits has taken nothing
            await asyncio.wait(waiting)
        failed = [task.exception() for task in waiting if not task.cancelled()]
        if self._ahead:
            return self._ahead.popleft()  # what went wrong goes wrong again at the next
        for error in failed:
            if error is not None:
                raise error
        return None

    # --- settling

    async def ack(self, leases: Sequence[Lease]) -> None:
        await self._each(leases, lambda member, some: member.ack(some))

    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        await self._each(leases, lambda member, some: member.nack(some, delay))

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        await self._each(leases, lambda member, some: member.reject(some, reason))

    async def extend(self, leases: Sequence[Lease], seconds: float) -> None:
        await self._each(leases, lambda member, some: member.extend(some, seconds))

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._each(leases, lambda member, some: member.release(some))

    async def _each(
        self, leases: Sequence[Lease], settle: Callable[[MemberApi, list[Lease]], Awaitable[None]]
    ) -> None:
        """All are carried out, together; then what is lost is told, and what else went wrong."""
        by_partition: dict[int, dict[int, Ranges]] = {}
        for token, ranges in leases:
            for start, stop in ranges:
                number = start >> PARTITION_BITS
                narrow = (start & _OFFSET, (start & _OFFSET) + stop - start)
                by_partition.setdefault(number, {}).setdefault(token, []).append(narrow)
        outcomes = await asyncio.gather(
            *(
                settle(self._members[number], list(by_token.items()))
                for number, by_token in by_partition.items()
            ),
            return_exceptions=True,
        )
        lost: list[int] = []
        failed: BaseException | None = None
        for number, outcome in zip(by_partition, outcomes, strict=True):
            if isinstance(outcome, LeaseLost):
                lost += [(number << PARTITION_BITS) + offset for offset in outcome.offsets]
            elif outcome is not None:
                failed = failed or outcome
        if failed is not None:
            raise failed
        if lost:
            raise LeaseLost(self._topic, self._group, lost)

    async def close(self) -> None:
        """What is leased is given back, what was set aside too."""
        failed: FlintError | None = None
        for member in self._members:
            try:
                await member.close()
            except FlintError as error:
                failed = failed or error
        if failed is not None:
            raise failed


def _widened(grant: Grant, number: int) -> Grant:
    if not grant.counts or not number:
        return grant
    above = number << PARTITION_BITS
    return grant._replace(counts={above + one: count for one, count in grant.counts.items()})
