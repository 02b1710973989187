"""The HTTP server: pages for operators, on the event loop of the broker.

uvicorn's protocol without its server: what that adds is a poll ten times a second and signals of
its own. It listens before the broker has recovered, and is closed after it: `/health` and `/ready`
tell what is going on all the while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Sequence
from functools import partial

from starlette.routing import BaseRoute
from uvicorn import Config
from uvicorn.server import ServerState

from ...errors import Disconnected, InvalidRequest
from ...observe.logs import limited
from .collectors import TopicCollector, collectors_of
from .connection import HttpConnection
from .health import health_routes
from .hub import StreamHub
from .limits import HttpLimits
from .metrics_page import MetricsPage
from .pages import Pages
from .state import HttpState
from .turnstile import Turnstile

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 0.5e-3
"""What a new connection costs beside what is measured, where it is encrypted."""

ACCEPT_AGAIN_SECONDS = 1.0
"""How soon a system that had no file left for a connection is asked again."""


class HttpServer:
    """`start` listens; `drain` closes what is idle and gives the rest time; `close` ends all."""

    def __init__(
        self,
        state: HttpState,
        limits: HttpLimits | None = None,
        *,
        routes: Sequence[BaseRoute] = (),
    ) -> None:
        self.state = state
        self.limits = limits or HttpLimits()
        state.wait_seconds = lambda: self.limits.wait_seconds
        self.accepted = self.evicted = self.too_slow = 0
        self._topics = TopicCollector(state, self.limits.metrics_max_series)
        self.metrics = MetricsPage(state, self.limits, collectors_of(self, self._topics))
        self.pages = Pages(
            state, [*health_routes(state), *self.metrics.routes(), *routes], self.limits
        )
        self.streams = StreamHub(self, state)
        self.turnstile: Turnstile
        self._config = Config(
            self.pages,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=max(1, round(self.limits.idle_seconds)),
        )
        self._config.load()
        self._uvicorn = ServerState()
        self._idle: dict[HttpConnection, None] = {}  # in the order they fell silent
        self._connections: set[HttpConnection] = set()
        self._listening: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._reading: set[socket.socket] = set()
        self._in_line: set[socket.socket] = set()  # somebody came there, and waits for a turn
        self._coming: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def set_limits(self, limits: HttpLimits) -> None:
        """Change what may be changed while it runs: all but the backlog and the idle time."""
        self.limits = self.pages.limits = self.metrics.limits = limits
        self._topics.series_max = limits.metrics_max_series
        if self.pages.turnstile is not None:
            self.turnstile.budget.share = limits.cpu_share

    @property
    def connections(self) -> int:
        return len(self._connections)

    # --- listening

    async def start(
        self, host: str, port: int, ssl_context: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Listen; where. Port 0 takes any that is free. Raises what names host, port and cause."""
        loop = asyncio.get_running_loop()
        self._begin()
        listening: list[socket.socket] = []
        try:
            found = await loop.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, _, _, _, address in dict.fromkeys(found):
                at = (address[0], listening[0].getsockname()[1] if listening else address[1])
                listening.append(
                    socket.create_server(at, family=family, backlog=self.limits.backlog)
                )
        except OSError as error:
            for one in listening:
                one.close()
            raise Disconnected(
                f"{host}:{port}", f"cannot listen for HTTP: {error.strerror or error}"
            ) from error
        except (ValueError, OverflowError) as error:  # of a name that is none, or a port
            raise InvalidRequest(f"cannot listen on {host}:{port}: {error}") from None
        for one in listening:
            one.setblocking(False)
            self._listening.append((one, ssl_context))
            self._listen_on(one, ssl_context)
        address = listening[0].getsockname()
        return str(address[0]), int(address[1])

    def _begin(self) -> None:
        if self.pages.turnstile is None:
            self.turnstile = self.pages.turnstile = Turnstile(self.limits.cpu_share)
            self.metrics.turnstile = self.turnstile
            for starter in self.state.starters:
                starter(self.turnstile)

    def _listen_on(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        is_awaited = listening in self._reading or listening in self._in_line
        if not self._is_closing and not is_awaited:
            self._reading.add(listening)
            loop = asyncio.get_running_loop()
            loop.add_reader(listening, self._somebody_comes, listening, context)

    def _stop_listening_on(self, listening: socket.socket) -> None:
        if listening in self._reading:
            self._reading.discard(listening)
            asyncio.get_running_loop().remove_reader(listening)

    def _somebody_comes(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        # Who comes waits in line like who is here; until then, in the system's.
        self._stop_listening_on(listening)
        self._in_line.add(listening)
        self.turnstile.enter(partial(self._accept, listening, context))

    def _accept(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        self._in_line.discard(listening)
        if self._is_closing or not self._has_room():
            return  # the next that leaves or falls silent has it listened again
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # gone again
        except OSError as error:
            limited(
                _log,
                logging.WARNING,
                "http_cannot_accept",
                "",
                f"cannot accept an HTTP connection: {error.strerror or error}",
            )
            asyncio.get_running_loop().call_later(
                ACCEPT_AGAIN_SECONDS, self._listen_on, listening, context
            )
            return
        else:
            accepted.setblocking(False)
            self.accepted += 1
            task = asyncio.get_running_loop().create_task(self._come_in(accepted, context))
            self._coming.add(task)
            task.add_done_callback(self._has_come)
        self._listen_on(listening, context)

    async def _come_in(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        await self.turnstile.metered(self._take_in(accepted, context))

    async def _take_in(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        if context is not None:
            self.turnstile.budget.spend(HANDSHAKE_SECONDS)
        try:
            with contextlib.suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: HttpConnection(self, self._config, self._uvicorn),
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else self.limits.header_seconds,
            )
        except (OSError, TimeoutError) as error:  # of TLS, above all
            limited(
                _log,
                logging.INFO,
                "http_connection_failed",
                "",
                f"an HTTP connection failed: {error}",
            )
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def _has_come(self, task: asyncio.Task[None]) -> None:
        self._coming.discard(task)
        self._listen_again()  # it may have come to nothing

    def _has_room(self) -> bool:
        """Whether one more may come; who has been silent for longest makes room for it."""
        if len(self._connections) + len(self._coming) < self.limits.connections:
            return True
        if not self._idle:
            return False
        longest = next(iter(self._idle))
        del self._idle[longest]
        self.evicted += 1
        longest.transport.abort()
        return True

    # --- what connections tell

    def came(self, connection: HttpConnection) -> None:
        if self._is_closing:
            connection.transport.abort()
            return
        self._connections.add(connection)
        self._idle[connection] = None

    def is_busy(self, connection: HttpConnection) -> None:
        self._idle.pop(connection, None)

    def is_idle(self, connection: HttpConnection) -> None:
        if self._is_closing:
            connection.transport.close()
        else:
            self._idle[connection] = None
            self._listen_again()

    def left(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        self._idle.pop(connection, None)
        self._listen_again()

    def _listen_again(self) -> None:
        for listening, context in self._listening:
            self._listen_on(listening, context)

    # --- the end

    async def drain(self, seconds: float) -> None:
        """Take no new connections, and give the requests that are under way time to end."""
        self._close_listening()
        self.streams.end_all()
        for connection in list(self._idle):
            connection.transport.close()
        await self.settle(seconds)

    async def settle(self, seconds: float) -> None:
        """Wait for the requests that are under way; no longer than that."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + seconds
        while self.pages.under_way and loop.time() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        self._close_listening()
        self.streams.end_all()
        for connection in list(self._connections):
            connection.shutdown()
        await asyncio.sleep(0)  # what was answered is written
        for connection in list(self._connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # connections hear that they are lost
        self.pages.is_closing = True
        tasks = [*self._coming, *self._uvicorn.tasks]
        for task in tasks:
            task.cancel()
        if self.pages.turnstile is not None:
            self.turnstile.close()
        await self.metrics.close()
        for closer in self.state.closers:
            await closer()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # transports close their sockets in the next turn

    def _close_listening(self) -> None:
        self._is_closing = True
        for listening, _ in self._listening:
            self._stop_listening_on(listening)
            listening.close()
        self._listening.clear()
