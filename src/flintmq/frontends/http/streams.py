"""`GET .../stream`: messages as they come, as Server-Sent Events or over a WebSocket.

    live      nothing said        from now on, at most once, through a bounded queue of the broker
    reader    start, after        by offset: nothing is lost, and a client resumes where it was
    group     group               under leases, acknowledged over the WebSocket; or ack=auto

A slow client costs what it is bounded by: a live stream its queue, and each stream one full socket
buffer. Nothing is read for it before that has room.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...broker_api import FeedApi
from ...client.background import BackgroundSettler
from ...client.delivery import Delivery
from ...client.membership import JoinOptions, checked_filter
from ...client.polling import Asked, Pollers
from ...client.reader import Reader
from ...client.sending import partitions_of
from ...errors import FlintError, InvalidRequest
from ...model import Start
from ...patterns import check_name, check_pattern
from ...rows import Message
from . import models, views
from .answers import said_of
from .connection import HttpConnection
from .desk import ApiCall, Desk
from .events import RETRY_MS, SSE, WEB_SOCKET
from .faults import HttpRefusal, status_of
from .hub import StreamHub, StreamOutlet
from .outgoing import whole_number
from .rules import is_pattern
from .seats import LeaseName
from .web_socket import WebSocketLine

READ_ROWS = 64
"""How many messages a stream takes at a time."""
WAIT_SECONDS = 3600.0
"""How long a stream waits for messages at a time; it waits again."""


async def stream(desk: Desk, call: ApiCall) -> Response:
    query: models.StreamQuery = call.query
    topic = call.path["topic"]
    connection = call.request.scope.get("flintmq.connection")
    if not isinstance(connection, HttpConnection):
        raise HttpRefusal(501, "NotSupported", "streams need the broker's own HTTP server")
    resumed = query.after or call.request.headers.get("last-event-id") or None
    is_web_socket = "upgrade" in call.request.headers.get("connection", "").lower() and (
        call.request.headers.get("upgrade", "").lower() == "websocket"
    )
    made = HttpStream(desk, call, connection, is_web_socket)
    if query.group is not None:
        if query.start is not None or query.after is not None:
            raise InvalidRequest("a group has its own position: pass `group`, or `start`")
        if query.ack == "manual" and not is_web_socket:
            raise InvalidRequest(
                "messages of a group are acknowledged over a WebSocket; pass ack=auto, or use poll"
            )
        await made.take_from(check_name(query.group, "group"))
    elif query.start is not None or (resumed is not None and not is_pattern(topic)):
        if is_pattern(topic):
            raise InvalidRequest("a pattern can only be streamed live: leave out `start`")
        await made.read_from(_start(query.start), resumed)
    else:
        check_pattern(topic)
        await made.listen()
    return made


def _start(text: str | None) -> Start | None:
    if text is None:
        return None
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text == "last_per_key":
        return "last_per_key"
    if text.isdecimal():
        return whole_number(text, "start")
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"start must be earliest, latest, last_per_key, an offset or a time, not {text[:40]!r}"
        ) from None


class HttpStream(Response):
    """One stream: opened by the handler, which may refuse; then answered, until it ends."""

    def __init__(
        self, desk: Desk, call: ApiCall, connection: HttpConnection, is_web_socket: bool
    ) -> None:
        super().__init__(headers={"content-type": "text/event-stream", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.is_web_socket = is_web_socket
        self.access = call.access
        self._desk, self._call, self._query = desk, call, call.query
        self._connection = connection
        self._form = WEB_SOCKET if is_web_socket else SSE
        self._outlet = StreamOutlet(connection, self._form)
        self._hub: StreamHub = connection.http.streams
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: int | None = None if query_limit(call.query) is None else call.query.limit
        self._line: WebSocketLine | None = None
        self._feed: FeedApi | None = None
        self._reader: Reader | None = None
        self._positions: dict[int, int] = {}
        self._is_plain = True
        self._group: GroupStream | None = None
        self.ends_at = 0.0

    # --- opening

    async def listen(self) -> None:
        query, topic = self._query, self._call.path["topic"]
        self._feed = await self._desk.broker.open_feed(
            topic,
            capacity=query.capacity,
            overflow=query.overflow,
            filter=checked_filter(query.filter),
        )
        self._is_plain = not is_pattern(topic) and self._partitions() is None

    def _partitions(self) -> int | None:
        topic = self._call.path["topic"]
        return partitions_of(topic, self._desk.broker.known_options(topic))

    async def read_from(self, start: Start | None, resumed: str | None) -> None:
        topic = self._call.path["topic"]
        self._is_plain = self._partitions() is None
        if not self._is_plain and isinstance(start, int):
            raise InvalidRequest("each partition has its own offsets: use another start")
        positions = _positions(resumed, self._is_plain)
        if positions is not None:
            start = positions.get(0, 0) if self._is_plain else "earliest"
        filter = checked_filter(self._query.filter)
        reader = self._desk.client.reader(topic, start=start, filter=filter, auto_create=False)
        await reader
        self._reader = reader
        try:
            if positions is not None and not self._is_plain:
                there = await reader.positions()
                await reader.seek({n: at for n, at in positions.items() if n in there})
            self._positions = await reader.positions()
        except BaseException:
            await reader.close()
            raise

    async def take_from(self, group: str) -> None:
        query: models.StreamQuery = self._query
        self._is_plain = False
        self._group = GroupStream(self._desk, self._call.path["topic"], group, query)
        await self._group.join()

    # --- answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self.ends_at = loop.time() + self._connection.http.limits.stream_seconds
        request = Request(scope, receive)
        try:
            if scope["method"] == "HEAD":
                await send(_start_of(self))
                await send({"type": "http.response.body", "body": b""})
                return
            if self.is_web_socket:
                self._line = WebSocketLine(request, self._said, self._outlet.write)
                self._connection.upgrade(self, self._line.accept())
            else:
                await send(_start_of(self))
                opening = f"retry: {RETRY_MS}\n\n".encode()
                await send({"type": "http.response.body", "body": opening, "more_body": True})
                self._connection.stream = self
            self._hub.add(self)
            if self._query.start == "latest" and self._reader is not None:
                self._outlet.write(self._form.place(self._id()))
            timer = loop.call_at(self.ends_at, self.end, None)
            try:
                with self._call.patience.waiting(None):
                    await self._flow()
            finally:
                timer.cancel()
                self._hub.remove(self)
                if not self.is_web_socket:
                    self._connection.stream = None
            if not self.is_web_socket:
                await send({"type": "http.response.body", "body": b""})
        finally:
            await self._close()

    async def _flow(self) -> None:
        if self._connection.transport.is_closing():
            return
        if self._feed is not None:
            self._feed.on_ready(self._rung)
            self._rung()
            await self._ended
            return
        work = self._read() if self._reader is not None else self._take()
        reading = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait((reading, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not self._ended.done():
                error = reading.exception()
                if error is not None and not isinstance(error, FlintError):
                    raise error
                self.end(error)
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait((reading,))

    async def _close(self) -> None:
        for opened in (self._feed, self._reader, self._group):
            if opened is not None:
                await opened.close()

    # --- live

    def _rung(self) -> None:
        self._hub.is_ready(self)

    def pump(self) -> None:
        """Write what the feed has, while the socket takes it."""
        feed, outlet = self._feed, self._outlet
        if feed is None or self._ended.done():
            return
        try:
            while feed.is_ready() and not outlet.is_full:
                rows = feed.take(self._wanted)
                if not rows.runs:
                    break
                written = [self._event(message) for message in rows]
                outlet.write(written[0] if len(written) == 1 else b"".join(written))
                if not self._count(len(written)):
                    break
        except FlintError as error:
            self.end(error)

    def _event(self, message: Message) -> bytes:
        id = str(message.offset) if self._is_plain and message.offset is not None else None
        return self._hub.encoded.of(message, self._form, id)

    @property
    def _wanted(self) -> int:
        """How many messages to take at a time."""
        return READ_ROWS if self._left is None else min(READ_ROWS, self._left)

    def _count(self, count: int) -> bool:
        self._hub.sent += count
        if self._left is not None:
            self._left -= count
            if self._left <= 0:
                self.end(None)
                return False
        return True

    # --- by offset

    async def _read(self) -> None:
        assert self._reader is not None
        while not self._ended.done():
            rows = await self._reader.read_batch(self._wanted, timeout=WAIT_SECONDS)
            if rows.gap is not None:
                said = msgspec.json.encode({"missed": rows.gap.count})
                self._outlet.write(self._form.event(said, None))
            for message in rows:
                if self._ended.done():
                    return
                offset = message.offset or 0
                self._positions[message.partition] = offset + 1
                if self._is_plain:
                    self._outlet.write(self._event(message))
                else:
                    self._outlet.write(self._form.event(self._own(message), self._id()))
                await self._outlet.room()
                await self._connection.http.turnstile.breathe()
                if not self._count(1):
                    return

    def _id(self) -> str:
        return ",".join(f"{number}:{at}" for number, at in sorted(self._positions.items()))

    def _own(self, message: Message) -> bytes:
        fields = views.fields(message, len(message.value))
        return msgspec.json.encode(models.Streamed(**fields, topic=message.topic, id=self._id()))

    # --- a group

    async def _take(self) -> None:
        assert self._group is not None
        while not self._ended.done():
            for message, lease in await self._group.take(self._left):
                fields = views.fields(message, len(message.value))
                made = models.Streamed(
                    **fields,
                    topic=message.topic,
                    id=None,
                    lease=lease,
                    delivery_count=message.delivery_count,
                )
                self._outlet.write(self._form.event(msgspec.json.encode(made), None))
                await self._outlet.room()
                await self._connection.http.turnstile.breathe()
                if not self._count(1):
                    return

    def _said(self, text: bytes) -> None:
        """A client has sent a text over its WebSocket."""
        if self._group is None:
            self._tell(InvalidRequest("only a stream of a group takes messages: {'ack': lease}"))
            return
        self._group.settle(text, self._tell)

    def _tell(self, said: FlintError | dict[str, Any]) -> None:
        answer = said_of(said) if isinstance(said, FlintError) else said
        self._outlet.write(self._form.event(msgspec.json.encode(answer), None))

    # --- what the connection and the hub tell

    def received(self, data: bytes) -> None:
        assert self._line is not None
        if not self._line.received(data):
            self.lost()
            self._connection.transport.close()

    def has_room(self) -> None:
        if self._feed is not None:
            self._rung()

    def lost(self) -> None:
        self._outlet.is_lost = True
        self._hub.has_left(self._ended)

    def beat(self) -> None:
        self._outlet.beat()

    def end(self, error: FlintError | None) -> None:
        """Say why, if there is a reason, and close. Clients come back to a stream without one."""
        if self._ended.done():
            return
        if error is not None and status_of(error) in (503, 504):
            error = None  # the broker stops, or another leads: whoever comes back finds it
        if error is not None:
            self._outlet.write(self._form.error(said_of(error)))
        code, reason = (1001, "come back") if error is None else (1008, type(error).__name__)
        if self.is_web_socket:
            self._outlet.write(self._form.end(code, reason))
            self._connection.transport.close()
        self._ended.set_result(None)


def query_limit(query: models.StreamQuery) -> int | None:
    return None if isinstance(query.limit, msgspec.UnsetType) else query.limit


def _start_of(response: Response) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": response.raw_headers}


def _positions(resumed: str | None, is_plain: bool) -> dict[int, int] | None:
    """Where to go on: of a plain topic behind an offset, else by partition."""
    if resumed is None:
        return None
    if is_plain and ":" not in resumed:
        return {0: whole_number(resumed, "the id to resume behind") + 1}
    found: dict[int, int] = {}
    for part in resumed.split(","):
        number, _, at = part.partition(":")
        found[whole_number(number, "a partition")] = whole_number(at, "an offset")
    return found


class GroupStream:
    """A member of a group for one connection: what it holds goes back when that is gone."""

    def __init__(self, desk: Desk, topic: str, group: str, query: models.StreamQuery) -> None:
        self._desk, self._query = desk, query
        self._pollers = Pollers(desk.broker, BackgroundSettler())
        options = JoinOptions(filter=checked_filter(query.filter), auto_create=False)
        self._asked = Asked(
            topic, group, 1, query.lease, WAIT_SECONDS, query.ack == "auto", options
        )
        self._held: dict[str, tuple[float, Delivery]] = {}
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def join(self) -> None:
        await self._pollers.members(self._asked)

    async def take(self, limit: int | None) -> list[tuple[Delivery, str]]:
        """What there is, while less than `prefetch` is out; waits for it."""
        while (room := self._query.prefetch - len(self._held)) <= 0:
            await self._wait_for_room()
        wanted = room if limit is None else min(room, limit)
        found = await self._pollers.poll(self._asked._replace(max_rows=wanted))
        if self._asked.auto:
            return [(message, "") for message in found]
        until = self._desk.broker.clock.monotonic() + self._asked.lease
        named = [(message, str(LeaseName.of(message))) for message in found]
        self._held.update({lease: (until, message) for message, lease in named})
        return named

    async def _wait_for_room(self) -> None:
        """Until something is settled, or a lease has ended."""
        clock = self._desk.broker.clock
        oldest, (until, _) = next(iter(self._held.items()))
        self._room.clear()
        try:
            await asyncio.wait_for(self._room.wait(), max(0.001, until - clock.monotonic()))
        except TimeoutError:
            self._held.pop(oldest, None)

    def settle(self, text: bytes, tell: Any) -> None:
        """`{"ack": lease}`, `{"nack": lease, "delay": 5}`, `{"reject": lease, "reason": ""}`,
        `{"extend": lease, "lease": 30}`; a list in place of one lease."""
        task = asyncio.get_running_loop().create_task(self._settle(text, tell))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, text: bytes, tell: Any) -> None:
        try:
            said = msgspec.json.decode(text, type=models.StreamSettle)
            ((verb, leases),) = _named(said)
        except (msgspec.DecodeError, ValueError) as error:
            why = str(error) if isinstance(error, msgspec.DecodeError) else "one verb at a time"
            tell(InvalidRequest(f'{why}; send {{"ack": lease}}, or nack, reject or extend'))
            return
        done: list[str] = []
        for lease in leases:
            found = self._held.get(lease)
            if found is None:
                gone = InvalidRequest(f"this stream does not hold the lease {lease[:80]!r}")
                tell({**said_of(gone), "lost": [lease]})
                continue
            try:
                await self._carry_out(verb, lease, found[1], said)
                done.append(lease)
            except FlintError as error:
                self._held.pop(lease, None)
                tell({**said_of(error), "lost": [lease]})
        self._room.set()
        if done:
            tell({"settled" if verb != "extend" else "extended": done})

    async def _carry_out(
        self, verb: str, lease: str, message: Delivery, said: models.StreamSettle
    ) -> None:
        match verb:
            case "ack":
                await message.ack()
            case "nack":
                await message.nack(said.delay)
            case "reject":
                await message.reject(said.reason)
            case _:
                seconds = self._asked.lease if said.lease is None else said.lease
                await message.extend(seconds)
                until = self._desk.broker.clock.monotonic() + seconds
                self._held[lease] = (until, message)
                return
        self._held.pop(lease, None)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self._pollers.close()


def _named(said: models.StreamSettle) -> list[tuple[str, list[str]]]:
    """The verbs that were given, each with its leases."""
    given = {"ack": said.ack, "nack": said.nack, "reject": said.reject, "extend": said.extend}
    return [
        (verb, [leases] if isinstance(leases, str) else leases)
        for verb, leases in given.items()
        if leases is not None
    ]
