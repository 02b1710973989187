"""What a topic holds in memory beside its log is bounded."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.clock import Clock
from flintmq.engine.broker import Broker
from flintmq.engine.leading import delaying
from flintmq.engine.leading.topic import LeadingTopic
from flintmq.engine.leading.topic_figures import stats_of
from flintmq.engine.waiting import again
from flintmq.errors import TopicDeleted
from flintmq.testing import ManualClock


async def _topic(clock: Clock, **options: object) -> tuple[Broker, LeadingTopic]:
    broker = Broker(clock)
    await broker.create_topic("t", dict(options))
    return broker, broker.shard.topics["t"]


def _delayed(clock: ManualClock, count: int) -> BatchBuilder:
    rows = BatchBuilder()
    for _ in range(count):
        rows.append_row(b"x", deliver_at=clock.now_ms() + 60_000)
    return rows


async def test_delayed_messages_that_are_not_stored_have_a_bounded_waiting_room(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delaying, "UNSTORED_DELAYED_MAX", 10)
    _, topic = await _topic(clock)
    topic.publish(_delayed(clock, 10), 0)
    with pytest.raises(flintmq.QueueFull, match="qos=1"):
        topic.publish(_delayed(clock, 1), 0)
    topic.publish(_delayed(clock, 1), 1)
    await clock.advance(60)
    topic.publish(_delayed(clock, 10), 0)


async def test_delayed_messages_that_retention_took_are_not_remembered(clock: ManualClock) -> None:
    _, topic = await _topic(clock, retention_count=10)
    for _ in range(100):
        topic.publish(_delayed(clock, 100), 1)
    assert topic.delaying.delays.stored <= 1200


@pytest.mark.slow
async def test_what_expired_is_remembered_as_few_ranges(clock: ManualClock) -> None:
    _, topic = await _topic(clock, retention_count=5)
    for n in range(1000):
        rows = BatchBuilder()
        rows.append_row(b"x", expiry=clock.now_ms() + 1000 if n % 2 else 0)
        topic.publish(rows, 1)
        await clock.advance(0.3)
    assert len(topic.sweeping.expired) <= 64


async def test_a_broker_that_is_full_of_nothing_to_do_has_no_timer(clock: ManualClock) -> None:
    broker, topic = await _topic(clock)
    topic.publish(BatchBuilder.of([b"x"] * 100), 1)
    reader = topic.cursors.open("n", None, None)
    reader.take(1000)
    await broker.open_feed(">", capacity=10, overflow="block", filter=None)
    assert clock.pending() == 0


async def test_a_wall_clock_that_jumps_back_does_not_reorder_times() -> None:
    class Jumping(ManualClock):
        shift_ms = 0

        def now_ms(self) -> int:
            return super().now_ms() + self.shift_ms

    clock = Jumping()
    _, topic = await _topic(clock, retention_age=60)
    topic.publish(BatchBuilder.of([b"a"]), 1)
    clock.shift_ms = -3_600_000
    topic.publish(BatchBuilder.of([b"b"]), 1)
    assert topic.log.time_of(1) == topic.log.time_of(0)
    clock.shift_ms = 0
    await clock.advance(61)
    assert stats_of(topic).message_count == 0


def test_an_error_told_again_is_the_same_but_another_object() -> None:
    error = TopicDeleted("orders")
    fresh = again(error)
    assert fresh is not error
    assert type(fresh) is TopicDeleted
    assert str(fresh) == str(error)
    assert fresh.topic == "orders"
    assert fresh.__traceback__ is None


async def test_a_topic_that_ended_tells_a_crowd(clock: ManualClock) -> None:
    broker, topic = await _topic(clock, retention_count=1, overflow="block")
    topic.publish(BatchBuilder.of([b"x"]), 1)
    waiting = [
        asyncio.ensure_future(
            broker.publish("t", BatchBuilder.of([b"y"]), qos=1, auto_create=True, timeout=60)
        )
        for _ in range(100)
    ]
    await clock.advance(0)
    await broker.delete_topic("t")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {TopicDeleted}
    assert len(set(map(id, outcomes))) == 100
    assert clock.pending() == 0
