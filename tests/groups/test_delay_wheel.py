"""Delayed offsets come when they are due, in order, and are small."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flintmq.groups import DelayWheel

NOW = 1_700_000_000_000


class WheelModel(RuleBasedStateMachine):
    """Beside a list that is sorted."""

    def __init__(self) -> None:
        super().__init__()
        self.wheel = DelayWheel()
        self.waiting: dict[int, tuple[int, int]] = {}  # offset: due, priority
        self.now = NOW
        self.floor = 0

    @rule(
        offset=st.integers(0, 60),
        delay=st.one_of(st.integers(-5, 5), st.integers(0, 5_000), st.sampled_from([1023, 1024])),
        priority=st.integers(0, 7),
    )
    def add(self, offset: int, delay: int, priority: int) -> None:
        if offset >= self.floor and offset not in self.waiting:
            self.wheel.add(self.now + delay, offset, priority)
            self.waiting[offset] = (self.now + delay, priority)

    @rule(elapsed=st.sampled_from([0, 1, 7, 500, 1024, 3_000]))
    def take(self, elapsed: int) -> None:
        self.now += elapsed
        due = sorted((due, offset) for offset, (due, _) in self.waiting.items() if due <= self.now)
        expected = [(offset, self.waiting.pop(offset)[1]) for _, offset in due]
        assert self.wheel.take_due(self.now) == expected

    @rule(offsets=st.sets(st.integers(0, 60), max_size=20))
    def discard(self, offsets: set[int]) -> None:
        some = [offset for offset in offsets if offset in self.waiting]
        self.wheel.discard(some)
        for offset in some:
            del self.waiting[offset]

    @rule(step=st.integers(0, 3))
    def forget(self, step: int) -> None:
        self.floor += step
        self.wheel.forget_before(self.floor)
        self.waiting = {o: entry for o, entry in self.waiting.items() if o >= self.floor}

    @rule()
    def clear_up(self) -> None:
        self.wheel._purge()
        assert len(self.wheel) == len(self.waiting)

    @invariant()
    def agree(self) -> None:
        dues = [due for due, _ in self.waiting.values()]
        assert len(self.wheel) >= len(self.waiting)
        assert self.wheel.next_due_ms() == min(dues, default=None)
        assert sorted(self.wheel.items()) == sorted(
            (due, offset, priority) for offset, (due, priority) in self.waiting.items()
        )


TestWheelModel = WheelModel.TestCase
TestWheelModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_times_and_offsets_may_be_large() -> None:
    wheel = DelayWheel()
    wheel.add(1 << 45, (1 << 50) - 1, 7)

    assert wheel.next_due_ms() == 1 << 45
    assert wheel.take_due((1 << 45) - 1) == []
    assert wheel.take_due(1 << 45) == [((1 << 50) - 1, 7)]
    assert len(wheel) == 0


@pytest.mark.slow
def test_a_delayed_message_costs_about_8_bytes() -> None:
    count, chance = 200_000, Random(1)
    dues = [NOW + chance.randrange(600_000) for _ in range(count)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    wheel = DelayWheel()
    wheel.add_many((due, offset, offset % 8) for offset, due in enumerate(dues))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown / count <= 12


def test_looking_at_the_next_does_not_touch_the_others() -> None:
    wheel = DelayWheel()
    wheel.add_many((NOW + 1_024 * (offset % 100), offset, 0) for offset in range(10_000))

    assert wheel.next_due_ms() == NOW
    assert sum(bucket.is_sorted for bucket in wheel._buckets.values()) == 1


def test_what_is_discarded_for_good_is_not_kept_for_ever() -> None:
    wheel = DelayWheel()
    wheel.add_many((NOW + 10**9, offset, 0) for offset in range(10_000))
    wheel.discard(range(9_000))

    assert len(wheel) == 1_000
    assert sum(len(bucket) for bucket in wheel._buckets.values()) < 10_000


def test_what_the_log_dropped_is_not_kept_for_ever() -> None:
    wheel = DelayWheel()
    wheel.add_many((NOW + 10**9, offset, 0) for offset in range(10_000))
    for offset in range(0, 100_000, 100):
        wheel.forget_before(offset)

    assert len(wheel) == 0
