"""Counts are those of a dict, in a few bytes each."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.groups.delivery_counts import DeliveryCounts

stretches = st.builds(
    lambda a, n: (a, a + n), st.integers(0, 300), st.sampled_from([1, 2, 64, 200])
)
large = st.sampled_from([0, 1, 253, 254, 255, 300])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(stretches, max_size=3), st.just(0)),
        st.tuples(st.just("less"), st.lists(stretches, max_size=3), st.just(0)),
        st.tuples(st.just("set"), st.lists(stretches, max_size=2), large),
        st.tuples(st.just("forget"), st.lists(stretches, max_size=2), st.just(0)),
    ),
    max_size=15,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_counts_are_kept_as_in_a_dict(steps: list[tuple[str, list[tuple[int, int]], int]]) -> None:
    ours, theirs = DeliveryCounts(), Counter[int]()
    for what, ranges, count in steps:
        if what == "add":
            ours.add_one(ranges)
        elif what == "less":
            # Ranges of one settle do not overlap.
            ranges = ranges[:1]
            ours.take_one(ranges)
        elif what == "forget":
            ours.forget_all(ranges)
        for start, stop in ranges:
            if what == "set":
                ours.set(start, stop, count)
            for offset in range(start, stop):
                if what == "add":
                    theirs[offset] += 1
                elif what == "less":
                    theirs[offset] = max(0, theirs[offset] - 1)
                else:
                    theirs[offset] = count if what == "set" else 0
    theirs = +theirs
    assert {offset: ours[offset] for offset in range(600) if ours[offset]} == theirs
    assert bool(ours) == bool(theirs)
    assert ours.counted([(0, 90), (90, 10**12)]) == theirs
    runs = [(o, count) for start, stop, count in ours.runs() for o in range(start, stop)]
    assert runs == sorted(theirs.items())
    assert list(ours.copy().runs()) == list(ours.runs())


@pytest.mark.slow
def test_a_million_that_failed_together_cost_a_few_bytes_each() -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    counts = DeliveryCounts()
    counts.add_one([(0, 1_000_000)])
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown / 1_000_000 <= 6
    assert list(counts.runs()) == [(0, 1_000_000, 1)]
