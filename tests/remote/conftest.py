"""A broker in memory, its server, and a bad network before it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from flintmq.engine.broker import Broker
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.serde.codec import Codec

from .proxy import Proxy


@pytest.fixture
async def server() -> AsyncIterator[NativeServer]:
    broker = Broker(None, Codec())
    # Who is to be forgotten is forgotten by hand: nobody is because the machine was busy.
    server = NativeServer(broker, limits=Limits(grace_seconds=3600.0))
    yield server
    await server.close()
    await broker.close()


@pytest.fixture
async def proxy(server: NativeServer) -> AsyncIterator[Proxy]:
    proxy = Proxy(await server.start("127.0.0.1", 0))
    yield proxy
    await proxy.close()


@pytest.fixture
async def url(proxy: Proxy) -> str:
    host, port = await proxy.start()
    return f"flint://{host}:{port}"
