"""Random programs on a Queue agree with a naive one, in all three orders."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flintmq.group_model import Order, Ranges
from flintmq.groups import (
    DelayWheel,
    LaneIndex,
    Queue,
    QueueState,
    by_key,
    catching_up,
    delay_wheel,
    key_gate,
    lanes,
    offset_set,
    queue,
)
from flintmq.groups.offset_set import CHUNK
from flintmq.groups.ranges import offsets_in, ranges_of
from tests.groups.checking import check
from tests.groups.naive_queue import Entry, NaiveQueue
from tests.groups.watched_queue import WatchedQueue

SEEDS = int(os.environ.get("FLINT_MODEL_SEEDS", "4"))
STEPS = 400
WEIGHTS = {
    "publish": 40, "take": 80, "finish": 60, "end_limbo": 30, "nack": 20, "release": 10,
    "extend": 20, "leave": 4, "time_passes": 30, "settle_what_nobody_finished": 8, "drop": 8,
    "reset": 1, "crash": 3,
}  # fmt: skip
NEED_A_GRANT = {"finish", "nack", "release", "extend"}
HOLDERS = ("anna", "bert", "cleo")
MODEL = settings(
    max_examples=int(os.environ.get("FLINT_MODEL_EXAMPLES", "30")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

chances = st.randoms(use_true_random=False)


def some_rows(chance: Random) -> list[tuple[int, int, int]]:
    """Rows as (priority, key, delay_ms): plain, by turns, or of any kind."""
    kind = chance.randrange(3)
    if kind == 0:
        return [(0, 0, 0)] * chance.randint(1, 40)
    if kind == 1:
        return [(number % 8, number % 3, 0) for number in range(chance.randint(1, 40))]
    return [
        (chance.randrange(8), chance.randrange(4), chance.choice([0, 0, 0, 50, 3_000]))
        for _ in range(chance.randint(1, 12))
    ]


def flat(ranges: Ranges) -> list[int]:
    return list(offsets_in(ranges))


class QueueModel(RuleBasedStateMachine):
    order: Order
    has_schedules = True
    is_in_small_steps = False

    def __init__(self) -> None:
        super().__init__()
        self.naive = NaiveQueue(self.order)
        self.log: dict[int, tuple[int, int, int]] = {}  # priority, key, due_ms
        self.batches: list[tuple[int, int]] = []
        self.schedule = DelayWheel()
        self.now = 100.0
        self.tokens: list[int] = []
        self.granted: dict[int, list[int]] = {}

    @property
    def now_ms(self) -> int:
        return round(self.now * 1000)

    @initialize(first=st.sampled_from([0, CHUNK - 9, 3 * CHUNK - 30, 1 << 40]))
    def begin(self, first: int) -> None:
        self.first = self.end = self.naive.floor = first
        self.index = LaneIndex(first)
        self.queue = WatchedQueue(self.index, order=self.order, floor=first)

    @rule(chance=chances)
    def publish(self, chance: Random) -> None:
        rows, base = some_rows(chance), self.end
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

    @rule(chance=chances)
    def take(self, chance: Random) -> None:
        wanted, max_deliveries = chance.randint(1, 20), chance.choice([None, None, 3, 2, 1])
        # A run of a key is drawn in one go: in small steps it would end where a step does.
        together = chance.random() < 0.7 and not self.is_in_small_steps
        ranges, picked = self.select(wanted, max_deliveries, together)
        expected = self.naive.select(wanted, together)
        exhausted = [
            offset
            for offset in expected
            if max_deliveries is not None and self.naive.entries[offset].count >= max_deliveries
        ]
        expected = [offset for offset in expected if offset not in exhausted]
        assert ranges == expected
        assert sorted(picked) == sorted(exhausted)
        self.settle(ranges_of(sorted(exhausted)))
        granted = chance.choice([len(expected), chance.randint(0, len(expected))])
        filtered = chance.choice([0, 0, 2])
        mine, rest = expected[:granted], expected[granted:]
        self.settle(ranges_of(rest[:filtered]))
        back, still = ranges_of(rest[filtered:]), ranges_of(mine)
        if chance.randrange(4) == 0:
            self.meanwhile(chance)
        self.queue.put_back(back)
        self.naive.put_back([offset for offset in flat(back) if self.is_selected(offset)])
        mine = [offset for offset in mine if self.is_selected(offset)]
        if mine:
            holder = chance.choice(HOLDERS)
            seconds = chance.choice([1.0, 5.0, 30.0])
            token = self.queue.grant(still, holder, now=self.now, seconds=seconds)
            self.naive.grant(mine, token, holder, self.now + seconds)
            self.tokens.append(token)
            self.granted[token] = mine
            counts = {offset: self.naive.entries[offset].count for offset in mine}
            assert self.queue.counts(ranges_of(mine)) == {
                offset: count for offset, count in counts.items() if count != 1
            }

    def is_selected(self, offset: int) -> bool:
        return offset in self.naive.entries and self.naive.entries[offset].state == "selected"

    def meanwhile(self, chance: Random) -> None:
        """What may happen between a select and its grant."""
        what = [self.finish, self.end_limbo, self.time_passes, self.drop]
        if self.tokens or what[0] != self.finish:
            chance.choice(what[not self.tokens :])(chance)

    def select(
        self, wanted: int, max_deliveries: int | None, together: bool
    ) -> tuple[list[int], list[int]]:
        """As often as it says that there may be more: what is to be delivered, what is not."""
        offsets: list[int] = []
        exhausted: list[int] = []
        is_cut = True
        while is_cut and len(offsets) + len(exhausted) < wanted:
            left = wanted - len(offsets) - len(exhausted)
            ranges, others, is_cut = self.queue.select(
                left,
                max_deliveries=max_deliveries,
                key_hashes=self.key_hashes,
                together=together,
            )
            offsets += flat(ranges)
            exhausted += others
            assert not is_cut or self.is_in_small_steps or self.order == "key"
        return offsets, exhausted

    def settle(self, ranges: Ranges) -> None:
        if ranges:
            assert self.queue.apply_settle(ranges) == self.naive.settle(flat(ranges))

    def some_of_a_grant(self, chance: Random) -> tuple[int, list[int]]:
        """A token and offsets: often all of what it holds, sometimes strangers as well."""
        token = chance.choice(self.tokens[-6:])
        held = [e.offset for e in self.naive.held(token, list(self.naive.entries))]
        if chance.randrange(4) == 0:
            held = self.granted[token]  # whatever became of them
        offsets = held if chance.random() < 0.5 else [o for o in held if chance.random() < 0.5]
        if chance.randrange(10) == 0:
            start = chance.randint(self.first, self.end)
            offsets = offsets + list(range(start, min(self.end, start + 3)))
        return token, sorted(set(offsets))

    def agree(self, found: tuple[Ranges, Ranges], offsets: list[int], mine: list[int]) -> None:
        assert sorted(flat(found[0])) == sorted(mine)
        assert sorted(flat(found[1])) == sorted(set(offsets) - set(mine))

    @precondition(lambda self: self.tokens)
    @rule(chance=chances)
    def finish(self, chance: Random) -> None:
        token, offsets = self.some_of_a_grant(chance)
        mine = self.naive.finish(token, offsets)
        self.agree(self.queue.finish(token, ranges_of(offsets)), offsets, mine)
        if chance.random() < 0.5:
            self.settle(ranges_of(sorted(mine)))

    @rule(chance=chances)
    def end_limbo(self, chance: Random) -> None:
        limbo = sorted(e.offset for e in self.naive.entries.values() if e.state == "limbo")
        some = limbo[: chance.randint(0, len(limbo))]
        if chance.random() < 0.6:
            self.settle(ranges_of(some))
        elif some:
            self.queue.unfinish(ranges_of(some))
            self.naive.unfinish(some)

    @precondition(lambda self: self.tokens)
    @rule(chance=chances)
    def nack(self, chance: Random) -> None:
        token, offsets = self.some_of_a_grant(chance)
        delay_ms = chance.choice([None, 10, 1_500, 20_000])
        due_ms = None if delay_ms is None else self.now_ms + delay_ms
        mine = self.naive.give_back(token, offsets, due_ms)
        self.agree(self.queue.nack(token, ranges_of(offsets), due_ms), offsets, mine)

    @precondition(lambda self: self.tokens)
    @rule(chance=chances)
    def release(self, chance: Random) -> None:
        token, offsets = self.some_of_a_grant(chance)
        mine = self.naive.give_back(token, offsets, None, uncounted=True)
        self.agree(self.queue.release(token, ranges_of(offsets)), offsets, mine)

    @precondition(lambda self: self.tokens)
    @rule(chance=chances)
    def extend(self, chance: Random) -> None:
        token, offsets = self.some_of_a_grant(chance)
        seconds = chance.choice([0.5, 10.0, 60.0])
        holder = chance.choice(HOLDERS)
        mine = self.naive.extend(token, offsets, holder, self.now + seconds)
        found = self.queue.extend(token, ranges_of(offsets), holder, now=self.now, seconds=seconds)
        self.agree(found, offsets, mine)

    @rule(chance=chances)
    def leave(self, chance: Random) -> None:
        holder = chance.choice(HOLDERS)
        given = flat(self.queue.release_holder(holder))
        while self.queue.is_giving_up:
            given += flat(self.queue.give_up())
        assert sorted(given) == self.naive.release_holder(holder)

    @rule(chance=chances)
    def time_passes(self, chance: Random) -> None:
        self.now += chance.choice([0.01, 0.7, 1.0, 4.0, 40.0])
        expired = []
        while some := flat(self.queue.expire(self.now)):
            expired += some
        assert sorted(expired) == self.naive.expire(self.now)
        assert self.queue.take_due(self.now_ms) == self.naive.take_due(self.now_ms)
        due = self.schedule.take_due(self.now_ms)
        self.index.add_due(due)
        self.queue.add_due(due)
        for offset, _ in due:
            if entry := self.naive.entries.get(offset):
                entry.state = "ready"

    @rule(chance=chances)
    def settle_what_nobody_finished(self, chance: Random) -> None:
        start = chance.randint(self.first, self.end)
        stop = chance.randint(start, min(self.end, start + 5))
        if start < stop:
            self.settle([(start, stop)])

    @rule(chance=chances)
    def drop(self, chance: Random) -> None:
        most = chance.choice([3, 10, 80])
        offset = chance.randint(self.first, min(self.end, self.first + most))
        assert self.queue.drop_before(offset) == self.naive.drop_before(offset)
        self.first = max(self.first, offset)
        self.index.drop_before(offset)
        self.schedule.forget_before(offset)

    @rule(chance=chances)
    def reset(self, chance: Random) -> None:
        floor = chance.randint(self.first, self.end)
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

    @rule(chance=chances)
    def crash(self, chance: Random) -> None:
        """All that is left is a snapshot, or the commands; what was handed out is leased on."""
        state = msgspec.msgpack.decode(
            msgspec.msgpack.encode(self.queue.snapshot()), type=QueueState
        )
        token = self.queue.next_token
        self.index = self.index_anew()
        if chance.random() < 0.5:
            self.queue = WatchedQueue(
                self.index, order=self.order, floor=state.floor, first_token=token
            )
            settled = Queue(self.index, order=self.order, floor=state.floor)
            settled.restore(QueueState(state.floor, state.settled))
            self.queue.apply_attempts(state.attempts)
            for held, ranges in state.tokens:
                counts = [
                    (first, last, count)
                    for start, stop in ranges
                    for low, high, count in state.attempts
                    for first, last in [(max(start, low), min(stop, high))]
                    if first < last
                ]
                self.queue.apply_attempts(counts, held)
            self.queue.apply_delays([(offset, 1) for offset, _ in state.delays])
            self.queue.apply_delays(state.delays)
            self.queue.apply_settle(settled.settled.ranges())
        else:
            self.queue = WatchedQueue(self.index, order=self.order, floor=0, first_token=token)
            self.queue.restore(state)
        seconds = chance.choice([0.5, 10.0])
        self.queue.take_up(now=self.now, seconds=seconds, key_hashes=self.key_hashes)
        self.naive.crash(self.now + seconds)

    @invariant()
    def check(self) -> None:
        check(self.queue.queue, {offset for _, offset, _ in self.schedule.items()})
        self.figures_agree()
        self.the_next_moments_agree()
        self.a_peek_shows_what_is_ready()

    def figures_agree(self) -> None:
        ours, entries = self.queue, self.naive.entries.values()
        leased = [entry for entry in entries if entry.state == "leased"]
        assert ours.floor == self.naive.floor
        assert flat(ours.settled.ranges()) == sorted(self.naive.settled)
        assert len(ours.places.leased) == len(leased)
        assert len(ours.places.delayed) == sum(entry.state == "delayed" for entry in entries)
        assert len(ours.places.limbo) == sum(entry.state == "limbo" for entry in entries)
        assert {e.offset: ours.count_of(e.offset) for e in entries} == {
            entry.offset: entry.count for entry in entries
        }
        held = {
            offset: (token, holder, deadline)
            for token, holder, _, deadline, ranges in ours.leases()
            for offset in flat(ranges)
        }
        assert held == {e.offset: (e.token, e.holder, e.deadline) for e in leased}

    def the_next_moments_agree(self) -> None:
        entries = self.naive.entries.values()
        deadlines = [entry.deadline for entry in entries if entry.state == "leased"]
        dues = [entry.due_ms for entry in entries if entry.state == "delayed"]
        assert self.queue.next_deadline() == min(deadlines, default=None)
        assert self.queue.next_due_ms() == min(dues, default=None)

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


class InSmallSteps(QueueModel):
    """Everything that is done a piece at a time is done by very small pieces."""

    is_in_small_steps = True

    def __init__(self) -> None:
        self.patches = pytest.MonkeyPatch()
        for module, name, value in (
            (lanes, "BLOCK_MAX", 4),
            (lanes, "TRIM_BLOCKS", 2),
            (lanes, "RUN", 3),
            (catching_up, "STEP", 3),
            (catching_up, "UNKNOWN_BUDGET", 7),
            (by_key, "KEY_BUDGET", 5),
            (key_gate, "COMPACT_AT", 2),
            (delay_wheel, "PURGE_AT", 2),
            (queue, "GIVE_UP_MAX", 3 if self.order != "key" else 1_024),
            (offset_set, "FEW", 1),
        ):
            self.patches.setattr(module, name, value)
        super().__init__()

    def teardown(self) -> None:
        self.patches.undo()


class ByPriorityInSmallSteps(InSmallSteps, ByPriority):
    pass


class ByLogInSmallSteps(InSmallSteps, ByLog):
    pass


class ByKeyInSmallSteps(InSmallSteps, ByKey):
    pass


def leftovers(ours: Queue) -> list[str]:
    """What a queue, or a part of it, holds on to though everything is settled."""
    assert ours.next_deadline() is None  # which clears up what is over
    kept: list[str] = []
    for name, part in parts_of(ours).items():
        for field, value in parts_of(part).items():
            sets = value if field in ("returned", "_known") else [value]
            if any(hasattr(each, "__len__") and len(each) for each in sets):
                kept.append(f"{name}.{field}")
    return kept


def parts_of(part: object) -> dict[str, Any]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = {name: getattr(part, name) for name in slots if hasattr(part, name)}
    return fields | getattr(part, "__dict__", {})


MODELS = [ByPriority, ByLog, ByKey, ByPriorityInSmallSteps, ByLogInSmallSteps, ByKeyInSmallSteps]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_any_short_program_agrees(model: type[QueueModel]) -> None:
    """Hypothesis looks for the shortest one that does not."""
    run_state_machine_as_test(model, settings=MODEL)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_long_programs_agree(model: type[QueueModel], seed: int) -> None:
    """Rare events stay rare here, so that much is going on when they come."""
    chance = Random(seed)
    program = model()
    try:
        WatchedQueue.watch_each = 20
        program.begin(chance.choice([0, CHUNK - 200, 1 << 40]))
        for _ in range(STEPS):
            (step,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            if program.tokens or step not in NEED_A_GRANT:
                getattr(program, step)(chance)
                program.check()
        program.settle([(program.first, program.end)])
        assert leftovers(program.queue.queue) == []
    finally:
        WatchedQueue.watch_each = 1
        program.teardown()
