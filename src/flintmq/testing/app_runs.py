"""Running an app in a test: the real engine in memory, and time that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

from ..api import connect
from ..client.keywords import PublishKeywords
from ..errors import GroupNotFound, TopicNotFound
from .manual_clock import ManualClock

if TYPE_CHECKING:
    from ..app.app import App
    from ..app.running import RunningApp
    from ..client.client import Client
    from ..model import StoredReceipt

IDLE_SECONDS = 10.0


class AppTest:
    """Made by `run`. What handlers raise is raised by `idle` and `advance`."""

    def __init__(self, run: RunningApp, clock: ManualClock, raises: bool) -> None:
        self.running, self.clock = run, clock
        self.mq: Client = run.mq
        """The connection, to look at topics, groups and dead letters."""
        self.errors: list[Exception] = []
        """What handlers have raised."""
        self._raises, self._raised = raises, 0
        run.on_error.append(self.errors.append)

    async def publish(
        self, topic: str, value: Any, **said: Unpack[PublishKeywords]
    ) -> StoredReceipt:
        """Publish a message, as `mq.publish` does."""
        return await self.mq.publish(topic, value, **said)

    async def idle(self, timeout: float = IDLE_SECONDS) -> None:
        """Wait until no handler has anything to do. Time stands still, so what is delayed waits.

        `timeout` is in real seconds, for plain functions, which run in threads.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout
        quiet = 0
        while quiet < 2:  # what a handler published last may be another one's work
            await self.clock.settle()
            quiet = 0 if await self._is_busy() else quiet + 1
            if quiet == 0:
                if loop.time() >= give_up_at:
                    raise TimeoutError(f"after {timeout:g} s, handlers are still at work")
                await asyncio.sleep(0.001 if self.running.is_in_threads() else 0)
        self._raise_first()

    async def advance(self, seconds: float) -> None:
        """Move time, and wait until everything that fell due is done."""
        await self.clock.advance(seconds)
        await self.idle()

    async def _is_busy(self) -> bool:
        if self.running.is_working():
            return True
        try:
            return await self.running.backlog() > 0
        except (GroupNotFound, TopicNotFound):
            return False

    def _raise_first(self) -> None:
        if self._raises and len(self.errors) > self._raised:
            error = self.errors[self._raised]
            self._raised = len(self.errors)
            raise error


@asynccontextmanager
async def run(
    app: App, *, raises: bool = True, clock: ManualClock | None = None
) -> AsyncIterator[AppTest]:
    """Run an app in a test: `async with flintmq.testing.run(app) as t: ...`

    It runs on a broker of its own, in memory, whatever its URL; time moves by `await t.advance(60)`
    alone. `await t.idle()` waits until all is done, and raises what a handler raised; with
    `raises=False` it is in `t.errors`, to test retries and dead letters.
    """
    clock = clock or ManualClock()
    keywords = {k: v for k, v in app.connecting.items() if k in ("auto_create", "tracing")}
    async with connect("memory://", clock=clock, **keywords) as mq, app.running(mq) as running:
        test = AppTest(running, clock, raises)
        yield test
        test._raise_first()
