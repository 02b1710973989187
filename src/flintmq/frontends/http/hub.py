"""The streams of the HTTP server: who is ready to be written to, heartbeats, keys, the end.

A stream costs its connection and what it is bounded by; nothing is done for one that is idle but a
heartbeat. What is published to many streams is encoded once. All of it goes through the turnstile,
a slice at a time, like everything that HTTP does.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from ...access import Access
from ...errors import FlintError, NotAuthenticated
from ...rows import Message
from . import models, views
from .connection import HttpConnection
from .events import EventForm
from .state import HttpState

if TYPE_CHECKING:
    from .server import HttpServer

SLICE_SECONDS = 0.5e-3
"""How long streams are written to before messages have their turn."""
BUFFER_BYTES = 64 * 1024
"""What waits in the socket of a stream before nothing more is taken for it."""
STALLED_BEATS = 4
"""After so many heartbeats without reading anything a client is cut off."""
ENDS_AT_ONCE = 32
"""How many streams end in one turn of the loop, where their clients have gone."""
ENCODED_MAX, ENCODED_BYTES_MAX = 512, 4 * 1024 * 1024


class Pumped(Protocol):
    def pump(self) -> None: ...


class HubStream(Protocol):
    """What the hub knows of a stream."""

    access: Access
    ends_at: float

    def beat(self) -> None: ...
    def end(self, error: FlintError | None) -> None: ...


class EncodedMessages:
    """Messages as they were sent last: of a fan-out, all but the first are found here."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int, int], tuple[object, bytes]] = OrderedDict()
        self._bytes = 0

    def of(self, message: Message, form: EventForm, id: str | None) -> bytes:
        key = (id_of(message._source), message._row, id_of(form))
        found = self._kept.get(key)
        if found is not None:
            return found[1]
        fields = views.fields(message, len(message.value))
        made = models.Streamed(**fields, topic=message.topic, id=id)
        data = form.event(msgspec.json.encode(made), id)
        self._kept[key] = (message._source, data)  # it keeps the source, so its id is its own
        self._bytes += len(data)
        while len(self._kept) > ENCODED_MAX or self._bytes > ENCODED_BYTES_MAX:
            _, (_, old) = self._kept.popitem(last=False)
            self._bytes -= len(old)
        return data

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


id_of = id


class StreamHub:
    def __init__(self, server: HttpServer, state: HttpState) -> None:
        self._server, self._state = server, state
        self.open: dict[HubStream, None] = {}
        self.encoded = EncodedMessages()
        self.sent = 0
        self._ready: dict[Pumped, None] = {}
        self._beating: deque[HubStream] = deque()
        self._leaving: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        state.gate.on_changed(self._keys_changed)

    def add(self, stream: HubStream) -> None:
        self.open[stream] = None
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(self._server.limits.heartbeat_seconds, self._beat)
        if self._watching is None:
            self._watch()

    def remove(self, stream: HubStream) -> None:
        self.open.pop(stream, None)
        if not self.open:
            self._stop()
            self.encoded.clear()

    # --- writing

    def is_ready(self, stream: Pumped) -> None:
        """There may be something for it, or room in its socket."""
        if not self._ready:
            self._server.turnstile.enter(self._pump_some)
        self._ready[stream] = None

    def _pump_some(self) -> None:
        until = perf_counter() + SLICE_SECONDS
        while self._ready:
            stream = next(iter(self._ready))
            del self._ready[stream]
            stream.pump()
            if perf_counter() > until:
                break
        if self._ready:
            self._server.turnstile.enter(self._pump_some)

    # --- going

    def has_left(self, over: asyncio.Future[None]) -> None:
        """A client is gone. Thousands may go at once: each turn of the loop, a few streams end."""
        if not self._leaving:
            self._server.turnstile.enter(self._end_some)
        self._leaving.append(over)

    def _end_some(self) -> None:
        for _ in range(min(ENDS_AT_ONCE, len(self._leaving))):
            over = self._leaving.popleft()
            if not over.done():
                over.set_result(None)
        if self._leaving:
            self._server.turnstile.enter(self._end_some)

    # --- time

    def _beat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._server.limits.heartbeat_seconds, self._beat
        )
        if not self._beating:
            self._beating.extend(self.open)
            self._server.turnstile.enter(self._beat_some)

    def _beat_some(self) -> None:
        until = perf_counter() + SLICE_SECONDS
        while self._beating and perf_counter() < until:
            stream = self._beating.popleft()
            if stream in self.open:
                self._check_key(stream)
                stream.beat()
        if self._beating:
            self._server.turnstile.enter(self._beat_some)

    # --- keys

    def _watch(self) -> None:
        seconds = self._state.gate.watch_seconds
        self._watching = None
        if seconds is not None and self.open:
            self._state.gate.refresh()
            self._watching = asyncio.get_running_loop().call_later(seconds, self._watch)

    def _keys_changed(self) -> None:
        for stream in list(self.open):
            self._check_key(stream)

    def _check_key(self, stream: HubStream) -> None:
        try:
            stream.access = self._state.gate.still(stream.access)
        except NotAuthenticated as error:
            stream.end(error)

    # --- the end

    def end_all(self) -> None:
        """The broker stops: clients come back to the next one."""
        for stream in list(self.open):
            stream.end(None)

    def _stop(self) -> None:
        for timer in (self._timer, self._watching):
            if timer is not None:
                timer.cancel()
        self._timer = self._watching = None
        self._beating.clear()


class StreamOutlet:
    """Writes a stream to its connection, and knows how much of it waits there."""

    __slots__ = ("_beats", "_connection", "_form", "_has_sent", "is_lost", "on_room")

    def __init__(self, connection: HttpConnection, form: EventForm) -> None:
        self._connection, self._form = connection, form
        self._has_sent, self._beats = True, 0
        self.is_lost = False
        self.on_room: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        return self._connection.transport.get_write_buffer_size() > BUFFER_BYTES

    def write(self, data: bytes) -> None:
        if not self.is_lost and not self._connection.transport.is_closing():
            self._has_sent = True
            self._connection.transport.write(data)

    async def room(self) -> None:
        await self._connection.flow.drain()

    def beat(self) -> None:
        """Say that the stream is alive; cut off who does not read."""
        if self._connection.transport.get_write_buffer_size():
            self._beats += 1
            if self._beats >= STALLED_BEATS:
                self._connection.transport.abort()
            return
        self._beats = 0
        if not self._has_sent:
            self.write(self._form.heartbeat)
        self._has_sent = False
