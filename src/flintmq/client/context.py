"""What the parts of one client share: its broker, its settings, and what is open."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any, Protocol

from ..broker_api import BrokerApi
from ..clock import Clock
from ..errors import Closed
from ..model import Seconds, timeout_seconds
from ..observe.tracing import Tracing
from .background import BackgroundSettler
from .turns import YieldEvery

Closer = asyncio.Task[Any] | Thread | None
"""Who closes something: a task, or a thread of a program without an event loop."""


class OpenConsumer(Protocol):
    """A reader, feed or subscription, as the client closes it."""

    async def _close_for(self, closer: Closer) -> None: ...


class ClientContext:
    """Made by a client for its parts."""

    def __init__(
        self,
        broker: BrokerApi,
        *,
        auto_create: bool,
        timeout: Seconds | None,
        tracing: Tracing | None,
    ) -> None:
        self.broker = broker
        self.clock: Clock = broker.clock
        self.timeout = timeout_seconds(timeout)
        self.tracing = tracing
        self.turns = YieldEvery()
        self.settler = BackgroundSettler()
        self.consumers: set[OpenConsumer] = set()
        self.is_closed = False
        self.auto_create = auto_create

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("the connection")

    async def close_consumers(self, closer: Closer) -> None:
        # All at once: each may have to wait for work in progress.
        closing = (part._close_for(closer) for part in list(self.consumers))
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def may_create(self, auto_create: bool | None) -> bool:
        return self.auto_create if auto_create is None else auto_create

    def patience(self, timeout: Seconds | None) -> float | None:
        """How long a call may wait: its own timeout, else that of the connection."""
        return self.timeout if timeout is None else timeout_seconds(timeout)
