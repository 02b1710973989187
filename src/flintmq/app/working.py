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
    Planned,
    TaskOutcome,
    TaskStatus,
    deliveries_of,
    planned_of,
)
from .tasks import TaskSpec, encoded

log = logging.getLogger(__name__)


class TaskTimeout(FlintError, TimeoutError):
    """A task took longer than its time limit."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"task {name!r} took longer than its timeout of {seconds:g} s")


class WorkerDied(FlintError):
    """Workers had a task as often as it may be tried, and all of them died or hung."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__(
            f"task {name!r} was given to workers {times} times, the last time alone, and each of "
            "them died or hung"
        )


class TaskInvocation(Invocation):
    """One call of a task, with what its message says beside the arguments."""

    __slots__ = ("_then", "claim", "result_ttl")

    def __init__(self, name: str, message: Delivery) -> None:
        headers = message.headers
        said, claim = headers.get(TASK_ID), headers.get(UNIQUE)
        # What was published by hand has its place as an id.
        task_id = (
            said
            if isinstance(said, str)
            else f"{message.topic}-{message.partition}-{message.offset}"
        )
        super().__init__(name, "task", (message,), task_id)
        self.claim = claim if isinstance(claim, str) else None
        self.result_ttl = _result_ttl(headers.get(RESULT_TTL))
        self._then = headers.get(THEN)

    @property
    def then(self) -> list[Planned]:
        """What follows."""
        return planned_of(self._then)


def _result_ttl(said: Any) -> float:
    with suppress(ValueError):
        return RESULT_SECONDS if said is None else float(said)
    return RESULT_SECONDS


class TaskWork:
    """One task function, as its consumer calls it."""

    kind = "task"

    def __init__(
        self, spec: TaskSpec, context: CallContext, desk: TaskDesk, cancels: CancelBook
    ) -> None:
        self.spec, self._context = spec, context
        self._desk, self._cancels = desk, cancels

    def called(self, name: str, message: Delivery) -> Invocation:
        return TaskInvocation(name, message)

    async def perform(self, call: Invocation) -> Any:
        assert isinstance(call, TaskInvocation)
        assert call.task_id is not None
        message, task_id = call.message, call.task_id
        if self._cancels.has(task_id):
            await self._end(call, "cancelled")
            return None
        retries = self.spec.consumer.retrying.retries or 0
        if message.delivery_count >= deliveries_of(retries):
            raise WorkerDied(self.spec.name, message.delivery_count - 1)
        running = RunningTask(
            task_id, self.spec.name, message, message.delivery_count, asyncio.get_running_loop()
        )
        try:
            result = await self._call(running, call)
        except _Cancelled:
            await self._end(call, "cancelled")
            return None
        await self._done(call, result)
        return result

    # --- the call

    async def _call(self, running: RunningTask, call: TaskInvocation) -> Any:
        message = call.message
        progress = _Progress(self._desk, running, call.result_ttl)
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

    async def _done(self, call: TaskInvocation, result: Any) -> None:
        """The result is kept, and what follows is sent, before the task is acknowledged."""
        ttl, then = call.result_ttl, call.then
        if ttl or then:
            value = encoded(self.spec.name, result)
            if ttl:
                await self._keep(call, TaskOutcome(
                    status="done", value=msgspec.Raw(value), progress=1.0, attempt=call.attempt
                ))  # fmt: skip
            if then:
                await self._desk.send_planned(then[0], then[1:], value)
        if call.claim is not None:
            await self._free(call)

    async def failed(self, call: Invocation, error: Exception, is_dead: bool) -> None:
        """Say so to those who wait; of a dead one, so that nobody waits for what follows."""
        assert isinstance(call, TaskInvocation)
        await self._end(call, "failed" if is_dead else "retrying", reason_of(error))

    async def _end(self, call: TaskInvocation, status: TaskStatus, error: str = "") -> None:
        outcome = TaskOutcome(status=status, error=error, attempt=call.attempt)
        await self._keep(call, outcome)
        if outcome.is_final:
            why = f"it follows task {call.task_id}, which {_FATES[status]}"
            await self._desk.fail_planned(call.then, why)
            await self._free(call)

    async def _keep(self, call: TaskInvocation, outcome: TaskOutcome) -> None:
        assert call.task_id is not None
        await self._desk.results.put(call.task_id, outcome, call.result_ttl)

    async def _free(self, call: TaskInvocation) -> None:
        if call.claim is not None and call.task_id is not None:
            await end_claim(self._desk.mq, call.message.topic, call.claim, call.task_id)


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
                f"the progress of task {self._running.id} could not be stored: {error}",
                task=self._running.id,
            )
        finally:
            self._task = None

    async def close(self) -> None:
        """Nothing of it may come behind the outcome."""
        if self._task is not None:
            await asyncio.wait([self._task])
