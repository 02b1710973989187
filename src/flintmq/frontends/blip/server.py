"""The server of BlipMQ's protocols: connections in, subscriptions kept, BrokerApi asked."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ...broker_api import BrokerApi, FeedApi
from ...net.server.gate import ApiKeyGate
from ...net.server.limits import Limits
from ...net.server.listener import ConnectionSlots, Listener
from ...net.server.tls import ServerTls
from ...patterns import escape_name
from .connection import BlipConnection
from .live import UNSTORED
from .options import BlipOptions
from .polled import PolledBoard
from .pushed import PushedSubscription, SharedFeed

if TYPE_CHECKING:
    from ..http.collectors import Collector

RANDOM_BITS = 16
NAMES_KEPT = 4096
NAME_BYTES_KEPT = 256
"""Names that were escaped before are remembered: so many, up to so long."""


@dataclass(slots=True)
class BlipCounters:
    """What metrics read. They only grow."""

    published: int = 0
    stored: int = 0
    stored_bytes: int = 0
    delivered: int = 0
    dropped: int = 0
    """Publishes of QoS 0 that the broker would not take."""
    refusals: Counter[int] = field(default_factory=Counter)
    """By code."""
    login_failures: int = 0
    malformed: int = 0
    subscriptions_dropped: int = 0
    writes: int = 0
    live_dropped: int = 0
    """By live queues that were full and are closed since."""


class BlipServer(Listener[BlipConnection]):
    """One port for all of its protocols: a connection's first frame tells which."""

    clients = "BlipMQ's clients"

    def __init__(
        self,
        broker: BrokerApi,
        *,
        limits: Limits | None = None,
        gate: ApiKeyGate | None = None,
        options: BlipOptions | None = None,
        tls: ServerTls | None = None,
        places: ConnectionSlots | None = None,
        is_shared: bool = False,
    ) -> None:
        super().__init__(limits=limits or Limits(), gate=gate, tls=tls, places=places)
        self.broker = broker
        self.is_shared = is_shared
        """Whether other nodes of a cluster serve the same topics and groups."""
        self.options = options or BlipOptions()
        self.counters = BlipCounters()
        self.polled = PolledBoard(self)
        self.pushed: set[PushedSubscription] = set()
        self.flat_feeds: set[FeedApi] = set()
        self._names: dict[bytes, str] = {}
        self._shared: dict[tuple[str, str, int], SharedFeed] = {}
        self._last_id = 0
        self._last_message_id = 0

    # --- listening

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; where. Port 0 takes any that is free. Raises what names host, port and cause."""
        if not self._servers and self.is_shared:
            self.spawn(self.polled.end_pushed())
        elif not self._servers:
            await self.polled.restore()
        return await self._listen(host, port, lambda: BlipConnection(self))

    def admit(self, connection: BlipConnection) -> bool:
        return self._take_in(connection)

    def collectors(self) -> list[Collector]:
        from .metrics import collectors

        return collectors(self)

    # --- names and numbers

    def name_of(self, text: bytes) -> str | None:
        """A topic's or group's name, as ours are; None where it is no UTF-8."""
        name = self._names.get(text)
        if name is None:
            try:
                name = escape_name(text.decode())
            except UnicodeDecodeError:
                return None
            if len(text) <= NAME_BYTES_KEPT:
                if len(self._names) >= NAMES_KEPT:
                    self._names.clear()
                self._names[text] = name
        return name

    def next_id(self) -> int:
        """The number of a subscription. By the clock, so that none is used again, ever: a client
        that polls one of long ago must not get another's messages."""
        number = self.broker.clock.now_ms()
        if self.is_shared:  # another node may give one at the same moment
            number = (number << RANDOM_BITS) + secrets.randbits(RANDOM_BITS)
        self._last_id = max(self._last_id + 1, number)
        return self._last_id

    def seen_id(self, number: int) -> None:
        self._last_id = max(self._last_id, number)

    def next_message_id(self) -> int:
        self._last_message_id += 1
        return self._last_message_id

    def shared_feeds(self) -> Iterable[SharedFeed]:
        return self._shared.values()

    async def shared_feed(self, name: str, group: str, qos: int) -> SharedFeed:
        """The live queue of a named group; whoever asks leaves it again."""
        place = (name, group, qos)
        found = self._shared.get(place)
        if found is None:
            listen = partial(
                self.broker.open_feed,
                name,
                capacity=self.options.queue_capacity,
                overflow=self.options.overflow,
                filter=UNSTORED if qos else None,
            )
            feed = await listen()
            found = self._shared.get(place)
            if found is None:
                found = SharedFeed(self, feed, listen, lambda: self._shared.pop(place, None))
                self._shared[place] = found
            else:
                await feed.close()
        found.users += 1
        return found

    # --- keys that change while they are in use

    def _keys_changed(self) -> None:
        for connection in list(self.connections):
            if connection.session is not None:
                connection.session.keys_changed()

    # --- the end

    def _begin_draining(self, seconds: float) -> None:
        for one in self.polled.all():
            self.spawn(one.give_back())

    def is_busy(self) -> bool:
        return any(connection.is_busy() for connection in self.connections)

    async def close(self) -> None:
        self._stop_listening()
        await self._close_connections()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=1)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self.polled.close()
        await self._wait_closed()
