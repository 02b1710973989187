"""The ways of running a broker. A new way is one more line in WAYS; the promises stay the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest

import flintmq
from flintmq.testing import ManualClock

from .over_blocking import NOT_OF_THREADS, BlockingClock, connect_over_blocking

WAYS = {
    "memory": "memory://",
    "memory-blocking": "memory://",
}


class Connect(Protocol):
    """Opens a broker of its own; options as for `flintmq.connect`. Closed after the test."""

    def __call__(self, **options: Any) -> flintmq.Client: ...


@pytest.fixture(params=sorted(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "memory-blocking" and request.node.originalname in NOT_OF_THREADS:
        pytest.skip(NOT_OF_THREADS[request.node.originalname])
    return str(request.param)


@pytest.fixture
def url(way: str) -> str:
    return WAYS[way]


@pytest.fixture
def clock(way: str) -> ManualClock:
    return BlockingClock() if way == "memory-blocking" else ManualClock()


@pytest.fixture
async def connect(url: str, clock: ManualClock) -> AsyncIterator[Connect]:
    opened: list[flintmq.Client] = []

    def connect_here(**options: Any) -> flintmq.Client:
        if isinstance(clock, BlockingClock):
            client = connect_over_blocking(url, **{"clock": clock, **options})
        else:
            client = flintmq.connect(url, **{"clock": clock, **options})
        opened.append(client)
        return client

    yield connect_here
    for client in opened:
        await client.close()


@pytest.fixture
async def mq(connect: Connect) -> AsyncIterator[flintmq.Client]:
    async with connect() as client:
        yield client
