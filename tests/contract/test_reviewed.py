"""What a reader with fresh eyes tried, and what it should do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import flintmq
from flintmq.model import Overflow
from flintmq.testing import ManualClock

from .queues import deleted


@pytest.mark.parametrize("keyword", ["ttl", "delay"])
async def test_a_time_beyond_all_bounds_is_refused_at_once(
    mq: flintmq.Client, keyword: str
) -> None:
    for forever in (sys.maxsize, 1e300):
        said: dict[str, Any] = {keyword: forever}
        with pytest.raises(flintmq.InvalidRequest, match="at most"):
            await mq.publish("orders", b"", **said)
        with pytest.raises(flintmq.InvalidRequest, match="at most"):
            await mq.publish_batch("orders", [b""] * 100, **said)


async def a_coroutine(message: flintmq.Message) -> bool:
    return True


@pytest.mark.parametrize("filter", [5, [], a_coroutine], ids=["number", "list", "coroutine"])
async def test_a_filter_that_cannot_be_asked_is_refused(mq: flintmq.Client, filter: Any) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="filter"):
        mq.live("orders", filter=filter)
    with pytest.raises(flintmq.InvalidRequest, match="filter"):
        mq.reader("orders", filter=filter)


async def test_a_match_far_behind_is_found_without_waiting(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"n"] * 10_000)
    await mq.publish("orders", b"y", key="y")
    async with mq.reader("orders", filter="key == 'y'") as reader:
        found = await reader.read_batch(10, timeout=0)
        assert found.values == [b"y"]
        await reader.seek("earliest")
        message = await reader.read(timeout=0)
        assert message is not None
        assert message.key == "y"


@pytest.mark.parametrize("overflow", ["block", "reject"])
async def test_a_full_feed_minds_only_what_it_wants(mq: flintmq.Client, overflow: Overflow) -> None:
    async with mq.live("orders", capacity=1, overflow=overflow, filter="key == 'x'") as feed:
        await mq.publish("orders", b"1", key="x")
        await mq.publish("orders", b"2", key="other", timeout=0)

        message = await feed.read(timeout=1)
        assert message is not None
        assert message.value == b"1"


async def test_a_delayed_message_that_is_gone_when_due_is_counted(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=2, overflow="reject")
    async with mq.live("orders") as feed, mq.reader("orders") as reader:
        await mq.publish("orders", b"late", delay=5)
        for _ in range(3):
            await reader.read()
            await mq.publish("orders", b"next")
        await clock.advance(6)

        assert (await feed.read_batch(10, timeout=0)).values == [b"next"] * 3
    assert (await mq.topic_stats("orders")).drops["feed"] == 1


async def test_what_waits_for_a_deleted_topic_does_not_bring_it_back(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=1000, overflow="block")
    publisher = mq.publisher("orders")
    for _ in range(4000):
        publisher.send(b"x")
    await clock.advance(0)
    await deleted(mq, "orders")

    with pytest.raises(flintmq.TopicDeleted):
        await publisher.flush()
    assert await mq.topics() == []


async def test_a_full_topic_is_waited_for_once_not_for_every_batch(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    async with mq.publisher("orders", timeout=10) as publisher:
        for _ in range(40):
            publisher.send(b"x")
        flushing = asyncio.ensure_future(publisher.flush())
        await clock.advance(11)

        with pytest.raises(flintmq.TopicFull) as caught:
            await flushing
        assert "39 messages" in "".join(caught.value.__notes__)


async def test_a_flush_waits_no_longer_than_told_and_can_be_repeated(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    async with mq.publisher("orders", timeout=100) as publisher, mq.reader("orders") as reader:
        publisher.send(b"1")
        publisher.send(b"2")
        flushing = asyncio.ensure_future(publisher.flush(timeout=5))
        await clock.advance(6)
        with pytest.raises(flintmq.OutcomeUnknown, match="1 messages sent to 'orders'"):
            await flushing

        assert (await reader.read_batch(2, timeout=1)).values == [b"1"]
        await publisher.flush(timeout=5)


@pytest.mark.parametrize(
    "call",
    [
        lambda mq: mq.publish([], b"x"),
        lambda mq: mq.topic_stats({}),
        lambda mq: mq.delete_topic([]),
        lambda mq: mq.publish_batch("orders", None),
        lambda mq: mq.publish_batch("orders", 5),
        lambda mq: mq.publish_many(None),
        lambda mq: mq.publish_many(["ab"]),
        lambda mq: mq.publish_many([("orders",)]),
        lambda mq: mq.publish("orders", b"x", content_type="x" * 2000),
    ],
)
async def test_arguments_that_are_none_are_named(
    mq: flintmq.Client, call: Callable[[flintmq.Client], Any]
) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await call(mq)
    assert await mq.topics() == []


async def test_positions_that_are_none_are_named(mq: flintmq.Client) -> None:
    async with mq.reader("orders", name="n") as reader:
        for nonsense in (1.5, "x", True):
            with pytest.raises(flintmq.InvalidRequest):
                await reader.commit(nonsense)  # type: ignore[arg-type]
        with pytest.raises(flintmq.InvalidRequest):
            await reader.seek(datetime.min)


async def test_a_name_nobody_has_open_is_told_to_be_in_the_way(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="reject")
    async with mq.reader("orders", name="gone"):
        pass
    await mq.publish("orders", b"1")

    with pytest.raises(flintmq.TopicFull, match="it is not open"):
        await mq.publish("orders", b"2")


async def test_partitions_may_be_listed_for_each_message(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=3)
    receipt = await mq.publish_batch("orders", [b"a", b"b", b"c"], partition=[2, 0, 2])

    assert {part.partition: part.count for part in receipt.parts} == {2: 2, 0: 1}
    with pytest.raises(flintmq.InvalidRequest, match="2 entries for 3"):
        await mq.publish_batch("orders", [b"a", b"b", b"c"], partition=[2, 0])


async def test_what_a_policy_dropped_is_not_acknowledged(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=10, overflow="drop_new")
    async with mq.publisher("orders") as publisher:
        for _ in range(100):
            publisher.send(b"x")
        await publisher.flush()

        assert (publisher.sent, publisher.acknowledged) == (100, 10)


def test_a_connection_is_used_in_one_event_loop() -> None:
    mq = flintmq.connect("memory://")

    async def use() -> None:
        await mq.create_topic("orders", ttl=1)

    asyncio.run(use())
    with pytest.raises(flintmq.InvalidRequest, match="another event loop"):
        asyncio.run(use())
