"""Who waits for the answer to a request, and the timer that tells them when there is none."""

from __future__ import annotations

from flintmq.net.remote.waiting import SentRequest, Waiters
from flintmq.testing import ManualClock


async def test_requests_that_are_answered_one_by_one_share_a_timer() -> None:
    clock = ManualClock()
    told: list[float] = []
    waiters = Waiters(clock, 30.0, lambda: told.append(clock.monotonic()))
    timers = set()

    for id in range(1, 101):
        waiters.add(id, SentRequest(clock.monotonic() + 30))
        timers.add(waiters.timer)
        assert waiters.pop(id) is not None

    assert len(timers) == 1


async def test_a_timer_that_is_left_over_finds_who_waits_now() -> None:
    clock = ManualClock()
    due: list[list[int]] = []
    waiters = Waiters(clock, 30.0, lambda: due.append([id for id, _ in waiters.overdue()]))

    waiters.add(1, SentRequest(clock.monotonic() + 1))
    waiters.pop(1)
    waiters.add(2, SentRequest(clock.monotonic() + 10))
    await clock.advance(2)
    assert due == [[]]
    assert waiters.timer is not None
    await clock.advance(8.1)

    assert due == [[], [2]]
    assert waiters.timer is None
