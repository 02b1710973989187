"""An app at work: all of its handlers, started and stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..client.client import Client
from .calling import CallContext
from .consuming import ConsumerRun
from .dependencies import AppScope
from .figures import HandlerFigures

if TYPE_CHECKING:
    from .app import App


class RunningApp:
    """Made by `App.running`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.mq: Client = app.mq
        self.on_error: list[Callable[[Exception], None]] = []
        """Called with what handlers raise: a test wants to see it."""
        threads = sum(one.concurrency for one in app.consumers)
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="flintmq-handler")
        self._scope = AppScope()
        self.context = CallContext(app.mq, self._scope, self._pool)
        self.consumers = [
            ConsumerRun(spec, self.context, app.around, self._failed) for spec in app.consumers
        ]

    def _failed(self, error: Exception) -> None:
        for callback in self.on_error:
            callback(error)

    async def start(self) -> None:
        for one in self.consumers:
            await one.start()

    async def stop(self) -> None:
        """Drain all handlers, at once."""
        try:
            await asyncio.gather(*(one.stop() for one in self.consumers))
        finally:
            await self._scope.until.aclose()
            self._pool.shutdown(wait=False)

    # --- looking

    def figures(self) -> list[HandlerFigures]:
        """How each handler is doing."""
        return [one.meter.figures() for one in self.consumers]

    def troubles(self) -> list[str]:
        """What keeps handlers from working; empty in good health."""
        found = [one.trouble for one in self.consumers if one.trouble is not None]
        return found if self.mq.is_connected else ["no connection to the broker", *found]

    def is_working(self) -> bool:
        """Whether a handler is being called right now."""
        return any(one.meter.running for one in self.consumers)

    def is_in_threads(self) -> bool:
        """Whether plain functions are being called, which takes real time."""
        return any(one.meter.running and not one.spec.caller.is_async for one in self.consumers)

    async def backlog(self) -> int:
        """How many messages could be worked on right now, or are."""
        total = 0
        for one in self.consumers:
            for topic in list(one.topics):
                stats: Any = await self.mq.group_stats(topic, one.spec.group)
                total += stats.lag - stats.delayed
        return total
