"""Schedules: each time is published once, whatever happens to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flintmq
from flintmq import App, Client, InvalidRequest, RunningTask, ScheduleNotFound
from flintmq.app.scheduling import runner_of
from flintmq.schedule_model import Schedule, due_ticks, latest_tick, tick_after
from flintmq.schedules.running import ScheduleRunner
from flintmq.testing import ManualClock, run
from flintmq.testing.manual_clock import START_MS

HOUR = 3600.0


class DiskClock(ManualClock):
    """Time waits for the disk as well: until all runners are done with what is due."""

    def __init__(self, start_ms: int = START_MS) -> None:
        super().__init__(start_ms)
        self.runners: list[ScheduleRunner] = []

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)
        await self.settle()
        while any(one._at_work for one in self.runners):
            await asyncio.sleep(0.001)
            await self.settle()


def started(mq: Client, clock: DiskClock) -> ScheduleRunner:
    runner = runner_of(mq)
    assert runner is not None
    runner.start()
    clock.runners.append(runner)
    return runner


@asynccontextmanager
async def broker(directory: Path, clock: DiskClock) -> AsyncIterator[Client]:
    """A broker that publishes what is due."""
    async with flintmq.connect(f"file://{directory}", clock=clock) as mq:
        runner = started(mq, clock)
        yield mq
        await runner.stop()
        clock.runners.clear()


async def published(mq: Client, topic: str = "reports") -> list[int]:
    """The seconds, since the clock began, at which what is there was due."""
    async with mq.reader(topic) as reader:
        rows = await reader.read_batch(10_000, timeout=0)
        return [int(one.headers["scheduled-ms"]) // 1000 - 1_700_000_000 for one in rows]


async def test_a_schedule_publishes_when_it_is_due(tmp_path: Path) -> None:
    clock = DiskClock()
    async with broker(tmp_path, clock) as mq:
        await mq.create_topic("reports")
        await mq.create_schedule("beat", "reports", {"kind": "sales"}, every=30, headers={"a": "b"})
        for _ in range(5):
            await clock.advance(10)
        async with mq.reader("reports") as reader:
            rows = await reader.read_batch(10, timeout=0)
        [state] = await mq.schedules()

    assert [one.decode() for one in rows] == [{"kind": "sales"}] * 2
    assert [one.headers["schedule"] for one in rows] == ["beat", "beat"]
    assert rows[0].headers["a"] == "b"
    first, second = (int(one.headers["scheduled-ms"]) for one in rows)
    assert first % 30_000 == 0
    assert second == first + 30_000
    assert (state.last_ms, state.next_ms) == (second, second + 30_000)


@pytest.mark.parametrize(
    ("missed", "expected"),
    [("skip", [4]), ("once", [3, 4]), ("all", [1, 2, 3, 4])],
)
async def test_what_was_missed_is_made_up_for_as_it_says(
    tmp_path: Path, missed: Any, expected: list[int]
) -> None:
    clock = DiskClock(1_699_999_200_000 + 1000)  # an hour has just begun
    async with broker(tmp_path, clock) as mq:
        await mq.create_topic("reports")
        await mq.create_schedule("hourly", "reports", cron="@hourly", missed=missed)
    await clock.advance(3.5 * HOUR)
    async with broker(tmp_path, clock) as mq:
        for seconds in (0.0, HOUR / 2, HOUR / 2):  # the disk takes its time in each
            await clock.advance(seconds)
        found = await published(mq)

    begin = 1_699_999_200 - 1_700_000_000
    assert [(one - begin) // 3600 for one in found] == expected


async def test_a_time_is_published_once_by_however_many(tmp_path: Path) -> None:
    clock = DiskClock()
    async with broker(tmp_path, clock) as mq:
        others = [started(mq, clock) for _ in range(3)]
        await mq.create_topic("reports")
        await mq.create_schedule("beat", "reports", every=1)
        await clock.advance(10)
        found = await published(mq)
        for one in others:
            await one.stop()

    assert len(found) == 10
    assert len(set(found)) == 10


async def test_a_broker_that_died_after_it_published_does_not_publish_again(
    tmp_path: Path,
) -> None:
    clock = DiskClock()
    async with broker(tmp_path, clock) as mq:
        await mq.create_topic("reports")
        await mq.create_schedule("beat", "reports", every=10, missed="all")
        await clock.advance(35)
        before = await published(mq)
        made = await mq.schedule("beat")
        # As if it had not come to writing down how far it is.
        await mq._broker.define(
            "schedule", "reports", "beat",
            b'{"name":"beat","topic":"reports","every":10,'
            b'"missed":"all","since_ms":%d}' % made.since_ms,
        )  # fmt: skip
    async with broker(tmp_path, clock) as mq:
        await clock.advance(1)
        assert await published(mq) == before


async def test_a_schedule_is_paused_changed_run_and_removed(tmp_path: Path) -> None:
    clock = DiskClock()
    async with broker(tmp_path, clock) as mq:
        await mq.create_topic("reports")
        await mq.create_schedule("beat", "reports", every=10, missed="all")
        await mq.pause_schedule("beat")
        await clock.advance(100)
        assert await published(mq) == []
        await mq.resume_schedule("beat")
        await clock.advance(10)
        assert len(await published(mq)) == 1
        with pytest.raises(InvalidRequest, match="pass replace=True"):
            await mq.create_schedule("beat", "reports", every=20)
        await mq.create_schedule("beat", "reports", every=1000, replace=True)
        await clock.advance(100)
        assert len(await published(mq)) == 1
        receipt = await mq.run_schedule("beat")
        assert receipt.offset == 1
        await mq.delete_schedule("beat")
        assert await mq.schedules() == []
        with pytest.raises(ScheduleNotFound):
            await mq.run_schedule("beat")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "takes either cron= .* or every="),
        ({"cron": "* * * * *", "every": 3}, "takes either"),
        ({"cron": "0 0 30 2 *"}, "a day that never comes"),
        ({"cron": "* * * * *", "timezone": "Europe/Atlantis"}, "no time zone 'Europe/Atlantis'"),
        ({"every": 0.01}, "at least 0.1 seconds"),
        ({"every": 1, "missed": "never"}, "missed"),
        ({"every": 1, "timezone": "Europe/Berlin"}, "timezone= goes with cron="),
        ({"every": 1, "priority": 9}, "priority"),
    ],
)
async def test_what_is_no_schedule_is_refused_with_its_reason(
    tmp_path: Path, said: dict[str, Any], why: str
) -> None:
    async with flintmq.connect("memory://") as mq:
        await mq.create_topic("reports")
        with pytest.raises(InvalidRequest, match=why):
            await mq.create_schedule("beat", "reports", **said)


async def test_a_function_is_called_by_the_clock() -> None:
    app, got = App(), []

    @app.cron("*/5 * * * *", timezone="Europe/Berlin")
    async def report(task: RunningTask) -> None:
        assert task.scheduled_at is not None
        got.append(task.scheduled_at.minute)

    @app.every(30)
    def beat() -> None:
        got.append(-1)

    async with run(app) as t:  # it is 22:13:20
        await t.advance(100)
        await t.advance(600)
        assert [one.name for one in await t.mq.schedules()] == ["beat", "report"]
    async with run(app) as t:
        await t.advance(110)

    assert [one for one in got if one >= 0] == [15, 20, 25, 15]
    assert got.count(-1) == 24 + 4


async def test_a_scheduled_function_takes_nothing_that_nobody_gives() -> None:
    app = App()

    with pytest.raises(InvalidRequest, match="argument 'path' would get no value"):

        @app.every(30)
        async def beat(path: str) -> None: ...

    with pytest.raises(InvalidRequest, match=r"cron .*beat.*: cron expression 'now'"):

        @app.cron("now")
        async def beat() -> None: ...

    assert app.tasks == {}


schedules = st.one_of(
    st.builds(
        lambda every, since: Schedule(name="a", topic="a", every=every, since_ms=since),
        st.integers(1, 10_000).map(float),
        st.integers(0, 10**9),
    ),
    st.builds(
        lambda cron, since: Schedule(name="a", topic="a", cron=cron, since_ms=since),
        st.sampled_from(["*/7 * * * *", "0 3 * * *", "5 4 1,15 * *", "* 1 * * mon"]),
        st.integers(0, 10**9),
    ),
)


@given(schedules, st.integers(0, 10**7))
def test_the_latest_time_has_none_behind_it(schedule: Schedule, span: int) -> None:
    until = schedule.since_ms + span
    latest = latest_tick(schedule, schedule.since_ms, until)
    first = tick_after(schedule, schedule.since_ms)

    assert first is not None
    if latest is None:
        assert first > until
        return
    assert first <= latest <= until
    following = tick_after(schedule, latest)
    assert following is not None
    assert following > until
    assert tick_after(schedule, latest - 1) == latest


@given(schedules, st.integers(0, 10**7))
def test_once_publishes_the_latest_of_what_was_missed(schedule: Schedule, span: int) -> None:
    now = schedule.since_ms + span
    latest = latest_tick(schedule, schedule.since_ms, now)
    found = list(due_ticks(schedule, now))

    assert found[-1:] == ([] if latest is None else [latest])
    if span > 60_000:
        assert len(found) <= 1
