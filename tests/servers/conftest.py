from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from flintmq.engine.broker import Broker
from flintmq.serde.codec import Codec
from flintmq.servers.limits import Limits
from flintmq.servers.native import NativeServer


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
async def server(limits: Limits) -> AsyncIterator[NativeServer]:
    broker = Broker(None, Codec())
    server = NativeServer(broker, limits=limits)
    yield server
    await server.close()
    await broker.close()


@pytest.fixture
async def address(server: NativeServer) -> tuple[str, int]:
    return await server.start("127.0.0.1", 0)


@pytest.fixture
def url(address: tuple[str, int]) -> str:
    host, port = address
    return f"flint://{host}:{port}"
