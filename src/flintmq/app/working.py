"""Working on tasks: arguments, time limit, progress, outcome, and what follows."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import msgspec

from ..client.delivery import Delivery
from ..client.retrying import reason_of
from ..errors import DecodeFailed, FlintError
from ..observe.logs import event
from .arguments import decoded
from .calling import Call, CallContext
from .cancels import CancelBook
from .claims import end_claim
from .desk import TaskDesk
from .middleware import Invocation
from .running_task import CURRENT, RunningTask, TaskStopped
from .task_model import (
    RESULT_SECONDS,
    RESULT_TTL,
    TASK_ID,
    THEN,
    UNIQUE,
    TaskOutcome,
    TaskStatus,
    planned_of,
)
from .tasks import TaskSpec, encoded

log = logging.getLogger(__name__)


class TaskTimeout(FlintError, TimeoutError):
    """A task took longer than its time limit."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"task {name!r} took longer than its timeout of {seconds:g} s")


class WorkerDied(FlintError):
    """Workers have begun a task as often as it may be tried, and none has come to its end."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__(
            f"task {name!r} was begun {times} times and never ended: its worker died each time"
        )


def task_id_of(message: Delivery) -> str:
    """The id its sender gave it; a task that was published by hand has its place as one."""
    said = message.headers.get(TASK_ID)
    return (
        said if isinstance(said, str) else f"{message.topic}-{message.partition}-{message.offset}"
    )


class TaskWork:
    """One task function, as its consumer calls it."""

    kind = "task"

    def __init__(
        self, spec: TaskSpec, context: CallContext, desk: TaskDesk, cancels: CancelBook
    ) -> None:
        self.spec, self._context = spec, context
        self._desk, self._cancels = desk, cancels

    def task_id(self, message: Delivery) -> str | None:
        return task_id_of(message)

    async def perform(self, call: Invocation) -> Any:
        message, task_id = call.message, call.task_id
        assert task_id is not None
        if self._cancels.has(task_id):
            await self._end(message, task_id, "cancelled")
            return None
        retries = self.spec.consumer.retrying.retries or 0
        if message.delivery_count > retries + 1:
            raise WorkerDied(self.spec.name, message.delivery_count - 1)
        running = RunningTask(
            task_id, self.spec.name, message, message.delivery_count, asyncio.get_running_loop()
        )
        try:
            result = await self._call(running, message)
        except _Cancelled:
            await self._end(message, task_id, "cancelled")
            return None
        await self._done(message, task_id, result)
        return result

    # --- the call

    async def _call(self, running: RunningTask, message: Delivery) -> Any:
        ttl = _result_ttl(message)
        progress = _Progress(self._desk, running, ttl)
        running._tell = progress.tell
        arguments = self._arguments(message)
        clock, loop = self._desk.mq.clock, asyncio.get_running_loop()
        limit, caller = self.spec.timeout, self.spec.consumer.caller
        known = CURRENT.set(running)
        timer = None
        scope = asyncio.timeout(None)

        def stop() -> None:
            running.stop_thread()
            with suppress(RuntimeError):  # it has just ended
                scope.reschedule(loop.time())

        def cancel() -> None:
            running.is_cancelled = True
            stop()

        self._cancels.watch(running.id, cancel)
        try:
            async with scope:
                if limit is not None:
                    timer = clock.call_later(limit, stop)
                return await caller.call(
                    self._context, Call(message, arguments, {RunningTask: running})
                )
        except (TimeoutError, TaskStopped) as error:
            if isinstance(error, TimeoutError) and not scope.expired():
                raise  # the function's own
            if running.is_cancelled:
                raise _Cancelled from None
            raise TaskTimeout(self.spec.name, limit or 0.0) from None
        finally:
            self._cancels.forget(running.id)
            if timer is not None:
                timer.cancel()
            CURRENT.reset(known)
            await progress.close()

    def _arguments(self, message: Delivery) -> dict[str, Any]:
        found: Any = decoded(message, self.spec.arguments_type)
        values = {
            name: value
            for name in self.spec.arguments
            if (value := getattr(found, name)) is not msgspec.UNSET
        }
        missing = [name for name in self.spec.required if name not in values]
        if missing:
            raise DecodeFailed(
                message.topic,
                message.partition,
                message.offset,
                "json",
                f"the arguments of task {self.spec.name!r} lack {', '.join(map(repr, missing))}",
            )
        return values

    # --- how it ends

    async def _done(self, message: Delivery, task_id: str, result: Any) -> None:
        """The result is kept, and what follows is sent, before the task is acknowledged."""
        headers = message.headers
        ttl, then = _result_ttl(message), planned_of(headers.get(THEN))
        value = encoded(self.spec.name, result) if ttl or then else b"null"
        if ttl:
            outcome = TaskOutcome(
                status="done",
                value=msgspec.Raw(value),
                progress=1.0,
                attempt=message.delivery_count,
            )
            await self._desk.results.put(task_id, outcome, ttl)
        if then:
            await self._desk.send_planned(then[0], then[1:], value)
        await self._free(message, task_id)

    async def failed(self, call: Invocation, error: Exception, is_dead: bool) -> None:
        """Say so to those who wait; of a dead one, so that nobody waits for what follows."""
        message, task_id = call.message, call.task_id
        assert task_id is not None
        why = reason_of(error)
        await self._end(message, task_id, "failed" if is_dead else "retrying", why)

    async def _end(
        self, message: Delivery, task_id: str, status: TaskStatus, error: str = ""
    ) -> None:
        outcome = TaskOutcome(status=status, error=error, attempt=message.delivery_count)
        await self._desk.results.put(task_id, outcome, _result_ttl(message))
        if outcome.is_final:
            then = planned_of(message.headers.get(THEN))
            await self._desk.fail_planned(
                then, f"it follows task {task_id}, which {_FATES[status]}"
            )
            await self._free(message, task_id)

    async def _free(self, message: Delivery, task_id: str) -> None:
        claim = message.headers.get(UNIQUE)
        if isinstance(claim, str):
            await end_claim(self._desk.mq, message.topic, claim, task_id)


_FATES = {"failed": "failed", "cancelled": "was cancelled"}


class _Cancelled(Exception):
    """The task was cancelled, and its function has stopped."""


class _Progress:
    """Tells how far a task is: one publish at a time, always the latest."""

    def __init__(self, desk: TaskDesk, running: RunningTask, ttl: float) -> None:
        self._desk, self._running, self._ttl = desk, running, ttl
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False

    def tell(self) -> None:
        self._is_stale = True
        if self._ttl and self._task is None:
            self._task = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                running = self._running
                outcome = TaskOutcome(
                    status="running",
                    progress=running.progress,
                    note=running.note,
                    attempt=running.attempt,
                )
                await self._desk.results.put(running.id, outcome, self._ttl)
        except FlintError as error:
            event(
                log,
                logging.WARNING,
                "progress_untold",
                f"the progress of task {self._running.id} could not be kept: {error}",
                task=self._running.id,
            )
        finally:
            self._task = None

    async def close(self) -> None:
        """Nothing of it may come behind the outcome."""
        if self._task is not None:
            await asyncio.wait([self._task])


def _result_ttl(message: Delivery) -> float:
    said = message.headers.get(RESULT_TTL)
    with suppress(ValueError):
        return RESULT_SECONDS if said is None else float(said)
    return RESULT_SECONDS
