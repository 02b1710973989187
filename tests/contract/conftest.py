"""The ways of running a broker. A new way is one more line in WAYS; the promises stay the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest

import flintmq
from flintmq.testing import ManualClock

WAYS = {
    "memory": "memory://",
}


class Connect(Protocol):
    """Opens a broker of its own; options as for `flintmq.connect`. Closed after the test."""

    def __call__(self, **options: Any) -> flintmq.Client: ...


@pytest.fixture(params=sorted(WAYS))
def url(request: pytest.FixtureRequest) -> str:
    return WAYS[request.param]


@pytest.fixture
async def connect(url: str, clock: ManualClock) -> AsyncIterator[Connect]:
    opened: list[flintmq.Client] = []

    def connect_here(**options: Any) -> flintmq.Client:
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
