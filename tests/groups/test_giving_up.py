"""What somebody held goes back in pieces, however many of them there are. Counted, not timed."""

from __future__ import annotations

import pytest

from flintmq.groups import LaneIndex, Queue
from flintmq.groups.leases import GIVE_UP_MAX
from flintmq.groups.ranges import count_in, offsets_in
from tests.groups.checking import check

COUNT = 10 * GIVE_UP_MAX


def held_in_fragments(*, grants_of: int) -> Queue:
    """Anna holds every other message, by grants of so many."""
    index = LaneIndex()
    index.add(0, 2 * COUNT)
    queue = Queue(index, order="log", floor=0)
    queue.apply_settle([(offset, offset + 1) for offset in range(1, 2 * COUNT, 2)])
    for _ in range(COUNT // grants_of):
        while (selection := queue.select(grants_of)).is_cut:
            queue.put_back(selection.ranges)
        queue.grant(selection.ranges, "anna", now=0.0, seconds=30.0)
    assert len(queue.places.leased) == COUNT
    return queue


@pytest.mark.slow
@pytest.mark.parametrize("grants_of", [1, 256, COUNT])
def test_who_leaves_with_many_fragments_gives_them_up_piece_by_piece(grants_of: int) -> None:
    queue = held_in_fragments(grants_of=grants_of)
    pieces = [queue.release_holder("anna")]
    while queue.is_giving_up:
        pieces.append(queue.give_up())

    assert {count_in(piece) for piece in pieces} == {GIVE_UP_MAX}
    assert sum(map(count_in, pieces)) == COUNT
    assert len(queue.places.leased) == 0
    check(queue)


@pytest.mark.slow
@pytest.mark.parametrize("grants_of", [1, COUNT])
def test_leases_that_run_out_together_are_given_up_piece_by_piece(grants_of: int) -> None:
    queue = held_in_fragments(grants_of=grants_of)
    pieces = []
    while (deadline := queue.next_deadline()) is not None and deadline <= 30.0:
        pieces.append(queue.expire(30.0))

    assert {count_in(piece) for piece in pieces} == {GIVE_UP_MAX}
    assert len(queue.places.leased) == 0


def test_until_its_turn_comes_what_is_given_up_is_settled_as_before() -> None:
    index = LaneIndex()
    index.add(0, 3 * GIVE_UP_MAX)
    queue = Queue(index, order="log", floor=0)
    ranges = queue.select(3 * GIVE_UP_MAX).ranges
    token = queue.grant(ranges, "anna", now=0.0, seconds=30.0)
    assert queue.release_holder("anna") == [(0, GIVE_UP_MAX)]

    late, last = 0, 3 * GIVE_UP_MAX - 1
    mine, lost = queue.finish(token, [(late, late + 1), (last, last + 1)])
    assert (list(offsets_in(mine)), lost) == ([late, last], [])
    assert queue.extend(token, [(last - 9, last)], "bert", now=1.0, seconds=30.0)[1] == []
    while queue.is_giving_up:
        queue.give_up()

    assert [lease.holder for lease in queue.leases()] == ["bert"]
    assert len(queue.places.leased) == 9


def test_whoever_comes_by_the_same_name_keeps_what_it_is_given() -> None:
    index = LaneIndex()
    index.add(0, 2 * GIVE_UP_MAX + 1)
    queue = Queue(index, order="log", floor=0)
    queue.grant(queue.select(2 * GIVE_UP_MAX).ranges, "anna", now=0.0, seconds=30.0)
    queue.release_holder("anna")
    last = [(2 * GIVE_UP_MAX, 2 * GIVE_UP_MAX + 1)]
    queue.put_back(queue.select(GIVE_UP_MAX).ranges)
    queue.apply_settle([(0, GIVE_UP_MAX)])
    queue.grant(queue.select(1).ranges, "anna", now=0.0, seconds=30.0)
    while queue.is_giving_up:
        queue.give_up()

    assert [lease.ranges for lease in queue.leases()] == [last]


def test_what_its_holder_extends_when_it_is_back_is_not_given_up() -> None:
    index = LaneIndex()
    index.add(0, 2 * GIVE_UP_MAX)
    queue = Queue(index, order="log", floor=0)
    queue.grant(queue.select(GIVE_UP_MAX).ranges, "anna", now=0.0, seconds=30.0)
    ranges = queue.select(GIVE_UP_MAX).ranges
    token = queue.grant(ranges, "anna", now=0.0, seconds=30.0)
    queue.release_holder("anna")
    queue.extend(token, ranges, "anna", now=0.0, seconds=30.0)
    while queue.is_giving_up:
        queue.give_up()

    assert [lease.token for lease in queue.leases()] == [token]
