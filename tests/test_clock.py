"""A broker's time: what it does while the machine's clock is set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flintmq
from flintmq.clock import DRIFT_MAX, SteadyClock, SystemClock
from flintmq.testing import ManualClock
from flintmq.testing.manual_clock import START_MS

HOUR = 3600


async def test_it_is_the_wall_clock_while_nobody_sets_that() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall)
    for seconds in (0, 0.001, 0.4, 0.7, 1, 59.123, 86_400):
        await wall.advance(seconds)
        assert clock.now_ms() == wall.now_ms()


async def test_a_step_changes_nothing_at_once_and_little_later() -> None:
    for step in (-HOUR, HOUR):
        wall = ManualClock()
        clock = SteadyClock(wall)
        wall.step(step)
        assert clock.now_ms() == START_MS
        await wall.advance(100)
        assert abs(clock.now_ms() - START_MS - 100_000) <= 100_000 * DRIFT_MAX


async def test_in_the_end_it_agrees_with_the_wall_clock() -> None:
    for step in (-60, 60):
        wall = ManualClock()
        clock = SteadyClock(wall)
        wall.step(step)
        for _ in range(90):
            await wall.advance(60)
            assert abs(clock.now_ms() - wall.now_ms()) > 2
        for _ in range(11):
            await wall.advance(60)
            clock.now_ms()
        assert abs(clock.now_ms() - wall.now_ms()) <= 2


async def test_a_step_is_told_once() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall)
    told: list[float] = []
    clock.on_step = told.append
    for step in (-HOUR, 0.5, 2 * HOUR):
        wall.step(step)
        for _ in range(30):
            await wall.advance(7)
            clock.now_ms()
    assert [round(seconds) for seconds in told] == [-HOUR, 2 * HOUR]


async def test_it_is_not_earlier_than_what_there_is() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall)
    told: list[float] = []
    clock.on_step = told.append
    await wall.advance(0.7)
    clock.begin_at(START_MS - 5)
    assert clock.now_ms() == START_MS + 700
    clock.begin_at(START_MS + HOUR * 1000)
    assert clock.now_ms() == START_MS + HOUR * 1000
    await wall.advance(100)
    assert clock.now_ms() == START_MS + HOUR * 1000 + 99_000
    assert told == []


@given(
    st.lists(
        st.tuples(
            st.floats(0, 5) | st.floats(0, 100_000),
            st.just(0.0) | st.floats(-100_000, 100_000),
        ),
        max_size=30,
    )
)
def test_it_never_goes_back_and_never_leaps(moves: list[tuple[float, float]]) -> None:
    wall = ManualClock()
    clock = SteadyClock(wall)
    before = clock.now_ms()
    for elapsed, step in moves:
        wall.step(step)
        wall._elapsed += elapsed
        now = clock.now_ms()
        slow, fast = (1000 * elapsed * (1 + drift) for drift in (-DRIFT_MAX, DRIFT_MAX))
        assert slow - 1 <= now - before <= fast + 1
        assert now >= before
        before = now


class SleepyClock(SystemClock):
    """A machine that goes to sleep when it is told to; all else stands still."""

    slept = 0.0

    def now_ms(self) -> int:
        return START_MS + round(self.slept * 1000)

    def asleep_ns(self) -> int:
        return round(self.slept * 1e9)


def test_the_time_a_machine_sleeps_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = 5_000_000_000
    monkeypatch.setattr("time.monotonic_ns", lambda: steady)
    machine = SleepyClock()
    clock = SteadyClock(machine)
    told: list[float] = []
    clock.on_step = told.append
    clock.now_ms()
    machine.slept = 8 * HOUR
    assert clock.now_ms() == START_MS
    steady += 1_000_000_000  # by then it is noticed
    assert clock.now_ms() == START_MS + 8 * HOUR * 1000 + 1000
    assert told == []


async def test_the_log_tells_that_the_clock_was_set(caplog: pytest.LogCaptureFixture) -> None:
    wall = ManualClock()
    async with flintmq.connect("memory://", clock=wall) as mq:
        await mq.publish("orders", b"a")
        wall.step(-90)
        await wall.advance(2)
        await mq.publish("orders", b"b")
    (record,) = [found for found in caplog.records if "clock" in found.getMessage()]
    assert "was set back by 90 s" in record.getMessage()
