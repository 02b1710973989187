"""Leases give out what they hold once, and end when they should."""

from __future__ import annotations

from flintmq.group_model import Ranges
from flintmq.groups.leases import Lease, LeaseTable


def lease(ranges: Ranges, *, token: int = 1, holder: str = "anna", deadline: float = 30.0) -> Lease:
    return Lease(token, holder, 0.0, deadline, ranges)


def test_a_whole_grant_is_taken_in_one_step() -> None:
    whole = lease([(0, 256)])

    assert whole.take([(0, 256)]) == [(0, 256)]
    assert not whole
    assert whole.take([(0, 256)]) == []


def test_a_grant_that_is_taken_from_its_ends_stays_a_range() -> None:
    whole = lease([(0, 256)])

    assert whole.take([(0, 1)]) == [(0, 1)]
    assert whole.take([(200, 999)]) == [(200, 256)]
    assert (whole.offsets, whole.outstanding()) == (None, [(1, 200)])


def test_any_part_of_a_grant_can_be_taken_and_only_once() -> None:
    whole = lease([(8, 10), (0, 3), (20, 21)])

    assert whole.take([(20, 21), (1, 2), (50, 60)]) == [(1, 2), (20, 21)]
    assert whole.outstanding() == [(0, 1), (2, 3), (8, 10)]
    assert whole.take([(0, 1 << 60)]) == [(0, 1), (2, 3), (8, 10)]
    assert not whole


def test_leases_end_in_the_order_of_their_deadlines() -> None:
    table = LeaseTable()
    later, sooner = lease([(0, 1)], deadline=9.0), lease([(1, 2)], token=2, deadline=5.0)
    table.add(later)
    table.add(sooner)

    assert table.next_deadline() == 5.0
    assert table.take_over(4.9) == []
    assert table.take_over(9.0) == [sooner, later]
    assert table.next_deadline() is None
    assert list(table) == []


def test_an_extended_lease_ends_later_and_one_that_is_cut_short_sooner() -> None:
    table = LeaseTable()
    held = lease([(0, 1)], deadline=5.0)
    table.add(held)

    table.extend(held, 20.0)
    assert table.take_over(6.0) == []
    assert table.next_deadline() == 20.0
    table.extend(held, 7.0)
    assert table.next_deadline() == 7.0
    assert table.take_over(7.0) == [held]
    assert table.take_over(99.0) == []


def test_leases_that_are_done_do_not_pile_up() -> None:
    table = LeaseTable()
    for token in range(10_000):
        short = lease([(token, token + 1)], token=token)
        table.add(short)
        short.take([(token, token + 1)])
        table.forget_if_done(short)

    assert len(table._heap) < 200
    assert not table._by_token
    assert not table._by_holder


def test_a_token_may_have_several_leases() -> None:
    table = LeaseTable()
    one, other = lease([(0, 1)]), lease([(1, 2)], deadline=40.0)
    table.add(one)
    table.add(other)

    assert table.take_over(30.0) == [one]
    assert table.of_token(1) == [one, other]
    assert table.of_holder("anna") == [other]
