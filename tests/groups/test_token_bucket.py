"""Rates are kept, smoothly, and nobody waits for a token that never comes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.groups import TokenBucket

rates = st.one_of(st.floats(0.001, 10), st.floats(1, 1e6), st.sampled_from([1 / 3, 0.1, 1e7]))
starts = st.one_of(st.floats(0, 10), st.floats(1e6, 1e8))


@settings(max_examples=300, deadline=None)
@given(rates, starts, st.integers(1, 100), st.one_of(st.none(), st.floats(1, 50)))
def test_who_waits_as_long_as_told_is_served(
    rate: float, now: float, want: int, burst: float | None
) -> None:
    bucket = TokenBucket(rate, burst)
    for _ in range(50):
        while bucket.take(want, now):
            pass
        seconds = bucket.seconds_until(1, now)
        assert seconds > 0
        now += seconds
        assert bucket.seconds_until(1, now) == 0
        assert bucket.take(1, now) == 1


@settings(max_examples=200, deadline=None)
@given(rates, starts, st.lists(st.tuples(st.floats(0, 2), st.integers(0, 1000)), max_size=50))
def test_no_more_is_handed_out_than_the_rate_and_a_full_bucket(
    rate: float, start: float, steps: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(rate)
    now, total = start, 0
    for seconds, want in steps:
        now += seconds
        taken = bucket.take(want, now)
        assert 0 <= taken <= want
        total += taken
        assert total <= bucket.capacity + rate * (now - start) + 1


def test_a_fresh_bucket_hands_out_a_burst_and_no_more() -> None:
    assert TokenBucket(10_000, 5).take(1_000, 0.0) == 5
    assert TokenBucket(1_000).take(1_000, 0.0) == 50
    assert TokenBucket(0.5).take(1_000, 0.0) == 1


def test_a_timer_of_10_ms_keeps_up_with_a_high_rate() -> None:
    bucket = TokenBucket(100_000, 1)
    bucket.take(1, 0.0)

    assert sum(bucket.take(100_000, step / 100) for step in range(1, 101)) == pytest.approx(
        100_000, abs=1
    )


def test_less_than_one_in_a_second_is_a_rate_as_well() -> None:
    bucket = TokenBucket(0.1)

    assert [second for second in range(60) if bucket.take(1, float(second))] == [
        0,
        10,
        20,
        30,
        40,
        50,
    ]
    assert bucket.seconds_until(1, 59.0) == pytest.approx(1.0)


def test_what_is_given_back_can_be_taken_again() -> None:
    bucket = TokenBucket(1, 5)

    assert bucket.take(5, 0.0) == 5
    bucket.refund(2)
    assert bucket.take(5, 0.0) == 2
    bucket.refund(100)
    assert bucket.take(100, 0.0) == 5


def test_waiting_for_more_than_there_is_room_for_is_waiting_for_a_full_bucket() -> None:
    bucket = TokenBucket(10, 4)
    bucket.take(4, 0.0)

    assert bucket.seconds_until(1_000, 0.0) == pytest.approx(0.4)


def test_a_clock_that_steps_back_brings_nothing() -> None:
    bucket = TokenBucket(1, 1)

    assert bucket.take(1, 10.0) == 1
    assert bucket.take(1, 5.0) == 0
    assert bucket.take(1, 11.0) == 1
