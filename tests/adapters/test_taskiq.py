"""taskiq's own receiver, clients and scheduler on FlintMQ."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from taskiq import Context, TaskiqScheduler
from taskiq.depends.progress_tracker import ProgressTracker, TaskProgress
from taskiq.exceptions import ResultGetError
from taskiq.receiver import Receiver
from taskiq_dependencies import Depends

import flintmq
from flintmq.adapters.taskiq import FlintBroker, FlintResultBackend, FlintScheduleSource
from flintmq.errors import InvalidRequest
from tests.patience import PATIENCE_SECONDS, until


@pytest.fixture
async def broker(url: str) -> AsyncIterator[FlintBroker]:
    broker = FlintBroker(url, result_backend=FlintResultBackend(url))
    await broker.startup()
    yield broker
    await broker.shutdown()


@asynccontextmanager
async def worker(broker: FlintBroker, **settings: Any) -> AsyncIterator[None]:
    """What `taskiq worker` runs in each of its processes, for a broker that is started."""
    receiver = Receiver(broker, run_startup=False, max_async_tasks=100, **settings)
    finish = asyncio.Event()
    listening = asyncio.create_task(receiver.listen(finish))
    yield
    finish.set()
    await listening


async def test_a_task_is_done_by_a_worker_and_its_result_comes_back(
    broker: FlintBroker, url: str
) -> None:
    @broker.task("add_one")
    async def add_one(value: int) -> int:
        return value + 1

    async with worker(broker):
        tasks = [await add_one.kiq(number) for number in range(20)]
        results = [await task.wait_result(timeout=PATIENCE_SECONDS) for task in tasks]

    assert [one.return_value for one in results] == list(range(1, 21))


async def test_an_error_of_a_task_comes_back_as_itself(broker: FlintBroker) -> None:
    @broker.task("fail")
    async def fail() -> None:
        raise ZeroDivisionError("by nothing")

    async with worker(broker):
        result = await (await fail.kiq()).wait_result(timeout=PATIENCE_SECONDS)

    assert result.is_err
    with pytest.raises(ZeroDivisionError, match="by nothing"):
        result.raise_for_error()


async def test_a_task_is_acknowledged_once_it_is_done(broker: FlintBroker) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @broker.task("slow")
    async def slow() -> None:
        begun.set()
        await may_end.wait()

    async with worker(broker):
        task = await slow.kiq()
        await begun.wait()
        assert (await broker.mq.group_stats("taskiq", "workers")).lag == 1
        may_end.set()
        await task.wait_result(timeout=PATIENCE_SECONDS)

        async def is_acknowledged() -> bool:
            return (await broker.mq.group_stats("taskiq", "workers")).lag == 0

        await until(is_acknowledged, "it was never acknowledged")


async def test_what_a_worker_leaves_undone_is_done_by_the_next(url: str) -> None:
    runs: list[int] = []

    async def work(context: Annotated[Context, Depends()]) -> None:
        runs.append(1)
        if len(runs) == 2:
            await context.ack()

    async with flintmq.connect(url) as mq:
        first = FlintBroker(url)
        first.register_task(work, "work", ack_type="manual")
        await first.startup()
        async with worker(first):
            await first.find_task("work").kiq()
            await until(lambda: len(runs) == 1, "it did not run")
        await first.shutdown()
        assert (await mq.group_stats("taskiq", "workers")).ready == 1

        second = FlintBroker(url)
        second.register_task(work, "work")
        await second.startup()
        async with worker(second):
            await until(lambda: len(runs) == 2, "nobody did it")
        await second.shutdown()
        assert (await mq.group_stats("taskiq", "workers")).lag == 0


async def test_labels_say_priority_delay_and_topic(broker: FlintBroker) -> None:
    @broker.task("work")
    async def work() -> None: ...

    await work.kicker().with_labels(priority=7).kiq()
    await work.kicker().with_labels(delay=3600).kiq()
    await work.kicker().with_labels(queue_name="others").kiq()

    (message,) = await broker.mq.poll("taskiq", "workers", wait=PATIENCE_SECONDS)
    assert message.priority == 7
    assert message.headers["task_name"] == "work"
    assert (await broker.mq.group_stats("taskiq", "workers")).delayed == 1
    assert (await broker.mq.topic_stats("others")).message_count == 1
    with pytest.raises(Exception) as failed:
        await work.kicker().with_labels(priority=9).kiq()
    assert isinstance(failed.value.__cause__, InvalidRequest)


async def test_progress_is_seen_elsewhere(broker: FlintBroker, url: str) -> None:
    @broker.task("work")
    async def work(tracker: Annotated[ProgressTracker[int], Depends()]) -> None:
        await tracker.set_progress("half", 50)

    other = FlintResultBackend(url)
    await other.startup()
    async with worker(broker):
        task = await work.kiq()
        await task.wait_result(timeout=PATIENCE_SECONDS)

    assert await other.get_progress("nothing") is None
    assert await other.get_progress(task.task_id) == TaskProgress(state="half", meta=50)
    await other.shutdown()


async def test_a_result_that_is_not_there_is_an_error_and_one_may_be_taken_once(url: str) -> None:
    broker = FlintBroker(url).with_result_backend(FlintResultBackend(url, keep_results=False))
    await broker.startup()

    @broker.task("work")
    async def work() -> int:
        return 1

    async with worker(broker):
        task = await work.kiq()
        await task.wait_result(timeout=PATIENCE_SECONDS)

        async def is_gone() -> bool:
            return not await broker.result_backend.is_result_ready(task.task_id)

        await until(is_gone, "the result stayed")
        with pytest.raises(ResultGetError):
            await broker.result_backend.get_result(task.task_id)
    await broker.shutdown()


async def test_a_broker_that_is_not_started_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(InvalidRequest, match=r"await broker\.startup\(\)"):
        _ = FlintBroker("flint://localhost:1").mq


async def test_schedules_are_seen_by_every_scheduler_and_sent_once(
    broker: FlintBroker, url: str
) -> None:
    @broker.task("work")
    async def work(number: int) -> None: ...

    source = FlintScheduleSource(broker)
    soon = datetime.now(UTC) + timedelta(hours=1)
    await work.schedule_by_time(source, soon, 1)
    cron = await work.schedule_by_cron(source, "* * * * *", 2)

    other_broker = FlintBroker(url)
    await other_broker.startup()
    others = FlintScheduleSource(other_broker)
    found = await others.get_schedules()
    assert sorted(one.args for one in found) == [[1], [2]]

    for scheduler, its_source in (
        (TaskiqScheduler(broker, [source]), source),
        (TaskiqScheduler(other_broker, [others]), others),
    ):
        for task in found:
            await scheduler.on_ready(its_source, task)

    sent = await broker.mq.poll("taskiq", "workers", wait=PATIENCE_SECONDS)
    assert len(sent) == 2
    await cron.unschedule()

    async def is_empty() -> bool:
        return await others.get_schedules() == []

    await until(is_empty, "what was sent or unscheduled is still there")
    await others.shutdown()
    await other_broker.shutdown()
    await source.shutdown()


async def test_a_retry_of_a_scheduled_task_is_not_taken_for_the_same(broker: FlintBroker) -> None:
    """It has the labels of the first one, its schedule among them."""

    @broker.task("work")
    async def work() -> None: ...

    source = FlintScheduleSource(broker)
    await work.schedule_by_cron(source, "* * * * *")
    (task,) = await source.get_schedules()
    await TaskiqScheduler(broker, [source]).on_ready(source, task)
    await work.kicker().with_labels(schedule_id=task.schedule_id).kiq()

    assert (await broker.mq.topic_stats("taskiq")).message_count == 2
    await source.shutdown()
