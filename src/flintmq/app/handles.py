"""What a sender holds of a task: its id, its result, and the way to cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ..client.blocking.loop_thread import LoopThread
from ..errors import InvalidRequest, NoResult, TaskCancelled, TaskFailed
from ..model import Receipt, Seconds, timeout_seconds
from ..serde.formats import JSON
from .results import Awaited
from .task_model import TaskOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .desk import TaskDesk

R = TypeVar("R")
T = TypeVar("T")


class TaskState(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is doing. `waiting`: nobody has begun, or its result is no longer kept."""

    id: str
    status: str
    progress: float = 0.0
    note: str = ""
    error: str = ""
    attempt: int = 0


class TaskHandle(Generic[R]):
    """A task that was sent. `await handle.get(timeout=10)` waits for its result."""

    def __init__(
        self,
        desk: TaskDesk,
        awaited: Awaited,
        result_type: Any = None,
        receipt: Receipt | None = None,
        *,
        claim: tuple[str, str] | None = None,
        keeps_result: bool = True,
    ) -> None:
        self._desk, self._awaited, self._type = desk, awaited, result_type
        self.id = awaited.id
        self.receipt = receipt
        """Where its message was stored; None for one that was sent by others."""
        self._claim, self._keeps_result = claim, keeps_result

    def __repr__(self) -> str:
        return f"TaskHandle({self.id!r})"

    async def get(self, timeout: Seconds | None = None) -> R:
        """Return the result, as the annotation of the function says; waits until the task has
        finished.

        Raises TaskFailed if it failed finally, TaskCancelled, or NoResult after `timeout` seconds.
        Results are kept for an hour, or as `result_ttl=` of the task says.
        """
        self._check_kept()
        limit = timeout_seconds(timeout)
        outcome = await self._desk.results.wait(self._awaited, limit)
        if outcome is None:
            raise self._late(limit or 0.0)
        return self._result(outcome)

    async def state(self) -> TaskState:
        """Return the current state of the task."""
        self._check_kept()
        found = await self._desk.results.look(self._awaited)
        if found is None:
            return TaskState(id=self.id, status="waiting")
        known = {name: getattr(found, name) for name in TaskState.__struct_fields__[1:]}
        return TaskState(id=self.id, **known)

    async def cancel(self) -> None:
        """Cancel the task: if it is waiting, it does not start; if it is running, it is stopped.

        An async function is cancelled at its next await, a plain one is stopped at its next step in
        Python. A task that has finished stays as it is.
        """
        await self._desk.cancel(self.id, self.receipt, self._claim, self._keeps_result)

    def _check_kept(self) -> None:
        if not self._keeps_result:
            raise InvalidRequest(
                "this task keeps no results: remove result_ttl=None from @app.task, or pass a "
                "number of seconds"
            )

    def _late(self, limit: float) -> NoResult:
        latest = self._awaited.latest
        return NoResult(self.id, limit, "waiting" if latest is None else latest.status)

    def _result(self, outcome: TaskOutcome) -> R:
        if outcome.status == "cancelled":
            raise TaskCancelled(self.id)
        if outcome.status == "failed":
            raise TaskFailed(self.id, outcome.error)
        result: R = JSON.decode(bytes(outcome.value), self._type)
        return result


class TaskGroupHandle(Generic[R]):
    """Tasks that were sent together."""

    def __init__(self, desk: TaskDesk, handles: Sequence[TaskHandle[R]], id: str) -> None:
        self._desk, self.handles, self.id = desk, list(handles), id

    def __len__(self) -> int:
        return len(self.handles)

    async def get(self, timeout: Seconds | None = None) -> list[R]:
        """Return the results, in the order of the tasks; raises the first error."""
        for one in self.handles:
            one._check_kept()
        limit = timeout_seconds(timeout)
        outcomes = await self._desk.results.wait_all([one._awaited for one in self.handles], limit)
        ended = zip(self.handles, outcomes, strict=True)
        found = []
        for handle, outcome in sorted(ended, key=lambda pair: pair[1] is None):
            if outcome is None:
                raise handle._late(limit or 0.0)
            found.append(handle._result(outcome))
        return found

    async def done_count(self) -> int:
        """Return how many have finished, as far as is known."""
        outcomes = await self._desk.results.wait_all([one._awaited for one in self.handles], 0.0)
        return sum(one is not None for one in outcomes)

    async def cancel(self) -> None:
        """Cancel all of them."""
        await asyncio.gather(*(one.cancel() for one in self.handles))


class BlockingPlace:
    """Where the calls of code without an event loop are carried out."""

    def __init__(self, desk: TaskDesk, where: LoopThread | asyncio.AbstractEventLoop) -> None:
        self.desk, self._where = desk, where

    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if isinstance(self._where, LoopThread):
            return self._where.wait_for(call)
        return asyncio.run_coroutine_threadsafe(call(), self._where).result()


class BlockingTaskHandle(Generic[R]):
    """The handle of a task, for code without an event loop."""

    def __init__(self, place: BlockingPlace, inner: TaskHandle[R]) -> None:
        self._place, self._inner = place, inner
        self.id, self.receipt = inner.id, inner.receipt

    def __repr__(self) -> str:
        return f"BlockingTaskHandle({self.id!r})"

    def get(self, timeout: Seconds | None = None) -> R:
        """As `TaskHandle.get`."""
        return self._place.run(lambda: self._inner.get(timeout))

    def state(self) -> TaskState:
        """As `TaskHandle.state`."""
        return self._place.run(self._inner.state)

    def cancel(self) -> None:
        """As `TaskHandle.cancel`."""
        self._place.run(self._inner.cancel)


class BlockingTaskGroupHandle(Generic[R]):
    """The handle of a group of tasks, for code without an event loop."""

    def __init__(self, place: BlockingPlace, inner: TaskGroupHandle[R]) -> None:
        self._place, self._inner = place, inner
        self.id = inner.id

    def __len__(self) -> int:
        return len(self._inner)

    def get(self, timeout: Seconds | None = None) -> list[R]:
        """As `TaskGroupHandle.get`."""
        return self._place.run(lambda: self._inner.get(timeout))

    def cancel(self) -> None:
        """As `TaskGroupHandle.cancel`."""
        self._place.run(self._inner.cancel)
