"""Leaders follow one another, and take their last, unsynced commands with them: whose is a message
that was in work? The model is the table of `in_doubt.py`, message by message, over the commands
that are left; it knows nothing of leases, places or cursors."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from flintmq.group_model import Order
from flintmq.groups import LaneIndex, Queue
from flintmq.groups.ranges import offsets_in, ranges_of
from tests.groups.checking import check

TERM = 1 << 40
GRACE = 5.0
chances = st.randoms(use_true_random=False)


@dataclass
class Message:
    token: int = 0
    """Of its last attempt that is known."""
    is_over: bool = False
    """That was given back."""
    count: int = 0
    leased_until: float = 0.0
    is_settled: bool = False


@dataclass
class Leader:
    """What the one who leads goes by: what is left of the commands, and what it did itself."""

    since_term: int
    last_term: int
    end: int
    messages: dict[int, Message] = field(default_factory=dict)

    def counts(self, token: int, offset: int) -> bool:
        message = self.messages[offset]
        if message.is_settled or message.is_over:
            return False
        if message.token:
            return message.token == token
        is_of_the_last = token // TERM == self.last_term and self.last_term > self.since_term
        return is_of_the_last and offset < self.end


class InDoubtModel(RuleBasedStateMachine):
    order: Order = "log"

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.term = 1
        self.journal: list[tuple[str, Any]] = []
        self.synced = 0
        self.handed_out: list[tuple[int, list[int]]] = []
        self.leader = Leader(1, 0, 0)
        self.queue = self.queue_over(0)

    # --- the commands

    def write(self, kind: str, what: Any, *, synced: bool = False) -> None:
        self.journal.append((kind, what))
        if synced:
            self.synced = len(self.journal)

    def queue_over(self, end: int) -> Queue:
        self.index = LaneIndex()
        if end:
            self.index.add(0, end, None, None)
        made = Queue(self.index, order=self.order, floor=0, first_token=self.term * TERM)
        made.in_doubt.since_term = 1
        return made

    def keys(self, start: int, stop: int) -> list[int]:
        return list(range(start + 1, stop + 1))

    @rule(chance=chances)
    def publish(self, chance: Random) -> None:
        count = chance.randint(1, 4)
        first = len(self.leader.messages)
        self.write("publish", count, synced=chance.random() < 0.7)
        self.index.add(first, count, None, None)
        for offset in range(first, first + count):
            self.leader.messages[offset] = Message()

    @rule(chance=chances)
    def another_leads(self, chance: Random) -> None:
        """It has what is synced, and perhaps more."""
        del self.journal[chance.randint(self.synced, len(self.journal)) :]
        self.synced = len(self.journal)
        last_term, self.term = self.term, self.term + chance.choice([1, 1, 3])
        end = sum(what for kind, what in self.journal if kind == "publish")
        self.queue = self.queue_over(end if chance.random() < 0.7 else 0)
        self.leader = Leader(1, last_term, end, {o: Message() for o in range(end)})
        for kind, what in self.journal:
            self.replay(kind, what)
        for message in self.leader.messages.values():
            if message.token and not message.is_over:
                message.leased_until = self.now + GRACE
        if chance.random() < 0.5:
            state = self.queue.snapshot()
            self.queue = self.queue_over(end)
            self.queue.restore(state)
        self.queue.take_up(
            now=self.now, seconds=GRACE, last_term=last_term, end=end, key_hashes=self.keys
        )
        if self.index.end < end:  # the lanes are filled when somebody looks
            self.index.add(0, end, None, None)

    def replay(self, kind: str, what: Any) -> None:
        messages = self.leader.messages
        if kind == "reset":
            self.queue.apply_reset(0, self.index, what)
            self.leader.since_term = what
            messages.update({offset: Message() for offset in messages})
        elif kind == "granted":
            token, counts = what
            self.queue.apply_attempts([(o, o + 1, n) for o, n in counts.items()], token)
            for offset, count in counts.items():
                messages[offset] = Message(token, count=count)
        elif kind == "released":
            self.queue.apply_attempts([(o, o + 1, n) for o, n in what.items()])
            for offset, count in what.items():
                messages[offset].is_over, messages[offset].count = True, count
        elif kind == "nacked":
            self.queue.apply_attempts([], nacked=ranges_of(what))
            for offset in what:
                messages[offset].is_over = True
        elif kind == "settled":
            self.queue.apply_settle(ranges_of(what))
            for offset in what:
                messages[offset].is_settled = True

    # --- what consumers do

    @rule(chance=chances)
    def take(self, chance: Random) -> None:
        wanted, seconds = chance.randint(1, 4), chance.choice([1.0, 8.0])
        ready = [
            offset
            for offset, message in self.leader.messages.items()
            if not message.is_settled and message.leased_until <= self.now
        ]
        ranges = self.queue.select(wanted, key_hashes=self.keys).ranges
        offsets = list(offsets_in(ranges))
        assert offsets == ready[:wanted], "what is in doubt is nobody's"
        if not offsets:
            return
        token = self.queue.grant(ranges, "anna", now=self.now, seconds=seconds)
        messages = [self.leader.messages[offset] for offset in offsets]
        is_first = not any(message.token for message in messages)
        for message in messages:
            message.token, message.is_over, message.count = token, False, message.count + 1
            message.leased_until = self.now + seconds
        counts = {offset: self.leader.messages[offset].count for offset in offsets}
        self.write("granted", (token, counts), synced=not is_first)
        self.handed_out.append((token, offsets))

    def some(self, chance: Random) -> tuple[int, list[int], list[int]]:
        """A token, messages that were granted under it, and those for which it counts."""
        token, offsets = chance.choice(self.handed_out[-8:])
        known = [o for o in offsets if o in self.leader.messages and chance.random() < 0.8]
        return token, known, [o for o in known if self.leader.counts(token, o)]

    def note_claimed(self) -> None:
        for token, ranges in self.queue.in_doubt.claimed:
            self.write("granted", (token, dict.fromkeys(offsets_in(ranges), 1)))
        self.queue.in_doubt.claimed.clear()

    def agree(self, found: Any, known: list[int], mine: list[int]) -> None:
        assert sorted(offsets_in(found[0])) == mine
        assert sorted(offsets_in(found[1])) == sorted(set(known) - set(mine))

    def held(self, token: int, offset: int) -> Message:
        message = self.leader.messages[offset]
        message.token, message.count = token, message.count or 1
        return message

    @rule(chance=chances)
    def settle(self, chance: Random) -> None:
        if self.handed_out:
            token, known, mine = self.some(chance)
            self.agree(self.queue.finish(token, ranges_of(known)), known, mine)
            self.queue.in_doubt.claimed.clear()
            self.queue.apply_settle(ranges_of(mine))
            for offset in mine:
                self.leader.messages[offset].is_settled = True
            self.write("settled", mine, synced=chance.random() < 0.5)

    @rule(chance=chances)
    def nack(self, chance: Random) -> None:
        if self.handed_out:
            token, known, mine = self.some(chance)
            self.agree(self.queue.nack(token, ranges_of(known), None), known, mine)
            for offset in mine:
                message = self.held(token, offset)
                message.is_over, message.leased_until = True, self.now
            self.note_claimed()
            self.write("nacked", mine)

    @rule(chance=chances)
    def release(self, chance: Random) -> None:
        if self.handed_out:
            token, known, mine = self.some(chance)
            self.agree(self.queue.release(token, ranges_of(known)), known, mine)
            for offset in mine:
                message = self.held(token, offset)
                message.is_over, message.leased_until = True, self.now
                message.count -= 1
            self.note_claimed()
            self.write("released", {o: self.leader.messages[o].count for o in mine})

    @rule(chance=chances)
    def come_back(self, chance: Random) -> None:
        """Extend, as whoever was at work does first."""
        if self.handed_out:
            token, known, mine = self.some(chance)
            seconds = chance.choice([1.0, 8.0])
            found = self.queue.extend(
                token, ranges_of(known), "anna", now=self.now, seconds=seconds
            )
            self.agree(found, known, mine)
            for offset in mine:
                self.held(token, offset).leased_until = self.now + seconds
            self.note_claimed()

    @rule(chance=chances)
    def reset(self, chance: Random) -> None:
        if chance.random() < 0.4:
            self.index = LaneIndex()
            if self.leader.messages:
                self.index.add(0, len(self.leader.messages), None, None)
            self.write("reset", self.term, synced=True)
            self.queue.apply_reset(0, self.index, self.term)
            self.leader.since_term, self.leader.last_term = self.term, 0
            for offset in self.leader.messages:
                self.leader.messages[offset] = Message()

    @rule(chance=chances)
    def time_passes(self, chance: Random) -> None:
        self.now += chance.choice([0.5, 2.0, 6.0])
        while self.queue.expire(self.now):
            pass

    @invariant()
    def all_is_where_it_should_be(self) -> None:
        check(self.queue)
        messages = self.leader.messages
        assert {o: self.queue.count_of(o) for o, m in messages.items() if not m.is_settled} == {
            offset: message.count for offset, message in messages.items() if not message.is_settled
        }
        out = {offset for lease in self.queue.leases() for offset in offsets_in(lease.ranges)}
        assert out == {
            offset
            for offset, message in messages.items()
            if not message.is_settled and message.leased_until > self.now
        }


class ByPriorityModel(InDoubtModel):
    order: Order = "priority"


class ByKeyModel(InDoubtModel):
    """Each with a key of its own."""

    order: Order = "key"


@pytest.mark.slow
@pytest.mark.parametrize("model", [InDoubtModel, ByPriorityModel, ByKeyModel])
def test_who_comes_back_is_believed_as_the_table_says(model: type[InDoubtModel]) -> None:
    run_state_machine_as_test(
        model, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
