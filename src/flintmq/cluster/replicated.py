"""Every verb on every node: decided here where this node leads, asked of who leads elsewhere.

A verb that is refused because another leads was surely not done, and is asked again where that one
is. One whose outcome is unknown is not: only who asked knows whether it may be done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..broker_api import (
    Batch,
    Batches,
    BrokerApi,
    FeedApi,
    Fetch,
    Fetched,
    Filter,
    Joining,
    MemberApi,
    Placed,
    ReaderApi,
    ReaderOpening,
)
from ..clock import Clock, SystemClock
from ..engine.broker import Broker
from ..errors import Closed, NotLeader
from ..group_model import GroupInfo, GroupStats, InFlight, Ranges
from ..model import (
    Definition,
    Extent,
    Overflow,
    Receipt,
    Start,
    TopicInfo,
    TopicOptions,
    TopicStats,
)
from ..rows import Rows
from ..webhook_model import WebhookAnswer, WebhookState

PATIENCE_SECONDS = 10.0
"""How long a verb waits for somebody to lead."""
AGAIN_SECONDS = 0.05
"""After which time the same node is asked again, doubling up to a second."""

T = TypeVar("T")


class LeadingNode(Protocol):
    """What a node says about who leads."""

    id: int
    local: Broker

    def leader(self) -> int: ...
    def is_leading(self) -> bool: ...
    async def confirm_lead(self) -> None: ...
    def on_leader_changed(self, callback: Callable[[int, int], None]) -> None: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...


class ReplicatedBroker:
    """Implements BrokerApi. `broker_of(node)` is how another node is asked."""

    def __init__(
        self,
        node: LeadingNode,
        broker_of: Callable[[int], BrokerApi | None] | None,
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._node, self._broker_of, self._patience = node, broker_of, patience
        self._local = node.local
        self._waiting: dict[asyncio.Future[None], None] = {}
        """In the order in which they came."""
        self._steady = SystemClock()
        node.on_leader_changed(self._changed)
        # What this node counts, and has applied of what another one leads.
        local = node.local
        self.plain_topics, self.topic_figures = local.plain_topics, local.topic_figures
        self.feed_count, self.journal_figures = local.feed_count, local.journal_figures

    @property
    def clock(self) -> Clock:
        return self._local.clock

    async def open(self) -> None:
        await self._node.open()

    async def close(self) -> None:
        await self._node.close()

    # --- who leads

    def _changed(self, leader: int, term: int) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def leading(self) -> BrokerApi | None:
        """Whom to ask now; None where nobody is known to lead."""
        if self._node.is_leading():
            return self._local
        leader = self._node.leader()
        if self._broker_of is None or leader in (0, self._node.id):
            return None
        return self._broker_of(leader)

    async def _ask(self, verb: Callable[[BrokerApi], Awaitable[T]]) -> T:
        until, again = self._steady.monotonic() + self._patience, AGAIN_SECONDS
        while True:
            broker = self.leading()
            try:
                if broker is not None:
                    return await verb(broker)
                error = NotLeader(self._node.id, self._node.leader())
            except NotLeader as refused:
                error = refused
            if isinstance(self._local.shard.refusal, Closed):
                raise Closed("the broker")
            if self._steady.monotonic() >= until:
                raise error
            if self.leading() is broker:
                await self._news(again)
                again = min(1.0, again * 2)

    async def _look(self, verb: Callable[[BrokerApi], Awaitable[T]]) -> T:
        """A verb that only looks: what it sees must not be older than what others were told."""

        async def look(broker: BrokerApi) -> T:
            if broker is self._local:
                await self._node.confirm_lead()
            return await verb(broker)

        return await self._ask(look)

    async def _news(self, seconds: float) -> None:
        """Wait until somebody else leads, or for a while."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.pop(future, None)

    # --- publishing

    def known_options(self, topic: str) -> TopicOptions | None:
        broker = self.leading()
        return None if broker is None else broker.known_options(topic)

    def on_topic_changed(self, callback: Callable[[str, TopicOptions | None], None]) -> None:
        self._local.on_topic_changed(callback)

    def may_gather(self, topic: str) -> bool:
        broker = self.leading()
        return broker is not None and broker.may_gather(topic)

    def publish_nowait(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None = None
    ) -> Receipt | Awaitable[Receipt] | None:
        if not self._node.is_leading():
            return None
        return self._local.publish_nowait(topic, rows, qos=qos, auto_create=auto_create)

    def publish_value_nowait(self, topic: str, value: bytes) -> Receipt | Awaitable[Receipt] | None:
        return self._local.publish_value_nowait(topic, value) if self._node.is_leading() else None

    def publish_rows_nowait(
        self,
        topic: str,
        values: list[bytes],
        content_type: str | None,
        producer: str,
        sequence: int,
    ) -> Receipt | Placed | Awaitable[Receipt] | None:
        if not self._node.is_leading():
            return None
        return self._local.publish_rows_nowait(topic, values, content_type, producer, sequence)

    async def publish(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None
    ) -> Receipt:
        return await self._ask(
            lambda broker: broker.publish(
                topic, rows, qos=qos, auto_create=auto_create, timeout=timeout
            )
        )

    def writer_topics(self, writer: str) -> Collection[str]:
        broker = self.leading()
        return () if broker is None else broker.writer_topics(writer)

    # --- verbs

    async def request(
        self, topic: str, address: str, rows: Batch, timeout: float | None, auto_create: bool = True
    ) -> Rows:
        return await self._ask(
            lambda broker: broker.request(topic, address, rows, timeout, auto_create)
        )

    async def reply(self, address: str, rows: Batch) -> bool:
        return await self._ask(lambda broker: broker.reply(address, rows))

    async def stage(
        self, writer: str, number: int, part: str | int, batches: Batches, *, auto_create: bool
    ) -> None:
        return await self._ask(
            lambda broker: broker.stage(writer, number, part, batches, auto_create=auto_create)
        )

    async def commit(
        self, writer: str, number: int, parts: Sequence[str | int], *, ends: bool = False
    ) -> list[Receipt]:
        return await self._ask(lambda broker: broker.commit(writer, number, parts, ends=ends))

    async def abort(self, writer: str, number: int) -> None:
        return await self._ask(lambda broker: broker.abort(writer, number))

    async def backup(self, directory: str) -> None:
        return await self._ask(lambda broker: broker.backup(directory))

    async def create_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        return await self._ask(lambda broker: broker.create_topic(name, options))

    async def configure_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        return await self._ask(lambda broker: broker.configure_topic(name, options))

    async def delete_topic(self, name: str) -> None:
        return await self._ask(lambda broker: broker.delete_topic(name))

    async def purge_topic(self, name: str, before: int | None) -> int:
        return await self._ask(lambda broker: broker.purge_topic(name, before))

    async def topics(self, pattern: str) -> list[str]:
        return await self._look(lambda broker: broker.topics(pattern))

    async def topic_info(self, name: str) -> TopicInfo:
        return await self._look(lambda broker: broker.topic_info(name))

    async def topic_stats(self, name: str) -> TopicStats:
        return await self._look(lambda broker: broker.topic_stats(name))

    async def stats_of(self, names: Sequence[str]) -> list[TopicStats | None]:
        return await self._look(lambda broker: broker.stats_of(names))

    async def definitions(
        self, kind: str, topic: str | None = None, name: str | None = None
    ) -> list[Definition]:
        return await self._look(lambda broker: broker.definitions(kind, topic, name))

    async def define(
        self, kind: str, topic: str, name: str, value: bytes | None, version: int | None = None
    ) -> int:
        return await self._ask(lambda broker: broker.define(kind, topic, name, value, version))

    async def webhook_states(self, topic: str | None = None) -> list[WebhookState]:
        return await self._look(lambda broker: broker.webhook_states(topic))

    async def test_webhook(self, topic: str, group: str) -> WebhookAnswer:
        return await self._ask(lambda broker: broker.test_webhook(topic, group))

    async def open_reader(self, reading: ReaderOpening) -> ReaderApi:
        return await self._ask(lambda broker: broker.open_reader(reading))

    async def fetch(self, wanted: Fetch) -> Fetched:
        return await self._ask(lambda broker: broker.fetch(wanted))

    async def extents(self, topic: str, at: Start | None) -> list[Extent]:
        return await self._look(lambda broker: broker.extents(topic, at))

    async def wait_beyond(self, offsets: Mapping[str, int], timeout: float | None) -> bool:
        return await self._ask(lambda broker: broker.wait_beyond(offsets, timeout))

    async def open_feed(
        self, pattern: str, *, capacity: int, overflow: Overflow, filter: Filter | None
    ) -> FeedApi:
        return await self._ask(
            lambda broker: broker.open_feed(
                pattern, capacity=capacity, overflow=overflow, filter=filter
            )
        )

    async def join_group(self, joining: Joining) -> MemberApi:
        return await self._ask(lambda broker: broker.join_group(joining))

    async def groups(self, topic: str) -> list[GroupInfo]:
        return await self._look(lambda broker: broker.groups(topic))

    async def group_stats(self, topic: str, group: str) -> GroupStats:
        return await self._look(lambda broker: broker.group_stats(topic, group))

    async def pause_group(self, topic: str, group: str, paused: bool) -> None:
        return await self._ask(lambda broker: broker.pause_group(topic, group, paused))

    async def reset_group(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None:
        return await self._ask(lambda broker: broker.reset_group(topic, group, to))

    async def delete_group(self, topic: str, group: str) -> None:
        return await self._ask(lambda broker: broker.delete_group(topic, group))

    async def peek(self, topic: str, group: str, max_rows: int) -> Rows:
        return await self._look(lambda broker: broker.peek(topic, group, max_rows))

    async def in_flight(self, topic: str, group: str, max_rows: int) -> list[InFlight]:
        return await self._look(lambda broker: broker.in_flight(topic, group, max_rows))

    async def dead_letters(self, topic: str, group: str, max_rows: int, first: int = 0) -> Rows:
        return await self._look(lambda broker: broker.dead_letters(topic, group, max_rows, first))

    async def redrive(
        self, topic: str, group: str, offsets: Sequence[int] | None, filter: Filter | None
    ) -> int:
        return await self._ask(lambda broker: broker.redrive(topic, group, offsets, filter))

    async def redrive_edited(
        self, topic: str, group: str, id: int, changes: Mapping[str, Any]
    ) -> int:
        return await self._ask(lambda broker: broker.redrive_edited(topic, group, id, changes))

    async def discard(
        self, topic: str, group: str, offsets: Sequence[int] | None, filter: Filter | None
    ) -> int:
        return await self._ask(lambda broker: broker.discard(topic, group, offsets, filter))

    async def cancel(self, topic: str, ranges: Ranges) -> int:
        return await self._ask(lambda broker: broker.cancel(topic, ranges))
