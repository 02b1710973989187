from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import flintmq
from flintmq.testing import ManualClock


@pytest.fixture
async def mq(clock: ManualClock) -> AsyncIterator[flintmq.Client]:
    async with flintmq.connect("memory://", clock=clock) as client:
        yield client
