"""Sums on ranges are sums on sets, and keep their order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder
from flintmq.group_model import Ranges
from flintmq.groups.ranges import (
    append_range,
    ascending,
    count_in,
    joined,
    offsets_in,
    ranges_of,
    ranges_of_runs,
    sorted_ranges,
    without,
)
from flintmq.rows import Origin, Run

sets = st.sets(st.integers(0, 60))


def shuffled(offsets: set[int], order: list[int]) -> Ranges:
    """Ranges of the offsets in some order."""
    ranges = ranges_of(sorted(offsets))
    return [ranges[at % len(ranges)] for at in dict.fromkeys(n % len(ranges) for n in order)]


@given(sets)
def test_ranges_of_offsets_have_those_offsets(offsets: set[int]) -> None:
    ranges = ranges_of(sorted(offsets))

    assert list(offsets_in(ranges)) == sorted(offsets)
    assert count_in(ranges) == len(offsets)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))


@given(sets.filter(bool), sets, st.lists(st.integers(0, 99), min_size=1))
def test_what_is_left_without_some_keeps_its_order(
    offsets: set[int], taken: set[int], order: list[int]
) -> None:
    ranges = shuffled(offsets, order)

    left = without(ranges, ranges_of(sorted(taken)))

    assert list(offsets_in(left)) == [each for each in offsets_in(ranges) if each not in taken]


@given(st.lists(sets, max_size=4))
def test_lists_are_joined_in_their_order(parts: list[set[int]]) -> None:
    whole = joined([ranges_of(sorted(part)) for part in parts])

    assert list(offsets_in(whole)) == [offset for part in parts for offset in sorted(part)]


def test_neighbours_become_one_range() -> None:
    ranges: Ranges = [(0, 2)]
    append_range(ranges, 2, 3)
    append_range(ranges, 5, 6)

    assert ranges == [(0, 3), (5, 6)]
    assert joined([ranges, [], [(6, 9), (1, 2)], [(2, 3)]]) == [(0, 3), (5, 9), (1, 3)]


@given(st.lists(st.integers(0, 60), unique=True))
def test_offsets_in_any_order_make_the_ranges_of_their_set(offsets: list[int]) -> None:
    assert sorted_ranges(offsets) == ranges_of(sorted(offsets))
    assert ascending(ranges_of(offsets)) == ranges_of(sorted(offsets))


def test_runs_of_messages_have_their_offsets_in_their_order() -> None:
    rows = BatchBuilder(0)
    for _ in range(10):
        rows.append(b"")
    origin = Origin("t")
    runs = [Run(rows, 6, 8, origin), Run(rows, 8, 9, origin), Run(rows, 0, 5, origin, [1, 2, 4])]

    assert ranges_of_runs(runs) == [(6, 9), (1, 3), (4, 5)]
