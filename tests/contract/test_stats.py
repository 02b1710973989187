"""Stats: what a topic says of itself."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


async def test_a_new_topic_is_all_zeros(mq: flintmq.Client) -> None:
    info = await mq.create_topic("orders")
    stats = await mq.topic_stats("orders")

    assert (stats.name, stats.id) == ("orders", info.id)
    assert (stats.message_count, stats.byte_count) == (0, 0)
    assert (stats.first_offset, stats.next_offset) == (0, 0)
    assert (stats.subscribers, stats.publishers_waiting) == (0, 0)
    assert (stats.published, stats.delivered) == (0, 0)
    assert stats.lag == stats.missed == stats.drops == stats.waits == {}
    assert stats.rates == {"published": 0.0, "published_bytes": 0.0, "delivered": 0.0}


async def test_counts_follow_what_happens(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=4)
    await mq.publish_batch("orders", [b"12345"] * 3)
    await mq.publish("orders", b"1", key="23")
    await mq.publish("orders", b"", headers={"a": "b"})
    async with mq.reader("orders", name="n") as reader, mq.live("orders"):
        await reader.read_batch(2)
        stats = await mq.topic_stats("orders")

    assert (stats.first_offset, stats.next_offset) == (1, 5)
    assert (stats.message_count, stats.byte_count) == (4, 15)
    assert stats.subscribers == 2
    assert (stats.published, stats.delivered) == (5, 2)
    assert stats.lag == {"n": 2}
    assert stats.drops == {"count": 1}


async def test_lag_is_by_name_while_it_is_known_and_by_reader_while_it_is_open(
    mq: flintmq.Client,
) -> None:
    await mq.publish_batch("orders", [b"x"] * 10)
    named = await mq.reader("orders", name="billing")
    first, second = await mq.reader("orders"), await mq.reader("orders", start="latest")
    await first.read_batch(3)
    await named.read_batch(4)
    await named.commit()

    lag = (await mq.topic_stats("orders")).lag
    assert lag.pop("billing") == 6
    assert sorted(lag.values()) == [0, 7]

    for reader in (named, first, second):
        await reader.close()
    assert (await mq.topic_stats("orders")).lag == {"billing": 6}


async def test_lag_never_counts_what_is_gone_or_what_is_to_come(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=3)
    async with (
        mq.reader("orders", name="behind"),
        mq.reader("orders", name="ahead", start=100) as ahead,
    ):
        await mq.publish_batch("orders", [b"x"] * 10)
        stats = await mq.topic_stats("orders")
        assert stats.lag == {"behind": 3, "ahead": 0}
        assert stats.missed == {"behind": 7, "ahead": 0}
        assert await ahead.lag() == 0


async def test_drops_are_counted_by_reason(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("orders", retention_count=5, retention_bytes=100, retention_age=60)
    async with mq.live("orders", capacity=1):
        await mq.publish_batch("orders", [b"x"] * 7)  # 2 by count, 6 by the feed
        await mq.publish("orders", b"x" * 98)  # 1 by count, 2 by bytes, 1 by the feed
        await mq.publish("orders", b"", ttl=1)  # 1 by the feed
        await clock.advance(61)  # 3 by age, and behind them 1 that has expired
    drops = (await mq.topic_stats("orders")).drops
    assert drops == {"count": 3, "bytes": 2, "feed": 8, "age": 3, "expired": 1}


async def test_rates_are_per_second_of_the_last_ten(mq: flintmq.Client, clock: ManualClock) -> None:
    async with mq.reader("orders") as reader:
        for _ in range(20):
            await mq.publish_batch("orders", [b"12345"] * 100)
            await reader.read_batch(50)
            await clock.advance(1)
        rates = (await mq.topic_stats("orders")).rates
        assert rates["published"] == pytest.approx(100, rel=0.15)
        assert rates["published_bytes"] == pytest.approx(500, rel=0.15)
        assert rates["delivered"] == pytest.approx(50, rel=0.15)
        await clock.advance(20)
        assert set((await mq.topic_stats("orders")).rates.values()) == {0.0}


async def test_waits_say_who_held_publishers_back(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=2, overflow="block")
    async with mq.live("orders", capacity=1, overflow="block") as feed:
        await mq.publish("orders", b"0")
        by_feed = await background.waiting(mq.publish("orders", b"1"))
        await feed.read()
        await by_feed
    by_topic = await background.waiting(mq.publish("orders", b"2"))
    stats = await mq.topic_stats("orders")
    assert stats.waits == {"feed": 1, "topic": 1}
    by_topic.cancel()


async def test_stats_are_a_moment_that_does_not_change(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"x")
    before = await mq.topic_stats("orders")
    await mq.publish("orders", b"y")
    assert before.message_count == 1


async def test_stats_under_load_agree_with_themselves(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=50)
    done = asyncio.Event()

    async def publish() -> None:
        for n in range(100):
            await mq.publish_batch("orders", [b"abc"] * (n % 7 + 1))
            await asyncio.sleep(0)
        done.set()

    async def watch() -> None:
        while not done.is_set():
            stats = await mq.topic_stats("orders") if await mq.topics() else None
            if stats is not None:
                assert stats.message_count == stats.next_offset - stats.first_offset <= 50
                assert stats.byte_count == 3 * stats.message_count
                assert stats.published == stats.next_offset
                assert stats.drops.get("count", 0) == stats.first_offset
            await asyncio.sleep(0)

    await asyncio.gather(publish(), watch())
