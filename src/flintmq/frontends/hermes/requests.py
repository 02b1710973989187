"""What each request of a HermesMQ client becomes: calls of BrokerApi, and a frame that answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ...access import Access
from ...broker_api import Grant, SettlesBefore
from ...errors import (
    Closed,
    FlintError,
    GroupNotFound,
    InvalidRequest,
    LeaseLost,
    TopicNotFound,
)
from ...groups.ranges import sorted_ranges
from ...model import Receipt
from ...patterns import escape_name
from . import codec as hermes
from . import rules
from .holds import Hold, Item, items_of

if TYPE_CHECKING:
    from .connection import HermesConnection, Reply

PUBLISH_SECONDS = 5.0
"""How long a produce may wait where the disk or the topic has no room. Their clients wait 10 s for
an answer and then send it again: they should hear why before that."""
LATE_SECONDS = 600.0
"""How long after its lease a delivery may still be acked, if nobody else has it by then."""
ITEM_BYTES = 64
"""What an item takes beside its payload, at most."""


Settle = Callable[[Hold, int], "asyncio.Future[bytes] | bytes"]
"""Hold.ack or Hold.nack."""

_Line = deque[tuple[hermes.Produce, asyncio.Future[Receipt | Awaitable[Receipt]]]]
"""Produces to one topic that wait, each with the place where its receipt goes."""


class _ParkedPoll:
    """A poll at work. It is parked until it has taken something."""

    __slots__ = (
        "group", "has_place", "is_auto", "is_begun", "is_parked", "is_wanted", "request", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, group: str, request: hermes.Poll) -> None:
        self.topic, self.group, self.request = topic, group, request
        self.is_auto = request.ack_mode == rules.AUTO
        self.is_begun = self.has_place = False
        self.is_parked = self.is_wanted = True


class Requests:
    """The requests of one connection. Produces to one topic keep their order."""

    def __init__(self, connection: HermesConnection) -> None:
        self._connection = connection
        self._lines: dict[str, _Line] = {}
        self._polls: dict[asyncio.Task[bytes], _ParkedPoll] = {}
        """Those whose replies are not written yet."""
        self._poll_places = asyncio.Semaphore(connection.server.limits.polls)
        self._placed = 0
        self._begin: dict[type[Any], Callable[[Any, Access], Reply]] = {
            hermes.Produce: self._produce,
            hermes.Poll: self._poll,
            hermes.Ack: self._ack,
            hermes.Nack: self._nack,
            hermes.Commit: self._commit,
            hermes.CreateTopic: self._create_topic,
            hermes.DeleteTopic: self._delete_topic,
            hermes.Stats: self._stats,
            hermes.Bootstrap: self._bootstrap,
            hermes.SetRateLimit: self._set_rate_limit,
            hermes.SetRetention: self._set_retention,
        }

    def begin(self, request: hermes.Request, access: Access) -> Reply:
        """Begin what is asked for: the reply, or what becomes it. Raises FlintError."""
        server = self._connection.server
        if isinstance(request, hermes.Produce) and len(request.payload) > rules.PAYLOAD_BYTES_MAX:
            return rules.too_large(len(request.payload))  # of any node, also one that is stopping
        if not server.is_leading and not isinstance(request, hermes.Stats | hermes.Bootstrap):
            return server.not_leader()
        if server.is_draining and not isinstance(request, hermes.Stats | hermes.Ack | hermes.Nack):
            return server.not_leader()
        return self._begin[type(request)](request, access)

    # --- producing

    def _produce(self, request: hermes.Produce, access: Access) -> Reply:
        server = self._connection.server
        topic = escape_name(request.topic)
        access.require("publish", topic)
        line = self._lines.get(topic)
        if line is None:
            if topic in server.topics:
                receipt = self._publish_nowait(topic, request)
                if receipt is not None:
                    return rules.produced(receipt) if isinstance(receipt, Receipt) else receipt
            line = self._lines[topic] = deque()
            self._task(self._produce_in_line(topic, line))
        place: asyncio.Future[Receipt | Awaitable[Receipt]]
        place = asyncio.get_running_loop().create_future()
        line.append((request, place))
        return place

    def _publish_nowait(
        self, topic: str, request: hermes.Produce
    ) -> Receipt | Awaitable[Receipt] | None:
        broker = self._connection.server.broker
        receipt = None
        if rules.is_plain(request):
            receipt = broker.publish_value_nowait(topic, request.payload)
        if receipt is None:
            rows = rules.rows_of(request)
            receipt = broker.publish_nowait(topic, rows, qos=1, auto_create=False)
        return receipt

    async def _produce_in_line(self, topic: str, line: _Line) -> None:
        """Where one has to wait (the topic is being made, or full), those behind it do as well."""
        server = self._connection.server
        try:
            while line:
                request, place = line[0]
                try:
                    await server.obtain_topic(topic)
                    receipt = self._publish_nowait(topic, request)
                    if receipt is None:
                        rows = rules.rows_of(request)
                        receipt = await server.broker.publish(
                            topic, rows, qos=1, auto_create=False, timeout=PUBLISH_SECONDS
                        )
                    place.set_result(receipt)
                except FlintError as error:
                    place.set_exception(error)
                    place.exception()  # there may be nobody left to be told
                line.popleft()
        finally:
            del self._lines[topic]
            for _, place in line:
                place.cancel()

    # --- polling

    def _poll(self, request: hermes.Poll, access: Access) -> Reply:
        topic, group = escape_name(request.topic), escape_name(request.group)
        access.require("consume", topic)
        poll = _ParkedPoll(topic, group, request)
        task = self._task(self._polled(poll))
        self._polls[task] = poll
        return task

    async def _polled(self, poll: _ParkedPoll) -> bytes:
        poll.is_begun = True
        if not poll.is_wanted:
            return rules.EMPTY
        try:
            # Those beyond the limit wait here: were the connection not read from instead, it would
            # not be seen that the client has gone.
            await self._poll_places.acquire()
            poll.has_place = True
            self._placed += 1
            return await self._poll_until(poll)
        except asyncio.CancelledError:
            return rules.EMPTY  # it was parked: nothing was taken

    def was_told(self, task: asyncio.Task[Any]) -> None:
        """The reply is written. Until then a poll keeps its place, as what it brings is kept."""
        poll = self._polls.pop(task, None)
        if poll is not None and poll.has_place:
            self._placed -= 1
            self._poll_places.release()

    async def _poll_until(self, poll: _ParkedPoll) -> bytes:
        server, topic = self._connection.server, poll.topic
        clock = server.broker.clock
        until = clock.monotonic() + rules.wait_seconds(poll.request.wait_ms)
        while server.is_leading and not server.is_draining:
            left = max(0.0, until - clock.monotonic())
            if topic not in server.topics and not (
                left and await server.wait_for_topic(topic, left)
            ):
                return rules.EMPTY if server.is_leading else server.not_leader()
            hold = None
            try:
                hold = await server.hold(topic, poll.group)
                hold.users += 1
                try:
                    return await self._take(hold, poll, until)
                finally:
                    hold.users -= 1
            except (TopicNotFound, GroupNotFound, Closed):  # deleted or given up meanwhile
                if hold is not None:
                    server.drop_hold(hold)
        return server.not_leader()

    async def _take(self, hold: Hold, poll: _ParkedPoll, until: float) -> bytes:
        request, member = poll.request, hold.member
        clock = self._connection.server.broker.clock
        count = min(rules.poll_count(request.max), hold.fitting)
        seconds = rules.visibility(request.visibility_timeout_ms)
        if poll.is_auto:  # it is settled at once, and a lease must not end before that
            seconds = max(seconds, rules.VISIBILITY_SECONDS)
        mode = self._connection.server.take_mode
        grant = await member.take(count, seconds, 0, mode)
        if grant is None:
            limited = hold.seconds_limited()
            left = until - clock.monotonic()
            if not limited and left > 0:
                grant = await member.take(count, seconds, left, mode)
                limited = 0.0 if grant else hold.seconds_limited()
            if grant is None:
                return rules.rate_limited(limited) if limited else rules.EMPTY
        poll.is_parked = False
        return await self._deliver(hold, grant, seconds, poll.is_auto)

    async def _deliver(self, hold: Hold, grant: Grant, seconds: float, is_auto: bool) -> bytes:
        connection, member = self._connection, hold.member
        # Who asks for many at once and does not read them is not to have each of that size kept.
        bytes_max = connection.server.limits.reply_bytes // max(1, self._placed)
        items = items_of(grant.rows)
        kept = 0 if connection.is_lost else _fitting(items, bytes_max)
        if kept < len(items):
            rest = sorted_ranges(item.offset for item in items[kept:])
            await member.release([(grant.token, rest)])
            del items[kept:]
            if not items:
                return rules.EMPTY
        hold.adapt(items, bytes_max)
        if is_auto:
            try:
                # Before it is told: who is told of an error gets it again.
                await member.ack([(grant.token, sorted_ranges(item.offset for item in items))])
            except LeaseLost:
                return rules.EMPTY  # the disk took longer than the lease
            ids, token = hold.ids, grant.token
            return hermes.polled_of(item.encoded(ids.of(token, item.offset)) for item in items)
        forgotten_at = connection.server.broker.clock.monotonic() + seconds + LATE_SECONDS
        encoded = hold.deliver(grant.token, items, connection, forgotten_at)
        connection.held.update((hold, item.offset) for item in items)
        if connection.is_lost:  # while the rest was given back
            for item in items:
                hold.give_back(item.offset, connection)
        return hermes.polled_of(encoded)

    def end_polls(self, *, auto_only: bool = False) -> None:
        """Those that wait end with nothing; those that have something are told of it."""
        for task, poll in self._polls.items():
            if poll.is_parked and (poll.is_auto or not auto_only):
                poll.is_wanted = False
                if poll.is_begun:  # else it would not end by its own words
                    task.cancel()

    # --- settling

    def _ack(self, request: hermes.Ack, access: Access) -> Reply:
        return self._settle(request, access, Hold.ack)

    def _nack(self, request: hermes.Nack, access: Access) -> Reply:
        return self._settle(request, access, Hold.nack)

    def _settle(self, request: hermes.Ack | hermes.Nack, access: Access, settle: Settle) -> Reply:
        server = self._connection.server
        topic, group = escape_name(request.topic), escape_name(request.group)
        access.require("consume", topic)
        hold = server.known_hold(topic, group)
        if hold is not None:
            return settle(hold, request.lease_id)
        if topic not in server.topics:
            return hermes.OK
        return self._task(self._settle_of_others(topic, group, request.lease_id, settle))

    async def _settle_of_others(
        self, topic: str, group: str, lease_id: int, settle: Settle
    ) -> bytes:
        """Nobody has asked this process for messages of the group: it may be of who led before."""
        server = self._connection.server
        with contextlib.suppress(TopicNotFound, GroupNotFound):
            if group in [one.name for one in await server.broker.groups(topic)]:
                reply = settle(await server.hold(topic, group), lease_id)
                return reply if isinstance(reply, bytes) else await reply
        return hermes.OK

    def _commit(self, request: hermes.Commit, access: Access) -> Reply:
        topic, group = escape_name(request.topic), escape_name(request.group)
        access.require("consume", topic)
        if topic not in self._connection.server.topics:
            return hermes.OK
        return self._task(self._committed(topic, group, request.offset))

    async def _committed(self, topic: str, group: str, offset: int) -> bytes:
        server = self._connection.server
        if not isinstance(server.broker, SettlesBefore):
            raise InvalidRequest(
                "this broker cannot commit a position of a queue group; ack messages instead"
            )
        with contextlib.suppress(TopicNotFound):  # it was deleted: there is nothing to be done with
            hold = await server.hold(topic, group)
            try:
                await server.broker.settle_before(topic, group, offset)
            except GroupNotFound:  # deleted meanwhile, and to be made anew
                server.drop_hold(hold)
                hold = await server.hold(topic, group)
                await server.broker.settle_before(topic, group, offset)
            hold.out.forget_before(offset)
        return hermes.OK

    # --- topics

    def _create_topic(self, request: hermes.CreateTopic, access: Access) -> Reply:
        topic = escape_name(request.topic)
        access.require("administer", topic)
        server = self._connection.server
        if topic in server.topics:
            return hermes.OK
        return self._task(_ok(server.create_topic(topic)))

    def _delete_topic(self, request: hermes.DeleteTopic, access: Access) -> Reply:
        topic = escape_name(request.topic)
        access.require("administer", topic)
        return self._task(self._deleted(topic))

    async def _deleted(self, topic: str) -> bytes:
        with contextlib.suppress(TopicNotFound):
            await self._connection.server.broker.delete_topic(topic)
        return hermes.OK

    def _set_rate_limit(self, request: hermes.SetRateLimit, access: Access) -> Reply:
        options = rules.rate_options(request.rate_per_sec, request.burst)
        return self._configure(request.topic, options, access)

    def _set_retention(self, request: hermes.SetRetention, access: Access) -> Reply:
        options = rules.retention_options(request.max_messages, request.max_age_ms)
        return self._configure(request.topic, options, access)

    def _configure(self, name: str, options: dict[str, Any], access: Access) -> Reply:
        topic = escape_name(name)
        access.require("administer", topic)
        return self._task(self._configured(topic, options))

    async def _configured(self, topic: str, options: dict[str, Any]) -> bytes:
        server = self._connection.server
        if topic not in server.topics:
            await server.create_topic(topic)
        await server.broker.configure_topic(topic, options)
        return hermes.OK

    # --- the node

    def _stats(self, request: hermes.Stats, access: Access) -> Reply:
        return self._connection.server.node.stats()

    def _bootstrap(self, request: hermes.Bootstrap, access: Access) -> Reply:
        access.require_operator()
        return self._connection.server.node.bootstrap(request.nodes)

    def _task(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_looked_at)
        self._connection.server.keep(task)
        return task


def _looked_at(task: asyncio.Task[Any]) -> None:
    """What it raises is told by the reply; there may be nobody left to be told."""
    if not task.cancelled():
        task.exception()


async def _ok(work: Awaitable[None]) -> bytes:
    await work
    return hermes.OK


def _fitting(items: list[Item], bytes_max: int) -> int:
    """How many of these a reply has room for; one at least."""
    size = 0
    for count, item in enumerate(items):
        size += len(item.payload) + ITEM_BYTES
        if size > bytes_max and count:
            return count
    return len(items)
