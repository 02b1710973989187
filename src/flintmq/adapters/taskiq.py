"""taskiq on FlintMQ: a broker, a result backend and a source of schedules.

broker = FlintBroker("flint://localhost:7600").with_result_backend(
    FlintResultBackend("flint://localhost:7600")
)
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import UTC
from typing import Any

from ..api import connect
from ..client.client import Client
from ..client.subscription import Subscription
from ..errors import InvalidRequest, MissingExtra
from ..model import Seconds, check_priority, seconds
from .latest import LatestValues
from .queues import make_queue

try:
    from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, TaskiqResult
    from taskiq.abc.schedule_source import ScheduleSource
    from taskiq.depends.progress_tracker import TaskProgress
    from taskiq.exceptions import ResultGetError
    from taskiq.message import BrokerMessage
    from taskiq.scheduler.scheduled_task import ScheduledTask
    from taskiq.serializers import JSONSerializer
except ImportError as error:
    raise MissingExtra("flintmq.adapters.taskiq", "taskiq") from error

PREFETCH = 100
"""As many as `taskiq worker` works on at once, unless it is told otherwise."""
MINUTE = 60


class FlintBroker(AsyncBroker):
    """Tasks are messages of a topic, and workers are members of one of its groups.

    A task is acknowledged when taskiq says so (by default once its result is saved): a worker that
    is killed has its tasks done by another. Its lease is renewed for as long as it runs, up to
    `lease_max` seconds. Labels of a task: `priority` (0 to 7, 7 is done first), `delay` in seconds,
    and `queue_name`, another topic than `topic`. Other keywords are those of `flintmq.connect`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        topic: str = "taskiq",
        group: str = "workers",
        prefetch: int = PREFETCH,
        lease: Seconds = 30,
        lease_max: Seconds = 3600,
        result_backend: AsyncResultBackend[Any] | None = None,
        **connecting: Any,
    ) -> None:
        super().__init__()
        if result_backend is not None:
            self.with_result_backend(result_backend)
        self.topic, self.group = topic, group
        self._subscribing: dict[str, Any] = {
            "prefetch": prefetch,
            "lease": lease,
            "lease_max": lease_max,
        }
        self._url, self._connecting = url, connecting
        self._mq: Client | None = None
        self._until_shutdown = AsyncExitStack()
        self._subscription: Subscription | None = None
        self._made: set[str] = set()
        self.ticks: dict[str, int] = {}
        """Of schedules whose task is about to be sent: which time it is. Sent again with the same
        tick, by whomever, it is the same task."""

    @property
    def mq(self) -> Client:
        """The connection, from startup to shutdown."""
        if self._mq is None:
            raise InvalidRequest("the broker is not connected: call `await broker.startup()` first")
        return self._mq

    async def startup(self) -> None:
        if self._mq is None:
            self._mq = await self._until_shutdown.enter_async_context(
                connect(self._url, **self._connecting)
            )
        await super().startup()

    async def shutdown(self) -> None:
        """What was taken and is not acknowledged goes back to the group at once."""
        await super().shutdown()
        self._mq = self._subscription = None
        await self._until_shutdown.aclose()

    async def kick(self, message: BrokerMessage) -> None:
        labels = message.labels
        said: dict[str, Any] = {}
        if (priority := labels.get("priority")) is not None:
            said["priority"] = check_priority(int(priority))
        if (delay := labels.get("delay")) is not None:
            said["delay"] = seconds(float(delay), "delay")
        schedule = labels.get("schedule_id")
        if schedule is not None and (tick := self.ticks.pop(schedule, None)) is not None:
            said |= {"producer": f"taskiq-schedule-{schedule}", "sequence": tick}
        topic = str(labels.get("queue_name") or self.topic)
        if topic not in self._made:
            await make_queue(self.mq, topic, self.group)
            self._made.add(topic)
        await self.mq.publish(
            topic,
            message.message,
            headers={"task_id": message.task_id, "task_name": message.task_name},
            **said,
        )

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        if self._subscription is None:
            await make_queue(self.mq, self.topic, self.group)
            # Not closed before shutdown: tasks that run are acknowledged by it.
            self._subscription = await self._until_shutdown.enter_async_context(
                self.mq.subscribe(self.topic, self.group, **self._subscribing)
            )
        async for message in self._subscription:
            yield AckableMessage(data=message.unpacked(), ack=message.ack_nowait)


class FlintResultBackend(AsyncResultBackend[Any]):
    """Results and progress in a topic that keeps the newest value of each task, for `ttl` seconds.

    A process that asks for results follows that topic and keeps in memory what it holds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        topic: str = "taskiq-results",
        ttl: Seconds = 3600,
        keep_results: bool = True,
        **connecting: Any,
    ) -> None:
        self._url, self._connecting = url, connecting
        self._topic, self._ttl = topic, seconds(ttl, "ttl", positive=True)
        self._keep_results = keep_results
        self._serializer = JSONSerializer()
        self._latest: LatestValues | None = None
        self._until_shutdown = AsyncExitStack()

    @property
    def _values(self) -> LatestValues:
        if self._latest is None:
            raise InvalidRequest(
                "the result backend is not connected: call `await broker.startup()` first"
            )
        return self._latest

    async def startup(self) -> None:
        if self._latest is None:
            mq = await self._until_shutdown.enter_async_context(
                connect(self._url, **self._connecting)
            )
            self._latest = LatestValues(mq, self._topic, ttl=self._ttl)
            self._until_shutdown.push_async_callback(self._latest.close)

    async def shutdown(self) -> None:
        self._latest = None
        await self._until_shutdown.aclose()

    async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
        await self._values.put(task_id, self._serializer.dumpb(result.model_dump(mode="json")))

    async def is_result_ready(self, task_id: str) -> bool:
        return await self._values.get(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[Any]:
        found = await self._values.get(task_id)
        if found is None:
            raise ResultGetError
        if not self._keep_results:
            await self._values.remove(task_id)
        result: TaskiqResult[Any] = TaskiqResult.model_validate(self._serializer.loadb(found))
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        value = self._serializer.dumpb(progress.model_dump(mode="json"))
        await self._values.put(_progress_key(task_id), value)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        found = await self._values.get(_progress_key(task_id))
        return None if found is None else TaskProgress.model_validate(self._serializer.loadb(found))


def _progress_key(task_id: str) -> str:
    return f"{task_id}.progress"


class FlintScheduleSource(ScheduleSource):
    """Schedules that are added while programs run, in a topic of the broker.

    Any number of `taskiq scheduler` processes may run beside each other: a task of a cron
    expression is sent once a minute and one of a time once, whoever sends it. Intervals are counted
    by each scheduler from its own start, so for them run one.
    """

    def __init__(self, broker: FlintBroker, *, topic: str = "taskiq-schedules") -> None:
        self._broker, self._topic = broker, topic
        self._latest: LatestValues | None = None

    @property
    def _schedules(self) -> LatestValues:
        if self._latest is None or self._latest.mq is not self._broker.mq:
            self._latest = LatestValues(self._broker.mq, self._topic)
        return self._latest

    async def shutdown(self) -> None:
        if self._latest is not None:
            await self._latest.close()
            self._latest = None

    async def get_schedules(self) -> list[ScheduledTask]:
        return [ScheduledTask.model_validate_json(one) for one in await self._schedules.values()]

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        await self._schedules.put(schedule.schedule_id, schedule.model_dump_json().encode())

    async def delete_schedule(self, schedule_id: str) -> None:
        await self._schedules.remove(schedule_id)

    def pre_send(self, task: ScheduledTask) -> None:
        if task.time is not None:
            at = task.time if task.time.tzinfo else task.time.replace(tzinfo=UTC)  # as taskiq does
            self._broker.ticks[task.schedule_id] = int(at.timestamp() * 1000)
        elif task.cron is not None:
            self._broker.ticks[task.schedule_id] = int(time.time() // MINUTE)

    async def post_send(self, task: ScheduledTask) -> None:
        if task.time is not None:
            await self.delete_schedule(task.schedule_id)
