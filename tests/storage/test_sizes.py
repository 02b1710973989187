"""What messages count for, by offset, beside a list of their sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.storage.sizes import MARKS_MAX, Sizes

batches = st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=12), min_size=1, max_size=30)


def sum_of(rows: list[int]) -> Callable[[int, int], int]:
    return lambda start, stop: sum(rows[start:stop])


def add(sizes: Sizes, rows: list[int]) -> None:
    sizes.append(len(rows), sum(rows), sum_of(rows))


def again(sizes: Sizes) -> Sizes:
    other = Sizes()
    other.restore(sizes.snapshot())
    return other


@given(batches, st.data())
def test_a_topic_of_few_messages_counts_exactly(
    batches: list[list[int]], data: st.DataObject
) -> None:
    sizes, rows, first = Sizes(), [], 0
    sizes.begin_exact(0)
    for batch in batches:
        add(sizes, batch)
        rows += batch
        first = data.draw(st.integers(first, len(rows)))
        sizes.drop_to(first)

    for offset in range(first, len(rows) + 1):
        assert sizes.before(offset) == sum(rows[:offset])
    for wanted in (1, 50, 1_000):
        freed = sizes.freeing(first, wanted)
        assert sum(rows[first:freed]) >= min(wanted, sum(rows[first:]))
        assert freed == first or sum(rows[first : freed - 1]) < wanted


@pytest.mark.slow
@given(batches, st.integers(1, 40), st.data())
def test_many_are_counted_in_pieces_and_a_restart_at_any_time_changes_nothing(
    batches: list[list[int]], times: int, data: st.DataObject
) -> None:
    sizes, restarted, rows, first = Sizes(), Sizes(), [], 0
    for batch in batches * times:
        add(sizes, batch)
        add(restarted, batch)
        rows += batch
        if data.draw(st.integers(0, 9)) == 0:
            first = data.draw(st.integers(first, len(rows)))
            sizes.drop_to(first)
            restarted.drop_to(first)
            restarted = again(restarted)

    assert restarted.snapshot() == sizes.snapshot()
    assert len(sizes.snapshot()) <= 2 * (MARKS_MAX + 3)
    assert sizes.before(len(rows)) == sizes.total == sum(rows)
    counted = [sizes.before(offset) for offset in range(first, len(rows) + 1)]
    assert counted == sorted(counted)
    held = sum(rows[first:]) + len(rows) - first
    wrong = max(
        abs(sizes.before(offset) - sum(rows[:offset])) for offset in range(first, len(rows) + 1)
    )
    assert wrong <= max(map(sum, batches)) + held // (MARKS_MAX // 4)


def test_what_is_counted_exactly_is_bound_to_few_marks_and_begins_anew_when_empty() -> None:
    sizes = Sizes()
    sizes.begin_exact(1_000)
    for size in range(10_000):
        add(sizes, [size % 7])
    assert sizes.before(1_000 + 4_321) == sum(size % 7 for size in range(4_321))

    sizes.bound()
    assert len(sizes.snapshot()) <= 2 * (MARKS_MAX + 3)
    sizes.drop_to(11_000)
    add(sizes, [3, 1, 2])
    assert [sizes.before(11_000 + n) - sizes.before(11_000) for n in range(4)] == [0, 3, 4, 6]


def test_rows_that_count_alike_get_a_mark_at_their_end_and_no_more_than_there_may_be() -> None:
    sizes = Sizes()
    for _ in range(3_000):
        sizes.append_evenly(10, 1_000)
    sizes = again(sizes)

    assert (sizes.next, sizes.total) == (30_000, 3_000_000)
    assert len(sizes.snapshot()) <= 2 * (MARKS_MAX + 3)
    for offset in (0, 5, 12_345, 29_999):
        assert sizes.before(offset) == offset * 100
    assert sizes.freeing(0, 1_000) == 10
