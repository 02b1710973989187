"""`GET /samples/stream`: the samples of the broker as they are taken, one stream for each page.

Each event is a `Samples` of one. Who asks with `fetch` sends its key as in any other request.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....errors import FlintError
from ..answers import said_of
from ..connection import HttpConnection
from ..desk import ApiCall, Desk
from ..events import RETRY_MS, SSE
from ..faults import HttpRefusal
from ..hub import StreamOutlet
from . import models
from .sampler import Sampler


async def stream_samples(desk: Desk, call: ApiCall) -> Response:
    connection = call.request.scope.get("flintmq.connection")
    if not isinstance(connection, HttpConnection):
        raise HttpRefusal(501, "NotSupported", "streams need the broker's own HTTP server")
    return SampleStream(desk.sampler, call, connection)


class SampleStream(Response):
    is_web_socket = False

    def __init__(self, sampler: Sampler, call: ApiCall, connection: HttpConnection) -> None:
        super().__init__(headers={"content-type": "text/event-stream", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.access = call.access
        self.ends_at = 0.0
        self._sampler, self._call = sampler, call
        self._connection, self._hub = connection, connection.http.streams
        self._outlet = StreamOutlet(connection, SSE)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self.ends_at = loop.time() + self._connection.http.limits.stream_seconds
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        opening = f"retry: {RETRY_MS}\n\n".encode()
        await send({"type": "http.response.body", "body": opening, "more_body": True})
        self._connection.stream = self
        self._hub.add(self)
        timer = loop.call_at(self.ends_at, self.end, None)
        self._sampler.watch(self._tell)
        try:
            with self._call.patience.waiting(None):
                if not self._connection.transport.is_closing():
                    await self._ended
        finally:
            self._sampler.unwatch(self._tell)
            timer.cancel()
            self._hub.remove(self)
            self._connection.stream = None
        await send({"type": "http.response.body", "body": b""})

    def _tell(self, sample: models.Sample) -> None:
        if not self._outlet.is_full:  # who reads slowly gets fewer
            said = models.Samples(samples=[sample], last_event=self._sampler.last_event())
            self._outlet.write(SSE.event(msgspec.json.encode(said), None))

    # --- what the connection and the hub tell

    def received(self, data: bytes) -> None:
        pass

    def has_room(self) -> None:
        pass

    def lost(self) -> None:
        self._outlet.is_lost = True
        if not self._ended.done():
            self._ended.set_result(None)

    def beat(self) -> None:
        self._outlet.beat()

    def end(self, error: FlintError | None) -> None:
        if not self._ended.done():
            if error is not None:
                self._outlet.write(SSE.error(said_of(error)))
            self._ended.set_result(None)
