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
