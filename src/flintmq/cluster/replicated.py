"""Every verb on every node: decided here where this node leads, asked of who leads elsewhere.

A verb that is refused because another leads was surely not done, and is asked again where that one
is. One whose outcome is unknown is not: only who asked knows whether it may be done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..broker_api import (
    Batch,
    BrokerApi,
    Joining,
    MemberApi,
    Placed,
)
from ..clock import Clock, SystemClock
from ..engine.broker import Broker
from ..errors import Closed, NotLeader
from ..model import (
    Receipt,
    TopicOptions,
)
from .following import FollowingMember

PATIENCE_SECONDS = 10.0
"""How long a verb waits for somebody to lead."""
AGAIN_SECONDS = 0.05
"""After which time the same node is asked again, doubling up to a second."""

T = TypeVar("T")
P = ParamSpec("P")


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


def _asks(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ReplicatedBroker, P], Coroutine[Any, Any, T]]:
    """A verb as who leads carries it out."""

    async def ask(broker: ReplicatedBroker, /, *given: P.args, **named: P.kwargs) -> T:
        return await broker._ask(lambda leader: getattr(leader, verb.__name__)(*given, **named))

    return update_wrapper(ask, verb)


def _looks(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ReplicatedBroker, P], Coroutine[Any, Any, T]]:
    """A verb that only looks."""

    async def look(broker: ReplicatedBroker, /, *given: P.args, **named: P.kwargs) -> T:
        return await broker._look(lambda leader: getattr(leader, verb.__name__)(*given, **named))

    return update_wrapper(look, verb)


class ReplicatedBroker:
    """Implements BrokerApi. `broker_of(node)` is how another node is asked."""

    def __init__(
        self,
        node: LeadingNode,
        broker_of: Callable[[int], BrokerApi | None] | None,
        *,
        patience: float = PATIENCE_SECONDS,
        members_follow: bool = False,
    ) -> None:
        """With `members_follow`, members of groups go on when another leads."""
        self._node, self._broker_of, self._patience = node, broker_of, patience
        self._members_follow = members_follow
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
        self, *given: Any, **named: Any
    ) -> Receipt | Placed | Awaitable[Receipt] | None:
        is_leading = self._node.is_leading()
        return self._local.publish_rows_nowait(*given, **named) if is_leading else None

    publish = _asks(BrokerApi.publish)

    def writer_topics(self, writer: str) -> Collection[str]:
        broker = self.leading()
        return () if broker is None else broker.writer_topics(writer)

    # --- verbs

    request = _asks(BrokerApi.request)
    reply = _asks(BrokerApi.reply)
    stage = _asks(BrokerApi.stage)
    commit = _asks(BrokerApi.commit)
    abort = _asks(BrokerApi.abort)
    backup = _asks(BrokerApi.backup)
    create_topic = _asks(BrokerApi.create_topic)
    configure_topic = _asks(BrokerApi.configure_topic)
    delete_topic = _asks(BrokerApi.delete_topic)
    purge_topic = _asks(BrokerApi.purge_topic)
    topics = _looks(BrokerApi.topics)
    topic_info = _looks(BrokerApi.topic_info)
    topic_stats = _looks(BrokerApi.topic_stats)
    stats_of = _looks(BrokerApi.stats_of)
    definitions = _looks(BrokerApi.definitions)
    define = _asks(BrokerApi.define)
    webhook_states = _looks(BrokerApi.webhook_states)
    test_webhook = _asks(BrokerApi.test_webhook)
    open_reader = _asks(BrokerApi.open_reader)
    fetch = _asks(BrokerApi.fetch)
    extents = _looks(BrokerApi.extents)
    objects = _asks(BrokerApi.objects)
    wait_beyond = _asks(BrokerApi.wait_beyond)
    open_feed = _asks(BrokerApi.open_feed)

    async def join_group(self, joining: Joining) -> MemberApi:
        def join() -> Coroutine[Any, Any, MemberApi]:
            return self._ask(lambda broker: broker.join_group(joining))

        member = await join()
        return FollowingMember(join, member, self.clock) if self._members_follow else member

    groups = _looks(BrokerApi.groups)
    group_stats = _looks(BrokerApi.group_stats)
    pause_group = _asks(BrokerApi.pause_group)
    reset_group = _asks(BrokerApi.reset_group)
    delete_group = _asks(BrokerApi.delete_group)
    peek = _looks(BrokerApi.peek)
    in_flight = _looks(BrokerApi.in_flight)
    dead_letters = _looks(BrokerApi.dead_letters)
    redrive = _asks(BrokerApi.redrive)
    redrive_edited = _asks(BrokerApi.redrive_edited)
    discard = _asks(BrokerApi.discard)
    cancel = _asks(BrokerApi.cancel)
