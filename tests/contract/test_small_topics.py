"""Topics that are smaller than what is published to them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import flintmq


@pytest.mark.parametrize("limits", [{"retention_count": 10}, {"retention_bytes": 64}], ids=str)
async def test_a_publisher_splits_its_batches_for_a_topic_that_is_smaller(
    mq: flintmq.Client, limits: Any
) -> None:
    await mq.create_topic("orders", overflow="block", **limits)
    got: list[bytes] = []
    async with mq.reader("orders") as reader, mq.publisher("orders") as publisher:
        for number in range(100):
            publisher.send(b"%03d" % number)
        while len(got) < 100:
            got += (await reader.read_batch(5)).values
        await publisher.flush()

    assert got == [b"%03d" % number for number in range(100)]


async def test_a_message_larger_than_its_topic_is_refused_whatever_the_policy(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_bytes=10)
    await mq.publish("orders", b"small")

    with pytest.raises(flintmq.MessageTooLarge, match="retention_bytes"):
        await mq.publish("orders", b"x" * 11)
    with pytest.raises(flintmq.MessageTooLarge, match="retention_bytes"):
        await mq.publish("orders", b"x" * 11, key="k")

    assert (await mq.topic_stats("orders")).message_count == 1


async def test_the_size_limit_holds_for_compressed_batches_too(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", max_message_bytes=10)

    with pytest.raises(flintmq.MessageTooLarge, match="message 1"):
        await mq.publish_batch("orders", [b"x", b"x" * 100], batch_compression="zstd")


async def test_missed_is_told_before_there_is_a_message_to_go_with_it(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=1)
    async with mq.reader("orders") as reader:
        await mq.publish_batch("orders", [b"0", b"1", b"2"])
        events = reader.events()

        gap = await anext(events)

        assert isinstance(gap, flintmq.Missed)
        assert (gap.first, gap.next, gap.count) == (0, 2, 2)
        message = await anext(events)
        assert isinstance(message, flintmq.Message)
        assert message.value == b"2"


async def test_format_and_compression_may_be_one_for_each_message(mq: flintmq.Client) -> None:
    values: list[Any] = [{"id": 1}, {"id": 2}, "three"]

    await mq.publish_batch(
        "orders", values, format=["json", "msgpack", None], compression=[None, "gzip", None]
    )

    async with mq.reader("orders") as reader:
        rows = await reader.read_batch(10)
    assert rows.decode() == values
    assert [message.content_type for message in rows] == [
        "application/json",
        "application/msgpack; encoding=gzip",
        "text/plain",
    ]
    with pytest.raises(flintmq.InvalidRequest, match="format has 1 entries for 3 values"):
        await mq.publish_batch("orders", values, format=["json"])


def test_errors_go_to_other_processes_with_their_facts() -> None:
    for error in (
        flintmq.TopicFull("orders", "retention_count=1", "why"),
        flintmq.TopicNotFound("orders"),
        flintmq.DecodeFailed("orders", 0, 7, "json", "why"),
        flintmq.MessageTooLarge("a message", 11, 10, "limit"),
    ):
        copy = pickle.loads(pickle.dumps(error))

        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
