"""A queue that is restored looks at what it does not know step by step."""

from __future__ import annotations

from flintmq.groups import LaneIndex, Queue, QueueState
from flintmq.groups.catching_up import STEP
from flintmq.groups.offset_set import OffsetSet

COUNT = 3 * STEP


def test_what_is_settled_does_not_come_again_while_what_is_open_waits_for_its_key() -> None:
    index = LaneIndex()
    index.add(0, COUNT)
    queue = Queue(index, order="key", floor=0)
    settled = [(offset + 1, offset + 10) for offset in range(0, COUNT, 10)]
    queue.restore(QueueState(0, OffsetSet(settled).to_chunks()))

    def key_hashes(start: int, stop: int) -> list[int]:
        return [7 if offset % 10 == 0 else offset for offset in range(start, stop)]

    for offset in range(0, COUNT, 10):
        ranges = queue.select(1, key_hashes=key_hashes).ranges
        queue.grant(ranges, "me", now=0.0, seconds=30.0)
        assert ranges == [(offset, offset + 1)]
        while (others := queue.select(1, key_hashes=key_hashes)).is_cut:
            pass
        assert others.ranges == [], "the others wait for it, and the rest is settled"
        queue.apply_settle(ranges)


def test_what_was_nacked_and_granted_again_is_only_in_doubt_for_a_clock_that_is_behind() -> None:
    """By the clock of who granted it the delay was over; by that of who leads next it is not."""
    index = LaneIndex()
    index.add(0, 1)
    queue = Queue(index, order="priority", floor=0)
    queue.apply_attempts([(0, 1, 1)], 1 << 40)
    queue.apply_delays([(0, 5000)])
    queue.apply_attempts([(0, 1, 2)], (1 << 40) + 1)

    queue.take_up(now=0.0, seconds=5.0)

    assert queue.places.found(0) == ["leased"]
    assert queue.finish((1 << 40) + 1, [(0, 1)]) == ([(0, 1)], [])
    queue.apply_settle([(0, 1)])
    assert queue.take_due(6000) == 0
    assert queue.select(1).ranges == []
