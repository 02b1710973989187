"""Publishes of one connection: gathered within one read, taken in order, watched until safe.

BlipMQ's publishers hear nothing of a success, so nothing is answered; but what is not stored is
refused by its correlation id, and PING can wait for everything before it (`landed`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ...batch import BatchBuilder
from ...errors import FlintError
from ...model import Receipt
from .refusals import ShuttingDown
from .row import Routes

if TYPE_CHECKING:
    from .connection import BlipConnection

PUBLISH_COST = 128
"""What a publish is counted for beside its bytes."""
IN_LINE_SECONDS = 10.0
"""How long a publish may wait for room. Nothing else of its connection is heard meanwhile: not what
would make room, and not that the client is gone."""


class Gathered:
    """Publishes that become one batch."""

    __slots__ = ("ids", "rows", "size")

    def __init__(self) -> None:
        self.rows = BatchBuilder()
        self.ids: list[int] = []
        self.size = 0

    def add(self, id: int, message: bytes) -> None:
        """One more that is nothing but its message."""
        self.rows.append(message)
        self.ids.append(id)
        self.size += len(message) + PUBLISH_COST


class BlipPublishes:
    def __init__(self, connection: BlipConnection) -> None:
        self._connection = connection
        self._server = connection.server
        self.gathered: dict[tuple[str, int], Gathered] = {}
        """Of this turn, by topic and QoS; the broker has not heard of them."""
        self.landing: deque[tuple[Awaitable[Receipt], list[int], int]] = deque()
        """What the broker has taken, and is on its way to the disk."""
        self._landing_bytes = 0
        self._routes = Routes(connection.server.broker)
        self._lander: asyncio.Task[None] | None = None
        self._is_held = False

    def open_for(self, topic: str, qos: int) -> Gathered | None:
        """What further publishes of this turn may simply be added to, if anything."""
        gathered = self.gathered.get((topic, qos))
        return gathered if gathered is not None and self._may_gather(topic) else None

    def _may_gather(self, topic: str) -> bool:
        return self._server.broker.may_gather(topic)

    def plain(self, topic: str, key: bytes | None) -> str:
        """The topic, or the partition of it, that a publish goes to."""
        return self._routes.plain(topic, key)

    def add(
        self,
        id: int,
        topic: str,
        qos: int,
        message: bytes,
        *,
        key: bytes | None = None,
        expiry: int = 0,
    ) -> Awaitable[None] | None:
        """Take one up for a plain topic. What comes back is to be waited for before the next."""
        waits = None
        gathered = self.gathered.get((topic, qos))
        if gathered is None:
            gathered = self.gathered[topic, qos] = Gathered()
        elif not self._may_gather(topic):
            waits = self.flush()  # each may have to wait, or be refused, by itself
            if waits is not None:
                return self._later(waits, id, topic, qos, message, key, expiry)
            gathered = self.gathered[topic, qos] = Gathered()
        if key is None and not expiry:
            gathered.add(id, message)
        else:
            gathered.rows.append_row(message, key=key, expiry=expiry)
            gathered.ids.append(id)
            gathered.size += len(message) + PUBLISH_COST
        return None

    async def _later(
        self,
        waits: Awaitable[None],
        id: int,
        topic: str,
        qos: int,
        message: bytes,
        key: bytes | None,
        expiry: int,
    ) -> None:
        await waits
        self.add(id, topic, qos, message, key=key, expiry=expiry)

    def flush(self) -> Awaitable[None] | None:
        """Hand everything gathered to the broker; what comes back is to be waited for."""
        gathered, self.gathered = self.gathered, {}
        self._routes.end_turn()
        left = deque(gathered.items())
        while left:
            (topic, qos), some = left[0]
            if not self._publish(topic, qos, some):
                return self._wait_in_line(left)
            left.popleft()
        return None

    def _publish(self, topic: str, qos: int, some: Gathered) -> bool:
        """False where the broker would have to wait."""
        server = self._server
        try:
            if server.is_draining:
                raise ShuttingDown("the broker is stopping")
            receipt = server.broker.publish_nowait(topic, some.rows, qos=qos, auto_create=True)
        except FlintError as error:
            self._connection.session_refuses(some.ids, qos, error)
            return True
        if receipt is None:
            return False
        self._taken(receipt, qos, some)
        return True

    def _taken(self, receipt: Receipt | Awaitable[Receipt], qos: int, some: Gathered) -> None:
        self._server.counters.published += len(some.ids)
        if qos:
            self._server.counters.stored += len(some.ids)
            self._server.counters.stored_bytes += some.size
        if isinstance(receipt, Receipt):
            return
        self.landing.append((receipt, some.ids, some.size))
        self._landing_bytes += some.size
        if self._lander is None:
            self._lander = self._server.spawn(self._land())
        if not self._is_held and self._landing_bytes > self._server.limits.in_flight_bytes:
            self._is_held = True
            self._connection.hold("publishes")

    async def _wait_in_line(self, left: deque[tuple[tuple[str, int], Gathered]]) -> None:
        while left:
            (topic, qos), some = left.popleft()
            if self._publish(topic, qos, some):
                continue
            try:
                receipt = await self._server.broker.publish(
                    topic, some.rows, qos=qos, auto_create=True, timeout=IN_LINE_SECONDS
                )
            except FlintError as error:
                self._connection.session_refuses(some.ids, qos, error)
            else:
                self._taken(receipt, qos, some)

    async def _land(self) -> None:
        try:
            while self.landing:
                receipt, ids, size = self.landing[0]
                try:
                    await receipt
                except FlintError as error:
                    self._connection.session_refuses(ids, 1, error)
                self.landing.popleft()
                self._landing_bytes -= size
                limit = self._server.limits.in_flight_bytes
                if self._is_held and self._landing_bytes <= limit // 2:
                    self._is_held = False
                    self._connection.go_on("publishes")
        finally:
            self._lander = None

    async def landed(self) -> None:
        """Wait until everything so far is safe, or refused."""
        if self._lander is not None:
            await asyncio.wait([self._lander])
