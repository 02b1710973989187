"""What every server of clients' connections does: listen, admit, count, watch keys, drain, close.

What connections say is each protocol's own. All servers of a broker share their `ConnectionSlots`:
`max_connections` bounds the broker, and not each of its ports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ...errors import Disconnected, InvalidRequest
from ...observe.logs import limited
from .gate import ApiKeyGate
from .limits import Limits
from .peer import GONE_SECONDS, LOOKS
from .tls import ServerTls

_log = logging.getLogger(__name__)

BUSY_LOOK_SECONDS = 0.01
CLOSE_SECONDS = 1.0
"""How long connections may take to send what was written before they are cut off."""


class Served(Protocol):
    """What a server knows of a connection, whatever it speaks."""

    peer: str
    bytes_received: int
    bytes_sent: int
    reads_at_will: ClassVar[bool]

    def is_gone(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


C = TypeVar("C", bound=Served)
T = TypeVar("T")


class ConnectionSlots:
    """How many connections there are, of all protocols together."""

    def __init__(self) -> None:
        self.taken = 0


def _never() -> bool:
    return False


class Listener(Generic[C]):
    """Serves a broker that is open already, and does not close it.

    `start` listens; `drain` finishes what is under way; `close` ends what is left.
    """

    clients = "clients"
    """Whom it serves, for texts."""

    def __init__(
        self,
        *,
        limits: Limits,
        gate: ApiKeyGate | None,
        tls: ServerTls | None,
        places: ConnectionSlots | None,
    ) -> None:
        self.limits = limits
        self.gate: ApiKeyGate = gate or ApiKeyGate()
        self.gate.on_changed(self._keys_changed)
        self.tls = tls
        self.places = places or ConnectionSlots()
        self.connections: set[C] = set()
        self.accepted = self.refused = 0
        self.is_draining = False
        self._received = self._sent = 0  # by connections that have left
        self._servers: list[asyncio.Server] = []
        self._watching: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- listening

    async def _listen(
        self, host: str, port: int, make: Callable[[], asyncio.Protocol], *, pipes_tls: bool = False
    ) -> tuple[str, int]:
        """Listen; where. Port 0 takes any that is free. Raises what names host, port and cause.

        With `pipes_tls` connections see to TLS by themselves."""
        context = None if self.tls is None or pipes_tls else self.tls.context
        try:
            server = await asyncio.get_running_loop().create_server(
                make,
                host,
                port,
                backlog=self.limits.backlog,
                reuse_address=True,
                ssl=context,
                ssl_handshake_timeout=None if context is None else self.limits.handshake_seconds,
            )
        except OSError as error:
            raise Disconnected(
                f"{host}:{port}",
                f"cannot listen for {self.clients}: {error.strerror or error}",
            ) from error
        except ValueError as error:  # from the codec of names, or of a NUL in one
            raise InvalidRequest(f"{host!r} is not a valid host name: {error}") from None
        self._servers.append(server)
        address = server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def _take_in(self, connection: C) -> bool:
        """Whether there is a place for it; then it has one."""
        if not self.is_draining and self.places.taken < self.limits.connections:
            self.places.taken += 1
            self.connections.add(connection)
            self.accepted += 1
            if connection.reads_at_will:
                self._look_later()
            return True
        self.refused += 1
        if not self.is_draining:
            limited(
                _log,
                logging.WARNING,
                "connection_turned_away",
                self.clients,
                f"{self.clients} are rejected: too many connections; close some, or raise "
                "max_connections",
                peer=connection.peer,
                connections=self.places.taken,
            )
        return False

    def left(self, connection: C) -> None:
        """It has ended, or is another server's now."""
        if connection in self.connections:
            self.places.taken -= 1
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
        """Also for connections that are open."""
        self.limits = limits

    # --- machines that are gone

    def _look_later(self) -> None:
        """One timer for all connections, and none without them."""
        if self._looking is None and not self.is_draining:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(GONE_SECONDS / LOOKS, self._look)

    def _look(self) -> None:
        self._looking = None
        for connection in [one for one in self.connections if one.is_gone()]:
            limited(
                _log,
                logging.INFO,
                "client_disconnected",
                connection.peer.rpartition(":")[0],
                f"{connection.peer} was disconnected: its machine acknowledged no data for "
                f"{GONE_SECONDS:g} s",
                peer=connection.peer,
            )
            connection.abort()
        if self.connections:
            self._look_later()

    # --- keys that change while they are in use

    def watch_keys(self) -> None:
        """One timer for all clients, and none without them."""
        seconds = self.gate.watch_seconds
        if self._watching is None and seconds is not None:
            self._watching = asyncio.get_running_loop().call_later(seconds, self._watch)

    def _watch(self) -> None:
        self._watching = None
        self.gate.refresh()
        if self._has_clients():
            self.watch_keys()

    def _has_clients(self) -> bool:
        return bool(self.connections)

    def _keys_changed(self) -> None:
        """What was granted has to be looked at again."""
        raise NotImplementedError

    # --- the end

    async def drain(self, seconds: float, is_worked_for: Callable[[], bool] = _never) -> None:
        """Take no new connections and publishes, and give what is under way time to end: requests,
        and what consumers of the broker have in work."""
        self._stop_listening()
        self._begin_draining(seconds)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + seconds
        while (self.is_busy() or is_worked_for()) and loop.time() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(BUSY_LOOK_SECONDS)

    def _begin_draining(self, seconds: float) -> None:
        """Tell whom it concerns."""

    def is_busy(self) -> bool:
        """Whether something is under way that should be finished."""
        raise NotImplementedError

    def _stop_listening(self) -> None:
        self.is_draining = True
        for server in self._servers:
            server.close()

    async def _close_connections(self) -> None:
        """Those that do not read what we have to say are cut off in the end."""
        for timer in (self._watching, self._looking):
            if timer is not None:
                timer.cancel()
        for connection in list(self.connections):
            connection.close()
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CLOSE_SECONDS
        while self.connections and loop.time() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(BUSY_LOOK_SECONDS)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    async def _wait_closed(self) -> None:
        for server in self._servers:
            await server.wait_closed()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have something done beside the requests."""
        task = asyncio.get_running_loop().create_task(work)
        self.keep(task)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold on to a task until it is over; the loop alone does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
