"""An app at work: all of its handlers, started and stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..client.client import Client
from ..errors import FlintError
from ..schedules.running import ScheduleRunner
from .calling import CallContext
from .cancels import CancelBook
from .claims import sweep_claims
from .consuming import ConsumerRun, pause
from .dependencies import AppScope
from .desk import allow_deliveries, task_topic
from .figures import HandlerFigures
from .joining import JOIN_SPEC, JoinWork
from .middleware import Around
from .scheduling import runner_of
from .tasks import Task
from .working import TaskWork

if TYPE_CHECKING:
    from .app import App


SWEEP_SECONDS = 600.0
"""How often workers look for claims of unique tasks that are over by their time."""


class RunningApp:
    """Made by `App.running`."""

    def __init__(self, app: App, grace: float) -> None:
        self.app, self._grace = app, grace
        self.mq: Client = app.mq
        self.on_error: list[Callable[[Exception], None]] = []
        """Called with what handlers raise: a test wants to see it."""
        threads = sum(one.concurrency for one in app.consumers)
        threads += sum(one.spec.consumer.concurrency for one in app.tasks.values())
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="flintmq-handler")
        self._scope = AppScope()
        self.context = CallContext(app.mq, self._scope, self._pool, {type(app): app})
        self._cancels = CancelBook(app.mq)
        self.consumers = [
            ConsumerRun(spec, self.context, app.around, self._failed, grace=grace)
            for spec in app.consumers
        ]
        self.tasks = [self._task_run(task) for task in app.tasks.values()]
        self.consumers += self.tasks
        self._joins = JoinWork(app.desk)
        self._joining = ConsumerRun(JOIN_SPEC, self.context, Around(), self._failed, self._joins)
        self._schedules: ScheduleRunner | None = None
        self._sweeping: asyncio.Task[None] | None = None

    def _task_run(self, task: Task[Any, Any]) -> ConsumerRun:
        work = TaskWork(task.spec, self.context, self.app.desk, self._cancels)
        spec = task.spec.consumer
        return ConsumerRun(
            spec, self.context, self.app.around, self._failed, work, grace=self._grace
        )

    def _failed(self, error: Exception) -> None:
        for callback in self.on_error:
            callback(error)

    async def start(self) -> None:
        if self.tasks:
            await self._start_tasks()
        for one in self.consumers:
            await one.start()

    async def _start_tasks(self) -> None:
        desk = self.app.desk
        for task in self.app.tasks.values():
            retries = task.spec.consumer.retrying.retries or 0
            await desk.make_topic(task.spec.topic, task_topic(retries))
            await allow_deliveries(self.mq, task.spec.topic, retries)
        for name, when in self.app.schedules.items():
            await when.define(self.mq, name, self.app.tasks[name].spec.topic)
        self._schedules = runner_of(self.mq)
        if self._schedules is not None:
            self._schedules.start()
        await self._joins.make_topic()
        await self._cancels.start()
        await self._joining.start()
        self._sweeping = asyncio.create_task(self._keep_sweeping())

    async def _keep_sweeping(self) -> None:
        """Remove claims of unique tasks that are over by their time."""
        topics = [one.spec.topic for one in self.app.tasks.values() if one.spec.unique_for]
        while topics:
            for topic in topics:
                with suppress(FlintError):  # while the connection is lost, for example
                    await sweep_claims(self.mq, topic)
            await pause(self.mq.clock, SWEEP_SECONDS)

    async def stop(self) -> None:
        """Drain all handlers, at once."""
        try:
            if self._schedules is not None:
                await self._schedules.stop()
            if self._sweeping is not None:
                self._sweeping.cancel()
                await asyncio.wait([self._sweeping])
            joining = [self._joining] if self.tasks else []
            for one in joining:
                one.hurry()
            await asyncio.gather(*(one.stop() for one in [*self.consumers, *joining]))
            await self._cancels.stop()
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
        return any(one.meter.now.running for one in self.consumers)

    def is_in_threads(self) -> bool:
        """Whether plain functions are being called, which takes real time."""
        return any(one.meter.now.running and not one.spec.caller.is_async for one in self.consumers)

    async def backlog(self) -> int:
        """How many messages could be worked on right now, or are."""
        total = 0
        for one in self.consumers:
            for topic in list(one.topics):
                stats: Any = await self.mq.group_stats(topic, one.spec.group)
                total += stats.lag - stats.delayed
        return total
