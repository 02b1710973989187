"""pytest fixtures: a broker in memory whose time a test moves by hand.

pytest loads this module in every run where FlintMQ is installed, so it imports pytest alone and
the rest when a fixture is used. The fixtures are plain functions: a connection to memory:// needs
no event loop to be made or let go, so they are the same under pytest-asyncio and anyio.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..client.blocking import BlockingClient
    from ..client.client import Client
    from .manual_clock import ManualClock


@pytest.fixture
def flintmq_clock() -> ManualClock:
    """The clock of `flint`: it stands still until `await flintmq_clock.advance(seconds)`."""
    from .manual_clock import ManualClock

    return ManualClock()


@pytest.fixture
def flint(flintmq_clock: ManualClock) -> Iterator[Client]:
    """A connection to a FlintMQ broker of its own, in memory, on `flintmq_clock`."""
    from ..api import connect

    client = connect("memory://", clock=flintmq_clock)
    yield client
    _let_go(client)


@pytest.fixture
def flint_sync() -> Iterator[BlockingClient]:
    """The same, blocking; its clock is its own: `advance_sync(flint_sync, seconds)`."""
    from ..client.blocking import connect_sync
    from .manual_clock import ManualClock

    with connect_sync("memory://", clock=ManualClock()) as client:
        yield client


def _let_go(client: Client) -> None:
    """Close as far as that needs no event loop: the test's may be gone, and its tasks with it."""
    client._context.is_closed = True
    closing = client._broker.close()
    with suppress(Exception):  # StopIteration: it is closed; other: its loop was needed, and closed
        closing.send(None)
    with suppress(RuntimeError):
        closing.close()
