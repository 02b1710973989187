"""FastAPI and Starlette: the connection lives as long as the server, and streams end in time.

orders = flintmq.App("flint://localhost:7600")
streams = Streams(orders)
api = FastAPI(lifespan=streams.lifespan)


@api.get("/orders")
async def follow() -> EventStream:
    return streams.events(orders.mq.live("orders"))
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import msgspec

from ..app.app import App
from ..client.feed import Feed
from ..client.reader import Reader
from ..errors import Closed, MissingExtra
from ..rows import Message, Rows

try:
    from starlette.responses import StreamingResponse
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket, WebSocketDisconnect
except ImportError as error:
    raise MissingExtra("flintmq.adapters.fastapi", "fastapi") from error

AT_ONCE = 256
PING_SECONDS = 15.0
"""How often a stream says that it is still there, while nothing comes."""
GOING_AWAY = 1001

Source = Feed | Reader


class Streams:
    """What the endpoints of one web application share: an App, and the end of the server.

    A server waits for its responses before it shuts down; a stream without an end would hold it up.
    So streams hear of SIGTERM and Ctrl-C themselves. Under a server in another thread, call `end`.
    """

    def __init__(self, app: App, *, run: bool = False) -> None:
        self.app = app
        self._run = run
        self._ending = asyncio.Event()

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """For `FastAPI(lifespan=...)`: the app is connected; with `run=True` its handlers run."""
        self._ending.clear()
        async with self.app.running() if self._run else self.app:
            with self._hearing_signals():
                yield
            self.end()

    def end(self) -> None:
        """Have all streams end now."""
        self._ending.set()

    def events(self, source: Source, *, ping: float = PING_SECONDS) -> EventStream:
        """A response of server-sent events: one for each message of a live feed or a reader, its
        value as data and its offset as id. It ends when the client or the server goes."""
        return EventStream(self, source, ping)

    async def send(self, socket: WebSocket, source: Source) -> None:
        """Accept a WebSocket and send it each message of a live feed or a reader: text, or bytes
        that are none. Returns when the client or the server goes."""
        async with source:
            await socket.accept()
            sending = asyncio.ensure_future(self._send_all(socket, source))
            listening = asyncio.ensure_future(_until_gone(socket))
            try:
                await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                listening.cancel()
                outcomes = await asyncio.gather(sending, listening, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, WebSocketDisconnect):
                raise outcome

    async def _send_all(self, socket: WebSocket, source: Source) -> None:
        async for rows in self.batches(source, None):
            for message in rows:
                value = text_of(message)
                if isinstance(value, str):
                    await socket.send_text(value)
                else:
                    await socket.send_bytes(value)
        await socket.close(GOING_AWAY)

    async def batches(self, source: Source, ping: float | None) -> AsyncIterator[Rows]:
        """What comes, until the server goes; an empty batch after `ping` seconds of nothing."""
        ending = asyncio.ensure_future(self._ending.wait())
        reading: asyncio.Future[Rows] | None = None
        try:
            while True:
                reading = asyncio.ensure_future(source.read_batch(AT_ONCE, timeout=ping))
                await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
                if ending.done():
                    return
                with suppress(Closed):
                    yield reading.result()
                    continue
                return
        finally:
            ending.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        """Beside the server, whose handlers are called as before."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def heard(number: int, frame: Any) -> None:
            loop.call_soon_threadsafe(self.end)
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)

        ours = [number for number, handler in before.items() if callable(handler)]
        for number in ours:
            signal.signal(number, heard)
        try:
            yield
        finally:
            for number in ours:
                if signal.getsignal(number) is heard:
                    signal.signal(number, before[number])


class EventStream(StreamingResponse):
    """Made by `Streams.events`. The feed is open before the headers go out: nothing that is
    published after the client has them is missing."""

    media_type = "text/event-stream"

    def __init__(self, streams: Streams, source: Source, ping: float) -> None:
        self._source = source
        super().__init__(
            _events(streams, source, ping),
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._source:
            await super().__call__(scope, receive, send)


async def _events(streams: Streams, source: Source, ping: float) -> AsyncIterator[str]:
    async for rows in streams.batches(source, ping):
        yield "".join(map(_event, rows)) if rows else ": still here\n\n"


def _event(message: Message) -> str:
    value = text_of(message)
    if not isinstance(value, str):
        value = value.decode(errors="replace")
    lines = "".join(f"data: {line}\n" for line in value.splitlines() or [""])
    return f"{lines}\n" if message.offset is None else f"id: {message.offset}\n{lines}\n"


def text_of(message: Message) -> str | bytes:
    """A value as text; objects as JSON. Bytes that are no text stay bytes."""
    value = message.decode()
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return value
    return msgspec.json.encode(value).decode()


async def _until_gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
