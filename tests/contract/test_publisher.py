"""publisher(): send without waiting, flush to be sure."""

from __future__ import annotations

from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background
from tests.contract.conftest import Connect

from .queues import deleted


async def _values(mq: flintmq.Client, topic: str = "orders") -> list[bytes]:
    async with mq.reader(topic) as reader:
        return list((await reader.read_batch(100_000, timeout=0)).values)


def _place(publisher: flintmq.Publisher) -> tuple[str, int | None, int] | None:
    """Where the last batch went."""
    receipt = publisher.last_receipt
    return None if receipt is None else (receipt.topic, receipt.offset, receipt.count)


def _send_many(publisher: flintmq.Publisher, value: bytes, count: int) -> None:
    send = publisher.send
    for _ in range(count):
        send(value)


async def test_what_was_sent_is_published_once_flush_returns(mq: flintmq.Client) -> None:
    async with mq.publisher("orders") as publisher:
        for n in range(10):
            publisher.send(b"%d" % n)
        assert await mq.topics() == []  # nothing has had a turn yet

        await publisher.flush()
        assert await _values(mq) == [b"%d" % n for n in range(10)]
        assert (publisher.sent, publisher.acknowledged) == (10, 10)
        assert _place(publisher) == ("orders", 0, 10)


async def test_what_is_sent_in_one_turn_goes_out_at_the_end_of_it_as_one_batch(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.publisher("orders") as publisher:
        publisher.send(b"a")
        publisher.send(b"b")
        await background.settle()
        assert _place(publisher) == ("orders", 0, 2)


async def test_with_a_linger_the_batch_waits_that_long_and_no_longer(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    async with mq.publisher("orders", linger=0.005) as publisher:
        publisher.send(b"a")
        await clock.advance(0.003)
        publisher.send(b"b")
        await clock.advance(0.001)
        assert await mq.topics() == []
        await clock.advance(0.001)
        assert _place(publisher) == ("orders", 0, 2)


async def test_a_full_batch_does_not_wait_for_the_linger(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.publisher("orders", linger=60) as publisher:
        for _ in range(999):
            publisher.send(b"x")
        await background.settle()
        assert publisher.acknowledged == 0
        publisher.send(b"x")
        await background.settle()
        assert publisher.acknowledged == 1000
        publisher.send(b"x" * 300_000)
        await background.settle()
        assert publisher.acknowledged == 1001


async def test_leaving_the_block_flushes(mq: flintmq.Client) -> None:
    async with mq.publisher("orders", linger=60) as publisher:
        publisher.send(b"last")
    assert await _values(mq) == [b"last"]


async def test_closing_the_connection_flushes_every_publisher(connect: Connect) -> None:
    mq = await connect()
    publishers = [mq.publisher(topic, linger=60) for topic in ("a", "b")]
    for publisher in publishers:
        publisher.send(b"x")
    await mq.close()
    assert [publisher.acknowledged for publisher in publishers] == [1, 1]


async def test_one_publisher_that_fails_keeps_no_other_from_being_flushed_at_the_end(
    connect: Connect,
) -> None:
    mq = await connect()
    await mq.create_topic("full", retention_count=1, overflow="reject")
    await mq.publish("full", b"x")
    publishers = [mq.publisher(topic, linger=60) for topic in ("a", "full", "b", "c")]
    for publisher in publishers:
        publisher.send(b"x")

    with pytest.raises(flintmq.TopicFull):
        await mq.close()
    assert [publisher.acknowledged for publisher in publishers] == [1, 0, 1, 1]


async def test_send_takes_everything_publish_takes(mq: flintmq.Client, clock: ManualClock) -> None:
    now = clock.now_ms() / 1000
    async with mq.publisher("orders") as publisher:
        publisher.send(
            "text", key="k", headers={"h": "1"}, priority=3, ttl=9, delay=4,
            content_type="text/plain",
        )  # fmt: skip
    async with mq.reader("orders") as reader:
        message = await reader.read()
    assert message is not None
    assert (message.value, message.key, message.headers) == (b"text", "k", {"h": "1"})
    assert (message.priority, message.content_type) == (3, "text/plain")
    assert (message.expires_at, message.deliver_at) == (now + 9, now + 4)


async def test_order_is_kept_over_batches_and_beside_a_full_topic(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1500, overflow="block")
    reader = await mq.reader("orders", name="slow")
    publisher = mq.publisher("orders")
    for n in range(5000):
        publisher.send(b"%d" % n)
    flushing = await background.waiting(publisher.flush())

    read: list[bytes] = []
    while len(read) < 5000:
        read += (await reader.read_batch(700)).values
    await flushing
    assert read == [b"%d" % n for n in range(5000)]
    assert publisher.acknowledged == 5000


async def test_flush_raises_for_what_was_not_published_and_says_how_many(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_count=5, overflow="reject")
    publisher = mq.publisher("orders")
    for _ in range(3):
        publisher.send(b"fits")
    await publisher.flush()
    for _ in range(4):
        publisher.send(b"does not")

    with pytest.raises(flintmq.TopicFull) as caught:
        await publisher.flush()
    assert any("4 messages" in note for note in caught.value.__notes__)
    assert (publisher.sent, publisher.acknowledged) == (7, 3)

    await publisher.flush()  # told once; the publisher goes on
    publisher.send(b"x")
    publisher.send(b"y")
    await publisher.close()
    assert await _values(mq) == [b"fits"] * 3 + [b"x", b"y"]


async def test_leaving_the_block_raises_what_flush_would(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", max_message_bytes=3)
    with pytest.raises(flintmq.MessageTooLarge):
        async with mq.publisher("orders") as publisher:
            publisher.send(b"too large")


async def test_an_error_of_the_block_goes_before_the_publishers(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", max_message_bytes=3)

    async def send_and_fail() -> None:
        async with mq.publisher("orders") as publisher:
            publisher.send(b"too large")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await send_and_fail()


async def test_send_never_waits_and_says_when_too_much_is_unacknowledged(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    await mq.publish("orders", b"full")
    publisher = mq.publisher("orders", timeout=5)
    megabyte = b"x" * 1_000_000

    with pytest.raises(flintmq.QueueFull, match="flush"):
        _send_many(publisher, megabyte, 100)
    assert publisher.sent < 100
    await background.settle()
    await deleted(mq, "orders")
    with pytest.raises(flintmq.TopicDeleted):
        await publisher.flush()


async def test_small_messages_count_for_what_they_cost(
    mq: flintmq.Client, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a million empty ones would wait in memory for ever and never be too many."""
    monkeypatch.setattr("flintmq.client.publisher.BUFFER_BYTES_MAX", 4 * 1024 * 1024)
    await mq.create_topic("orders", retention_count=1000, overflow="block")
    await mq.publish_batch("orders", [b"full"] * 1000)
    publisher = mq.publisher("orders", timeout=5)

    with pytest.raises(flintmq.QueueFull):
        _send_many(publisher, b"", 75_000)
    await background.settle()
    await deleted(mq, "orders")
    with pytest.raises(flintmq.TopicDeleted):
        await publisher.flush()


async def test_a_publisher_waits_for_a_full_topic_as_long_as_its_timeout(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    await mq.publish("orders", b"full")
    publisher = mq.publisher("orders", timeout=5)
    publisher.send(b"x")
    flushing = await background.waiting(publisher.flush())
    await clock.advance(4.9)
    assert not flushing.done()
    await clock.advance(0.1)
    with pytest.raises(flintmq.TopicFull):
        await flushing


async def test_a_cancelled_flush_leaves_the_publisher_at_work(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    reader = await mq.reader("orders")
    publisher = mq.publisher("orders")
    for n in range(2):
        publisher.send(b"%d" % n)
        await background.settle()
    flushing = await background.waiting(publisher.flush())
    flushing.cancel()
    await background.settle()
    assert flushing.cancelled()

    assert [m.value for m in [await reader.read(), await reader.read()] if m] == [b"0", b"1"]
    await publisher.flush()
    assert publisher.acknowledged == 2


async def test_sending_at_qos_0_reaches_live_feeds_only(mq: flintmq.Client) -> None:
    async with mq.live("orders") as feed, mq.publisher("orders", qos=0) as publisher:
        publisher.send(b"now")
        await publisher.flush()
        assert list((await feed.read_batch()).values) == [b"now"]
    assert (await mq.topic_stats("orders")).next_offset == 0


async def test_compressed_batches_read_the_same(mq: flintmq.Client) -> None:
    async with mq.publisher("orders", batch_compression="lz4") as publisher:
        for n in range(2500):
            publisher.send(b"%d" % n)
    assert await _values(mq) == [b"%d" % n for n in range(2500)]


async def test_a_closed_publisher_refuses_to_send(mq: flintmq.Client) -> None:
    publisher = mq.publisher("orders")
    publisher.send(b"x")
    await publisher.close()
    with pytest.raises(flintmq.Closed):
        publisher.send(b"y")
    await publisher.close()  # twice is fine
    assert await _values(mq) == [b"x"]


@pytest.mark.parametrize("keywords", [{"linger": -1}, {"linger": "x"}, {"qos": 3}])
async def test_bad_settings_are_refused(mq: flintmq.Client, keywords: dict[str, Any]) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        mq.publisher("orders", **keywords)


async def test_a_bad_name_is_heard_of_at_the_flush(mq: flintmq.Client) -> None:
    publisher = mq.publisher("not*allowed")
    publisher.send(b"x")
    with pytest.raises(flintmq.InvalidRequest):
        await publisher.flush()
