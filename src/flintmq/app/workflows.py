"""Chains and groups: tasks that follow one another, and tasks that are sent together.

    thumbnail = flintmq.chain(fetch.step(url), resize.step(width=100))
    handle = await thumbnail.send()
    pages = await flintmq.group(fetch.step(url) for url in urls).send()
    report = flintmq.chain(flintmq.group(...), summarize.step())

What follows a task travels with it, with ids that are fixed from the beginning: a worker that is
done sends the next one, and however often it does, it is stored once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import InvalidRequest
from .handles import BlockingPlace, BlockingTaskGroupHandle, BlockingTaskHandle, TaskGroupHandle
from .task_model import KEPT_SECONDS, Planned, PlannedGroup, new_task_id
from .tasks import TaskStep

if TYPE_CHECKING:
    from .desk import TaskDesk
    from .handles import TaskHandle

R = TypeVar("R")


class TaskGroup(Generic[R]):
    """Tasks that are sent together; `flintmq.group` makes it."""

    def __init__(self, steps: Iterable[TaskStep[R]]) -> None:
        self.steps = list(steps)
        if not self.steps or not all(isinstance(one, TaskStep) for one in self.steps):
            raise InvalidRequest(
                "a group is made of steps, at least one: "
                "flintmq.group(resize.step(path) for path in paths)"
            )

    async def send(self) -> TaskGroupHandle[R]:
        """Send all of them; returns once they are stored."""
        return await self._send_by(self.steps[0].task.app.desk)

    def send_sync(self) -> BlockingTaskGroupHandle[R]:
        """The same for code without an event loop."""
        place: BlockingPlace = self.steps[0].task.app.blocking_place()
        return BlockingTaskGroupHandle(place, place.run(lambda: self._send_by(place.desk)))

    async def _send_by(self, desk: TaskDesk) -> TaskGroupHandle[R]:
        planned = self.planned(desk.mq.clock.now_ms(), follows=False)
        handles = handles_of(desk, planned, self.steps)
        await desk.send_planned(planned, ())
        return TaskGroupHandle(desk, handles, planned.id)

    def planned(self, now_ms: int, *, follows: bool) -> PlannedGroup:
        return PlannedGroup(
            id=new_task_id(now_ms),
            tasks=[one.planned(now_ms, follows=follows) for one in self.steps],
        )


class TaskChain(Generic[R]):
    """Tasks that follow one another; `flintmq.chain` makes it."""

    def __init__(self, parts: Iterable[TaskStep[Any] | TaskGroup[Any]]) -> None:
        self.parts = list(parts)
        if not self.parts or not all(isinstance(one, TaskStep | TaskGroup) for one in self.parts):
            raise InvalidRequest(
                "a chain is made of steps and groups, at least one: "
                "flintmq.chain(fetch.step(url), resize.step())"
            )

    async def send(self) -> TaskHandle[R]:
        """Send the first one; the handle is that of the last.

        Each part gets the result of the one before it as its first open argument; after a group,
        the list of the results. Once one fails for good, the rest fails with it.
        """
        first = self.parts[0]
        step = first.steps[0] if isinstance(first, TaskGroup) else first
        handle: TaskHandle[R] = await self._send_by(step.task.app.desk)
        return handle

    def send_sync(self) -> BlockingTaskHandle[R]:
        """The same for code without an event loop."""
        first = self.parts[0]
        step = first.steps[0] if isinstance(first, TaskGroup) else first
        place: BlockingPlace = step.task.app.blocking_place()
        return BlockingTaskHandle(place, place.run(lambda: self._send_by(place.desk)))

    async def _send_by(self, desk: TaskDesk) -> TaskHandle[R]:
        last = self.parts[-1]
        if isinstance(last, TaskGroup):
            raise InvalidRequest(
                "the last part of a chain is a step, whose result is that of the chain; put a task "
                "that takes the list of results behind the group"
            )
        now = desk.mq.clock.now_ms()
        first, *then = (part.planned(now, follows=at > 0) for at, part in enumerate(self.parts))
        for part in (first, *then[:-1]):
            if isinstance(part, PlannedGroup):
                for one in part.tasks:
                    one.result_ttl = KEPT_SECONDS  # until the last of them has ended
        (handle,) = handles_of(desk, then[-1] if then else first, [last])
        await desk.send_planned(first, then)
        return handle


def handles_of(
    desk: TaskDesk, planned: Planned, steps: list[TaskStep[Any]]
) -> list[TaskHandle[Any]]:
    tasks = planned.tasks if isinstance(planned, PlannedGroup) else [planned]
    now = desk.mq.clock.now_ms()
    return [desk.handle_new(step.task, one.id, now) for step, one in zip(steps, tasks, strict=True)]


def group(*steps: TaskStep[R] | Iterable[TaskStep[R]]) -> TaskGroup[R]:
    """Tasks that are sent together: `flintmq.group(resize.step(path) for path in paths)`.

    Takes steps, or iterables of steps.
    """
    found: list[TaskStep[R]] = []
    for one in steps:
        found += [one] if isinstance(one, TaskStep) else one
    return TaskGroup(found)


def chain(*parts: TaskStep[Any] | TaskGroup[Any]) -> TaskChain[Any]:
    """Tasks that run one after the other: `flintmq.chain(fetch.step(url), resize.step())`."""
    return TaskChain(parts)
