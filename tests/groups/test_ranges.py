"""Sums on ranges are sums on sets, and keep their order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flintmq.group_model import Ranges
from flintmq.groups.ranges import append_range, count_in, joined, offsets_in, ranges_of, without

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
