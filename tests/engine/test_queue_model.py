"""Random programs on a queue group of the engine agree with a naive one, over crashes and cuts.

The naive queue is that of `tests/groups`, with a log, time and dead letters around it. Which
messages the log has dropped is read from the log: retention is checked elsewhere, here it is only
checked that it had a reason.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import ExitStack
from random import Random
from typing import Any

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

from flintmq.batch import BatchBuilder
from flintmq.engine.leading import picking
from flintmq.engine.leading.member import GroupMember
from flintmq.engine.leading.queue_group import QueueGroup
from flintmq.errors import LeaseLost
from flintmq.group_model import Order
from flintmq.groups.ranges import ranges_of
from flintmq.testing import ManualClock, SimulatedFileSystem
from tests.engine.stepping import small_sizes
from tests.engine.test_queue_groups import Desk
from tests.groups.checking import check
from tests.groups.naive_queue import Entry, NaiveQueue

EXAMPLES = int(os.environ.get("FLINT_MODEL_EXAMPLES", "5"))
SEEDS = int(os.environ.get("FLINT_MODEL_SEEDS", "3"))
MAX_DELIVERIES = 3
MANY = 1_000_000

# No two of these end at the same time, so it does not matter who is told first.
LEASES = (3.0, 7.0)
TTLS = (1.5, 4.5)
DELAYS = (1.25, 3.25)
NACK_DELAYS = (0.0, 2.125)

chances = st.randoms(use_true_random=False)


class Naive(NaiveQueue):
    """A queue over a log, with time and dead letters."""

    def __init__(self, order: str) -> None:
        super().__init__(order)
        self.rows: list[tuple[int, int, int, int]] = []  # priority, key, due_ms, expiry_ms
        self.dead: list[tuple[int, int]] = []  # offset, deliveries
        self.void: set[int] = set()  # tokens from before a reset
        self.given: dict[int, int] = {}  # what was handed out more than once: the last token
        self.paused = False
        self.settles_later = False
        """Whether what has expired is settled by way of the journal: its key is free after that."""

    def publish(self, rows: list[tuple[int, int, int, int]], now_ms: int) -> None:
        for row in rows:
            self.rows.append(row)
            self._enter(len(self.rows) - 1, now_ms)

    def _enter(self, offset: int, now_ms: int) -> None:
        priority, key, due_ms, _ = self.rows[offset]
        state = "scheduled" if due_ms > now_ms else "ready"
        self.add(Entry(offset, priority, key, state, due_ms=due_ms))

    def is_expired(self, offset: int, now_ms: int) -> bool:
        return 0 < self.rows[offset][3] <= now_ms

    def take(self, wanted: int, token: int, now: float, now_ms: int, lease: float) -> list[int]:
        """What is handed out. What has expired or was delivered often enough is passed over."""
        taken: list[int] = []
        expired: list[int] = []
        exhausted: list[int] = []  # buried after this: their keys are free then
        while not self.paused and len(taken) < wanted:
            picked = self.select(wanted - len(taken))
            if not picked:
                break
            for offset in picked:
                if self.entries[offset].count >= MAX_DELIVERIES:
                    exhausted.append(offset)
                elif not self.is_expired(offset, now_ms):
                    taken.append(offset)
                elif self.settles_later:
                    expired.append(offset)
                else:
                    self.settle([offset])
            if not any(row[3] for row in self.rows) and taken:
                break  # nothing here expires: one look is enough
        self.settle(expired)
        for offset in exhausted:
            self.bury(offset)
        self.grant(taken, token, "", now + lease)
        self.given.update({o: token for o in taken if self.entries[o].count > 1})
        return taken

    def bury(self, offset: int) -> None:
        if offset >= self.floor and offset in self.entries:
            self.dead.append((offset, self.entries[offset].count))
            self.given[offset] = 1 << 62
        self.settle([offset])

    def nack(self, token: int, offsets: list[int], due_ms: int | None) -> list[int]:
        held = [entry.offset for entry in self.held(token, offsets)]
        last = [offset for offset in held if self.entries[offset].count >= MAX_DELIVERIES]
        for offset in last:
            self.bury(offset)
        self.give_back(token, [offset for offset in held if offset not in last], due_ms)
        return held

    def next_event(self, now: float, now_ms: int) -> float | None:
        """When time brings something about."""
        waits = [e.deadline - now for e in self.entries.values() if e.state == "leased"]
        waits += [
            (e.due_ms - now_ms) / 1000
            for e in self.entries.values()
            if e.state in ("delayed", "scheduled")
        ]
        return min(waits, default=None)

    def time_has_passed(self, now: float, now_ms: int, first: int) -> None:
        for offset in self.expire(now):
            if self.entries[offset].count >= MAX_DELIVERIES:
                self.bury(offset) if offset >= first else self.settle([offset])
        self.take_due(now_ms)
        for entry in self.entries.values():
            if entry.state == "scheduled" and entry.due_ms <= now_ms:
                entry.state = "ready"

    def reset(self, floor: int, now_ms: int) -> None:
        self.entries.clear()
        self.settled.clear()
        self.floor = floor
        for offset in range(floor, len(self.rows)):
            self._enter(offset, now_ms)


class EngineModel(RuleBasedStateMachine):
    order: Order
    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = ExitStack()
        self.stack.enter_context(small_sizes())
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(picking, "_ALONE", -MANY)  # suspects have tests of their own
        self.naive = Naive(self.order)
        self.naive.settles_later = self.durable
        self.granted: list[tuple[int, list[int]]] = []
        self.keeps: int | None = None
        self.holder = 0
        self.before_restart = -1
        """The last token that was granted before the process ended."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Something that takes no time, and whatever follows from it."""
        return self.run(self.desk.run(work))

    @initialize(keeps=st.sampled_from([None, None, 12]))
    def begin(self, keeps: int | None) -> None:
        self.keeps = keeps
        self.run(self._begin())

    async def _begin(self) -> None:
        self.desk = await Desk(SimulatedFileSystem() if self.durable else None).open()
        options = {"max_deliveries": MAX_DELIVERIES, "retention_count": self.keeps}
        await self.desk.run(self.desk.broker.create_topic("t", options))
        await self._join()

    async def _join(self) -> None:
        self.holder += 1
        self.member: GroupMember = await self.desk.join(order=self.order, holder=f"m{self.holder}")

    @property
    def clock(self) -> ManualClock:
        return self.desk.clock

    @property
    def group(self) -> QueueGroup:
        return self.desk.broker.shard.topics["t"].queues["g"]

    def look_at_the_log(self) -> None:
        """Take note of what the log has dropped, which had a reason."""
        first = self.desk.broker.shard.topics["t"].log.first_offset
        kept_from = len(self.naive.rows) - (self.keeps or len(self.naive.rows))
        for offset in range(max(self.naive.floor, kept_from), first):
            assert self.naive.is_expired(offset, self.clock.now_ms()), f"{offset} was dropped"
        self.naive.drop_before(first)

    # --- what users do

    @rule(chance=chances)
    def publish(self, chance: Random) -> None:
        now_ms = self.clock.now_ms()
        is_plain = chance.random() < 0.3
        rows = []
        builder = BatchBuilder()
        for _ in range(chance.randint(1, 6)):
            row = (0, 0, 0, 0)
            if not is_plain:
                delay = chance.choice((0.0, 0.0, *DELAYS))
                ttl = chance.choice((0.0, 0.0, 0.0, *TTLS))
                row = (
                    chance.choice((0, 0, 3, 7)),
                    chance.randrange(4),
                    now_ms + round(delay * 1000) if delay else 0,
                    now_ms + round(ttl * 1000) if ttl else 0,
                )
            priority, key, due_ms, expiry = row
            rows.append(row)
            builder.append_row(
                b"%d" % (len(self.naive.rows) + len(rows) - 1),
                key=f"k{key}" if key else None,
                priority=priority,
                deliver_at=due_ms,
                expiry=expiry,
            )
        publish = self.desk.broker.publish("t", builder, qos=1, auto_create=False, timeout=None)
        receipt = self.do(publish)
        assert receipt.offset == len(self.naive.rows)
        self.naive.publish(rows, now_ms)

    @rule(wanted=st.integers(1, 9), lease=st.sampled_from(LEASES))
    def take(self, wanted: int, lease: float) -> None:
        self.look_at_the_log()
        grant = self.do(self.member.take(wanted, lease, 0))
        token = -1 if grant is None else grant.token
        now, now_ms = self.clock.monotonic(), self.clock.now_ms()
        expected = self.naive.take(wanted, token, now, now_ms, lease)
        if grant is None:
            assert expected == [], self.picture()
            return
        offsets = list(grant.rows.offsets)
        assert offsets == expected, f"{offsets} not {expected}; {self.picture()}"
        assert grant.rows.values == [b"%d" % offset for offset in offsets]
        counts = {o: grant.counts.get(o, 1) for o in offsets}
        assert counts == {o: self.naive.entries[o].count for o in offsets}
        assert all(token > before for before, _ in self.granted)
        self.granted.append((token, offsets))

    def picture(self) -> str:
        """For a failure: the engine's state beside the model's."""
        topic = self.desk.broker.shard.topics["t"]
        now_ms, queue = self.clock.now_ms(), self.group.queue
        rows = [(p, k, due and due - now_ms, e and e - now_ms) for p, k, due, e in self.naive.rows]
        return (
            f"log {topic.log.first_offset}..{topic.log.next_offset} rows {rows} "
            f"engine floor {queue.floor} {queue.snapshot()} delayed {topic.delaying.delays.stored} "
            f"model floor {self.naive.floor} {list(self.naive.entries.values())}"
        )

    def some(self, chance: Random) -> tuple[int, list[int]]:
        """Some of what was granted together, settled since or not."""
        token, offsets = chance.choice(self.granted[-4:])
        return token, sorted(chance.sample(offsets, chance.randint(1, len(offsets))))

    def settled_as(self, work: Coroutine[Any, Any, Any], asked: list[int], mine: list[int]) -> None:
        """Do it; what is lost is what the model says, but for what the log has dropped since."""
        lost: set[int] = set()
        try:
            self.do(work)
        except LeaseLost as error:
            lost = set(error.offsets)
        expected = set(asked) - set(mine)
        first = self.desk.broker.shard.topics["t"].log.first_offset
        assert {o for o in lost if o >= first} == {o for o in expected if o >= first}

    @precondition(lambda self: self.granted)
    @rule(chance=chances)
    def ack(self, chance: Random) -> None:
        token, offsets = self.some(chance)
        mine = self.naive.finish(token, offsets)
        done = [o for o in offsets if o not in self.naive.entries and not self.is_given(o, token)]
        self.settled_as(self.member.ack([(token, ranges_of(offsets))]), offsets, mine + done)
        self.naive.settle(mine)

    def is_given(self, offset: int, token: int) -> bool:
        """Whether a message was given to another after this token, or to the dead letters."""
        return token in self.naive.void or self.naive.given.get(offset, 0) > token

    @precondition(lambda self: self.granted)
    @rule(chance=chances, delay=st.sampled_from(NACK_DELAYS))
    def nack(self, chance: Random, delay: float) -> None:
        self.look_at_the_log()
        token, offsets = self.some(chance)
        due_ms = self.clock.now_ms() + round(delay * 1000) if delay else None
        mine = self.naive.nack(token, offsets, due_ms)
        self.settled_as(self.member.nack([(token, ranges_of(offsets))], delay), offsets, mine)

    @precondition(lambda self: self.granted)
    @rule(chance=chances)
    def reject(self, chance: Random) -> None:
        self.look_at_the_log()
        token, offsets = self.some(chance)
        mine = self.naive.finish(token, offsets)
        done = []
        if token <= self.before_restart:  # the answer may have been lost with the process
            done = [o for o in offsets if o not in self.naive.entries]
            done = [o for o in done if o not in mine and not self.is_given(o, token)]
        work = self.member.reject([(token, ranges_of(offsets))], "no")
        self.settled_as(work, offsets, mine + done)
        for offset in mine:
            self.naive.bury(offset)

    @precondition(lambda self: self.granted)
    @rule(chance=chances, lease=st.sampled_from(LEASES))
    def extend(self, chance: Random, lease: float) -> None:
        token, offsets = self.some(chance)
        mine = self.naive.extend(token, offsets, "", self.clock.monotonic() + lease)
        self.settled_as(self.member.extend([(token, ranges_of(offsets))], lease), offsets, mine)

    @precondition(lambda self: self.granted)
    @rule(chance=chances)
    def release(self, chance: Random) -> None:
        token, offsets = self.some(chance)
        mine = self.naive.give_back(token, offsets, None, uncounted=True)
        self.settled_as(self.member.release([(token, ranges_of(offsets))]), offsets, mine)

    @rule()
    def leave_and_join_again(self) -> None:
        self.do(self.member.close())
        self.naive.release_holder("")
        self.run(self._join())

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.do(self.desk.broker.pause_group("t", "g", paused))
        self.naive.paused = paused

    @precondition(lambda self: self.naive.rows)
    @rule(chance=chances)
    def reset(self, chance: Random) -> None:
        if chance.random() < 0.6:
            return  # now and then is enough
        to = chance.randint(0, len(self.naive.rows))
        self.look_at_the_log()
        first = self.desk.broker.shard.topics["t"].log.first_offset
        self.do(self.desk.broker.reset_group("t", "g", to))
        self.naive.reset(max(to, first), self.clock.now_ms())
        self.naive.void.update(token for token, _ in self.granted)

    @rule(seconds=st.sampled_from([0.5, 1.0, 1.0, 3.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        while (now := self.clock.monotonic()) < until:
            event = self.naive.next_event(now, self.clock.now_ms())
            step = until - now if event is None else min(max(event, 0.001), until - now)
            self.run(self.clock.advance(step))
            first = self.desk.broker.shard.topics["t"].log.first_offset
            self.naive.time_has_passed(self.clock.monotonic(), self.clock.now_ms(), first)

    @rule()
    def look(self) -> None:
        self.look_at_the_log()
        stats = self.do(self.desk.broker.group_stats("t", "g"))
        entries = self.naive.entries.values()
        assert stats.lag == len(entries), self.picture()
        assert stats.in_flight == sum(entry.state == "leased" for entry in entries)
        assert stats.dead_letters == len(self.naive.dead)

    # --- the end of a process

    @precondition(lambda self: self.durable)
    @rule(closes=st.booleans())
    def restart(self, closes: bool) -> None:
        """The process ends, well or not, with everything written."""
        if closes:
            self.do(self.desk.broker.close())
            self.run(self._open_again(self.desk.disk))
        else:
            self.run(self.desk.crash())
        self.naive.crash(0.0)
        self.naive.expire(0.0)
        self.naive.given.clear()
        self.naive.void.clear()
        self.before_restart = max((token for token, _ in self.granted), default=-1)
        self.run(self._join())

    async def _open_again(self, disk: SimulatedFileSystem | None) -> None:
        self.desk.disk = disk
        self.desk.broker = self.desk._new()
        await self.desk.open()

    @precondition(lambda self: self.durable and self.naive.rows)
    @rule(chance=chances, what=st.sampled_from(["take", "ack", "nack", "reject"]))
    def power_cut(self, chance: Random, what: str) -> None:
        """The power goes while something is done: nothing is lost, what was acknowledged stays."""
        self.look_at_the_log()
        counts = {o: entry.count for o, entry in self.naive.entries.items()}
        done_for_sure = set(range(len(self.naive.rows))) - set(counts)
        asked: list[int] = []
        task: asyncio.Future[Any]
        if what == "take" or not self.granted:
            task = asyncio.ensure_future(self.member.take(5, 3.0, 0), loop=self.loop)
            counts = {o: count + 1 for o, count in counts.items()}
        else:
            token, offsets = self.some(chance)
            asked = [entry.offset for entry in self.naive.held(token, offsets)]
            leases = [(token, ranges_of(offsets))]
            if what == "ack":
                work = self.member.ack(leases)
            elif what == "nack":
                work = self.member.nack(leases, NACK_DELAYS[1])
            else:
                work = self.member.reject(leases, "no")
            task = asyncio.ensure_future(work, loop=self.loop)
        self.run(self._some_steps(chance.randrange(12)))
        is_done = task.done() and not task.cancelled() and task.exception() is None
        if is_done and what in ("ack", "reject"):
            done_for_sure |= set(asked)
        assert self.desk.disk is not None
        disk = self.desk.disk.crash(chance.choice(["nothing", "everything", chance]))
        task.cancel()
        self.run(asyncio.wait([task]))
        self.run(self._open_again(disk))
        if self.naive.paused:
            self.do(self.desk.broker.pause_group("t", "g", False))
        self.run(self._join())
        in_doubt = set(asked) if what in ("ack", "reject") else set()
        self._drain(counts, done_for_sure, in_doubt)

    async def _some_steps(self, count: int) -> None:
        broker = self.desk.broker
        for _ in range(count):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            broker.host.step()

    def _drain(self, counts: dict[int, int], done: set[int], in_doubt: set[int]) -> None:
        """Take and ack everything there is, and see that it is what there has to be."""
        seen: set[int] = set()
        was_dead = {offset for offset, _ in self.naive.dead}
        for _ in range(40):
            grant = self.do(self.member.take(100, 3.0, 0))
            if grant is None:
                if not self.group.unsettled():
                    break
                self.run(self.clock.advance(4))
                continue
            offsets = set(grant.rows.offsets)
            assert not offsets & seen, "what was acknowledged stays settled"
            assert not offsets & done, "what was acknowledged before the cut stays settled"
            for offset in offsets:
                assert grant.counts.get(offset, 1) <= counts[offset] + 1
            seen |= offsets
            self.do(self.member.ack([(grant.token, ranges_of(sorted(offsets)))]))
        assert self.group.unsettled() == 0, "nothing stays invisible"
        now_dead = self.dead_letters()
        assert was_dead <= set(now_dead), "no dead letter is lost"
        first = self.desk.broker.shard.topics["t"].log.first_offset
        gone = {
            offset
            for offset in counts
            if offset < first or self.naive.is_expired(offset, self.clock.now_ms())
        }
        missing = set(counts) - seen - gone - set(now_dead) - in_doubt
        assert not missing, f"{missing} were lost"
        self.naive.dead = list(now_dead.items())
        self.naive.entries.clear()
        self.naive.settled = set(range(self.naive.floor, len(self.naive.rows)))
        self.naive._move_floor()
        self.naive.polls = self.group.queue.poll_count
        self.naive.paused = False
        self.granted.clear()

    # --- what always holds

    def dead_letters(self) -> dict[int, int]:
        letters = self.do(self.desk.broker.dead_letters("t", "g", 1000))
        found = [
            (int(letter.headers["flint-dead-offset"]), int(letter.headers["flint-dead-deliveries"]))
            for letter in letters
        ]
        return dict(found)

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        topic = self.desk.broker.shard.topics["t"]
        for group in topic.queues.values():
            scheduled = topic.delaying.delays._all_offsets().ranges()
            check(group.queue, {o for start, stop in scheduled for o in range(start, stop)})
            assert not group.queue.places.selected, "what is selected is dealt with at once"

    @invariant()
    def what_is_dead_is_dead(self) -> None:
        if self.naive.rows:
            assert self.dead_letters() == dict(self.naive.dead)

    def teardown(self) -> None:
        tasks = asyncio.all_tasks(self.loop)  # of processes that ended in the middle of something
        for task in tasks:
            task.cancel()
        self.run(_ended(tasks))
        self.loop.close()
        self.stack.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


MODELS = {
    f"{order}-{'durable' if durable else 'memory'}": type(
        f"{order.title()}{'Durable' if durable else 'Memory'}",
        (EngineModel,),
        {"order": order, "durable": durable},
    )
    for order in ("priority", "key", "log")
    for durable in (False, True)
}


WEIGHTS = {
    "publish": 25, "take": 30, "ack": 20, "nack": 12, "reject": 2, "extend": 6, "release": 5,
    "leave_and_join_again": 3, "pause": 2, "reset": 3, "time_passes": 16, "look": 4, "restart": 5,
    "power_cut": 1,
}  # fmt: skip
NEED_A_GRANT = {"ack", "nack", "reject", "extend", "release"}


def run_program(model: EngineModel, chance: Random, steps: int) -> None:
    """A long program in which most steps have something to work on."""
    model.begin(keeps=chance.choice([None, None, 12]))
    for _ in range(steps):
        (name,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if name in NEED_A_GRANT and not model.granted:
            continue
        if name in ("restart", "power_cut") and not (model.durable and model.naive.rows):
            continue
        match name:
            case "take":
                model.take(wanted=chance.choice([1, 1, 2, 4, 9]), lease=chance.choice(LEASES))
            case "nack":
                model.nack(chance=chance, delay=chance.choice(NACK_DELAYS))
            case "extend":
                model.extend(chance=chance, lease=chance.choice(LEASES))
            case "pause":
                model.pause(paused=chance.random() < 0.3)
            case "reset":
                model.reset(chance=chance)
            case "time_passes":
                model.time_passes(seconds=chance.choice([0.5, 1.0, 3.0, 10.0]))
            case "restart":
                model.restart(closes=chance.random() < 0.3)
            case "power_cut":
                model.power_cut(
                    chance=chance, what=chance.choice(["take", "ack", "nack", "reject"])
                )
            case "leave_and_join_again" | "look":
                getattr(model, name)()
            case _:
                getattr(model, name)(chance=chance)
        model.what_is_dead_is_dead()


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_long_random_programs_agree_with_a_naive_queue(model: type[EngineModel], seed: int) -> None:
    made = model()
    try:
        run_program(made, Random(f"{seed} of {model.__name__}"), 150)
    finally:
        made.teardown()


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_any_program_agrees_with_a_naive_queue(model: type[EngineModel]) -> None:
    run_state_machine_as_test(model, settings=_settings(EXAMPLES, 15))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_many_programs_agree_with_a_naive_queue(model: type[EngineModel]) -> None:
    for seed in range(20):
        made = model()
        try:
            run_program(made, Random(f"{seed} of many"), 200)
        finally:
            made.teardown()
    run_state_machine_as_test(model, settings=_settings(4 * EXAMPLES, 40))
