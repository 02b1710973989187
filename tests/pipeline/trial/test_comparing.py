"""Found rows are compared with expected ones: by what is named, in any order, times as times."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from flintmq.pipeline.trial.comparing import Difference, differences, same


def test_the_order_does_not_matter_and_every_row_counts_once() -> None:
    assert differences([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]) == []
    assert differences([{"a": 1}], [{"a": 1}, {"a": 1}]) == [Difference(None, {"a": 1})]
    assert differences([{"a": 1}, {"a": 1}], [{"a": 1}]) == [Difference({"a": 1}, None)]


def test_a_column_that_no_row_names_is_not_compared() -> None:
    assert differences([{"a": 1}], [{"a": 1, "b": 5}]) == []
    assert differences([{"a": 1}, {"a": 2, "b": 5}], [{"a": 1, "b": 5}, {"a": 2, "b": 5}]) == [
        Difference({"a": 1, "b": None}, {"a": 1, "b": 5})
    ]


def test_a_row_that_is_missing_is_told_beside_the_one_that_resembles_it() -> None:
    expected = [{"region": "north", "n": 2}, {"region": "east", "n": 1}]
    found = [{"region": "south", "n": 9}, {"region": "north", "n": 3}]

    assert differences(expected, found) == [
        Difference({"region": "north", "n": 2}, {"region": "north", "n": 3}),
        Difference({"region": "east", "n": 1}, None),
        Difference(None, {"region": "south", "n": 9}),
    ]


def test_nothing_expected_means_that_nothing_may_come() -> None:
    assert differences([], []) == []
    assert differences([], [{"a": 1, "b": 2}]) == [Difference(None, {"a": 1, "b": 2})]


@pytest.mark.parametrize(
    ("expected", "found", "is_same"),
    [
        (0.3, 0.1 + 0.2, True),
        (2, 2.0, True),
        (2, 3, False),
        (True, 1, False),
        (True, True, True),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000Z", True),
        ("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000Z", True),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000Z", True),
        (date(2026, 1, 1), "2026-01-01", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00.000Z", False),
        ("a", "b", False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "c": None}, {"a": 1}, True),
        ({"a": 1}, None, False),
        (float("inf"), "Infinity", True),
    ],
)
def test_values_are_the_same_if_they_mean_the_same(
    expected: Any, found: Any, is_same: bool
) -> None:
    assert same(expected, found) is is_same
