from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.hermes.server import HermesLimits, HermesServer
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock

from .client import HermesClient

Connect = Callable[[], Awaitable[HermesClient]]


@pytest.fixture
def limits() -> HermesLimits:
    return HermesLimits()


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still unless a test moves it."""
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[Broker]:
    broker = Broker(clock, Codec())
    yield broker
    await broker.close()


@pytest.fixture
async def server(broker: Broker, limits: HermesLimits) -> AsyncIterator[HermesServer]:
    server = HermesServer(broker, limits=limits)
    yield server
    await server.close()


@pytest.fixture
async def address(server: HermesServer) -> tuple[str, int]:
    return await server.start("127.0.0.1", 0)


@pytest.fixture
async def connect(address: tuple[str, int]) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def connect() -> HermesClient:
            return await stack.enter_async_context(await HermesClient.connect(address))

        yield connect


@pytest.fixture
async def client(connect: Connect) -> HermesClient:
    return await connect()
