from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.observe.metrics import WINDOW_MS, Histogram, Meter


def test_a_meter_that_never_moved_says_zero() -> None:
    assert Meter().per_second(5_000) == 0.0


def test_a_steady_rate_is_that_rate() -> None:
    meter = Meter()
    for now_ms in range(0, 60_000, 100):
        meter.add(5, now_ms)
    assert meter.total == 3000
    assert meter.per_second(60_000) == pytest.approx(50, rel=0.1)


def test_a_burst_is_spread_over_at_least_a_second() -> None:
    meter = Meter()
    meter.add(100, 1000)
    assert meter.per_second(1000) == 100
    assert meter.per_second(5000) == 25


def test_what_is_long_ago_does_not_count() -> None:
    meter = Meter()
    meter.add(1_000_000, 0)
    assert meter.per_second(WINDOW_MS + 1000) == 0.0
    meter.add(10, 20_000)
    assert meter.per_second(21_000) == pytest.approx(10)
    assert meter.total == 1_000_010


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5_000)), max_size=50))
def test_a_rate_is_never_negative_nor_more_than_all_in_one_second(
    adds: list[tuple[int, int]],
) -> None:
    meter, now_ms, total = Meter(), 0, 0
    for count, later in adds:
        now_ms += later
        meter.add(count, now_ms)
        total += count
        assert 0 <= meter.per_second(now_ms) <= total
    assert meter.total == total
    assert meter.per_second(now_ms + 2 * WINDOW_MS) == 0.0
    assert len(meter._marks) <= 13


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.0, 0.1, 0.2, 1.0, 50.0):
        histogram.observe(value)

    assert histogram.counts == [2, 2, 1]
    assert histogram.cumulative() == [2, 4, 5]
    assert histogram.total == pytest.approx(51.3)


def test_histograms_of_one_kind_can_be_added_up() -> None:
    ours, theirs, other = Histogram((0.1, 1.0)), Histogram((0.1, 1.0)), Histogram((0.5,))
    ours.observe(0.05)
    theirs.observe(0.5)

    ours.add(theirs)

    assert (ours.cumulative(), theirs.cumulative()) == ([1, 2, 2], [0, 1, 1])
    with pytest.raises(AssertionError):
        ours.add(other)
