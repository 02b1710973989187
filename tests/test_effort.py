"""How much a run tests: nothing is left out of `make test`, and a check tries few examples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .contract.conftest import WAYS
from .effort import ALWAYS, BY_TURNS, EXAMPLES_AT_MOST, limit_examples, ways_of

EVERY = sorted(WAYS)
TESTS = [f"test_promise_{number}" for number in range(400)]


def test_every_test_runs_in_memory_on_disk_and_over_the_network() -> None:
    for test in TESTS:
        assert {ALWAYS, *BY_TURNS} <= set(ways_of(test, EVERY, "test"))


@pytest.mark.parametrize("way", sorted({*EVERY} - {ALWAYS, *BY_TURNS}))
def test_every_other_way_runs_about_a_quarter_of_the_tests(way: str) -> None:
    assert 60 < sum(way in ways_of(test, EVERY, "test") for test in TESTS) < 140


def test_more_effort_leaves_nothing_out_that_less_effort_tests() -> None:
    for test in TESTS:
        check, usual, everything = (set(ways_of(test, EVERY, e)) for e in ("check", "test", "all"))
        assert {ALWAYS} < check < usual < everything == set(EVERY)


def test_a_check_has_its_own_way_beside_memory_for_each_test() -> None:
    beside = [way for test in TESTS for way in ways_of(test, EVERY, "check") if way != ALWAYS]

    assert len(beside) == len(TESTS)
    assert all(beside.count(way) > 100 for way in BY_TURNS)


def test_a_promise_of_one_process_is_checked_on_disk_instead_of_the_network() -> None:
    promised = [way for way in EVERY if not way.startswith("flint")]

    assert all(ways_of(test, promised, "check") == ["file", "memory"] for test in TESTS)


@pytest.mark.parametrize(("profile", "tried"), [*EXAMPLES_AT_MOST.items(), ("full", 250)])
def test_an_effort_limits_the_examples_that_a_property_asks_for(profile: str, tried: int) -> None:
    seen: list[int] = []

    @settings(max_examples=250, database=None)
    @given(st.integers())
    def a_property(number: int) -> None:
        seen.append(number)

    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        item: Any = SimpleNamespace(obj=a_property)
        limit_examples(item)
        a_property()
    finally:
        settings.load_profile(before)
    assert len(seen) == tried
