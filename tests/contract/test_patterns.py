"""Patterns: `*` is one word, `>` is the rest."""

from __future__ import annotations

from typing import Any

import pytest

import flintmq

NAMES = ["orders", "orders.eu", "orders.us", "orders.eu.fr", "bills", "bills.eu", "a..b"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("orders", ["orders"]),
        ("orders.eu", ["orders.eu"]),
        ("orders.*", ["orders.eu", "orders.us"]),
        ("*.eu", ["orders.eu", "bills.eu"]),
        ("*", ["orders", "bills"]),
        ("*.*", ["orders.eu", "orders.us", "bills.eu"]),
        ("orders.>", ["orders.eu", "orders.us", "orders.eu.fr"]),
        ("*.eu.>", ["orders.eu.fr"]),
        ("orders.*.fr", ["orders.eu.fr"]),
        (">", NAMES),
        ("*.>", ["orders.eu", "orders.us", "orders.eu.fr", "bills.eu", "a..b"]),
        ("a.*.b", ["a..b"]),
        ("none", []),
        ("orders.eu.fr.>", []),
    ],
)
async def test_a_pattern_matches_for_feeds_as_for_lists(
    mq: flintmq.Client, pattern: str, matched: list[str]
) -> None:
    async with mq.live(pattern) as feed:
        for name in NAMES:
            await mq.publish(name, name)
        assert [message.topic for message in (await feed.read_batch(timeout=0))] == matched
    assert await mq.topics(pattern) == sorted(matched)


async def test_a_topic_that_is_made_later_is_matched_too(mq: flintmq.Client) -> None:
    async with mq.live("orders.*") as feed:
        await mq.create_topic("orders.new")
        await mq.publish("orders.new", b"x")
        assert len(await feed.read_batch(timeout=0)) == 1
        await mq.delete_topic("orders.new")
        await mq.publish("orders.new", b"y")
        assert len(await feed.read_batch(timeout=0)) == 1


async def test_a_feed_that_comes_later_is_found_by_a_topic_in_use(mq: flintmq.Client) -> None:
    await mq.publish("orders.eu", b"0")
    async with mq.live("orders.*") as first:
        await mq.publish("orders.eu", b"1")
        async with mq.live(">") as second:
            await mq.publish("orders.eu", b"2")
            assert len(await second.read_batch(timeout=0)) == 1
        await mq.publish("orders.eu", b"3")
        assert len(await first.read_batch(timeout=0)) == 3


async def test_a_feed_gets_a_message_once_however_many_ways_its_pattern_matches(
    mq: flintmq.Client,
) -> None:
    async with mq.live("*.>") as wide, mq.live(">") as widest:
        await mq.publish("a.b.c", b"x")
        assert len(await wide.read_batch(timeout=0)) == len(await widest.read_batch(timeout=0)) == 1


@pytest.mark.parametrize(
    "pattern",
    ["", "orders.eu*", "*orders", ">.orders", "a.>.b", "or>", "50%", "a/b", "**", ">>", "a\nb",
     None, 5, b"x"],
)  # fmt: skip
async def test_a_bad_pattern_is_refused(mq: flintmq.Client, pattern: Any) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.live(pattern)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.topics(pattern)


async def test_publishing_needs_a_name_not_a_pattern(mq: flintmq.Client) -> None:
    for pattern in ("*", ">", "orders.*"):
        with pytest.raises(flintmq.InvalidRequest):
            await mq.publish(pattern, b"x")
