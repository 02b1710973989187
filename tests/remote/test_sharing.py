"""Readers of one name over a socket, cancelled at any turn: rows that came for nobody go back."""

from __future__ import annotations

import pytest

from flintmq.testing import ManualClock
from tests.contract.over_network import connect_over_network
from tests.contract.test_cancellation import (
    test_tasks_that_are_cancelled_at_any_turn_share_every_message_once as share_every_message_once,
)

SEEDS = [14, 132, 178, 281, 654, 667, 770, *range(1000, 1060)]
"""The first ones have found a fault: what was put back was asked for before it was there."""


@pytest.mark.slow
async def test_whatever_is_cancelled_every_message_is_read_once() -> None:
    for seed in SEEDS:
        async with connect_over_network("memory://", clock=ManualClock()) as mq:
            await share_every_message_once(mq, seed)
