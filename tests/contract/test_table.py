"""`mq.table(topic)`: the last value of every key, as a dict that is kept up to date."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import flintmq
from flintmq.testing import ManualClock

from .conftest import Connect
from .queues import deleted


class Price(msgspec.Struct):
    bid: float
    ask: float


async def test_a_table_begins_with_the_state_and_follows_what_comes(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("prices", compact="key", format="json")
    for value in (1.07, 1.08):
        await mq.publish("prices", value, key="EURUSD")
    await mq.publish("prices", 1.27, key="GBPUSD")
    async with mq.table("prices") as prices:
        assert dict(prices) == {"EURUSD": 1.08, "GBPUSD": 1.27}
        await mq.publish("prices", 1.09, key="EURUSD")
        await mq.publish("prices", 151.2, key="USDJPY")
        await clock.advance(0)
        assert prices["EURUSD"] == 1.09
        assert prices.get("USDJPY") == 151.2
        assert prices.get("nothing") is None
        assert "GBPUSD" in prices
        assert "nothing" not in prices
        assert len(prices) == 3
        assert sorted(prices.items())[0] == ("EURUSD", 1.09)
        with pytest.raises(KeyError, match="nothing"):
            prices["nothing"]


async def test_what_was_set_or_deleted_is_in_the_table_once_the_call_returns(
    mq: flintmq.Client,
) -> None:
    async with mq.table("settings") as settings:
        for number in range(20):
            receipt = await settings.set("limit", {"n": number})
            assert settings["limit"] == {"n": number}
            assert receipt.offset == number
        await settings.delete("limit")
        assert "limit" not in settings
        await settings.delete("limit")
        assert len(settings) == 0
    assert (await mq.topic_info("settings")).options.compact == "key", "made with it"


async def test_values_become_what_the_table_is_typed_with(mq: flintmq.Client) -> None:
    await mq.create_topic("prices", compact="key", format="json")
    async with mq.table("prices", type=Price) as prices:
        await prices.set("EURUSD", Price(1.08, 1.09))
        assert prices["EURUSD"] == Price(1.08, 1.09)


async def test_a_value_that_does_not_decode_is_an_error_of_its_key_alone(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("prices", compact="key", format="json")
    await mq.publish("prices", {"bid": "much"}, key="bad")
    await mq.publish("prices", {"bid": 1, "ask": 2}, key="good")
    async with mq.table("prices", type=Price) as prices:
        assert prices["good"] == Price(1, 2)
        with pytest.raises(flintmq.DecodeFailed):
            prices["bad"]
        await prices.set("bad", Price(3, 4))
        assert prices["bad"] == Price(3, 4)


async def test_a_watcher_sees_each_change_with_what_was_before(mq: flintmq.Client) -> None:
    await mq.create_topic("prices", compact="key", format="json")
    async with mq.table("prices") as prices:
        await prices.set("EURUSD", 1)
        watch = prices.watch()
        await prices.set("EURUSD", 2)
        await prices.set("GBPUSD", 3)
        await prices.delete("EURUSD")
        # It was slow: of a key it gets the newest.
        assert await watch.read() == ("GBPUSD", 3, None, False)
        assert await watch.read() == ("EURUSD", None, 1, True)
        assert await watch.read(timeout=0) is None
        await prices.set("GBPUSD", 4)
        assert await watch.read() == ("GBPUSD", 4, 3, False)


async def test_a_watcher_may_begin_with_what_is_there_and_want_some_keys_only(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("prices", compact="key", format="json")
    async with mq.table("prices") as prices:
        await prices.set("EURUSD", 1)
        await prices.set("GBPUSD", 2)
        everything, pounds = prices.watch(initial=True), prices.watch("GBPUSD")
        assert [await everything.read(), await everything.read()] == [
            ("EURUSD", 1, None, False),
            ("GBPUSD", 2, None, False),
        ]
        await prices.set("EURUSD", 3)
        await prices.set("GBPUSD", 4)
        assert await pounds.read() == ("GBPUSD", 4, 2, False)
        assert await pounds.read(timeout=0) is None


async def test_a_watcher_that_waits_is_woken_and_ends_with_the_table(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("prices", compact="key", format="json")
    seen: list[Any] = []

    async def follow(watch: flintmq.TableWatch[Any]) -> None:
        async for change in watch:
            seen.append((change.key, change.value))

    async with mq.table("prices") as prices:
        following = asyncio.create_task(follow(prices.watch()))
        await clock.advance(0)
        await mq.publish("prices", 5, key="k")
        await clock.advance(0)
        assert seen == [("k", 5)]
    await following


async def test_an_empty_value_is_refused_because_it_would_delete(mq: flintmq.Client) -> None:
    async with mq.table("settings") as settings:
        with pytest.raises(flintmq.InvalidRequest, match="use delete"):
            await settings.set("k", b"")


async def test_a_topic_without_compact_says_what_to_do(mq: flintmq.Client) -> None:
    await mq.create_topic("plain")
    with pytest.raises(flintmq.InvalidRequest, match="compact='key'"):
        await mq.table("plain")


async def test_a_topic_that_is_not_there_is_not_made_where_nothing_may_be_made(
    connect: Connect,
) -> None:
    async with connect(auto_create=False) as mq:
        with pytest.raises(flintmq.TopicNotFound):
            await mq.table("prices")


async def test_a_closed_or_unopened_table_says_so(mq: flintmq.Client) -> None:
    table = mq.table("prices")
    with pytest.raises(flintmq.InvalidRequest, match="is not open"):
        len(table)
    async with table:
        pass
    with pytest.raises(flintmq.Closed):
        len(table)


async def test_a_table_of_a_deleted_topic_says_so(mq: flintmq.Client, clock: ManualClock) -> None:
    async with mq.table("prices") as prices:
        await prices.set("k", 1)
        await deleted(mq, "prices")
        await clock.advance(0)
        with pytest.raises(flintmq.TopicDeleted):
            prices["k"]


async def test_a_table_over_partitions_has_all_keys(mq: flintmq.Client) -> None:
    await mq.create_topic("prices", compact="key", partitions=3, format="json")
    await mq.publish_batch("prices", list(range(50)), key=[f"k{n}" for n in range(50)])
    async with mq.table("prices") as prices:
        assert dict(prices) == {f"k{n}": n for n in range(50)}
        await prices.set("k7", 700)
        await prices.delete("k8")
        assert prices["k7"] == 700
        assert "k8" not in prices


OPTIONS: list[dict[str, Any]] = [
    {"format": "json"},
    {"format": "msgpack", "compression": "zstd"},
    {"format": "text"},
    {"format": "json", "magic_header": "flint"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()))
async def test_a_key_is_deleted_whatever_the_format(
    mq: flintmq.Client, options: dict[str, Any]
) -> None:
    await mq.create_topic("prices", compact="key", **options)
    async with mq.table("prices") as prices:
        await prices.set("k", "some text")
        assert prices["k"] == "some text"
        await prices.delete("k")
        assert dict(prices) == {}
        async with mq.table("prices") as again:
            assert dict(again) == {}


async def test_a_table_is_what_a_late_joiner_would_get_after_many_changes(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    async with mq.table("prices") as prices:
        expected: dict[str, int] = {}
        for number in range(300):
            key = f"k{number * 7 % 23}"
            if number % 5 == 0:
                await mq.publish("prices", b"", key=key)
                expected.pop(key, None)
            else:
                await mq.publish("prices", number, key=key, format="json")
                expected[key] = number
        await clock.advance(0)
        assert dict(prices) == expected
        async with mq.table("prices") as late:
            assert dict(late) == expected
