"""Endpoints that stream, and end when the client or the server goes."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, WebSocket

import flintmq
from flintmq.adapters.fastapi import EventStream, Streams
from tests.patience import PATIENCE_SECONDS, free_port, until
from tests.serving import serving

from .processes import started


class Visit:
    """One client of an ASGI application: what it is sent, and what it says."""

    def __init__(self, api: Any, kind: str, path: str) -> None:
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.heard: list[dict[str, Any]] = []
        if kind == "websocket":
            self.say("websocket.connect")
        else:
            self.say("http.request", body=b"", more_body=False)
        scope = {
            "type": kind, "method": "GET", "path": path, "raw_path": path.encode(), "headers": [],
            "query_string": b"", "scheme": kind[:4], "asgi": {"version": "3.0"},
        }  # fmt: skip
        self.task = asyncio.ensure_future(api(scope, self._said.get, self._hear))

    async def _hear(self, message: dict[str, Any]) -> None:
        self.heard.append(message)

    def say(self, kind: str, **more: Any) -> None:
        self._said.put_nowait({"type": kind, **more})

    async def until_heard(self, count: int) -> None:
        await until(lambda: len(self.heard) >= count, f"it heard only {self.heard}")

    @property
    def body(self) -> str:
        return b"".join(one.get("body", b"") for one in self.heard).decode()


@pytest.fixture
async def shop() -> AsyncIterator[tuple[flintmq.App, Streams, FastAPI]]:
    app = flintmq.App("memory://")
    streams = Streams(app)
    api = FastAPI()

    @api.get("/events")
    async def events() -> EventStream:
        return streams.events(app.mq.live("orders"))

    @api.get("/pings")
    async def pings() -> EventStream:
        return streams.events(app.mq.live("orders"), ping=0.001)

    @api.get("/all")
    async def everything() -> EventStream:
        return streams.events(app.mq.reader("orders"))

    @api.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await streams.send(socket, app.mq.live("orders"))

    async with streams.lifespan():
        yield app, streams, api


async def test_events_are_the_values_with_their_offsets(shop: Any) -> None:
    app, streams, api = shop
    await app.publish("orders", {"id": 1})
    await app.publish("orders", "two\nlines")
    await app.publish("orders", b"\xff")
    visit = Visit(api, "http", "/all")
    await visit.until_heard(2)
    streams.end()
    await visit.task

    assert (b"content-type", b"text/event-stream; charset=utf-8") in visit.heard[0]["headers"]
    assert visit.body == (
        'id: 0\ndata: {"id":1}\n\nid: 1\ndata: two\ndata: lines\n\nid: 2\ndata: \ufffd\n\n'
    )


async def test_nothing_is_missing_once_the_headers_are_there(shop: Any) -> None:
    app, _streams, api = shop
    visit = Visit(api, "http", "/events")
    await visit.until_heard(1)
    await app.publish("orders", 7)
    await visit.until_heard(2)

    assert "data: 7\n" in visit.body


@pytest.mark.parametrize("path", ["/events", "/pings", "/all"])
async def test_a_stream_ends_when_its_client_goes(shop: Any, path: str) -> None:
    _app, _streams, api = shop
    visit = Visit(api, "http", path)
    await visit.until_heard(1)
    visit.say("http.disconnect")
    await visit.task


async def test_a_stream_without_messages_says_that_it_is_there(shop: Any) -> None:
    visit = Visit(shop[2], "http", "/pings")
    await visit.until_heard(3)

    assert visit.body.startswith(": still here\n\n")


async def test_a_socket_gets_text_and_bytes_and_ends_when_its_client_goes(shop: Any) -> None:
    app, _streams, api = shop
    visit = Visit(api, "websocket", "/socket")
    await visit.until_heard(1)
    await app.publish("orders", {"id": 1})
    await app.publish("orders", b"\xff")
    await visit.until_heard(3)
    visit.say("websocket.receive", text="ignored")
    visit.say("websocket.disconnect", code=1000)
    await visit.task

    assert [one.get("text") or one.get("bytes") for one in visit.heard[1:3]] == [
        '{"id":1}',
        b"\xff",
    ]


async def test_a_socket_hears_that_the_server_goes(shop: Any) -> None:
    _app, streams, api = shop
    visit = Visit(api, "websocket", "/socket")
    await visit.until_heard(1)
    streams.end()
    await visit.task

    assert visit.heard[-1] == {"type": "websocket.close", "code": 1001, "reason": ""}


async def test_a_stream_ends_when_its_topic_is_deleted(shop: Any) -> None:
    app, _streams, api = shop
    await app.mq.create_topic("orders")
    visit = Visit(api, "http", "/all")
    await visit.until_heard(1)
    await app.mq.delete_topic("orders")
    with pytest.raises(flintmq.TopicDeleted):
        await visit.task


async def test_handlers_run_in_the_web_application_where_wanted() -> None:
    app = flintmq.App("memory://")
    got: list[int] = []

    @app.consumer("orders")
    async def bill(order: int) -> None:
        got.append(order)

    async with Streams(app, run=True).lifespan():
        await app.publish("orders", 7)
        await until(lambda: got == [7], "the handler did not run")


PROGRAM = """
import os
import flintmq
from fastapi import FastAPI
from flintmq.adapters.fastapi import EventStream, Streams

orders = flintmq.App(os.environ["BROKER"])
streams = Streams(orders)
api = FastAPI(lifespan=streams.lifespan)

@api.get("/events")
async def events() -> EventStream:
    return streams.events(orders.mq.live("orders"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_is_told_to_end_is_not_held_up_by_streams(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "web.py").write_text(PROGRAM)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "web:api", "--port", str(port)]
    with (
        serving(tmp_path / "data") as url,
        started(command, tmp_path, log="web.log", BROKER=url) as web,
    ):
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:

            async def is_up() -> bool:
                try:
                    return (await client.get(f"http://127.0.0.1:{port}/docs")).is_success
                except httpx.TransportError:
                    return False

            await until(is_up, "uvicorn did not come up")
            async with client.stream("GET", f"http://127.0.0.1:{port}/events") as response:
                lines = response.aiter_lines()
                async with flintmq.connect(url) as mq:
                    await mq.publish("orders", {"id": 1})
                assert await anext(lines) == "id: 0"
                web.send_signal(number)
                assert [line async for line in lines] == ['data: {"id":1}', ""]
        assert await asyncio.to_thread(web.wait, PATIENCE_SECONDS) in (0, -number)
