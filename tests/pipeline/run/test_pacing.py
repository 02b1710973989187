"""When rows go out: at a rate, or as far apart as they were. No clock runs here."""

from __future__ import annotations

import pytest

from flintmq.errors import InvalidRequest
from flintmq.pipeline.run.pacing import CUT_ROWS_MAX, PaceSchedule


def test_at_a_rate_the_next_rows_wait_for_those_before() -> None:
    schedule = PaceSchedule(rate=10)
    schedule.went(5, when=100.0)

    assert schedule.due(None, now=100.1) == 100.5
    assert schedule.due(None, now=102.0) == 102.0, "what was not used is not saved up"


def test_at_the_original_pace_rows_are_as_far_apart_as_their_times() -> None:
    schedule = PaceSchedule(paced=True)

    assert schedule.due(1000.0, now=5.0) == 5.0
    assert schedule.due(1003.5, now=5.1) == 8.5
    assert schedule.due(990.0, now=6.0) == 6.0, "what came late goes at once"
    assert schedule.due(None, now=6.5) == 6.5


def test_a_speed_of_ten_is_ten_times_as_fast() -> None:
    schedule = PaceSchedule(paced=True, speed=10)
    schedule.due(1000.0, now=0.0)

    assert schedule.due(1030.0, now=0.0) == 3.0


def test_rate_and_pace_together_keep_both() -> None:
    schedule = PaceSchedule(paced=True, rate=1)
    schedule.went(1, schedule.due(0.0, now=0.0))

    assert schedule.due(0.5, now=0.2) == 1.0
    assert schedule.due(4.0, now=0.2) == 4.0


def test_rows_within_a_twentieth_of_a_second_go_together() -> None:
    assert PaceSchedule(paced=True).cuts([0, 10, 50, 51, 120, None, 500]) == [0, 0, 0, 1, 2, 2, 3]
    assert PaceSchedule(paced=True, speed=2).cuts([0, 10, 51, 100, 101]) == [0, 0, 0, 0, 1]
    assert PaceSchedule(rate=40).cuts([None] * 5) == [0, 0, 1, 1, 2]
    assert PaceSchedule(rate=0.5).cuts([None] * 3) == [0, 1, 2]
    assert PaceSchedule().cuts([None] * (CUT_ROWS_MAX + 1))[-2:] == [0, 1]
    assert PaceSchedule(paced=True).cuts([]) == []


@pytest.mark.parametrize(("rate", "speed"), [(0, 1), (-1, 1), (None, 0)])
def test_a_rate_or_speed_of_nothing_is_refused(rate: float | None, speed: float) -> None:
    with pytest.raises(InvalidRequest, match="greater than 0"):
        PaceSchedule(rate=rate, speed=speed)
