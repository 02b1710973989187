"""What HTTP clients hold of queue groups: one member for each group, whoever polls it.

A client over HTTP comes and goes with each request. So the broker sits in the group for all of
them, for as long as leases are out that were polled here. A lease is named by a text that says all:
partition, offset and token. It can be settled at any time and at any node, also after a restart;
whether it still counts is for the group to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ...broker_api import BrokerApi, MemberApi
from ...client.background import BackgroundSettler
from ...client.delivery import Deliveries, Delivery
from ...client.membership import JoinOptions
from ...client.polling import Asked, Pollers
from ...clock import Timer
from ...errors import Closed, FlintError, GroupNotFound, InvalidRequest, LeaseLost, TopicNotFound
from ...group_model import LEASE_SECONDS, Lease
from ...net.server.leases_by_id import leases_of

LINGER_SECONDS = 60.0
"""How long a member stays after its last lease has ended, for who polls now and then."""

_PLACE = "."


class LeaseName(NamedTuple):
    """A lease as clients know it: `0.42.1099511627776`."""

    partition: int
    offset: int
    token: int

    def __str__(self) -> str:
        return _PLACE.join(map(str, self))

    @classmethod
    def of(cls, message: Delivery) -> LeaseName:
        return cls(message.partition, message.offset, message.token)

    @classmethod
    def parse(cls, text: str) -> LeaseName:
        parts = text.split(_PLACE)
        if len(parts) != 3 or not all(
            part.isascii() and part.isdecimal() and len(part) < 20 for part in parts
        ):
            raise InvalidRequest(f"{text[:80]!r} is not a lease; use those that poll returned")
        name = cls(*map(int, parts))
        if max(name) >= 2**63:
            raise InvalidRequest(f"{text[:80]!r} is not a lease; use those that poll returned")
        return name


class _Seat:
    __slots__ = ("polls", "until")

    def __init__(self) -> None:
        self.polls = 0
        self.until = 0.0


Settle = Callable[[MemberApi, list[Lease]], Awaitable[None]]


class GroupSeats:
    """The members of all groups that are polled over HTTP."""

    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker
        self._pollers = Pollers(broker, BackgroundSettler())
        self._seats: dict[tuple[str, str], _Seat] = {}
        self._timer: Timer | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._seats)

    async def poll(self, asked: Asked) -> Deliveries:
        """Cancelled, nothing was taken."""
        seat = self._sit(asked.topic, asked.group)
        seat.polls += 1
        try:
            return await self._pollers.poll(asked)
        finally:
            seat.polls -= 1
            self._stay(seat, asked.lease)

    async def put_back(self, topic: str, group: str, found: Deliveries) -> None:
        await self._pollers.put_back(topic, group, found)

    async def settle(
        self, topic: str, group: str, names: Sequence[LeaseName], how: Settle, lease: float = 0.0
    ) -> None:
        """Settle or extend leases. LeaseLost names the offsets that were lost, by partition, after
        the rest was carried out."""
        members = await self._members(topic, group)
        by_partition: dict[int, list[tuple[int, int]]] = {}
        lost: list[LeaseName] = []
        for name in dict.fromkeys(names):
            if name.partition < len(members):
                by_partition.setdefault(name.partition, []).append((name.token, name.offset))
            else:
                lost.append(name)
        for partition, tokens in by_partition.items():
            try:
                await how(members[partition], leases_of(tokens))
            except LeaseLost as error:
                gone = set(error.offsets)
                lost += [LeaseName(partition, at, token) for token, at in tokens if at in gone]
            except (TopicNotFound, GroupNotFound, Closed):
                # It went away since; what has the name now is another.
                await self._pollers.forget(topic, group)
                raise
        self._stay(self._sit(topic, group), lease)
        if lost:
            raise LeasesGone(topic, group, lost)

    async def _members(self, topic: str, group: str) -> Sequence[MemberApi]:
        if (topic, group) not in self._seats:  # to join would make the group
            kind = (await self._broker.group_stats(topic, group)).kind
            if kind != "queue":
                raise InvalidRequest(f"group {group!r} of {topic!r} is a reader: it has no leases")
        options = JoinOptions(auto_create=False)
        asked = Asked(topic, group, 1, LEASE_SECONDS, 0.0, False, options)
        return await self._pollers.members(asked)

    # --- for how long

    def _sit(self, topic: str, group: str) -> _Seat:
        return self._seats.setdefault((topic, group), _Seat())

    def _stay(self, seat: _Seat, lease: float) -> None:
        now = self._broker.clock.monotonic()
        seat.until = max(seat.until, now + lease + LINGER_SECONDS)
        if self._timer is None:
            self._timer = self._broker.clock.call_later(LINGER_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._broker.clock.monotonic()
        for place, seat in list(self._seats.items()):
            if not seat.polls and seat.until <= now:
                del self._seats[place]
                task = asyncio.get_running_loop().create_task(self._leave(*place))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)
        if self._seats:
            self._timer = self._broker.clock.call_later(LINGER_SECONDS, self._sweep)

    async def _leave(self, topic: str, group: str) -> None:
        with contextlib.suppress(FlintError):  # the group is gone, or the broker
            await self._pollers.forget(topic, group)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._leaving:
            await asyncio.wait(self._leaving)


class LeasesGone(LeaseLost):
    """The leases that were lost, as clients know them."""

    def __init__(self, topic: str, group: str, names: Sequence[LeaseName]) -> None:
        super().__init__(topic, group, [name.offset for name in names])
        self.names = list(names)
