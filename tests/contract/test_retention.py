"""Retention: by count, by bytes, by age; on time, and exact."""

from __future__ import annotations

import pytest

import flintmq
from flintmq.testing import ManualClock


async def _values(mq: flintmq.Client) -> list[bytes]:
    async with mq.reader("orders") as reader:
        return list((await reader.read_batch(100_000, timeout=0)).values)


async def test_by_count_the_oldest_go(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=3)
    for n in range(5):
        await mq.publish("orders", b"%d" % n)

    assert await _values(mq) == [b"2", b"3", b"4"]
    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset, stats.message_count) == (2, 5, 3)
    assert stats.drops == {"count": 2}


async def test_by_bytes_the_oldest_go(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_bytes=10)
    for value in (b"aaaa", b"bbbb", b"cc", b"d"):
        await mq.publish("orders", value)

    assert await _values(mq) == [b"bbbb", b"cc", b"d"]
    stats = await mq.topic_stats("orders")
    assert (stats.byte_count, stats.drops) == (7, {"bytes": 1})


async def test_by_bytes_no_more_go_than_have_to(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_bytes=10)
    await mq.publish_batch("orders", [b"aaaaa", b"", b"", b"bbbbb"])
    await mq.publish("orders", b"ccccc")
    assert await _values(mq) == [b"", b"", b"bbbbb", b"ccccc"]


async def test_keys_and_headers_count_as_bytes(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"1234", key="567", headers={"8": "90"})
    assert (await mq.topic_stats("orders")).byte_count == 10


@pytest.mark.parametrize("size", [10, 100, 1000, 5000])
async def test_a_batch_larger_than_the_count_keeps_its_tail(mq: flintmq.Client, size: int) -> None:
    await mq.create_topic("orders", retention_count=4)
    await mq.publish("orders", b"before")
    receipt = await mq.publish_batch("orders", [b"%d" % n for n in range(size)])

    assert (receipt.offset, receipt.count) == (1, size)
    assert await _values(mq) == [b"%d" % n for n in range(size - 4, size)]
    assert (await mq.topic_stats("orders")).drops == {"count": size - 3}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
async def test_retention_is_exact_in_offsets_however_messages_came(
    mq: flintmq.Client, batch: int
) -> None:
    await mq.create_topic("orders", retention_count=100, retention_bytes=350)
    published = 0
    while published < min(3000, 1000 * batch):
        await mq.publish_batch("orders", [b"%04d" % n for n in range(published, published + batch)])
        published += batch
        stats = await mq.topic_stats("orders")
        assert stats.next_offset == published
        assert stats.message_count == min(published, 87)
        assert stats.byte_count == stats.message_count * 4
    assert await _values(mq) == [b"%04d" % n for n in range(published - 87, published)]


async def test_by_age_messages_go_on_time_with_no_publish_in_between(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_age=60)
    for n in range(3):
        await mq.publish("orders", b"%d" % n)
        await clock.advance(10)

    await clock.advance(29.9)
    assert (await mq.topic_stats("orders")).first_offset == 0
    await clock.advance(0.2)
    assert (await mq.topic_stats("orders")).first_offset == 1
    await clock.advance(10)
    assert (await mq.topic_stats("orders")).first_offset == 2
    await clock.advance(10)
    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset, stats.byte_count) == (3, 3, 0)
    assert stats.drops == {"age": 3}
    assert clock.pending() == 0


async def test_age_counts_for_batches_and_for_what_joined_them(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_age=60)
    for n in range(40):
        await mq.publish_batch("orders", [b"%d" % n] * (n * 10 + 1))
        await clock.advance(2)
    assert set(await _values(mq)) == {b"%d" % n for n in range(11, 40)}


async def test_age_set_later_counts_at_once(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.publish("orders", b"old")
    await clock.advance(100)
    await mq.publish("orders", b"new")
    await mq.configure_topic("orders", retention_age=60)
    await clock.advance(0.1)
    assert await _values(mq) == [b"new"]
    await mq.configure_topic("orders", retention_age=None)
    await clock.advance(1000)
    assert await _values(mq) == [b"new"]


async def test_an_offset_is_never_used_again_when_everything_has_gone(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_age=1)
    await mq.publish_batch("orders", [b"a", b"b"])
    await clock.advance(2)
    assert (await mq.topic_stats("orders")).message_count == 0
    assert (await mq.publish("orders", b"c")).offset == 2
    assert await _values(mq) == [b"c"]


async def test_without_limits_nothing_goes(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("orders", retention_bytes=None)
    await mq.publish_batch("orders", [b"x"] * 10_000)
    await clock.advance(1_000_000)
    assert (await mq.topic_stats("orders")).message_count == 10_000
    assert clock.pending() == 0


async def test_a_reader_that_is_overtaken_goes_on_with_what_is_left(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=2)
    async with mq.reader("orders") as reader:
        await mq.publish("orders", b"0")
        assert (await reader.read(timeout=0)) is not None
        await mq.publish_batch("orders", [b"1", b"2", b"3", b"4"])

        rows = await reader.read_batch()
        assert list(rows.values) == [b"3", b"4"]
        assert rows.gap == flintmq.Missed("orders", first=1, next=3, count=2)
        assert rows.missed == 2
        assert reader.missed == 2


async def test_rows_that_were_read_stay_readable_when_retention_takes_them(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_count=2)
    await mq.publish_batch("orders", [b"a", b"b"])
    async with mq.reader("orders") as reader:
        rows = await reader.read_batch()
        await mq.publish_batch("orders", [b"x"] * 3000)
        assert [message.value for message in rows] == [b"a", b"b"]
