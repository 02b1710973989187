"""The verbs that look at an outbox."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..broker_api import BrokerApi
from ..errors import InvalidRequest
from ..model import OutboxStats, Seconds, timeout_seconds


@runtime_checkable
class HasOutbox(Protocol):
    """A broker that keeps publishes on this device until they are sent."""

    def stats(self) -> OutboxStats: ...
    async def wait_sent(self, timeout: float | None) -> bool: ...


class OutboxVerbs:
    """The part of a client that looks at its outbox."""

    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker

    def _found(self) -> HasOutbox:
        if not isinstance(self._broker, HasOutbox):
            raise InvalidRequest("this connection has no outbox: connect(url, outbox=DIRECTORY)")
        return self._broker

    async def outbox_stats(self) -> OutboxStats:
        """Return how much is waiting in the outbox, how much was sent, and why it is waiting."""
        return self._found().stats()

    async def flush_outbox(self, timeout: Seconds | None = None) -> bool:
        """Wait until everything in the outbox is sent; returns False after `timeout` seconds. You
        do not need this for sending, which happens in the background.
        """
        return await self._found().wait_sent(timeout_seconds(timeout))
