"""Request and reply: the first reply comes back, to the one who asked, or an error says why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


async def test_a_live_feed_replies_to_a_request(mq: flintmq.Client, background: Background) -> None:
    async with mq.live("rates") as feed:
        asked = await background.waiting(mq.request("rates", {"pair": "EURUSD"}, timeout=2))
        message = await feed.read()
        assert message.decode() == {"pair": "EURUSD"}
        assert message.offset is None, "nothing is stored for live feeds alone"
        assert await mq.reply(message, {"rate": 1.08}) is True
        reply = await asked
        assert reply.decode() == {"rate": 1.08}
        assert reply.topic == "rates"
        assert await mq.reply(message, {"rate": 1.09}) is False, "the first reply wins"


async def test_a_queue_group_shares_the_requests(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.subscribe("rates", group="quotes") as deliveries:
        asked = await background.waiting(mq.request("rates", b"one", timeout=5, headers={"h": "1"}))
        message: Any = await deliveries.read()
        assert message.offset == 0
        assert message.headers["h"] == "1"
        await mq.reply(message, b"answer", headers={"from": "quotes"})
        await message.ack()
        reply = await asked
        assert (reply.value, reply.headers) == (b"answer", {"from": "quotes"})


async def test_nobody_there_is_said_at_once_and_nothing_is_published(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.NoResponders, match="flintmq reply rates"):
        await mq.request("rates", b"x", timeout=60)
    assert await mq.topics() == []

    await mq.publish("rates", b"before")
    async with mq.subscribe("rates", group="quotes", start="latest"):
        pass  # and has left
    with pytest.raises(flintmq.NoResponders):
        await mq.request("rates", b"x", timeout=60)
    assert (await mq.topic_stats("rates")).next_offset == 1


async def test_a_request_that_is_not_answered_in_time_expires(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    async with mq.subscribe("rates", group="quotes") as deliveries:
        asked = await background.waiting(mq.request("rates", b"late", timeout=2))
        await clock.advance(2)
        with pytest.raises(flintmq.NoReply, match="within 2 s") as raised:
            await asked
        assert isinstance(raised.value, TimeoutError)
        await clock.advance(1)
        await mq.publish("rates", b"next")
        message: Any = await deliveries.read()
        assert message.value in (b"next", b"late")
        if message.value == b"late":  # it was taken ahead, before its time was over
            assert await mq.reply(message, b"too late") is False
        await message.ack()


async def test_each_request_gets_its_own_reply(mq: flintmq.Client, background: Background) -> None:
    async with mq.live("square", capacity=1000) as feed:
        asked = [
            await background.waiting(mq.request("square", {"n": n}, timeout=30)) for n in range(40)
        ]
        requests: list[flintmq.Message] = []
        while len(requests) < 40:
            requests += await feed.read_batch(1000)
        for message in sorted(requests, key=lambda one: one.headers["reply-to"]):
            n = message.decode()["n"]
            assert await mq.reply(message, {"n": n, "square": n * n})
        for n, one in enumerate(asked):
            assert (await one).decode() == {"n": n, "square": n * n}


async def test_a_request_that_is_cancelled_waits_no_more(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.live("rates") as feed:
        asked = await background.waiting(mq.request("rates", b"x", timeout=30))
        message = await feed.read()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await background.settle()
        assert await mq.reply(message, b"y") is False


async def test_a_request_may_go_to_a_partitioned_topic(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("jobs", partitions=3, format="msgpack")
    async with mq.subscribe("jobs", group="work") as deliveries:
        for key in "abcdef":
            asked = await background.waiting(mq.request("jobs", {"key": key}, key=key, timeout=9))
            message: Any = await deliveries.read()
            assert await mq.reply(message, {"done": key})
            await message.ack()
            assert (await asked).decode() == {"done": key}


async def test_what_is_no_request_cannot_be_replied_to(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"x")
    async with mq.reader("orders") as reader:
        message = await reader.read()
        with pytest.raises(flintmq.InvalidRequest, match="not a request"):
            await mq.reply(message, b"y")


async def test_closing_the_connection_ends_what_waits(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.live("rates"):
        asked = await background.waiting(mq.request("rates", b"x", timeout=30))
        await mq.close()
        with pytest.raises((flintmq.Closed, flintmq.OutcomeUnknown)):
            await asked
