"""A connection that a Subscribe has taken over: messages are pushed, acks and nacks come back.

A pushed message stays its subscriber's for three times the visibility timeout, unless the
connection ends: what HermesMQ gets by leasing it anew twice, another consumer of the group could
come between. After one timeout it does not count against `prefetch` any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...access import Access
from ...broker_api import Joining, MemberApi
from ...errors import Closed, FlintError, GroupNotFound, LeaseLost, NotLeader, TopicNotFound
from ...groups.ranges import sorted_ranges
from ...patterns import escape_name
from . import codec as hermes
from . import rules
from .holds import Hold, items_of

if TYPE_CHECKING:
    from .connection import HermesConnection

PUSH_BYTES = 1024 * 1024
"""About how much is taken at once; a single message may be larger."""
PUSH_ROWS = 8
"""How many are taken at first, before it is known how large they are."""
LATE_SECONDS = 600.0
EARLY_MAX = rules.PREFETCH_MAX
"""Acks and nacks that are kept until we have joined the group."""


class HermesSubscription:
    """`begin` once everything else is answered; `end` when the connection is gone."""

    def __init__(self, connection: HermesConnection, request: hermes.Subscribe) -> None:
        self._connection = connection
        self._topic, self._group = escape_name(request.topic), escape_name(request.group)
        self._prefetch = rules.prefetch(request.prefetch)
        self._visibility = rules.visibility(request.visibility_timeout_ms)
        self._is_auto = request.ack_mode == rules.AUTO
        self._live: dict[int, float] = {}  # by offset: when it stops to count, the soonest first
        self._hold: Hold | None = None
        self._early: list[hermes.Ack | hermes.Nack] = []
        """Of what was pushed by who led before: they came before we have joined the group."""
        self._rows = PUSH_ROWS
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def begin(self) -> None:
        server = self._connection.server
        if server.is_draining or not server.is_leading:
            self._refuse(server.not_leader())
        elif not self.is_allowed(server.access):
            self._refuse(
                rules.failed(
                    FlintError(
                        f"the key of this front end has no permission to consume {self._topic}"
                    )
                )
            )
        elif self._task is None:
            self._task = server.run(self._run())

    def _refuse(self, frame: bytes) -> None:
        self._connection.send(frame)
        self._connection.close()

    def is_allowed(self, access: Access | None) -> bool:
        return access is not None and access.may("consume", self._topic)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def receive(self, body: hermes.Body) -> None:
        """An ack or a nack. Their protocol passes over everything else."""
        if self._is_auto:
            return
        try:
            request = hermes.decode_request(body.data)
        except hermes.Undecodable:
            return
        if isinstance(request, hermes.Ack | hermes.Nack):
            if self._hold is not None:
                _settle(self._hold, request)
            elif len(self._early) < EARLY_MAX:
                self._early.append(request)

    def resolved(self, hold: Hold, offset: int) -> None:
        if self._live.pop(offset, None) is not None:
            self._changed.set()
            if self._connection.server.is_draining:
                # Behind the turn in which what was settled goes to the journal.
                asyncio.get_running_loop().call_soon(self.drain)

    def drain(self) -> None:
        """Push nothing more. A subscriber that has settled everything is disconnected."""
        if not self._live:
            self._connection.close()

    # --- pushing

    async def _run(self) -> None:
        try:
            while True:
                server = self._connection.server
                await server.wait_for_topic(self._topic, None)
                if server.is_draining:
                    return
                if not server.is_leading:
                    self._connection.send(server.not_leader())
                    return
                try:
                    await self._push_while_there()
                except (TopicNotFound, GroupNotFound):
                    self._live.clear()  # it was deleted; one made anew is taken up
                    await asyncio.sleep(0)
        except NotLeader as error:
            self._connection.send(self._connection.server.failed(error))
        except FlintError as error:
            self._connection.send(rules.failed(error))
            raise
        finally:
            self._connection.close()

    async def _push_while_there(self) -> None:
        server = self._connection.server
        hold = self._hold = await server.hold(self._topic, self._group)
        hold.users += 1
        early, self._early = self._early, []
        for request in early:
            _settle(hold, request)
        member = None
        try:
            holder = f"hermes {self._connection.peer}"
            joining = Joining(self._topic, self._group, holder, auto_create=False)
            member = await server.broker.join_group(joining)
            while True:
                await self._push(hold, member)
        except (TopicNotFound, GroupNotFound, Closed):
            server.drop_hold(hold)
            raise
        finally:
            hold.users -= 1
            self._hold = None
            for offset in list(self._live):
                hold.out.forget(offset)
            if member is not None:
                await member.close()  # gives back what it holds

    async def _push(self, hold: Hold, member: MemberApi) -> None:
        connection = self._connection
        clock = connection.server.broker.clock
        await connection.writable.wait()
        room = self._prefetch if self._is_auto else await self._room()
        lease = self._visibility * (1 + rules.REFRESHES)
        if self._is_auto:
            lease = max(lease, rules.VISIBILITY_SECONDS)
        mode = connection.server.take_mode
        grant = await member.take(min(room, self._rows), lease, None, mode)
        if grant is None:
            return
        items = items_of(grant.rows)
        self._adapt(sum(len(item.payload) for item in items), len(items))
        if self._is_auto:
            ranges = sorted_ranges(item.offset for item in items)
            try:
                await asyncio.shield(member.ack([(grant.token, ranges)]))
            except LeaseLost:
                return  # it took longer than the lease: others have them
            encoded = [item.encoded(hold.ids.of(grant.token, item.offset)) for item in items]
        else:
            now = clock.monotonic()
            encoded = hold.deliver(grant.token, items, self, now + lease + LATE_SECONDS)
            for item in items:
                self._live.pop(item.offset, None)
                self._live[item.offset] = now + self._visibility
        connection.send(b"".join(hermes.polled_of((one,)) for one in encoded))
        # What was sent in this turn is written at its end: only then it is known whether the
        # client reads as fast as that.
        await asyncio.sleep(0)

    def _adapt(self, size: int, count: int) -> None:
        """Take as many at once as make a good write."""
        fitting = max(1, PUSH_BYTES * count // max(size, 1))
        self._rows = min(rules.PREFETCH_MAX, max(1, fitting), 4 * self._rows)

    async def _room(self) -> int:
        """Wait until something more may be out; how much."""
        clock = self._connection.server.broker.clock
        while True:
            now = clock.monotonic()
            while self._live and (oldest := next(iter(self._live.items())))[1] <= now:
                del self._live[oldest[0]]  # still its subscriber's, but it counts no more
            room = self._prefetch - len(self._live)
            if room > 0:
                return room
            self._changed.clear()
            timer = clock.call_later(oldest_at(self._live) - now, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()


def _settle(hold: Hold, request: hermes.Ack | hermes.Nack) -> None:
    """Nobody is told what came of it."""
    if isinstance(request, hermes.Ack):
        hold.ack(request.lease_id)
    else:
        hold.nack(request.lease_id)


def oldest_at(live: dict[int, float]) -> float:
    return next(iter(live.values()))
