"""Subscriptions of version 2: what there is goes out by itself, as fast as the client reads.

What is stored comes from a group under leases (QoS 1) or from a reader (QoS 0 from an offset on);
what is not comes through a live queue. Members of a named group share one of those, in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ...batch import key_hash
from ...broker_api import FeedApi, MemberApi, ReaderApi
from ...errors import GroupNotFound, NotLeader, TopicNotFound
from ...observe.logs import limited
from ...rows import Rows, Run
from .codec import BlipSubscribe, encode_deliver
from .leases import Leases
from .live import UNSTORED
from .options import PUSH_LEASE_SECONDS, TAKE_LIVE, WINDOW
from .polled import pushed_group
from .portions import Portions
from .row import join, open_reader, place_of

if TYPE_CHECKING:
    from .connection import BlipConnection
    from .server import BlipServer

_log = logging.getLogger(__name__)

TAKE_LEASED = 64
"""Messages leased in one step: members of a group should get alike."""
OFFSET_MAX = 2**62


class PushedSubscription:
    def __init__(
        self,
        connection: BlipConnection,
        id: int,
        name: str,
        wanted: BlipSubscribe,
        group: str | None,
    ) -> None:
        self.connection, self.id, self.name = connection, id, name
        self._server = connection.server
        self._topic, self._qos, self._group = wanted.topic, wanted.qos, group
        self._start = None if wanted.from_offset is None else min(wanted.from_offset, OFFSET_MAX)
        self._feed: FeedApi | None = None
        self._shared: SharedFeed | None = None
        self._reader: ReaderApi | None = None
        self.leases: Leases | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- the beginning

    async def open(self) -> None:
        broker = self._server.broker
        if self._qos:
            self.leases = Leases(await self._join(), PUSH_LEASE_SECONDS, broker.clock)
        elif self._start is not None:
            self._reader = await open_reader(broker, self.name, self._start)
        if self._group is not None:
            self._shared = await self._server.shared_feed(self.name, self._group, self._qos)
            return
        self._feed = await self._listen()

    async def _listen(self) -> FeedApi:
        options = self._server.options
        only_unstored = self._qos or self._reader is not None
        return await self._server.broker.open_feed(
            self.name,
            capacity=options.queue_capacity,
            overflow=options.overflow,
            filter=UNSTORED if only_unstored else None,
        )

    async def _join(self) -> MemberApi:
        return await join(
            self._server.broker,
            self.name,
            self._group or pushed_group(self.id),
            # Of one key, one at a time, and so in order, whoever of the members gets them.
            order="key" if self._group else "log",
            start="latest" if self._start is None else self._start,
            holder=f"blip {self.connection.peer}",
        )

    def begin(self) -> None:
        """From now on messages go out; the client knows the subscription."""
        self._server.pushed.add(self)
        if self.leases is not None:
            self._spawn(self._push_leased(self.leases))
        if self._reader is not None:
            self._spawn(self._push_live(self._reader))
        if self._feed is not None:
            self._spawn(self._push_fed(self._feed))
        if self._shared is not None:
            self._shared.join(self)

    @property
    def live_dropped(self) -> int:
        return 0 if self._feed is None else self._feed.dropped

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._server.spawn(self._guarded(work)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.end(error)

    def end(self, error: Exception) -> None:
        """A subscription that is dead must not look idle: its connection ends."""
        limited(
            _log,
            logging.INFO,
            "client_disconnected",
            self.connection.host,
            f"{self.connection.peer} was disconnected: its subscription to {self.name!r} "
            f"ended: {error}",
            peer=self.connection.peer,
        )
        self.connection.close()

    # --- messages

    async def _push_fed(self, feed: FeedApi) -> None:
        while True:
            try:
                return await self._push_live(feed)
            except NotLeader:  # what is live meanwhile is lost, and the subscription goes on
                self._server.counters.live_dropped += feed.dropped
                self._feed = feed = await self._listen()

    async def _push_live(self, source: FeedApi | ReaderApi) -> None:
        portions = Portions(TAKE_LIVE)
        while await self._is_read():
            await source.look()
            rows = source.take(portions.count)
            if rows.runs:
                portions.note(self.send_unleased(rows.values))
                await asyncio.sleep(0)
            else:
                await source.wait(None)

    async def _is_read(self) -> bool:
        """Wait until the client reads; False once it is gone, and nothing is to be taken for it."""
        await self.connection.room()
        return self.connection.is_open

    def send_unleased(self, values: Sequence[bytes]) -> list[bytes]:
        """Send them; as what."""
        topic = self._topic
        return self._send([encode_deliver(0, 0, topic, value) for value in values])

    def _send(self, frames: list[bytes]) -> list[bytes]:
        self._server.counters.delivered += len(frames)
        self.connection.write(b"".join(frames))
        self.connection.flush()  # so that one who does not read is noticed
        return frames

    async def _push_leased(self, leases: Leases) -> None:
        topic = self._topic
        portions = Portions(TAKE_LEASED)
        while True:
            await leases.room(WINDOW)
            if not await self._is_read():
                return
            grant = await leases.member.take(portions.count, leases.lease_seconds, None)
            if grant is None:
                continue
            await leases.note(grant)
            frames = []
            for run in grant.rows.runs:
                first = place_of(run) + 1
                values = Rows([run]).values
                frames += [
                    encode_deliver(1, first + row, topic, value)
                    for row, value in zip(run.rows(), values, strict=True)
                ]
            portions.note(self._send(frames))

    # --- the end

    async def close(self) -> None:
        """What it had and did not acknowledge is given back at once."""
        self._server.pushed.discard(self)
        self._server.counters.live_dropped += self.live_dropped
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._shared is not None:
            await self._shared.leave(self)
        for held in (self._feed, self._reader):
            if held is not None:
                await held.close()
        if self.leases is not None:
            await self.leases.member.close()
            if self._group is None:
                with contextlib.suppress(TopicNotFound, GroupNotFound):
                    await self._server.broker.delete_group(self.name, pushed_group(self.id))


class SharedFeed:
    """The live queue of a named group: each message to one member, those of one key to the same."""

    def __init__(
        self,
        server: BlipServer,
        feed: FeedApi,
        listen: Callable[[], Awaitable[FeedApi]],
        on_empty: Callable[[], object],
    ) -> None:
        self._server, self._feed, self._listen, self._on_empty = server, feed, listen, on_empty
        self._members: list[PushedSubscription] = []
        self._next = 0
        self._task: asyncio.Task[None] | None = None
        self._is_joined = asyncio.Event()
        self.users = 0

    @property
    def dropped(self) -> int:
        return self._feed.dropped

    def join(self, member: PushedSubscription) -> None:
        self._members.append(member)
        self._is_joined.set()
        if self._task is None:
            self._task = self._server.spawn(self._deal())

    async def leave(self, member: PushedSubscription) -> None:
        if member in self._members:
            self._members.remove(member)
            if not self._members:
                self._is_joined.clear()
        self.users -= 1
        if not self.users:
            self._on_empty()
            if self._task is not None:
                self._task.cancel()
            self._server.counters.live_dropped += self._feed.dropped
            await self._feed.close()

    async def _deal(self) -> None:
        portions = Portions(TAKE_LIVE)
        try:
            while True:
                await self._is_joined.wait()
                try:
                    rows = self._feed.take(portions.count)
                    if not rows.runs:
                        await self._feed.wait(None)
                        continue
                except NotLeader:
                    self._server.counters.live_dropped += self._feed.dropped
                    self._feed = await self._listen()
                    continue
                await self._deal_out(rows, portions)
                await asyncio.sleep(0)
        except Exception as error:
            for member in list(self._members):
                member.end(error)

    async def _deal_out(self, rows: Rows, portions: Portions) -> None:
        sent: list[bytes] = []
        dealt: dict[PushedSubscription, list[bytes]] = {}
        for run in rows.runs:
            for row in run.rows():
                member = self._reading(run, row)
                while member is None:
                    sent += _send_all(dealt)
                    await self._somebody_reads()
                    member = self._reading(run, row)
                dealt.setdefault(member, []).append(run.source.value(row))
        portions.note(sent + _send_all(dealt))

    def _reading(self, run: Run, row: int) -> PushedSubscription | None:
        """Whose turn it is. A slow one must not hold up the others; nor a dead one."""
        members = self._members
        key = run.source.key(row)
        if key is None:
            self._next += 1
        first = self._next if key is None else key_hash(key)
        for turn in range(len(members)):
            chosen = members[(first + turn) % len(members)]
            if chosen.connection.is_open and chosen.connection.has_room:
                return chosen
        return None

    async def _somebody_reads(self) -> None:
        waiting = [member for member in self._members if member.connection.is_open]
        if waiting:
            await waiting[self._next % len(waiting)].connection.room()
        else:
            self._is_joined.clear()  # those who are left are about to leave
            await self._is_joined.wait()


def _send_all(dealt: dict[PushedSubscription, list[bytes]]) -> list[bytes]:
    sent: list[bytes] = []
    for member, values in dealt.items():
        sent += member.send_unleased(values)
    dealt.clear()
    return sent
