"""Order by key: in order for each key, with one holder at a time; keys in parallel."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.group_model import Ranges
from flintmq.groups import LaneIndex, Queue, Selection
from flintmq.groups.by_key import KEY_BUDGET
from flintmq.groups.ranges import offsets_in, ranges_of
from tests.groups.checking import check


class Keyed:
    """A queue by key over messages whose keys are given. Counts the rows it is asked about."""

    def __init__(self, keys: list[int], left_out: list[int] | None = None) -> None:
        self.keys = keys
        self.looked = 0
        self.index = LaneIndex()
        self.index.add(0, len(keys), None, left_out)
        self.queue = Queue(self.index, order="key", floor=0)

    def hashes(self, start: int, stop: int) -> list[int]:
        self.looked += stop - start
        return self.keys[start:stop]

    def select(self, wanted: int, together: bool = False) -> Selection:
        return self.queue.select(wanted, key_hashes=self.hashes, together=together)

    def take(self, wanted: int, together: bool = False) -> tuple[int, Ranges]:
        ranges = self.select(wanted, together).ranges
        return self.queue.grant(ranges, "anna", now=0.0, seconds=30.0), ranges

    def ack(self, token: int, ranges: Ranges) -> None:
        self.queue.apply_settle(self.queue.finish(token, ranges)[0])


def test_each_key_gives_one_at_a_time() -> None:
    keyed = Keyed([7, 7, 8, 0, 0, 8, 7])
    token, ranges = keyed.take(10)

    assert ranges == [(0, 1), (2, 5)]
    assert keyed.take(10)[1] == []
    keyed.ack(token, [(2, 3)])
    assert keyed.select(10).ranges == [(5, 6)]
    keyed.ack(token, [(0, 1)])
    assert keyed.select(10).ranges == [(1, 2)]


# --- several of a key


def test_whoever_works_on_them_in_turn_gets_several_of_a_key() -> None:
    keyed = Keyed([7, 7, 8, 0, 7, 8, 7])
    token, ranges = keyed.take(5, together=True)
    assert ranges == [(0, 5)]

    assert keyed.take(5, together=True)[1] == [], "they are with one holder"
    keyed.ack(token, [(0, 2)])
    assert keyed.take(5, together=True)[1] == [], "until all of them are settled"
    keyed.ack(token, [(2, 3), (4, 5)])
    assert keyed.take(5, together=True)[1] == [(5, 7)]


def test_what_was_parked_joins_in_the_order_of_the_log() -> None:
    keyed = Keyed([7, 8, 7, 8, 7, 8])
    token, ranges = keyed.take(6)
    assert ranges == [(0, 2)]
    keyed.ack(token, ranges)

    assert keyed.take(3, together=True)[1] == [(2, 5)]
    assert keyed.take(3, together=True)[1] == []


def test_one_that_comes_back_takes_those_behind_it_along() -> None:
    keyed = Keyed([7, 7, 7, 7])
    token, _ = keyed.take(4, together=True)
    keyed.ack(token, [(2, 3)])
    keyed.queue.nack(token, [(1, 2)], None)

    assert keyed.queue.recalled == [(3, 4)]
    assert keyed.queue.finish(token, [(3, 4)]) == ([], [(3, 4)])
    assert [keyed.queue.count_of(offset) for offset in (1, 3)] == [1, 0]
    assert keyed.take(4, together=True)[1] == [], "the first of them is still out"
    keyed.ack(token, [(0, 1)])
    token, ranges = keyed.take(4, together=True)
    assert ranges == [(1, 2)], "what was delivered before goes alone"
    keyed.ack(token, ranges)
    assert keyed.take(4, together=True)[1] == [(3, 4)]


def test_of_a_lease_that_ran_out_the_first_can_be_settled_late() -> None:
    keyed = Keyed([7, 7])
    token, _ = keyed.take(2, together=True)
    assert keyed.queue.expire(30.0) == [(0, 2)]

    assert keyed.queue.finish(token, [(0, 2)]) == ([(0, 1)], [(1, 2)])
    assert [keyed.queue.count_of(offset) for offset in (0, 1)] == [1, 0]


def test_a_settle_that_fails_brings_those_behind_back_too() -> None:
    keyed = Keyed([7, 7])
    token, _ = keyed.take(2, together=True)
    keyed.queue.finish(token, [(0, 1)])
    keyed.queue.unfinish([(0, 1)])

    assert len(keyed.queue.places.leased) == 0
    assert keyed.take(2, together=True)[1] == [(0, 1)]


def test_what_was_granted_together_is_leased_on_together_over_a_restart() -> None:
    keyed = Keyed([7, 7, 7])
    token, _ = keyed.take(2, together=True)
    keyed.queue.restore(keyed.queue.snapshot())
    keyed.queue.take_up(now=0.0, seconds=5.0, key_hashes=keyed.hashes)

    assert keyed.take(3, together=True)[1] == []
    assert keyed.queue.extend(token, [(0, 2)], "anna", now=1.0, seconds=30.0) == ([(0, 2)], [])
    keyed.ack(token, [(0, 2)])
    assert keyed.take(3, together=True)[1] == [(2, 3)]


def nacked_around_one_that_is_recalled() -> tuple[Keyed, int]:
    keyed = Keyed([7, 7, 7, 7])
    token, _ = keyed.take(3, together=True)
    keyed.queue.nack(token, [(0, 1), (2, 3)], None)
    return keyed, token


@pytest.mark.parametrize("is_settled_before", [True, False])
def test_over_a_restart_one_that_was_recalled_stays_ahead_of_one_that_was_nacked(
    is_settled_before: bool,
) -> None:
    keyed, _ = nacked_around_one_that_is_recalled()
    if is_settled_before:
        keyed.ack(*keyed.take(1))
    keyed.queue.restore(keyed.queue.snapshot())
    keyed.queue.take_up(now=0.0, seconds=5.0, key_hashes=keyed.hashes)
    order: list[int] = []
    while ranges := keyed.select(4, together=True).ranges:
        order += offsets_in(ranges)
        keyed.ack(keyed.queue.grant(ranges, "anna", now=0.0, seconds=30.0), ranges)
    assert order == [1, 2, 3] if is_settled_before else [0, 1, 2, 3]


def test_a_follower_learns_from_commands_what_was_recalled() -> None:
    keyed = Keyed([7, 7, 7])
    keyed.queue.apply_attempts([(0, 3, 1)], token=4)
    keyed.queue.apply_attempts([(1, 2, 0)])
    keyed.queue.apply_attempts([], nacked=[(0, 1), (2, 3)])
    keyed.queue.apply_settle([(0, 1)])
    keyed.queue.take_up(now=0.0, seconds=5.0, key_hashes=keyed.hashes)

    assert keyed.take(3, together=True)[1] == [(1, 2)]


def test_one_that_was_given_back_lets_an_older_one_that_came_due_go_first_over_a_restart() -> None:
    keyed = Keyed([7, 7], left_out=[0])
    token, ranges = keyed.take(2)
    assert ranges == [(1, 2)]
    keyed.queue.release(token, ranges)
    keyed.index.add_due([(0, 0)])
    keyed.queue.restore(keyed.queue.snapshot())
    keyed.queue.take_up(now=0.0, seconds=5.0, key_hashes=keyed.hashes)

    assert keyed.take(2)[1] == [(0, 1)]


def test_a_message_that_comes_back_keeps_its_key() -> None:
    keyed = Keyed([7, 7])
    token, ranges = keyed.take(2)
    keyed.queue.nack(token, ranges, 5_000)

    assert keyed.select(2).ranges == []
    keyed.queue.take_due(5_000)
    token, ranges = keyed.take(2)
    assert ranges == [(0, 1)]
    assert keyed.queue.expire(60.0) == [(0, 1)]
    assert keyed.take(2)[1] == [(0, 1)]


def test_a_key_stays_with_its_message_over_a_restart() -> None:
    keyed = Keyed([7, 7, 0])
    token, ranges = keyed.take(1)
    keyed.queue.nack(token, ranges, 5_000)
    keyed.queue.restore(keyed.queue.snapshot())

    assert keyed.select(5).ranges == [(2, 3)]
    keyed.queue.take_due(5_000)
    assert keyed.select(5).ranges == [(0, 1)]


def test_messages_put_back_stand_in_order_again() -> None:
    keyed = Keyed([7, 8, 7, 8])
    keyed.queue.put_back(keyed.select(4).ranges)

    assert keyed.select(1).ranges == [(0, 1)]
    assert keyed.select(4).ranges == [(1, 2)]


def test_a_delayed_message_that_is_due_goes_ahead_of_later_ones_of_its_key() -> None:
    keyed = Keyed([7, 7, 7], left_out=[0])
    keyed.queue.put_back(keyed.select(3).ranges)
    keyed.queue.add_due([(0, 0)])

    token, ranges = keyed.take(3)
    assert ranges == [(0, 1)]
    keyed.ack(token, ranges)
    assert keyed.select(3).ranges == [(1, 2)]


def test_dropping_the_owner_of_a_key_frees_it() -> None:
    keyed = Keyed([7, 7, 7, 7])
    keyed.take(4)
    keyed.queue.drop_before(2)

    assert keyed.select(4).ranges == [(2, 3)]


def test_settling_who_is_next_makes_another_next() -> None:
    keyed = Keyed([7, 7, 7, 7])
    token, ranges = keyed.take(4)
    keyed.queue.apply_settle([(2, 3)])
    keyed.ack(token, ranges)
    keyed.queue.apply_settle([(1, 2)])

    assert keyed.select(4).ranges == [(3, 4)]


@pytest.mark.slow
def test_a_hot_key_in_front_is_looked_at_once() -> None:
    """However many of it there are, a select looks at its budget of rows and says so."""
    count = 10 * KEY_BUDGET
    keyed = Keyed([7] * count + [0])
    calls = 0
    selection = keyed.select(1)
    assert selection.ranges == [(0, 1)]
    while not (selection := keyed.select(1)).ranges:
        assert selection.is_cut
        assert keyed.looked <= (calls + 2) * KEY_BUDGET
        calls += 1
    assert selection.ranges == [(count, count + 1)]
    assert calls >= 9
    assert keyed.looked == count + 1

    for offset in range(1, 200):
        keyed.queue.apply_settle([(offset - 1, offset)])
        assert keyed.select(1).ranges == [(offset, offset + 1)]
    assert keyed.looked == count + 1


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data())
def test_with_delays_and_crashes_a_key_is_never_out_twice_and_everything_comes_in_order(
    keys: list[int], data: Any
) -> None:
    delayed = sorted(data.draw(st.sets(st.integers(0, len(keys) - 1), max_size=10)))
    keyed = Keyed(keys, delayed)
    queue, waiting = keyed.queue, list(delayed)
    held: dict[int, int] = {}  # offset: token
    done: set[int] = set()
    clock = 0
    for _ in range(data.draw(st.integers(0, 60))):
        what = data.draw(st.sampled_from(["take", "take", "ack", "nack", "due", "crash", "back"]))
        if what == "take":
            token, ranges = keyed.take(data.draw(st.integers(1, 5)), data.draw(st.booleans()))
            held |= dict.fromkeys(offsets_in(ranges), token)
        elif what == "back":
            wanted, together = data.draw(st.integers(1, 5)), data.draw(st.booleans())
            queue.put_back(keyed.select(wanted, together).ranges)
        elif what == "due" and waiting:
            offset = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            keyed.index.add_due([(offset, 0)])
            queue.add_due([(offset, 0)])
        elif what == "crash":
            queue.restore(queue.snapshot())
            held.clear()
        elif held and what in ("ack", "nack"):
            offset = data.draw(st.sampled_from(sorted(held)))
            token = held.pop(offset)
            if what == "ack":
                keyed.ack(token, [(offset, offset + 1)])
                done.add(offset)
            else:
                clock += 10
                queue.nack(token, [(offset, offset + 1)], data.draw(st.sampled_from([None, clock])))
        for offset in [offset for offset in held if not queue.places.is_out(offset)]:
            del held[offset]  # one before it came back
        out = {(keys[offset], token) for offset, token in held.items() if keys[offset]}
        assert len(out) == len({key for key, _ in out}), "a key is out twice"
        assert not done & set(held)
    for offset, token in held.items():
        keyed.ack(token, [(offset, offset + 1)])
        done.add(offset)
    queue.add_due([(offset, 0) for offset in waiting])
    queue.take_due(1 << 40)
    while ranges := keyed.select(100).ranges:
        queue.apply_settle(ranges_of(sorted(offsets_in(ranges))))
        done.update(offsets_in(ranges))
    assert done == set(range(len(keys)))
    assert queue.floor == len(keys)


# --- after a restart, what waits is in one place


def after_a_restart(keys: list[int]) -> Keyed:
    """The first message is in work, by term 2; term 3 leads."""
    keyed = Keyed(keys)
    keyed.queue.apply_attempts([(0, 1, 1)], token=(2 << 40) + 1)
    keyed.queue.in_doubt.since_term = 1
    keyed.queue.take_up(now=0.0, seconds=5.0, last_term=2, end=len(keys), key_hashes=keyed.hashes)
    return keyed


def test_what_is_claimed_behind_another_of_its_key_is_handed_out_once() -> None:
    keyed = after_a_restart([7, 7, 8])
    queue = keyed.queue
    assert queue.finish((2 << 40) + 9, [(1, 2)]) == ([], [(1, 2)]), "the first has the turn"
    check(queue)

    keyed.ack((2 << 40) + 1, [(0, 1)])
    assert keyed.take(1)[1] == [(1, 2)]
    assert keyed.take(10)[1] == [(2, 3)]
    check(queue)


def test_what_waited_behind_another_of_its_key_is_handed_out_once() -> None:
    keyed = Keyed([7, 7, 8])
    queue = keyed.queue
    queue.apply_attempts([(0, 2, 1)])  # both were delivered, and are not out
    queue.take_up(now=0.0, seconds=5.0, key_hashes=keyed.hashes)
    check(queue)

    token, first = keyed.take(1)
    assert first == [(0, 1)]
    keyed.ack(token, first)
    assert keyed.take(1)[1] == [(1, 2)]
    assert keyed.take(10)[1] == [(2, 3)]
    check(queue)
