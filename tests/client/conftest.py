"""A connection to a broker with naive queues, on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import flintmq
from flintmq.testing import ManualClock

from .fake_queue import FakeBroker, connect_to_fake


@pytest.fixture
async def connected(clock: ManualClock) -> AsyncIterator[tuple[flintmq.Client, FakeBroker]]:
    client, broker = connect_to_fake(clock)
    async with client:
        yield client, broker


@pytest.fixture
def mq(connected: tuple[flintmq.Client, FakeBroker]) -> flintmq.Client:
    return connected[0]


@pytest.fixture
def broker(connected: tuple[flintmq.Client, FakeBroker]) -> FakeBroker:
    return connected[1]
