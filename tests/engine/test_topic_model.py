"""One topic with readers, retention, expiry, overflow, beside a model that is slow and obvious."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flintmq.batch import BatchBuilder, DecodeCache
from flintmq.engine.leading.readers import LeadingReader
from flintmq.engine.leading.topic import LeadingTopic
from flintmq.engine.leading.topic_figures import stats_of
from flintmq.engine.shard import Shard
from flintmq.engine.state.memory_log import MemoryLog
from flintmq.engine.state.shard import ShardState
from flintmq.engine.state.staging import Staging
from flintmq.errors import MessageTooLarge, TopicFull
from flintmq.model import Overflow, Receipt, TopicOptions

START_MS = 1_000_000


class StepClock:
    """Time for one thread without an event loop."""

    def __init__(self) -> None:
        self.ms = START_MS
        self._timers: list[StepTimer] = []

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def call_later(self, seconds: float, callback: Callable[[], object]) -> StepTimer:
        timer = StepTimer(self._timers, self.ms + round(seconds * 1000), callback)
        self._timers.append(timer)
        return timer

    def step(self, ms: int) -> None:
        until = self.ms + ms
        while due := [timer for timer in self._timers if timer.at_ms <= until]:
            timer = min(due, key=lambda timer: timer.at_ms)
            timer.cancel()
            self.ms = max(self.ms, timer.at_ms)
            timer.callback()
        self.ms = until


class StepTimer:
    def __init__(self, timers: list[StepTimer], at_ms: int, callback: Callable[[], object]) -> None:
        self._timers, self.at_ms, self.callback = timers, at_ms, callback

    def cancel(self) -> None:
        if self in self._timers:
            self._timers.remove(self)


def topic_of(options: TopicOptions, clock: StepClock) -> LeadingTopic:
    state = ShardState(lambda *_: MemoryLog(DecodeCache(1000)), Staging())
    shard = state.observer = Shard(state, clock, TopicOptions())
    state.create(1, "t", options)
    return shard.topics["t"]


def now(call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a call that does not wait."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("this call waited")


class ModelCursor:
    def __init__(self, position: int) -> None:
        self.position = self.began = position
        self.committed: int | None = None
        self.members = 0
        self.missed = 0
        self.returned: set[int] = set()
        """What readers of the name held when they ended: it is read next."""


class TopicModel(RuleBasedStateMachine):
    """`log` holds every message ever: size, time, expiry, and why it was dropped (or None)."""

    @initialize(
        count=st.one_of(st.none(), st.integers(1, 8)),
        size=st.one_of(st.none(), st.integers(1, 30)),
        age=st.one_of(st.none(), st.integers(1, 10)),
        ttl=st.one_of(st.none(), st.integers(1, 10)),
        overflow=st.sampled_from(["drop_oldest", "drop_new", "block", "reject"]),
    )
    def create(
        self, count: int | None, size: int | None, age: int | None, ttl: int | None,
        overflow: Overflow,
    ) -> None:  # fmt: skip
        self.clock = StepClock()
        self.options = TopicOptions(
            retention_count=count,
            retention_bytes=size,
            retention_age=age,
            ttl=ttl,
            overflow=overflow,
        )
        self.topic = topic_of(self.options, self.clock)
        self.log: list[tuple[int, int, int]] = []
        self.why: list[str | None] = []
        self.first = 0
        self.drops: Counter[str] = Counter()
        self.cursors: dict[str, ModelCursor] = {}
        self.readers: list[tuple[LeadingReader, str, set[int]]] = []
        """Readers, their labels, and what those of a name hold: handed out, not committed."""
        self.unnamed = 0

    # --- the model

    def limits(self) -> tuple[float, float]:
        count, size = self.options.retention_count, self.options.retention_bytes
        return (float("inf") if count is None else count), (float("inf") if size is None else size)

    def bytes_from(self, offset: int) -> int:
        return sum(size for size, _, _ in self.log[offset:])

    def drop(self, offset: int, reason: str) -> None:
        self.drops[reason] += offset - self.first
        self.why[self.first : offset] = [reason] * (offset - self.first)
        self.first = offset

    def fitting(self, sizes: list[int]) -> int:
        count_max, bytes_max = self.limits()
        n = len(sizes)
        while n and (
            len(self.log) - self.first + n > count_max
            or self.bytes_from(self.first) + sum(sizes[:n]) > bytes_max
        ):
            n -= 1
        return n

    def end_of_life(self, offset: int) -> float:
        _, time, expiry = self.log[offset]
        if expiry:
            return expiry
        return float("inf") if self.options.ttl is None else time + self.options.ttl * 1000

    def end_of_age(self, offset: int) -> float:
        age = self.options.retention_age
        return float("inf") if age is None else self.log[offset][1] + age * 1000

    def lost(self, start: int, stop: int) -> int:
        return sum(why != "expired" for why in self.why[start:stop])

    def lost_returned(self, cursor: ModelCursor) -> int:
        """What a reader left and retention took."""
        return sum(self.lost(at, at + 1) for at in cursor.returned if at < self.first)

    def miss_returned(self, cursor: ModelCursor) -> None:
        cursor.missed += self.lost_returned(cursor)
        cursor.returned = {offset for offset in cursor.returned if offset >= self.first}

    def done_before(self, label: str) -> int:
        """A name that commits is done with what it has committed, others with what they read."""
        cursor = self.cursors[label]
        held: set[int] = set()
        if cursor.committed is not None:
            held = set().union(*(held for _, name, held in self.readers if name == label))
        return min([cursor.position, *cursor.returned, *held])

    # --- what happens

    @rule(
        sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
        ttl=st.one_of(st.none(), st.integers(1, 6)),
    )
    def publish(self, sizes: list[int], ttl: int | None) -> None:
        expiry = 0 if ttl is None else self.clock.ms + ttl * 1000
        rows = BatchBuilder()
        for size in sizes:
            rows.append_row(b"x" * size, expiry=expiry)
        expected: object = Receipt("t", len(self.log), len(sizes))
        count_max, bytes_max = self.limits()
        if self.options.overflow == "drop_oldest" and sizes[-1] > bytes_max:
            expected, sizes = MessageTooLarge, []
        elif self.options.overflow != "drop_oldest" and self.fitting(sizes) < len(sizes):
            if self.cursors:
                passed = min(map(self.done_before, self.cursors))
                self.drop(max(self.first, min(passed, len(self.log))), "read")
            room = self.fitting(sizes)
            if room < len(sizes):
                if self.options.overflow == "drop_new":
                    expected = Receipt(
                        "t", len(self.log) if room else None, room, dropped=len(sizes) - room
                    )
                    self.drops["overflow"] += len(sizes) - room
                elif len(sizes) > count_max:
                    expected = TopicFull
                elif sum(sizes) > bytes_max:
                    expected = TopicFull if len(sizes) > 1 else MessageTooLarge
                else:
                    expected = TopicFull if self.options.overflow == "reject" else None
                sizes = sizes[:room] if self.options.overflow == "drop_new" else []
        try:
            found: object = self.topic.publish(rows, 1)
        except (TopicFull, MessageTooLarge) as error:
            found = type(error)
        assert found == expected
        self.log += [(size, self.clock.ms, expiry) for size in sizes]
        self.why += [None] * len(sizes)
        if len(self.log) - self.first > count_max:
            self.drop(len(self.log) - int(count_max), "count")
        to = self.first
        while self.bytes_from(to) > bytes_max:
            to += 1
        self.drop(to, "bytes")

    @rule(ms=st.sampled_from([500, 1000, 2000, 5000]))
    def time_passes(self, ms: int) -> None:
        self.clock.step(ms)
        while self.first < len(self.log):
            life, age = self.end_of_life(self.first), self.end_of_age(self.first)
            if min(life, age) > self.clock.ms:
                break
            self.drop(self.first + 1, "age" if age < life else "expired")

    @rule(before=st.one_of(st.none(), st.integers(0, 30)))
    def purge(self, before: int | None) -> None:
        to = len(self.log) if before is None else min(before, len(self.log))
        count, done = self.topic.purge(before)
        assert (count, done) == (max(0, to - self.first), None)
        if count:
            self.drop(to, "purged")

    @rule(
        name=st.sampled_from([None, "a", "b"]),
        start=st.one_of(st.sampled_from([None, "earliest", "latest"]), st.integers(0, 20)),
    )
    def open(self, name: str | None, start: Any) -> None:
        if len(self.readers) >= 5:
            return
        label = name
        if label is None:
            self.unnamed += 1
            label = f"*{self.unnamed}"
        self.readers.append((self.topic.cursors.open(name, start, None), label, set()))
        if label not in self.cursors:
            places = {None: self.first, "earliest": self.first, "latest": len(self.log)}
            self.cursors[label] = ModelCursor(places.get(start, start))
        self.cursors[label].members += 1

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), count=st.integers(1, 6))
    def read(self, data: st.DataObject, count: int) -> None:
        reader, label, held = data.draw(st.sampled_from(self.readers))
        cursor = self.cursors[label]
        expected, passed = self.read_returned(cursor, count)
        if not expected and not cursor.returned:
            if cursor.position < self.first:
                cursor.missed += self.lost(cursor.position, self.first)
                cursor.position = self.first
            expected, others = self.read_from(cursor.position, len(self.log), count)
            cursor.position += len(others)
            passed |= others
        if not label.startswith("*"):
            held |= passed
        if count == 1:
            message = reader.take_one()
            assert ([] if message is None else [message.offset]) == expected
        else:
            assert reader.take(count).offsets == expected
        assert reader.missed == cursor.missed

    def read_from(self, position: int, end: int, count: int) -> tuple[list[int], set[int]]:
        """What is read from there on, and what is passed on the way."""
        expected: list[int] = []
        passed: set[int] = set()
        while position < end and len(expected) < count:
            if self.end_of_life(position) > self.clock.ms:
                expected.append(position)
            passed.add(position)
            position += 1
        return expected, passed

    def read_returned(self, cursor: ModelCursor, count: int) -> tuple[list[int], set[int]]:
        self.miss_returned(cursor)
        if not cursor.returned:
            return [], set()
        first = end = min(cursor.returned)
        while end in cursor.returned:
            end += 1
        expected, passed = self.read_from(first, end, count)
        cursor.returned -= passed
        return expected, passed

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), to=st.one_of(st.sampled_from(["earliest", "latest"]), st.integers(0, 20)))
    def seek(self, data: st.DataObject, to: Any) -> None:
        reader, label, _ = data.draw(st.sampled_from(self.readers))
        now(reader.seek(to))
        self.cursors[label].returned.clear()
        for _, other, held in self.readers:
            if other == label:
                held.clear()
        self.cursors[label].position = {"earliest": self.first, "latest": len(self.log)}.get(to, to)

    @precondition(lambda self: any(not label.startswith("*") for _, label, _ in self.readers))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        named = [entry for entry in self.readers if not entry[1].startswith("*")]
        reader, label, mine = data.draw(st.sampled_from(named))
        cursor = self.cursors[label]
        others = [
            offset
            for other, name, held in self.readers
            if name == label and other is not reader
            for offset in held
        ]
        unread = [offset for offset in cursor.returned if offset >= self.first]
        cursor.committed = min([cursor.position, *others, *unread])
        assert now(reader.commit(None)) == cursor.committed
        mine.clear()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        reader, label, held = entry = data.draw(st.sampled_from(self.readers))
        now(reader.close())
        self.readers.remove(entry)
        cursor = self.cursors[label]
        cursor.members -= 1
        if not cursor.members:
            self.miss_returned(cursor)
        cursor.returned |= held
        if not cursor.members:
            if label.startswith("*"):
                del self.cursors[label]
            else:
                back_to = cursor.began if cursor.committed is None else cursor.committed
                cursor.position = max(back_to, min(cursor.position, self.first))
                cursor.returned.clear()

    @invariant()
    def stats_agree(self) -> None:
        if not hasattr(self, "topic"):
            return
        stats = stats_of(self.topic)
        assert (stats.first_offset, stats.next_offset) == (self.first, len(self.log))
        assert stats.message_count == len(self.log) - self.first
        assert stats.byte_count == self.bytes_from(self.first)
        assert stats.drops == {reason: count for reason, count in self.drops.items() if count}
        assert stats.lag == {
            label: max(0, len(self.log) - max(cursor.position, self.first))
            + sum(offset >= self.first for offset in cursor.returned)
            for label, cursor in self.cursors.items()
        }
        assert stats.missed == {
            label: cursor.missed
            + self.lost(cursor.position, self.first)
            + self.lost_returned(cursor)
            for label, cursor in self.cursors.items()
        }
        assert stats.subscribers == len(self.readers)
        assert stats.published == len(self.log)


TestTopicModel = TopicModel.TestCase
TestTopicModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_publisher_woken_in_the_turn_its_time_is_up_in_does_not_wait_for_ever() -> None:
    """Woken to no avail and timed out in one and the same turn: it is told that it is late."""

    async def story() -> None:
        clock = StepClock()
        options = TopicOptions(retention_count=2, overflow="block")
        topic = topic_of(options, clock)
        topic.publish(BatchBuilder.of([b"0", b"1"]), 1)
        reader = topic.cursors.open(None, None, None)
        publishing = asyncio.ensure_future(
            topic.line.publish(BatchBuilder.of([b"2", b"3"]), 1, timeout=5)
        )
        await asyncio.sleep(0)
        assert reader.take_one() is not None  # room for one of two: wakes the publisher
        clock.step(5000)  # and the time is up before it has run
        with pytest.raises(TopicFull, match="waited 5 s"):
            await asyncio.wait_for(publishing, timeout=60)

    asyncio.run(story())
