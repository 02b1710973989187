"""Each failure doubles the wait, up to a cap, with some chance in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.groups import backoff_seconds


def test_the_wait_doubles_up_to_the_cap() -> None:
    waits = [backoff_seconds(n, base=1.0, cap=20.0, spread=1.0) for n in range(1, 8)]

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]


def test_chance_takes_off_up_to_half_of_it() -> None:
    assert backoff_seconds(3, base=1.0, cap=60.0, spread=0.0) == 2.0
    assert backoff_seconds(3, base=1.0, cap=60.0, spread=0.5) == 3.0


def test_without_a_failure_there_is_no_wait() -> None:
    assert backoff_seconds(0, base=1.0, cap=60.0, spread=1.0) == 0.0


@given(st.integers(0, 10**9), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1))
def test_any_count_of_failures_has_a_wait_within_the_cap(
    failures: int, base: float, cap: float, spread: float
) -> None:
    assert 0 <= backoff_seconds(failures, base=base, cap=cap, spread=spread) <= cap
