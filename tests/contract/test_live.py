"""Live feeds: from now on, in order, at most once, through a bounded queue of one's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


async def _values(feed: flintmq.Feed) -> list[bytes]:
    return list((await feed.read_batch(100_000, timeout=0)).values)


async def test_a_feed_gets_what_is_published_from_now_on(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"before")
    async with mq.live("orders") as feed:
        await mq.publish("orders", b"a")
        await mq.publish_batch("orders", [b"b", b"c"])
        await mq.publish("bills", b"other")
        async with mq.publisher("orders") as publisher:
            publisher.send(b"d")
        assert await _values(feed) == [b"a", b"b", b"c", b"d"]
        assert await _values(feed) == []


async def test_every_feed_gets_everything(mq: flintmq.Client) -> None:
    feeds = [await mq.live("orders") for _ in range(5)]
    await mq.publish_batch("orders", [b"a", b"b"])
    for feed in feeds:
        assert await _values(feed) == [b"a", b"b"]


async def test_a_message_says_what_a_reader_would_hear_of_it(mq: flintmq.Client) -> None:
    async with mq.live("orders") as feed, mq.reader("orders") as reader:
        await mq.publish("orders", b"x", key="k", headers={"h": "1"}, priority=2)
        await mq.publish_batch("orders", [b"y"] * 100)
        assert await feed.read_batch() == await reader.read_batch()


async def test_a_feed_reads_in_every_way_a_reader_does(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    async with mq.live("orders") as feed:
        assert (await feed.read(timeout=0)) is None
        assert await feed.read(timeout=0) is None
        assert await feed.read_batch(5, timeout=0) == []
        waiting = await background.waiting(feed.read(timeout=5))
        await clock.advance(5)
        assert await waiting is None

        one = await background.waiting(feed.read())
        await mq.publish_batch("orders", [b"%d" % n for n in range(8)])
        message = await one
        assert message is not None
        assert message.value == b"0"
        assert list((await feed.read_batch(3)).values) == [b"1", b"2", b"3"]
        next_one = await feed.read(timeout=0)
        assert next_one is not None
        assert next_one.value == b"4"
        got = []
        async for message in feed:
            got.append(message.value)
            if message.value == b"7":
                break
        assert got == [b"5", b"6", b"7"]


async def test_qos_0_is_passed_on_and_not_stored(mq: flintmq.Client) -> None:
    async with mq.live("orders") as feed:
        receipt: flintmq.Receipt = await mq.publish("orders", b"now", qos=0, key="k")
        assert (receipt.offset, receipt.count) == (None, 1)
        batch = await mq.publish_batch("orders", [b"and", b"then"], qos=0)
        assert (batch.offset, batch.count) == (None, 2)
        rows = await feed.read_batch()
        assert list(rows.values) == [b"now", b"and", b"then"]
        assert rows.offsets == [None, None, None]
        assert rows[0].key == "k"
        assert "offset=None" in repr(rows[0])
    stats = await mq.topic_stats("orders")
    assert (stats.next_offset, stats.message_count, stats.published) == (0, 0, 3)


async def test_order_is_kept_between_qos_0_and_1(mq: flintmq.Client) -> None:
    async with mq.live("orders") as feed:
        for n in range(10):
            await mq.publish("orders", b"%d" % n, qos=n % 2)
        assert await _values(feed) == [b"%d" % n for n in range(10)]


# --- delayed


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_delayed_message_comes_when_it_is_due(
    mq: flintmq.Client, clock: ManualClock, qos: int
) -> None:
    async with mq.live("orders") as feed:
        await mq.publish("orders", b"in 10", delay=10, qos=qos)
        await mq.publish("orders", b"in 5", delay=timedelta(seconds=5), qos=qos)
        await mq.publish("orders", b"now", qos=qos)
        assert await _values(feed) == [b"now"]
        await clock.advance(4.999)
        assert await _values(feed) == []
        await clock.advance(0.001)
        assert await _values(feed) == [b"in 5"]
        await clock.advance(5)
        assert await _values(feed) == [b"in 10"]
    assert clock.pending() == 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_each_row_of_a_batch_comes_at_its_own_time(
    mq: flintmq.Client, clock: ManualClock, qos: int
) -> None:
    async with mq.live("orders") as feed:
        await mq.publish_batch("orders", [b"a", b"b", b"c", b"d"], delay=[3, None, 1, 3], qos=qos)
        assert await _values(feed) == [b"b"]
        await clock.advance(1)
        assert await _values(feed) == [b"c"]
        await clock.advance(2)
        assert await _values(feed) == [b"a", b"d"]


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_delayed_message_wakes_who_waits_for_it(
    mq: flintmq.Client, clock: ManualClock, background: Background, qos: int
) -> None:
    async with mq.live("orders.*") as feed:
        reading = await background.waiting(feed.read())
        await mq.publish("orders.eu", b"due", delay=5, qos=qos)
        await clock.advance(5)
        message = await reading
        assert message is not None
        assert (message.value, message.topic) == (b"due", "orders.eu")


async def test_a_delayed_message_that_expires_first_never_comes(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    async with mq.live("orders") as feed:
        for qos in (0, 1):
            await mq.publish("orders", b"late", delay=10, ttl=5, qos=qos)
        await clock.advance(11)
        assert await _values(feed) == []


async def test_a_delayed_message_that_retention_took_never_comes(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=1)
    async with mq.live("orders") as feed:
        await mq.publish("orders", b"late", delay=10)
        await mq.publish("orders", b"now")
        await clock.advance(11)
        assert await _values(feed) == [b"now"]


async def test_readers_see_a_delayed_message_at_once_and_can_see_its_time(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"later", delay=5)
    async with mq.reader("orders") as reader:
        message = await reader.read()
        assert message is not None
        assert message.deliver_at == clock.now_ms() / 1000 + 5


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_new", "block", "reject"])
async def test_delayed_messages_do_not_overfill_a_queue(
    mq: flintmq.Client, clock: ManualClock, overflow: Any
) -> None:
    async with mq.live("orders", capacity=3, overflow=overflow) as feed:
        for n in range(10):
            await mq.publish("orders", b"%d" % n, delay=5)
        await clock.advance(5)
        kept = [b"7", b"8", b"9"] if overflow == "drop_oldest" else [b"0", b"1", b"2"]
        assert await _values(feed) == kept
        assert feed.dropped == 7


# --- full queues


async def test_a_full_queue_drops_the_oldest_unless_told_otherwise(mq: flintmq.Client) -> None:
    async with mq.live("orders", capacity=3) as feed:
        for n in range(5):
            await mq.publish("orders", b"%d" % n)
        await mq.publish_batch("orders", [b"5", b"6"])
        assert await _values(feed) == [b"4", b"5", b"6"]
        assert feed.dropped == 4
    assert (await mq.topic_stats("orders")).drops == {"feed": 4}


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [("drop_oldest", [b"7", b"8", b"9"]), ("drop_new", [b"x", b"0", b"1"])],
)
async def test_a_batch_larger_than_the_queue_is_cut(
    mq: flintmq.Client, overflow: Any, kept: list[bytes]
) -> None:
    async with mq.live("orders", capacity=3, overflow=overflow) as feed:
        await mq.publish("orders", b"x")
        await mq.publish_batch("orders", [b"%d" % n for n in range(10)])
        assert await _values(feed) == kept
        assert feed.dropped == 8


async def test_drop_new_keeps_what_waits(mq: flintmq.Client) -> None:
    async with mq.live("orders", capacity=2, overflow="drop_new") as feed:
        for n in range(5):
            assert (await mq.publish("orders", b"%d" % n)).offset == n
        assert await _values(feed) == [b"0", b"1"]
        assert feed.dropped == 3
        await mq.publish("orders", b"5")
        assert await _values(feed) == [b"5"]


async def test_reject_refuses_the_publisher_and_nothing_is_published_anywhere(
    mq: flintmq.Client,
) -> None:
    async with (
        mq.live("orders", capacity=2, overflow="reject") as strict,
        mq.live("orders") as other,
    ):
        await mq.publish_batch("orders", [b"0", b"1"])
        for qos in (0, 1):
            with pytest.raises(flintmq.QueueFull) as caught:
                await mq.publish("orders", b"2", qos=qos)
            assert caught.value.capacity == 2
            assert "orders" in caught.value.queue
        assert (await mq.topic_stats("orders")).next_offset == 2
        assert await _values(other) == await _values(strict) == [b"0", b"1"]
        assert (await mq.publish("orders", b"2")).offset == 2
        assert strict.dropped == 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_block_holds_the_publisher_back_until_there_is_room_and_says_so(
    mq: flintmq.Client, background: Background, qos: int
) -> None:
    async with mq.live("orders", capacity=2, overflow="block") as feed:
        await mq.publish_batch("orders", [b"0", b"1"], qos=qos)
        publishing = await background.waiting(mq.publish("orders", b"2", qos=qos))
        stats = await mq.topic_stats("orders")
        assert (stats.waits, stats.publishers_waiting) == ({"feed": 1}, 1)
        assert (await feed.read(timeout=0)) is not None
        await publishing
        assert await _values(feed) == [b"1", b"2"]
        assert feed.dropped == 0


async def test_block_gives_up_after_the_publishers_timeout(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    async with mq.live("orders", capacity=1, overflow="block") as feed:
        await mq.publish("orders", b"0")
        publishing = await background.waiting(mq.publish("orders", b"1", timeout=5))
        await clock.advance(5)
        with pytest.raises(flintmq.QueueFull, match="5 s"):
            await publishing
        assert (await mq.topic_stats("orders")).next_offset == 1
        assert await _values(feed) == [b"0"]


async def test_a_blocking_feed_that_closes_lets_the_publisher_go_on(
    mq: flintmq.Client, background: Background
) -> None:
    feed = await mq.live("orders", capacity=1, overflow="block")
    await mq.publish("orders", b"0")
    blocked = [await background.waiting(mq.publish("orders", b"%d" % n)) for n in (1, 2)]
    await feed.close()
    assert [(await task).offset for task in blocked] == [1, 2]


async def test_one_blocking_feed_over_several_topics_frees_them_all(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.live(">", capacity=1, overflow="block") as feed:
        await mq.publish("a", b"0")
        blocked = [await background.waiting(mq.publish(topic, b"1")) for topic in ("a", "b", "c")]
        got = await _values(feed)
        while len(got) < 4:
            await background.settle()
            got += await _values(feed)
        for task in blocked:
            assert (await task).count == 1
        assert got == [b"0", b"1", b"1", b"1"]


@pytest.mark.parametrize("overflow", ["block", "reject"])
async def test_a_batch_larger_than_a_refusing_queue_is_let_into_an_empty_one(
    mq: flintmq.Client, background: Background, overflow: Any
) -> None:
    """It could never be let in otherwise, and the publisher would never get on."""
    async with mq.live("orders", capacity=2, overflow=overflow) as feed:
        await mq.publish_batch("orders", [b"x"] * 5)
        assert len(await _values(feed)) == 5


async def test_a_slow_feed_slows_no_other(mq: flintmq.Client) -> None:
    async with mq.live("orders", capacity=10) as slow, mq.live("orders", capacity=10) as fast:
        got: list[bytes] = []
        for n in range(100):
            await mq.publish("orders", b"%d" % n)
            got += await _values(fast)
        assert got == [b"%d" % n for n in range(100)]
        assert await _values(slow) == [b"%d" % n for n in range(90, 100)]
        assert (fast.dropped, slow.dropped) == (0, 90)


async def test_a_feed_does_not_hold_back_retention_nor_a_bounded_topic(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=2, overflow="reject")
    async with mq.live("orders") as feed, mq.reader("orders") as reader:
        for n in range(6):
            await mq.publish("orders", b"%d" % n)
            await reader.read()
        assert await _values(feed) == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("capacity", [0, -1, 1.5, None, True])
async def test_a_capacity_is_a_whole_number_of_at_least_1(
    mq: flintmq.Client, capacity: Any
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="capacity"):
        mq.live("orders", capacity=capacity)


@pytest.mark.parametrize("overflow", ["explode", None, ""])
async def test_overflow_is_one_of_four_words(mq: flintmq.Client, overflow: Any) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="drop_oldest, drop_new, block, reject"):
        mq.live("orders", overflow=overflow)


async def test_a_feed_that_has_closed_gets_nothing_and_is_not_counted(mq: flintmq.Client) -> None:
    await mq.create_topic("orders")
    async with mq.live("orders"):
        assert (await mq.topic_stats("orders")).subscribers == 1
    assert (await mq.topic_stats("orders")).subscribers == 0
    await mq.publish("orders", b"x")
    assert (await mq.topic_stats("orders")).drops == {}
