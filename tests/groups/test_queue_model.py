"""Random programs on a Queue agree with a naive one, in all three orders."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)  # fmt: skip

from flintmq.group_model import Order, Ranges
from flintmq.groups import DelayWheel, LaneIndex, Queue, QueueState
from flintmq.groups.ranges import offsets_in, ranges_of
from tests.groups.naive_queue import Entry, NaiveQueue

HOLDERS = ("anna", "bert", "cleo")
MODEL = settings(
    max_examples=int(os.environ.get("FLINT_MODEL_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

plain_rows = st.integers(1, 40).map(lambda count: [(0, 0, 0)] * count)
rows_of_any_kind = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 3), st.sampled_from([0, 0, 0, 50, 3_000])),
    min_size=1,
    max_size=12,
)
rows_by_turns = st.integers(1, 40).map(lambda count: [(n % 8, n % 3, 0) for n in range(count)])


def flat(ranges: Ranges) -> list[int]:
    return list(offsets_in(ranges))


class QueueModel(RuleBasedStateMachine):
    order: Order
    has_schedules = True

    def __init__(self) -> None:
        super().__init__()
        self.index = LaneIndex()
        self.queue = Queue(self.index, order=self.order, floor=0)
        self.naive = NaiveQueue(self.order)
        self.log: dict[int, tuple[int, int, int]] = {}  # priority, key, due_ms
        self.batches: list[tuple[int, int]] = []
        self.schedule = DelayWheel()
        self.first = self.end = 0
        self.now = 100.0
        self.tokens: list[int] = []

    @property
    def now_ms(self) -> int:
        return round(self.now * 1000)

    @initialize(rows=rows_of_any_kind)
    def begin(self, rows: list[tuple[int, int, int]]) -> None:
        self.publish(rows)

    @rule(rows=st.one_of(plain_rows, rows_of_any_kind, rows_by_turns))
    def publish(self, rows: list[tuple[int, int, int]]) -> None:
        base = self.end
        for offset, (priority, key, delay) in enumerate(rows, base):
            delay = delay if self.has_schedules else 0
            self.log[offset] = (priority, key, self.now_ms + delay if delay else 0)
            state = "scheduled" if delay else "ready"
            self.naive.add(Entry(offset, priority, key, state))
            if delay:
                self.schedule.add(self.now_ms + delay, offset, priority)
        self.end += len(rows)
        self.batches.append((base, self.end))
        self.index_batch(self.index, base, self.end)

    def index_batch(self, index: LaneIndex, base: int, end: int) -> None:
        rows = [self.log[offset] for offset in range(base, end)]
        priorities = bytes(row[0] for row in rows)
        left_out = [number for number, row in enumerate(rows) if row[2]]
        index.add(base, end - base, priorities if any(priorities) else None, left_out or None)

    def key_hashes(self, start: int, stop: int) -> list[int]:
        return [self.log[offset][1] for offset in range(start, stop)]

    @rule(data=st.data(), wanted=st.integers(1, 20), max_deliveries=st.sampled_from([None, 1, 2]))
    def take(self, data: Any, wanted: int, max_deliveries: int | None) -> None:
        selection = self.queue.select(
            wanted, max_deliveries=max_deliveries, key_hashes=self.key_hashes
        )
        expected = self.naive.select(wanted)
        exhausted = [
            offset
            for offset in expected
            if max_deliveries is not None and self.naive.entries[offset].count >= max_deliveries
        ]
        expected = [offset for offset in expected if offset not in exhausted]
        assert flat(selection.ranges) == expected
        assert sorted(selection.exhausted) == sorted(exhausted)
        assert not selection.is_cut
        self.settle(ranges_of(sorted(exhausted)))
        granted = data.draw(st.integers(0, len(expected)))
        filtered = data.draw(st.sampled_from([0, 0, 2]))
        mine, rest = expected[:granted], expected[granted:]
        self.settle(ranges_of(rest[:filtered]))
        if rest[filtered:]:
            self.queue.put_back(ranges_of(rest[filtered:]))
            self.naive.put_back(rest[filtered:])
        if mine:
            holder = data.draw(st.sampled_from(HOLDERS))
            seconds = data.draw(st.sampled_from([1.0, 5.0, 30.0]))
            token = self.queue.grant(ranges_of(mine), holder, now=self.now, seconds=seconds)
            self.naive.grant(mine, token, holder, self.now + seconds)
            self.tokens.append(token)
            counts = {offset: self.naive.entries[offset].count for offset in mine}
            assert self.queue.counts(ranges_of(mine)) == {
                offset: count for offset, count in counts.items() if count != 1
            }

    def settle(self, ranges: Ranges) -> None:
        if ranges:
            assert self.queue.apply_settle(ranges) == self.naive.settle(flat(ranges))

    def some_of_a_grant(self, data: Any) -> tuple[int, list[int]]:
        """A token and offsets: often all of what it holds, sometimes strangers as well."""
        token = data.draw(st.sampled_from(self.tokens))
        held = [e.offset for e in self.naive.held(token, list(self.naive.entries))]
        whole = data.draw(st.booleans())
        offsets = held if whole else [o for o in held if data.draw(st.booleans())]
        if data.draw(st.integers(0, 9)) == 0:
            start = data.draw(st.integers(self.first, self.end))
            offsets = offsets + list(range(start, min(self.end, start + 3)))
        return token, sorted(set(offsets))

    def agree(self, found: tuple[Ranges, Ranges], offsets: list[int], mine: list[int]) -> None:
        assert sorted(flat(found[0])) == sorted(mine)
        assert sorted(flat(found[1])) == sorted(set(offsets) - set(mine))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), applied=st.booleans())
    def finish(self, data: Any, applied: bool) -> None:
        token, offsets = self.some_of_a_grant(data)
        mine = self.naive.finish(token, offsets)
        self.agree(self.queue.finish(token, ranges_of(offsets)), offsets, mine)
        if applied:
            self.settle(ranges_of(sorted(mine)))

    @rule(data=st.data(), carried_out=st.booleans())
    def end_limbo(self, data: Any, carried_out: bool) -> None:
        limbo = sorted(e.offset for e in self.naive.entries.values() if e.state == "limbo")
        some = limbo[: data.draw(st.integers(0, len(limbo)))]
        if carried_out:
            self.settle(ranges_of(some))
        elif some:
            self.queue.unfinish(ranges_of(some))
            self.naive.put_back(some)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), delay_ms=st.sampled_from([None, 10, 1_500, 20_000]))
    def nack(self, data: Any, delay_ms: int | None) -> None:
        token, offsets = self.some_of_a_grant(data)
        due_ms = None if delay_ms is None else self.now_ms + delay_ms
        mine = self.naive.give_back(token, offsets, due_ms)
        self.agree(self.queue.nack(token, ranges_of(offsets), due_ms), offsets, mine)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        token, offsets = self.some_of_a_grant(data)
        mine = self.naive.give_back(token, offsets, None, uncounted=True)
        self.agree(self.queue.release(token, ranges_of(offsets)), offsets, mine)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), seconds=st.sampled_from([0.5, 10.0, 60.0]))
    def extend(self, data: Any, seconds: float) -> None:
        token, offsets = self.some_of_a_grant(data)
        mine = self.naive.extend(token, offsets, self.now + seconds)
        found = self.queue.extend(token, ranges_of(offsets), now=self.now, seconds=seconds)
        self.agree(found, offsets, mine)

    @rule(holder=st.sampled_from(HOLDERS))
    def leave(self, holder: str) -> None:
        assert flat(self.queue.release_holder(holder)) == self.naive.release_holder(holder)

    @rule(seconds=st.sampled_from([0.01, 0.7, 1.0, 4.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        assert flat(self.queue.expire(self.now)) == self.naive.expire(self.now)
        assert self.queue.take_due(self.now_ms) == self.naive.take_due(self.now_ms)
        due = self.schedule.take_due(self.now_ms)
        self.index.add_due(due)
        self.queue.add_due(due)
        for offset, _ in due:
            if entry := self.naive.entries.get(offset):
                entry.state = "ready"

    @rule(data=st.data())
    def settle_what_nobody_finished(self, data: Any) -> None:
        start = data.draw(st.integers(self.first, self.end))
        stop = data.draw(st.integers(start, min(self.end, start + 5)))
        if start < stop:
            self.settle([(start, stop)])

    @rule(data=st.data())
    def drop(self, data: Any) -> None:
        offset = data.draw(st.integers(self.first, min(self.end, self.first + 10)))
        assert self.queue.drop_before(offset) == self.naive.drop_before(offset)
        self.first = max(self.first, offset)
        self.index.drop_before(offset)
        self.schedule.forget_before(offset)

    @rule(data=st.data())
    def reset(self, data: Any) -> None:
        floor = data.draw(st.integers(self.first, self.end))
        self.index = self.index_anew()
        self.queue.apply_reset(floor, self.index)
        polls = self.naive.polls
        self.naive = NaiveQueue(self.order)
        self.naive.floor, self.naive.polls = floor, polls
        for offset in range(floor, self.end):
            priority, key, due_ms = self.log[offset]
            state = "scheduled" if due_ms > self.now_ms else "ready"
            self.naive.add(Entry(offset, priority, key, state))
        self.tokens.clear()

    def index_anew(self) -> LaneIndex:
        index = LaneIndex(self.first)
        for base, end in self.batches:
            if end > self.first:
                self.index_batch(index, max(base, self.first), end)
        index.add_due(
            [
                (offset, row[0])
                for offset, row in self.log.items()
                if offset >= self.first and 0 < row[2] <= self.now_ms
            ]
        )
        return index

    @rule(as_journaled=st.booleans())
    def crash(self, as_journaled: bool) -> None:
        """All that is left is a snapshot, or the commands."""
        state = self.queue.snapshot()
        token = self.queue.next_token
        self.index = self.index_anew()
        if as_journaled:
            self.queue = Queue(self.index, order=self.order, floor=state.floor, first_token=token)
            settled = Queue(self.index, order=self.order, floor=state.floor)
            settled.restore(QueueState(state.floor, state.settled))
            self.queue.apply_attempts(state.attempts)
            self.queue.apply_delays([(offset, 1) for offset, _ in state.delays])
            self.queue.apply_delays(state.delays)
            self.queue.apply_settle(settled.settled.ranges())
        else:
            self.queue = Queue(self.index, order=self.order, floor=0, first_token=token)
            self.queue.restore(state)
        self.naive.crash()
        self.tokens.clear()

    @invariant()
    def figures_agree(self) -> None:
        queue, entries = self.queue, self.naive.entries.values()
        leased = [entry for entry in entries if entry.state == "leased"]
        assert queue.floor == self.naive.floor
        assert flat(queue.settled.ranges()) == sorted(self.naive.settled)
        assert queue.in_flight_count == len(leased)
        assert queue.delayed_count == sum(entry.state == "delayed" for entry in entries)
        assert queue.limbo_count == sum(entry.state == "limbo" for entry in entries)
        assert {e.offset: queue.count_of(e.offset) for e in entries} == {
            entry.offset: entry.count for entry in entries
        }
        held = {
            offset: (token, holder, deadline)
            for token, holder, _, deadline, ranges in queue.leases()
            for offset in flat(ranges)
        }
        assert held == {e.offset: (e.token, e.holder, e.deadline) for e in leased}

    @invariant()
    def the_next_moments_agree(self) -> None:
        entries = self.naive.entries.values()
        deadlines = [entry.deadline for entry in entries if entry.state == "leased"]
        dues = [entry.due_ms for entry in entries if entry.state == "delayed"]
        assert self.queue.next_deadline() == min(deadlines, default=None)
        assert self.queue.next_due_ms() == min(dues, default=None)

    @invariant()
    def a_peek_shows_what_is_ready(self) -> None:
        if self.order != "key":
            ready = [entry.offset for entry in self.naive.by_priority()]
            assert self.queue.has_ready() or not ready
            assert flat(self.queue.peek(7)) == ready[:7]


class ByPriority(QueueModel):
    order = "priority"


class ByLog(QueueModel):
    order = "log"


class ByKey(QueueModel):
    order = "key"
    has_schedules = False  # see test_key_order for those


TestByPriority = ByPriority.TestCase
TestByLog = ByLog.TestCase
TestByKey = ByKey.TestCase
TestByPriority.settings = TestByLog.settings = TestByKey.settings = MODEL
