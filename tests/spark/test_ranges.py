"""Ranges of offsets over tasks, and limits over backlogs. Pure."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.spark.ranges import Range, shares, spread, tasks_wanted


def ranges(*rows: int) -> list[Range]:
    return [Range(f"t{n}", 0, f"t{n}", n, 0, count) for n, count in enumerate(rows)]


def test_one_large_topic_is_split_over_tasks() -> None:
    (first, second) = spread(ranges(1001), 2)

    assert [(one.start, one.end) for one in first + second] == [(0, 500), (500, 1001)]


def test_small_topics_share_a_task() -> None:
    assert [len(task) for task in spread(ranges(*[10] * 100), 2)] == [50, 50]


def test_nothing_to_read_is_no_task() -> None:
    assert spread(ranges(0, 0), 3) == []
    assert tasks_wanted(0, 8, 4, 10) == 0


def test_few_rows_are_one_task_and_many_are_as_many_as_there_are_cores() -> None:
    assert tasks_wanted(1000, 8, None, None) == 1
    assert tasks_wanted(5_000_000, 2, None, None) == 3
    assert tasks_wanted(800_000, 8, None, None) == 8
    assert tasks_wanted(5_000_000, 40, None, None) == 40


def test_where_nobody_knows_how_many_run_at_a_time_tasks_are_small() -> None:
    assert tasks_wanted(1000, None, None, None) == 1
    assert tasks_wanted(5_000_000, None, None, None) == 20


def test_what_the_user_wants_goes_first() -> None:
    assert tasks_wanted(1000, 2, 7, None) == 7
    assert tasks_wanted(1000, 2, None, 100) == 10
    assert tasks_wanted(3, 2, 7, None) == 3, "no task without a row"


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_every_offset_is_in_exactly_one_task_and_tasks_are_even(
    rows: list[int], tasks: int
) -> None:
    found = spread(ranges(*rows), tasks)

    offsets = [(r.topic, o) for task in found for r in task for o in range(r.start, r.end)]
    assert offsets == [(f"t{n}", o) for n, count in enumerate(rows) for o in range(count)]
    sizes = [sum(one.rows for one in task) for task in found]
    assert len(found) == min(tasks, sum(rows))
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_a_limit_is_shared_in_proportion_to_what_is_there() -> None:
    assert shares([900, 100, 0], 100) == [90, 10, 0]
    assert shares([5, 5], 100) == [5, 5]


def test_a_small_backlog_beside_a_large_one_moves_too() -> None:
    assert shares([1_000_000, 1], 10) == [9, 1]


def test_where_there_is_not_one_for_each_they_take_turns() -> None:
    assert [shares([9, 9, 9], 1, turn) for turn in range(3)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=12),
    st.integers(1, 3000),
    st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_no_more_than_the_limit_and_no_less_where_there_is_enough(
    backlogs: list[int], limit: int, turn: int
) -> None:
    taken = shares(backlogs, limit, turn)

    assert sum(taken) == min(limit, sum(backlogs))
    assert all(0 <= got <= backlog for got, backlog in zip(taken, backlogs, strict=True))
