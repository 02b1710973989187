"""A broker with a loopback port, in a thread of its own: for async tests and blocking ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Thread

import pytest

from flintmq.engine.broker import Broker
from flintmq.net.server.native import NativeServer
from flintmq.serde.codec import Codec


@pytest.fixture
def url() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[NativeServer, Broker, str]:
        broker = Broker(None, Codec())
        server = NativeServer(broker)
        host, port = await server.start("127.0.0.1", 0)
        return server, broker, f"flint://{host}:{port}"

    async def stop() -> None:
        await server.close()
        await broker.close()

    server, broker, url = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield url
    asyncio.run_coroutine_threadsafe(stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
