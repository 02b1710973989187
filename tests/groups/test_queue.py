"""What a queue promises, one promise at a time. The random programs are in test_queue_model."""

from __future__ import annotations

import msgspec
import pytest

from flintmq.group_model import Order, Ranges
from flintmq.groups import LaneIndex, Queue, QueueState
from flintmq.groups.ranges import offsets_in


def queue_of(*priorities: int, order: Order = "priority", count: int | None = None) -> Queue:
    index = LaneIndex()
    if count is None:
        index.add(0, len(priorities), bytes(priorities))
    else:
        index.add(0, count)
    return Queue(index, order=order, floor=0)


def take(
    queue: Queue, wanted: int, *, holder: str = "anna", now: float = 0.0
) -> tuple[int, Ranges]:
    ranges = queue.select(wanted).ranges
    return queue.grant(ranges, holder, now=now, seconds=30.0), ranges


def ack(queue: Queue, token: int, ranges: Ranges) -> int:
    mine, lost = queue.finish(token, ranges)
    assert lost == []
    return queue.apply_settle(mine)


# --- which comes next


def test_the_worked_example_of_hermesmq() -> None:
    """One low at offset 0, five of priority 7 behind it, one at a time."""
    queue = queue_of(0, 7, 7, 7, 7, 7)

    assert [queue.select(1).ranges[0][0] for _ in range(6)] == [1, 2, 3, 0, 4, 5]
    assert queue.select(1).ranges == []


@pytest.mark.parametrize(
    ("wanted", "reserved"),
    [
        *[(wanted, (0, 0, 0, 1)) for wanted in (1, 2, 3)],
        *[(wanted, (1, 1, 1, 2)) for wanted in (4, 5)],
        *[(wanted, (2, 2, 2, 3)) for wanted in (8, 10)],
        (16, (4, 4, 4, 5)),
        (64, (16, 16, 16, 17)),
        (256, (64, 64, 64, 65)),
    ],
)
def test_the_reserved_slots_are_those_of_hermesmq(wanted: int, reserved: tuple[int, ...]) -> None:
    queue = queue_of(*[0] * 1_000, *[7] * 4_000)
    low = []
    for _ in reserved:
        offsets = list(offsets_in(queue.select(wanted).ranges))
        assert len(offsets) == wanted
        low.append(sum(offset < 1_000 for offset in offsets))

    assert tuple(low) == reserved


def test_a_higher_priority_that_came_later_overtakes() -> None:
    queue = queue_of(0, 0, 3, 7)

    assert queue.select(3).ranges == [(3, 4), (2, 3), (0, 1)]


def test_a_poll_that_found_nothing_does_not_count() -> None:
    queue = queue_of()
    for _ in range(5):
        assert queue.select(1).ranges == []

    assert queue.poll_count == 0


def test_a_plain_backlog_comes_as_ranges() -> None:
    queue = queue_of(count=1_000)

    assert queue.select(256).ranges == [(0, 256)]
    assert queue.select(1_000).ranges == [(256, 1_000)]


def test_one_priority_alone_comes_as_ranges_too() -> None:
    queue = queue_of(*[5] * 1_000)

    assert queue.select(256).ranges == [(0, 256)]


def test_the_order_of_the_log_knows_no_priorities() -> None:
    queue = queue_of(0, 7, 3, order="log")

    assert queue.select(5).ranges == [(0, 3)]


def test_what_came_back_goes_ahead_of_later_ones_of_its_priority() -> None:
    queue = queue_of(0, 0, 0, 7)
    token, ranges = take(queue, 2)
    assert ranges == [(3, 4), (0, 1)]
    queue.nack(token, ranges, None)

    assert queue.select(1).ranges == [(3, 4)]
    assert queue.select(3).ranges == [(0, 3)]


def test_a_peek_changes_nothing() -> None:
    queue = queue_of(0, 7, 3)

    assert queue.peek(2) == queue.peek(2) == [(1, 3)]
    assert queue.select(2).ranges == [(1, 3)]


def test_messages_put_back_come_again_in_their_place_and_uncounted() -> None:
    queue = queue_of(count=10)
    assert queue.select(6).ranges == [(0, 6)]
    queue.put_back([(2, 6)])

    assert queue.select(3).ranges == [(2, 5)]
    assert queue.count_of(2) == 0


# --- settling


def test_what_is_acknowledged_in_any_order_moves_the_floor_when_the_gap_is_closed() -> None:
    queue = queue_of(count=10)
    token, _ = take(queue, 10)

    assert ack(queue, token, [(5, 10)]) == 5
    assert (queue.floor, queue.settled.ranges()) == (0, [(5, 10)])
    assert ack(queue, token, [(0, 5)]) == 5
    assert (queue.floor, queue.settled.ranges()) == (10, [])


def test_a_finished_message_is_neither_ready_nor_leased_nor_settled() -> None:
    queue = queue_of(count=1)
    token, ranges = take(queue, 1)
    queue.finish(token, ranges)

    assert (len(queue.places.leased), len(queue.places.limbo), queue.floor) == (0, 1, 0)
    assert queue.select(1).ranges == []
    queue.unfinish(ranges)
    assert queue.select(1).ranges == ranges
    assert queue.count_of(0) == 1


def test_settling_twice_settles_once() -> None:
    queue = queue_of(count=4)

    assert queue.apply_settle([(1, 3)]) == 2
    assert queue.apply_settle([(0, 4)]) == 2
    assert queue.apply_settle([(0, 4)]) == 0
    assert queue.select(4).ranges == []
    assert not queue.has_ready()


def test_a_stranger_settles_nothing() -> None:
    queue = queue_of(count=4)
    token, ranges = take(queue, 4)

    assert queue.finish(token + 1, ranges) == ([], ranges)
    assert queue.finish(token, [(2, 6)]) == ([(2, 4)], [(4, 6)])


def test_an_absurdly_long_range_costs_no_more_than_what_is_held() -> None:
    queue = queue_of(count=4)
    token, _ = take(queue, 4)
    queue.finish(token, [(1, 2)])

    mine, lost = queue.finish(token, [(0, 1 << 60)])
    assert mine == [(0, 1), (2, 4)]
    assert lost == [(1, 2), (4, 1 << 60)]


# --- leases


def test_a_lease_that_ran_out_can_be_settled_until_another_has_it() -> None:
    queue = queue_of(count=2)
    token, ranges = take(queue, 2)
    assert queue.expire(29.9) == []
    assert queue.expire(30.0) == ranges

    assert queue.finish(token, [(0, 1)]) == ([(0, 1)], [])
    later, again = take(queue, 2, holder="bert", now=31.0)
    assert (later > token, again) == (True, [(1, 2)])
    assert queue.finish(token, [(1, 2)]) == ([], [(1, 2)])
    assert queue.counts(again) == {1: 2}


def test_looking_for_what_to_grant_takes_nothing_from_who_is_late() -> None:
    queue = queue_of(count=2)
    token, ranges = take(queue, 2)
    queue.expire(30.0)
    queue.put_back(queue.select(2).ranges)

    assert queue.finish(token, ranges) == (ranges, [])


def test_a_part_that_is_extended_outlives_the_rest() -> None:
    queue = queue_of(count=4)
    token, _ = take(queue, 4)

    assert queue.extend(token, [(1, 2)], "a", now=0.0, seconds=60.0) == ([(1, 2)], [])
    assert queue.expire(30.0) == [(0, 1), (2, 4)]
    assert queue.next_deadline() == 60.0
    mine, lost = queue.finish(token, [(0, 4)])
    assert (list(offsets_in(mine)), lost, len(queue.places.leased)) == ([0, 1, 2, 3], [], 0)


def test_extending_a_lease_that_ran_out_takes_it_up_again() -> None:
    queue = queue_of(count=1)
    token, ranges = take(queue, 1)
    queue.expire(30.0)

    assert queue.extend(token, ranges, "a", now=31.0, seconds=10.0) == (ranges, [])
    assert queue.select(1).ranges == []
    assert (queue.count_of(0), queue.next_deadline()) == (1, 41.0)


def test_a_clean_close_gives_everything_back_at_once() -> None:
    queue = queue_of(0, 7, 3)
    take(queue, 2, holder="anna")
    take(queue, 1, holder="bert")

    assert queue.release_holder("anna") == [(1, 3)]
    assert [lease.holder for lease in queue.leases()] == ["bert"]
    assert queue.release_holder("anna") == []


def test_what_nobody_looked_at_does_not_count_as_delivered() -> None:
    queue = queue_of(count=2)
    token, ranges = take(queue, 2)
    queue.release(token, ranges)

    assert queue.count_of(0) == 0
    assert queue.select(2, max_deliveries=1) == ([(0, 2)], [], False)


def test_what_was_delivered_as_often_as_allowed_is_not_delivered_again() -> None:
    queue = queue_of(count=3)
    for _ in range(2):
        token, _ = take(queue, 1)
        queue.nack(token, [(0, 1)], None)

    assert queue.select(3, max_deliveries=2) == ([(1, 3)], [0], False)
    assert queue.apply_settle([(0, 1)]) == 1
    assert queue.floor == 1


# --- delays


def test_a_message_nacked_with_a_delay_comes_when_it_is_due() -> None:
    queue = queue_of(0, 7)
    token, ranges = take(queue, 1)
    queue.nack(token, ranges, 5_000)

    assert (queue.next_due_ms(), len(queue.places.delayed)) == (5_000, 1)
    assert queue.take_due(4_999) == 0
    assert queue.take_due(5_000) == 1
    assert queue.select(1).ranges == [(1, 2)]


def test_a_delayed_message_that_is_due_takes_its_place_by_offset() -> None:
    index = LaneIndex()
    index.add(0, 4, None, [1])
    queue = Queue(index, order="priority", floor=0)
    queue.add_due([(1, 0)])

    assert queue.select(4).ranges == [(0, 4)]


def test_a_delayed_message_that_was_settled_meanwhile_does_not_come() -> None:
    index = LaneIndex()
    index.add(0, 3, None, [1, 2])
    queue = Queue(index, order="priority", floor=0)
    queue.apply_settle([(1, 2)])
    queue.add_due([(1, 0), (2, 0)])

    assert queue.select(3).ranges == [(0, 1), (2, 3)]


def test_a_group_that_begins_late_finds_what_was_delayed_before() -> None:
    index = LaneIndex()
    index.add(0, 3, bytes([0, 4, 0]), [1])
    index.add_due([(1, 4)])

    assert Queue(index, order="priority", floor=0).select(3).ranges == [(1, 2), (0, 1), (2, 3)]
    assert Queue(index, order="log", floor=0).select(3).ranges == [(0, 3)]


# --- retention, reset, restart


def test_what_the_log_dropped_is_gone_whatever_it_was_doing() -> None:
    queue = queue_of(count=10)
    token, _ = take(queue, 4)
    queue.finish(token, [(0, 1)])
    queue.nack(token, [(1, 2)], 5_000)
    ack(queue, token, [(2, 3)])

    assert queue.drop_before(6) == 5
    assert (queue.floor, len(queue.places.leased), len(queue.places.delayed)) == (6, 0, 0)
    assert queue.finish(token, [(3, 4)]) == ([], [(3, 4)])
    assert queue.select(10).ranges == [(6, 10)]


def test_what_was_dropped_between_select_and_grant_is_not_granted() -> None:
    queue = queue_of(count=10)
    ranges = queue.select(4).ranges
    queue.drop_before(2)
    token = queue.grant(ranges, "anna", now=0.0, seconds=30.0)

    assert [lease.ranges for lease in queue.leases()] == [[(2, 4)]]
    assert queue.finish(token, ranges) == ([(2, 4)], [(0, 2)])


def test_a_reset_begins_anew() -> None:
    queue = queue_of(count=10)
    token, ranges = take(queue, 8)
    ack(queue, token, [(0, 4)])
    queue.nack(token, [(4, 5)], None)
    index = LaneIndex()
    index.add(0, 10)
    queue.apply_reset(2, index)

    assert (queue.floor, len(queue.places.leased), queue.count_of(4)) == (2, 0, 0)
    assert queue.finish(token, ranges) == ([], ranges)
    assert queue.select(20).ranges == [(2, 10)]


def test_a_restart_keeps_counts_and_delays_and_forgets_leases() -> None:
    index = LaneIndex()
    index.add(0, 8, bytes([0, 0, 0, 0, 7, 7, 7, 7]))
    queue = Queue(index, order="priority", floor=0)
    token, _ = take(queue, 8)
    ack(queue, token, [(5, 6)])
    queue.finish(token, [(6, 7)])
    queue.nack(token, [(7, 8)], 9_000)
    bytes_on_disk = msgspec.msgpack.encode(queue.snapshot())

    again = Queue(index, order="priority", floor=0)
    again.restore(msgspec.msgpack.decode(bytes_on_disk, type=QueueState))

    assert (again.settled.ranges(), len(again.places.leased)) == ([(5, 6)], 0)
    assert [again.count_of(offset) for offset in range(8)] == [1, 1, 1, 1, 1, 0, 1, 1]
    assert again.next_due_ms() == 9_000
    assert again.select(8).ranges == [(4, 5), (6, 7), (0, 4)]
    assert again.take_due(9_000) == 1
    assert again.select(8).ranges == [(7, 8)]


def test_the_last_delay_that_was_journaled_counts() -> None:
    queue = queue_of(count=3)
    queue.apply_delays([(1, 9_000)])
    queue.apply_delays([(1, 4_000), (2, 7_000)])
    queue.apply_delays([(1, 6_000)])

    assert queue.next_due_ms() == 6_000
    queue.apply_delays([(1, 8_000)])
    assert queue.next_due_ms() == 7_000
    assert queue.take_due(10_000) == 2
    assert len(queue.places.delayed) == 0


def test_counts_of_what_is_settled_are_not_kept() -> None:
    queue = queue_of(count=10)
    queue.apply_attempts([(0, 6, 3)])
    queue.apply_settle([(2, 4)])
    queue.apply_attempts([(1, 5, 2), (0, 1, 0)])

    assert queue.snapshot().attempts == [(1, 2, 2), (4, 5, 2), (5, 6, 3)]


def test_a_message_that_was_delayed_and_then_nacked_keeps_its_priority_over_a_restart() -> None:
    index = LaneIndex()
    index.add(0, 3, bytes([0, 4, 0]), [1])
    queue = Queue(index, order="priority", floor=0)
    queue.apply_delays([(1, 5_000)])
    queue.add_due([(1, 4)])

    assert queue.select(1).ranges == [(0, 1)]
    assert queue.take_due(5_000) == 1
    assert queue.select(2).ranges == [(1, 3)]
    queue.put_back([(1, 3)])
    assert queue.select(1).ranges == [(1, 2)]
