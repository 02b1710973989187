"""The server of BlipMQ's protocols: connections in, subscriptions kept, BrokerApi asked."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ...broker_api import BrokerApi, FeedApi
from ...errors import Disconnected, InvalidRequest
from ...logs import limited
from ...patterns import escape_name
from ..gate import OpenGate, WatchedGate
from ..limits import Limits
from ..tls import ServerTls
from .connection import Connection
from .live import UNSTORED
from .options import BlipOptions
from .polled import PolledBoard
from .pushed import PushedSubscription, SharedFeed

if TYPE_CHECKING:
    from ..http.collectors import Collector

_log = logging.getLogger(__name__)

NAMES_KEPT = 4096
NAME_BYTES_KEPT = 256
"""Names that were escaped before are remembered: so many, up to so long."""

T = TypeVar("T")


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


class BlipServer:
    """Serves a broker that is open already, and does not close it.

    `start` listens; `drain` finishes what is under way; `close` ends what is left.
    """

    def __init__(
        self,
        broker: BrokerApi,
        *,
        limits: Limits | None = None,
        gate: WatchedGate | None = None,
        options: BlipOptions | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.broker = broker
        self.limits = limits or Limits()
        self.gate: WatchedGate = gate or OpenGate()
        self.gate.on_changed(self._keys_changed)
        self.options = options or BlipOptions()
        self.counters = BlipCounters()
        self.connections: set[Connection] = set()
        self.polled = PolledBoard(self)
        self.pushed: set[PushedSubscription] = set()
        self.flat_feeds: set[FeedApi] = set()
        self.is_draining = False
        self.accepted = self.refused = 0
        self._tls = tls
        self._received = self._sent = 0  # by connections that have left
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.TimerHandle | None = None
        self._names: dict[bytes, str] = {}
        self._shared: dict[tuple[str, str, int], SharedFeed] = {}
        self._last_id = 0
        self._last_message_id = 0

    # --- listening

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; where. Port 0 takes any that is free. Raises what names host, port and cause."""
        if not self._servers:
            await self.polled.restore()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: Connection(self),
                host,
                port,
                backlog=self.limits.backlog,
                reuse_address=True,
                ssl=None if self._tls is None else self._tls.context,
            )
        except OSError as error:
            raise Disconnected(
                f"{host}:{port}", f"cannot listen there: {error.strerror or error}"
            ) from error
        except ValueError as error:
            raise InvalidRequest(f"{host!r} is no name of a host: {error}") from None
        self._servers.append(server)
        address = server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def admit(self, connection: Connection) -> bool:
        if self.is_draining or len(self.connections) >= self.limits.connections:
            self.refused += 1
            if not self.is_draining:
                limited(
                    _log,
                    logging.WARNING,
                    "connection_turned_away",
                    "",
                    "a BlipMQ client is turned away: there are too many connections; close some, "
                    "or raise max_connections",
                    peer=connection.peer,
                    connections=len(self.connections),
                )
            return False
        self.connections.add(connection)
        self.accepted += 1
        return True

    def left(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._received += connection.bytes_received
            self._sent += connection.bytes_sent

    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent since the beginning."""
        received, sent = self._received, self._sent
        for connection in self.connections:
            received += connection.bytes_received
            sent += connection.bytes_sent
        return received, sent

    def set_limits(self, limits: Limits) -> None:
        self.limits = limits

    def collectors(self) -> list[Collector]:
        from .figures import BlipCollector

        return [BlipCollector(self)]

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
        self._last_id = max(self._last_id + 1, self.broker.clock.now_ms())
        return self._last_id

    def seen_id(self, number: int) -> None:
        self._last_id = max(self._last_id, number)

    def next_message_id(self) -> int:
        self._last_message_id += 1
        return self._last_message_id

    async def shared_feed(self, name: str, group: str, qos: int) -> SharedFeed:
        """The live queue of a named group; whoever asks leaves it again."""
        place = (name, group, qos)
        found = self._shared.get(place)
        if found is None:
            feed = await self.broker.open_feed(
                name,
                capacity=self.options.queue_capacity,
                overflow=self.options.overflow,
                filter=UNSTORED if qos else None,
            )
            found = self._shared.get(place)
            if found is None:
                found = SharedFeed(self, feed, lambda: self._shared.pop(place, None))
                self._shared[place] = found
            else:
                await feed.close()
        found.users += 1
        return found

    # --- keys that change while they are in use

    def watch_keys(self) -> None:
        """One timer for all connections, and none without them."""
        seconds = self.gate.watch_seconds
        if self._watching is None and seconds is not None:
            self._watching = asyncio.get_running_loop().call_later(seconds, self._watch)

    def _watch(self) -> None:
        self._watching = None
        self.gate.refresh()
        if self.connections:
            self.watch_keys()

    def _keys_changed(self) -> None:
        for connection in list(self.connections):
            if connection.session is not None:
                connection.session.keys_changed()

    # --- the end

    async def drain(self, seconds: float) -> None:
        """Take no new connections and publishes, and give what is under way time to end."""
        self.is_draining = True
        for server in self._servers:
            server.close()
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + seconds
        while self.is_busy() and loop.time() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def is_busy(self) -> bool:
        return any(connection.is_busy() for connection in self.connections)

    async def close(self) -> None:
        self.is_draining = True
        for server in self._servers:
            server.close()
        if self._watching is not None:
            self._watching.cancel()
        for connection in list(self.connections):
            connection.close()
        for _ in range(100):
            if not self.connections:
                break
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()  # who does not read what we have to say
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=1)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self.polled.close()
