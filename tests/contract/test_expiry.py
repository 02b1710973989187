"""Expiry: nobody is handed an expired message, and it goes on time."""

from __future__ import annotations

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


async def _values(mq: flintmq.Client) -> list[bytes]:
    async with mq.reader("orders") as reader:
        return list((await reader.read_batch(100_000, timeout=0)).values)


async def test_a_message_lives_as_long_as_its_ttl(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.publish("orders", b"short", ttl=5)
    await clock.advance(4.999)
    assert await _values(mq) == [b"short"]
    await clock.advance(0.001)
    assert await _values(mq) == []


async def test_expired_messages_leave_the_topic_on_time_with_no_publish_in_between(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish_batch("orders", [b"a", b"b", b"c"], ttl=[5, 10, 10])
    await clock.advance(5.1)
    assert (await mq.topic_stats("orders")).first_offset == 1
    await clock.advance(5)
    stats = await mq.topic_stats("orders")
    assert (stats.message_count, stats.byte_count, stats.drops) == (0, 0, {"expired": 3})
    assert clock.pending() == 0


async def test_the_topics_ttl_counts_for_messages_without_their_own(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", ttl=10)
    await mq.publish("orders", b"default")
    await mq.publish("orders", b"shorter", ttl=5)
    await mq.publish("orders", b"longer", ttl=20)

    await clock.advance(5)
    assert await _values(mq) == [b"default", b"longer"]
    await clock.advance(5)
    assert await _values(mq) == [b"longer"]
    await clock.advance(10)
    assert await _values(mq) == []


@pytest.mark.parametrize("count", [1, 50, 100, 3000])
async def test_a_topics_ttl_counts_from_each_append(
    mq: flintmq.Client, clock: ManualClock, count: int
) -> None:
    await mq.create_topic("orders", ttl=10)
    for n in range(4):
        await mq.publish_batch("orders", [b"%d" % n] * count)
        await clock.advance(3)
    assert await _values(mq) == [b"1"] * count + [b"2"] * count + [b"3"] * count


async def test_expired_messages_behind_living_ones_are_passed_over(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(200)], ttl=[None, 5] * 100)
    await clock.advance(6)

    async with mq.reader("orders") as reader:
        rows = await reader.read_batch(30)
        assert list(rows.values) == [b"%d" % n for n in range(0, 60, 2)]
        assert [message.offset for message in rows] == list(range(0, 60, 2))
        message = await reader.read(timeout=0)
        assert message is not None
        assert message.offset == 60
        assert len(await reader.read_batch(1000)) == 69


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_expiry_is_seen_in_batches_of_every_kind(
    mq: flintmq.Client, clock: ManualClock, compression: str
) -> None:
    await mq.publish_batch(
        "orders", [b"a", b"b", b"c"], ttl=[9, 5, 9], batch_compression=compression
    )
    await clock.advance(6)
    assert await _values(mq) == [b"a", b"c"]


async def test_a_waiting_reader_is_not_handed_what_expired_meanwhile(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    async with mq.reader("orders") as reader:
        await mq.publish("orders", b"gone", ttl=5)
        await clock.advance(6)
        reading = await background.waiting(reader.read(timeout=60))
        await mq.publish("orders", b"here", ttl=5)
        message = await reading
        assert message is not None
        assert message.value == b"here"


async def test_what_expired_was_not_missed(mq: flintmq.Client, clock: ManualClock) -> None:
    async with mq.reader("orders", name="billing") as reader:
        await mq.publish_batch("orders", [b"a", b"b"], ttl=5)
        await clock.advance(6)
        await mq.publish("orders", b"c")
        rows = await reader.read_batch()
        assert list(rows.values) == [b"c"]
        assert rows.gap is None
        assert reader.missed == 0
    assert (await mq.topic_stats("orders")).missed == {"billing": 0}


async def test_a_live_feed_is_not_handed_what_expired_in_its_queue(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", ttl=10)
    async with mq.live("orders") as feed:
        await mq.publish_batch("orders", [b"a", b"b", b"c"], ttl=[5, None, 20])
        await mq.publish("orders", b"d", qos=0, ttl=5)
        await mq.publish("orders", b"e", qos=0)
        await clock.advance(6)
        assert list((await feed.read_batch()).values) == [b"b", b"c", b"e"]
        await mq.publish("orders", b"f")
        await clock.advance(11)
        assert await feed.read(timeout=0) is None


async def test_a_shorter_life_behind_a_longer_one_ends_on_time_once_it_is_first(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    """The first message sets the alarm; when it goes early, the next one's alarm is due sooner."""
    await mq.create_topic("orders", retention_count=2)
    await mq.publish("orders", b"long", ttl=100)
    await mq.publish("orders", b"short", ttl=10)
    await mq.publish("orders", b"third", ttl=100)
    await clock.advance(11)
    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.message_count) == (2, 1)


async def test_the_first_message_behind_an_emptied_topic_sets_an_alarm_of_its_own(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="reject")
    async with mq.reader("orders") as reader:
        await mq.publish("orders", b"long", ttl=100)
        await reader.read()
        await mq.publish("orders", b"short", ttl=10)  # in the place of the one that was read
        await clock.advance(11)
        stats = await mq.topic_stats("orders")
        assert (stats.first_offset, stats.message_count) == (2, 0)


async def test_what_was_read_and_what_expired_are_counted_apart(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="reject")
    async with mq.reader("orders") as reader:
        await mq.publish("orders", b"long", ttl=100)
        await reader.read()
        await mq.publish("orders", b"short", ttl=10)  # in the place of the one that was read
        await clock.advance(11)
        assert (await mq.topic_stats("orders")).drops == {"read": 1, "expired": 1}


async def test_ttl_and_age_end_a_message_whichever_is_first(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", ttl=20, retention_age=10)
    await mq.publish("orders", b"by ttl", ttl=5)
    await mq.publish("orders", b"by age")
    await clock.advance(10.1)
    assert (await mq.topic_stats("orders")).message_count == 0


async def test_what_ttl_and_what_age_ended_are_counted_apart(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", ttl=20, retention_age=10)
    await mq.publish("orders", b"by ttl", ttl=5)
    await mq.publish("orders", b"by age")
    await clock.advance(10.1)
    assert (await mq.topic_stats("orders")).drops == {"expired": 1, "age": 1}
