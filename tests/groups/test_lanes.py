"""Lanes give a topic's offsets by priority, and hold no more of them than they have to."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.groups import LOG, LaneIndex
from flintmq.groups.lanes import BLOCK_MAX, END, TRIM_BLOCKS
from flintmq.groups.ranges import offsets_in

MANY = settings(max_examples=80, deadline=None)

plain = st.tuples(st.integers(1, 60).map(bytes), st.just(()))
mixed = st.lists(st.integers(0, 7), min_size=1, max_size=40).map(bytes)
with_delays = mixed.flatmap(
    lambda row: st.tuples(st.just(row), st.sets(st.integers(0, len(row) - 1)).map(sorted))
)
uniform = st.builds(lambda p, n: (bytes([p]) * n, ()), st.integers(0, 7), st.integers(1, 40))
arrivals = st.lists(st.one_of(plain, uniform, with_delays), max_size=12)


def fill(index: LaneIndex, batches: Any) -> dict[int, list[int]]:
    """What each lane has to give."""
    lanes: dict[int, list[int]] = {lane: [] for lane in range(LOG + 1)}
    for priorities, left_out in batches:
        base = index.end
        index.add(base, len(priorities), priorities if any(priorities) else None, left_out)
        for row, priority in enumerate(priorities):
            if row not in left_out:
                lanes[priority].append(base + row)
                lanes[LOG].append(base + row)
    return lanes


@pytest.mark.slow
@MANY
@given(arrivals, st.data())
def test_each_lane_gives_its_offsets_in_order_however_many_are_asked_for(
    batches: Any, data: Any
) -> None:
    index = LaneIndex()
    lanes = fill(index, batches)
    floor = data.draw(st.integers(0, index.end))
    cursors = index.cursor(floor)
    late = fill(index, data.draw(arrivals))  # it goes on as the lanes grow
    for lane, offsets in lanes.items():
        expected = [offset for offset in offsets + late[lane] if offset >= floor]
        while expected:
            assert cursors.head(lane) == expected[0]
            assert cursors.has_more(lane)
            wanted = data.draw(st.integers(1, 30))
            before = data.draw(st.one_of(st.just(END), st.integers(expected[0], index.end)))
            assert cursors.peek(lane, wanted) == expected[:wanted]
            some = [offset for offset in expected[:wanted] if offset < before]
            assert list(offsets_in(cursors.take(lane, wanted, before))) == some
            expected = expected[len(some) :]
        assert cursors.head(lane) == END
        assert cursors.take(lane, 5) == []
    assert not cursors.has_more(0)
    assert not cursors.has_more(LOG)


@MANY
@given(arrivals, st.data())
def test_offsets_that_are_skipped_are_passed(batches: Any, data: Any) -> None:
    index = LaneIndex()
    lanes = fill(index, batches)
    cursors = index.cursor(0)
    for lane, offsets in lanes.items():
        to = data.draw(st.integers(0, index.end + 1))
        cursors.skip_to(lane, to)
        left = [offset for offset in offsets if offset >= to]
        assert list(offsets_in(cursors.take(lane, index.end + 1))) == left
    assert not cursors.has_more(0)
    assert not cursors.has_more(LOG)


@MANY
@given(arrivals)
def test_the_priority_of_an_offset_is_found_again(batches: Any) -> None:
    index = LaneIndex()
    lanes = fill(index, batches)

    for lane in range(LOG):
        assert [index.priority_of(offset) for offset in lanes[lane]] == [lane] * len(lanes[lane])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(mixed, min_size=20, max_size=40), st.data())
def test_blocks_that_every_group_has_passed_are_let_go(rows: list[bytes], data: Any) -> None:
    index = LaneIndex()
    groups = [index.cursor(0), index.cursor(0)]
    lanes: dict[int, list[int]] = {lane: [] for lane in range(LOG + 1)}
    taken: list[dict[int, list[int]]] = [{lane: [] for lane in range(LOG + 1)} for _ in groups]
    for priorities in rows:
        for lane, offsets in fill(index, [(priorities, ())]).items():
            lanes[lane] += offsets
        for group, cursors in enumerate(groups):
            for lane in data.draw(st.sets(st.integers(0, LOG), max_size=3)):
                taken[group][lane] += offsets_in(cursors.take(lane, data.draw(st.integers(1, 99))))
        index.trim()
    for group, cursors in enumerate(groups):
        for lane in range(LOG + 1):
            taken[group][lane] += offsets_in(cursors.take(lane, index.end))
    assert taken == [lanes, lanes]


@pytest.mark.slow
def test_a_backlog_that_is_consumed_is_let_go_of_by_and_by() -> None:
    index = LaneIndex()
    cursors = index.cursor(0)
    row = bytes(number % 8 for number in range(1_000))
    for base in range(0, 2_000_000, 1_000):
        index.add(base, 1_000, row)
        for lane in range(8):
            cursors.take(lane, 125)
        cursors.floor = base + 1_000
    assert sum(len(lane.blocks) for lane in index.lanes) < 2 * TRIM_BLOCKS + 100
    assert index.first > 1_000_000


def test_a_plain_backlog_of_ten_million_is_one_block() -> None:
    index = LaneIndex()
    for base in range(0, 10_000_000, 1_000):
        index.add(base, 1_000)

    assert [len(lane.blocks) for lane in index.lanes] == [1, 0, 0, 0, 0, 0, 0, 0, 1]


def test_single_messages_make_ranges_as_well() -> None:
    index = LaneIndex()
    index.add(0, 3, bytes([0, 7, 0]))
    for offset in range(3, 100_000):
        index.add(offset, 1)

    assert len(index.lanes[0].blocks) <= 3


@pytest.mark.slow
def test_a_prioritised_message_costs_less_than_32_bytes() -> None:
    count = 200_000
    row = bytes(number % 8 for number in range(1_000))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index = LaneIndex()
    for base in range(0, count, 1_000):
        index.add(base, 1_000, row)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown / count <= 10


def test_delayed_messages_that_are_due_are_kept_for_groups_to_come() -> None:
    index = LaneIndex()
    index.add(0, 4, bytes([0, 3, 0, 3]), [1, 2])
    index.add_due([(1, 3), (2, 0)])

    assert sorted(index.due_from(0)) == [(0, [(2, 3)]), (3, [(1, 2)])]
    assert index.due_from(2) == [(0, [(2, 3)])]
    index.drop_before(3)
    assert index.due_from(0) == []


def test_a_place_that_was_left_keeps_no_blocks() -> None:
    index = LaneIndex()
    ahead, behind = index.cursor(0), index.cursor(0)
    for base in range(0, 3 * BLOCK_MAX, 1_000):
        index.add(base, 1_000, bytes(number % 2 for number in range(1_000)))
    ahead.take(LOG, index.end)
    for lane in range(8):
        ahead.take(lane, index.end)

    index.trim()
    assert index.first == 0, "the group behind still has to come to them"
    index.leave(behind)
    index.trim()
    assert index.first > 0
