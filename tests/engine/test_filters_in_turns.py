"""Filters that have no time look at one message per turn: everybody gets the same, only later."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import Any

import pytest

import flintmq
from flintmq.engine.leading import feeds
from flintmq.loop import pace
from flintmq.serde.codec import FILTERED_BYTES_MAX

COUNT = 60
WANTED = [n for n in range(COUNT) if n % 3 == 0]
FILTERS: dict[str, Any] = {
    "expression": "value.n % 3 == 0",
    "function": lambda message: message.decode()["n"] % 3 == 0,
}


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(pace, "LEAST_SECONDS", 0.0)


@pytest.fixture(params=["memory", "file"])
async def mq(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    url = "memory://" if request.param == "memory" else f"file://{tmp_path}/data"
    async with flintmq.connect(url) as client:
        await client.create_topic("orders")
        yield client


async def publish(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [{"n": n} for n in range(COUNT)])


@pytest.mark.parametrize("kind", FILTERS)
async def test_a_reader_gets_all_that_passes_in_order(mq: flintmq.Client, kind: str) -> None:
    await publish(mq)
    found: list[int] = []
    async with mq.reader("orders", filter=FILTERS[kind]) as reader:
        while rows := await reader.read_batch(timeout=0):
            found += [value["n"] for value in rows.decode()]
        assert await reader.position() == COUNT
    assert found == WANTED
    assert (await mq.topic_stats("orders")).filters == {}  # the reader is gone


async def test_a_group_gets_all_that_passes_and_settles_the_rest(mq: flintmq.Client) -> None:
    await publish(mq)
    found: list[int] = []
    while got := await mq.poll("orders", "g", filter=FILTERS["expression"], order="log"):
        for delivery in got:
            found.append(delivery.decode()["n"])
            await delivery.ack()
    assert found == WANTED
    await mq.publish("another", b"")  # what was settled before is in the journal before it
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.drops) == (0, {"filtered": COUNT - len(WANTED)})


async def test_a_peek_shows_what_passes(mq: flintmq.Client) -> None:
    await mq.poll("orders", "g", filter=FILTERS["expression"], order="log")
    await publish(mq)
    rows = await mq.peek("orders", "g", 100)
    assert [message.decode()["n"] for message in rows] == WANTED


@pytest.mark.parametrize("overflow", ["drop_oldest", "block"])
async def test_a_live_feed_gets_all_that_passes_in_order(mq: flintmq.Client, overflow: Any) -> None:
    async with mq.live("orders", filter=FILTERS["expression"], overflow=overflow) as feed:
        await publish(mq)
        await mq.publish("orders", {"n": 3 * COUNT})
        found: list[int] = []
        while len(found) <= len(WANTED):
            found += [value["n"] for value in (await feed.read_batch(timeout=5)).decode()]
    assert found == [*WANTED, 3 * COUNT]


async def test_what_waits_for_a_filter_still_comes_when_the_topic_is_deleted(
    mq: flintmq.Client,
) -> None:
    async with mq.live("orders", filter=FILTERS["expression"]) as feed:
        await publish(mq)
        await mq.delete_topic("orders")
        found: list[int] = []
        while len(found) < len(WANTED):
            found += [value["n"] for value in (await feed.read_batch(timeout=5)).decode()]
        with pytest.raises(flintmq.TopicDeleted):
            await feed.read_batch(timeout=5)
    assert found == WANTED


async def test_a_feed_whose_filter_cannot_keep_up_drops_the_oldest_and_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "UNSIFTED_BYTES_MAX", 10_000)
    async with (
        flintmq.connect("memory://") as mq,
        mq.live("orders", filter="len(value) > 0") as feed,
    ):
        for _ in range(20):
            await mq.publish_batch("orders", [b"y" * 1_000] * 6)
        await mq.publish("orders", b"the last")
        seen = 0
        while b"the last" not in (values := (await feed.read_batch()).values):
            seen += len(values)
        assert feed.dropped
        assert seen + len(values) + feed.dropped == 121


async def test_others_have_their_turn_between_any_two_messages(mq: flintmq.Client) -> None:
    await publish(mq)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    async with mq.reader("orders", filter="value.n == 59") as reader:
        (message,) = await reader.read_batch()
    counting.cancel()
    assert message.decode() == {"n": 59}
    assert turns >= COUNT // 2


async def test_a_value_that_is_too_large_is_missing_for_a_filter_and_that_is_logged(
    mq: flintmq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    large = b'{"n": 0, "x": "' + b"x" * FILTERED_BYTES_MAX + b'"}'
    await mq.publish("orders", large, content_type="application/json")
    packed = gzip.compress(large)
    await mq.publish("orders", packed, content_type="application/json; encoding=gzip")
    await mq.publish("orders", {"n": 0})
    async with mq.reader("orders", filter="value.n == 0 or not exists(value.n)") as reader:
        found = []
        while rows := await reader.read_batch(timeout=0):
            found += rows.offsets
    assert found == [0, 1, 2]
    async with mq.reader("orders", filter="value.n == 0") as reader:
        assert (await reader.read()).offset == 2
    assert any("max_decoded_bytes" in record.getMessage() for record in caplog.records)
