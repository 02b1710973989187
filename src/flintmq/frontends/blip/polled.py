"""Subscriptions of version 1: known by their number alone, polled by whoever may consume the topic.

One of QoS 1 is a group of its own, `blip-<number>`: it outlives connections and restarts. Messages
of QoS 0 wait in a live queue beside it, which does not. One that nobody has polled for the stated
time is dropped, as clients have no way to say that they are done with it. Nor can they ask for the
one they had: who subscribes anew takes over one whose connections are all gone.

In a cluster, every node may be asked for every subscription: a node looks for one when it is polled
there, and is a member of its group from then on. The last member drops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from ...broker_api import FeedApi, Grant, MemberApi
from ...clock import Timer
from ...errors import FlintError, GroupNotFound, LeaseLost, NotLeader, TopicNotFound
from ...net.server.leases_by_id import leases_of
from ...observe.logs import event
from ...patterns import unescape_name
from ...rows import Message
from .codec import encode_publish
from .leases import Leases
from .live import UNSTORED
from .row import join, place_of_message

if TYPE_CHECKING:
    from .server import BlipServer

_log = logging.getLogger(__name__)

TAKE_AHEAD = 32
"""Messages that are leased in one step for whoever polls next."""
AHEAD_SECONDS = 1.0
"""How long they may wait for a poll before they are given back."""
AHEAD_LEASE_SECONDS = 30.0
LOOK_SECONDS = 60.0
"""In a cluster: between two looks for groups whose connections ended with their node. Who has no
member at either look has none."""
UNKNOWN_SECONDS = 5.0
"""How long a number that no node knows is not looked for again."""
UNKNOWN_MAX = 1024

_GROUP = re.compile(r"blip-(\d{1,19})")
_PUSHED = re.compile(r"blip-push-(\d{1,19})")


def polled_group(number: int) -> str:
    return f"blip-{number}"


def pushed_group(number: int) -> str:
    return f"blip-push-{number}"


def is_ours(group: str) -> bool:
    """Whether a group's name is one of these: it comes and goes with its subscription."""
    return bool(_GROUP.fullmatch(group) or _PUSHED.fullmatch(group))


class PolledSubscription:
    def __init__(
        self,
        id: int,
        name: str,
        topic: bytes,
        feed: FeedApi,
        member: MemberApi | None,
        server: BlipServer,
    ) -> None:
        self.id, self.name, self._topic = id, name, topic
        self.leases: Leases | None = None
        self._ahead: Ahead | None = None
        self._clock = server.broker.clock
        if member is not None:
            self.leases = Leases(member, server.options.retry_backoff, self._clock)
            self._ahead = Ahead(server, name, self.leases)
        self.feed = feed
        self.polled_at = self._clock.monotonic()
        self.users: set[object] = set()
        """Connections that have subscribed or polled it, and are there."""
        self._is_groups_turn = True
        self._reopening = asyncio.Lock()

    async def listen_again(self, ended: FeedApi, listen: Callable[[], Awaitable[FeedApi]]) -> None:
        """Another node leads than when the live queue was opened."""
        async with self._reopening:
            if self.feed is ended:  # else somebody has done it meanwhile
                self.feed = await listen()

    async def poll(self, id: int) -> bytes | None:
        """One message, in turn from the group and the live queue; as a frame."""
        found = None
        for _ in range(2):
            found = await self._leased() if self._is_groups_turn else self.poll_live(id)
            self._is_groups_turn = not self._is_groups_turn
            if found is not None:
                break
        self.polled_at = self._clock.monotonic()
        return found

    def poll_live(self, id: int) -> bytes | None:
        self.polled_at = self._clock.monotonic()
        message = self.feed.take_one()
        return None if message is None else encode_publish(id, 0, self._topic, message.value)

    async def _leased(self) -> bytes | None:
        ahead = self._ahead
        return None if ahead is None else await ahead.next(self._topic)

    async def give_back(self) -> None:
        """Let go of what was leased for polls to come."""
        if self._ahead is not None:
            await self._ahead.give_back()

    async def close(self) -> None:
        await self.feed.close()
        if self._ahead is not None:
            await self._ahead.close()


class Ahead:
    """Messages that were leased together, as a lease costs a write, and go out one by one.

    What nobody polls within a moment is given back, and counts as not delivered.
    """

    def __init__(self, server: BlipServer, name: str, leases: Leases) -> None:
        self._server, self._name, self._leases = server, name, leases
        self._topic_ttl: float | None = None
        self._clock = server.broker.clock
        self._messages: deque[tuple[Grant, Message]] = deque()
        self._timer: Timer | None = None
        self._taking = asyncio.Lock()

    async def next(self, topic: bytes) -> bytes | None:
        while True:
            async with self._taking:
                if self._leases.has_overdue() and self._messages:
                    await self.give_back()  # what comes again is older, and comes first
                if not self._messages and not await self._take():
                    return None
                grant, message = self._messages.popleft()
            if not self._messages:
                self._stop_timer()
            offset = place_of_message(message)
            try:
                if self._has_expired(message):
                    # Meanwhile. The group knows what becomes of it.
                    await self._leases.member.release([(grant.token, [(offset, offset + 1)])])
                    continue
                # It counts from now on, and for as long as it was delivered before.
                await self._leases.note_one(grant, offset)
            except LeaseLost:
                continue  # somebody has moved the group, or purged the topic
            return encode_publish(offset + 1, 1, topic, message.value)

    def _has_expired(self, message: Message) -> bool:
        """By its own time to live, or by its topic's."""
        ends = message.expires_at
        if ends is None:
            if self._topic_ttl is None:
                return False
            ends = message.timestamp + self._topic_ttl
        return ends * 1000 <= self._clock.now_ms()

    async def _take(self) -> bool:
        member = self._leases.member
        if not member.is_ready():
            return False
        grant = await member.take(TAKE_AHEAD, AHEAD_LEASE_SECONDS, 0)
        if grant is None:
            return False
        self._topic_ttl = (await self._server.broker.topic_info(self._name)).options.ttl
        self._messages.extend((grant, message) for message in grant.rows)
        if len(self._messages) > 1:
            self._timer = self._clock.call_later(AHEAD_SECONDS, self._give_back_later)
        return True

    def _give_back_later(self) -> None:
        self._timer = None
        self._server.spawn(self.give_back())

    async def give_back(self) -> None:
        left, self._messages = self._messages, deque()
        if left:
            leases = leases_of((grant.token, place_of_message(message)) for grant, message in left)
            with contextlib.suppress(FlintError):  # lost already, or the broker is closed
                await self._leases.member.release(leases)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        self._stop_timer()
        await self.give_back()
        await self._leases.member.close()


class PolledBoard:
    """All of them, by number."""

    def __init__(self, server: BlipServer) -> None:
        self._server = server
        self._known: dict[int, PolledSubscription] = {}
        self._unknown: dict[int, float] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> list[PolledSubscription]:
        return list(self._known.values())

    def find(self, number: int) -> PolledSubscription | None:
        return self._known.get(number)

    async def subscribe(
        self, name: str, topic: bytes, qos: int, user: object
    ) -> PolledSubscription:
        found = self._orphan(name) if qos and self._server.options.adopt else None
        if found is None:
            found = await self._open(self._server.next_id(), name, topic, qos)
        else:
            found.polled_at = self._server.broker.clock.monotonic()
            event(
                _log,
                logging.INFO,
                "blip_subscription_adopted",
                f"subscription {found.id} of {name!r}, whose client disconnected, was "
                "taken over by a new client",
                subscription=str(found.id),
                topic=name,
            )
        found.users.add(user)
        return found

    def _orphan(self, name: str) -> PolledSubscription | None:
        """The oldest subscription of a topic whose connections are all gone."""
        orphans = (
            one
            for one in self._known.values()
            if one.name == name and one.leases is not None and not one.users
        )
        return min(orphans, key=lambda one: one.id, default=None)

    def left(self, user: object) -> None:
        """A connection is gone."""
        for one in self._known.values():
            one.users.discard(user)

    async def _open(self, number: int, name: str, topic: bytes, qos: int) -> PolledSubscription:
        member = None
        if qos:
            member = await join(
                self._server.broker,
                name,
                polled_group(number),
                order="log",
                start="latest",
                holder="blip",
            )
        feed = await self._listen(name, qos)
        made = PolledSubscription(number, name, topic, feed, member, self._server)
        self._known[number] = made
        self._arm()
        return made

    def _listen(self, name: str, qos: int) -> Awaitable[FeedApi]:
        options = self._server.options
        return self._server.broker.open_feed(
            name,
            capacity=options.queue_capacity,
            overflow=options.overflow,
            filter=UNSTORED if qos else None,
        )

    # --- in a cluster

    async def poll(self, one: PolledSubscription, id: int) -> bytes | None:
        """One message, as a frame, whoever leads."""
        try:
            return await one.poll(id)
        except NotLeader:
            ended, qos = one.feed, 0 if one.leases is None else 1
            await one.listen_again(ended, partial(self._listen, one.name, qos))
            self._server.counters.live_dropped += ended.dropped
            return await one.poll(id)

    async def sought(self, number: int) -> PolledSubscription | None:
        """One that was made at another node, or before this one was started."""
        now = self._server.broker.clock.monotonic()
        if self._unknown.get(number, now) > now:
            return None
        for name, group in await self._groups():
            if group == polled_group(number):
                found = self.find(number)  # while we looked
                return found or await self._open(number, name, unescape_name(name).encode(), 1)
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[number] = now + UNKNOWN_SECONDS
        return None

    async def _groups(self) -> list[tuple[str, str]]:
        broker = self._server.broker
        found: list[tuple[str, str]] = []
        for name in await broker.topics(">"):
            with contextlib.suppress(TopicNotFound):
                found += [(name, info.name) for info in await broker.groups(name)]
        return found

    async def _is_used(self, name: str, group: str) -> bool:
        """Whether a connection of any node is a member."""
        return (await self._server.broker.group_stats(name, group)).members > 0

    async def end_pushed(self) -> None:
        """Groups of connections that ended with their node, and nobody could delete."""
        unused: set[tuple[str, str]] = set()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, unused = unused, set()
            with contextlib.suppress(FlintError):  # nobody leads, or it is gone: the next look
                for name, group in await self._groups():
                    if _PUSHED.fullmatch(group) and not await self._is_used(name, group):
                        unused.add((name, group))
                        if (name, group) in before:
                            await self._server.broker.delete_group(name, group)

    async def restore(self) -> None:
        """Find those of an earlier run. What was pushed then ended with its connections."""
        broker = self._server.broker
        for name in await broker.topics(">"):
            for info in await broker.groups(name):
                if found := _GROUP.fullmatch(info.name):
                    number = int(found[1])
                    topic = unescape_name(name).encode()
                    await self._open(number, name, topic, 1)
                    self._server.seen_id(number)
                elif _PUSHED.fullmatch(info.name):
                    await broker.delete_group(name, info.name)

    async def forget(self, one: PolledSubscription) -> None:
        """Its topic or group is gone: from now on it is as if it had never been."""
        if self._known.pop(one.id, None) is not None:
            self._server.counters.live_dropped += one.feed.dropped
            await one.close()

    # --- those that nobody polls

    def _arm(self) -> None:
        if self._timer is None and self._known:
            oldest = min(one.polled_at for one in self._known.values())
            clock = self._server.broker.clock
            due = oldest + self._server.options.subscription_seconds - clock.monotonic()
            self._timer = clock.call_later(max(0.0, due), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._server.broker.clock.monotonic()
        for one in self.all():
            if one.polled_at + self._server.options.subscription_seconds <= now:
                del self._known[one.id]
                self._server.spawn(self._drop(one))
        self._arm()

    async def _drop(self, one: PolledSubscription) -> None:
        self._server.counters.subscriptions_dropped += 1
        event(
            _log,
            logging.INFO,
            "blip_subscription_dropped",
            f"subscription {one.id} of {one.name!r} was deleted: it was not polled for "
            f"{self._server.options.subscription_seconds:g} s",
            subscription=str(one.id),
            topic=one.name,
        )
        self._server.counters.live_dropped += one.feed.dropped
        try:
            await one.close()
            group, is_shared = polled_group(one.id), self._server.is_shared
            if one.leases is not None and not (is_shared and await self._is_used(one.name, group)):
                await self._server.broker.delete_group(one.name, group)
        except (TopicNotFound, GroupNotFound):
            pass  # somebody was faster
        except FlintError as error:
            event(
                _log,
                logging.WARNING,
                "blip_subscription_not_dropped",
                f"cannot delete the group of subscription {one.id}: {error}",
                subscription=str(one.id),
                topic=one.name,
            )

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for one in self.all():
            await one.close()
        self._known.clear()
