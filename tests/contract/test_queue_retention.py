"""Retention against what groups have not settled, and full topics whose groups make room."""

from __future__ import annotations

from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background

from .queues import numbered, one, polled

LIMITS = [
    pytest.param({"retention_count": 4}, id="count"),
    pytest.param({"retention_bytes": 4}, id="bytes"),
    pytest.param({"retention_age": 60}, id="age"),
]


async def _ten(mq: flintmq.Client, clock: ManualClock, options: dict[str, Any]) -> None:
    """Ten messages, of which retention keeps four unless told otherwise."""
    await mq.create_topic("orders", **options)
    await polled(mq)
    await numbered(mq, 6)
    await clock.advance(61)
    await mq.publish_batch("orders", [b"%d" % n for n in range(6, 10)])
    await clock.advance(1)


@pytest.mark.parametrize("limit", LIMITS)
async def test_retention_drops_what_is_not_settled_and_counts_it(
    mq: flintmq.Client, clock: ManualClock, limit: dict[str, Any]
) -> None:
    await _ten(mq, clock, limit)
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.position, stats.drops) == (4, 6, {"retention": 6})
    assert await polled(mq) == [b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("limit", LIMITS)
async def test_keep_until_settled_keeps_what_any_group_has_not_settled(
    mq: flintmq.Client, clock: ManualClock, limit: dict[str, Any]
) -> None:
    await _ten(mq, clock, {**limit, "keep_until_settled": True})
    found = await mq.poll("orders", "g")
    assert len(found) == 10
    await mq.ack(found[1:])
    await clock.advance(1)
    assert (await mq.topic_stats("orders")).first_offset == 0
    await found[0].ack()
    await clock.advance(1)
    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.message_count) == (6, 4)
    assert (await mq.group_stats("orders", "g")).drops == {}


async def test_the_slowest_group_decides_what_is_kept_until_it_is_deleted(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=2, keep_until_settled=True)
    await polled(mq, "slow")
    for _ in range(3):
        await numbered(mq, 3)
        await (await mq.poll("orders", "fast")).ack()
    assert (await mq.topic_stats("orders")).message_count == 9
    await mq.delete_group("orders", "slow")
    await clock.settle()
    assert (await mq.topic_stats("orders")).message_count == 2


async def test_without_a_group_nothing_is_kept_beyond_the_limits(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=2, keep_until_settled=True)
    await numbered(mq, 9)
    assert (await mq.topic_stats("orders")).message_count == 2
    assert await polled(mq) == [b"7", b"8"]


async def test_expiry_counts_also_where_everything_is_kept_until_settled(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=2, keep_until_settled=True, ttl=60)
    await polled(mq)
    await numbered(mq, 5)
    await clock.advance(61)
    assert await polled(mq) == []
    await clock.settle()
    stats = await mq.group_stats("orders", "g")
    assert (stats.drops, stats.lag) == ({"expired": 5}, 0)


async def test_what_is_leased_when_retention_comes_is_gone(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=3)
    await numbered(mq, 3)
    found = await mq.poll("orders", "g", lease=10)
    await found[0].nack(delay=5)
    await mq.publish_batch("orders", [b"new"] * 3)
    await clock.advance(11)
    assert await polled(mq) == [b"new"] * 3
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.in_flight, stats.delayed) == (3, 3, 0)


async def test_a_group_that_never_polled_a_topic_of_much_traffic_goes_on_at_its_first(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=10)
    for order in ("priority", "key", "log"):
        await mq.poll("orders", order, order=order)
    for n in range(50):
        await mq.publish_batch("orders", [b"%d" % n] * 3, priority=n % 8, key=f"k{n % 5}")
    for order in ("priority", "key", "log"):
        assert len(await polled(mq, order)) == 10
        assert (await mq.group_stats("orders", order)).drops == {"retention": 140}


# --- full topics


@pytest.mark.parametrize("limit", [{"retention_count": 3}, {"retention_bytes": 3}])
async def test_what_every_group_has_settled_makes_room_for_a_publisher_that_waits(
    mq: flintmq.Client, background: Background, limit: dict[str, Any]
) -> None:
    await mq.create_topic("orders", overflow="block", **limit)
    await polled(mq, "other")
    await numbered(mq, 3)
    found = await mq.poll("orders", "g")
    publishing = await background.waiting(mq.publish("orders", b"3"))
    await mq.ack(found[1:])
    await background.settle()
    assert not publishing.done()
    await found[0].ack()
    await background.settle()
    assert not publishing.done(), "the other group has settled nothing"
    other = await mq.poll("orders", "other")
    await other[0].ack()
    assert (await publishing).offset == 3
    assert await polled(mq) == [b"3"]


async def test_a_full_topic_rejects_and_says_which_group_holds_it_up(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", overflow="reject", retention_count=3)
    await numbered(mq, 3)
    found = await mq.poll("orders", "slow")
    with pytest.raises(flintmq.TopicFull, match="'slow' still has 3"):
        await mq.publish("orders", b"3")
    await found.ack()
    assert (await mq.publish("orders", b"3")).offset == 3


@pytest.mark.parametrize("away", ["delete", "reset"])
async def test_a_group_that_goes_or_is_set_forward_makes_room(
    mq: flintmq.Client, background: Background, away: str
) -> None:
    await mq.create_topic("orders", overflow="block", retention_count=3)
    await numbered(mq, 3)
    await polled(mq)
    await (await mq.poll("orders", "other")).ack()
    publishing = await background.waiting(mq.publish("orders", b"3"))
    if away == "delete":
        await mq.delete_group("orders", "g")
    else:
        await mq.reset_group("orders", "g", "latest")
    assert (await publishing).offset == 3


async def test_dropping_the_new_one_leaves_groups_what_they_have(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", overflow="drop_new", retention_count=2)
    await polled(mq)
    assert (await mq.publish_batch("orders", [b"0", b"1", b"2"])).count == 2
    found = await mq.poll("orders", "g")
    assert found.values == [b"0", b"1"]
    await found[0].ack()
    assert (await mq.publish_batch("orders", [b"3", b"4"])).count == 1
    assert await polled(mq) == [b"3"]


async def test_dead_letters_are_taken_in_though_their_topic_is_full(mq: flintmq.Client) -> None:
    await mq.create_topic("graveyard", overflow="reject", retention_count=1)
    await mq.create_topic("orders", dead_letter_topic="graveyard")
    await numbered(mq, 3)
    for message in await mq.poll("orders", "g"):
        await message.reject("no")
    letters = await mq.dead_letters("orders", "g")
    assert len(letters) == 3
    assert (await mq.group_stats("orders", "g")).lag == 0


async def test_what_is_redriven_into_a_full_topic_pushes_nothing_out(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", overflow="reject", retention_count=2)
    await numbered(mq, 2)
    await (await one(mq)).reject("no")
    assert await mq.redrive("orders", "g") == 1
    with pytest.raises(flintmq.TopicFull):
        await mq.publish("orders", b"new")
    found = await mq.poll("orders", "g")
    assert found.values == [b"1", b"0"]
    await found.ack()
    await mq.publish("orders", b"new")
    assert await polled(mq) == [b"new"]


async def test_a_message_of_a_waiting_publisher_reaches_the_group_that_made_room(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", overflow="block", retention_count=1)
    await polled(mq)
    for n in range(5):
        background.start(mq.publish("orders", b"%d" % n))
        await background.settle()
    for n in range(5):
        message = await one(mq, wait=10)
        assert message.value == b"%d" % n
        await message.ack()


async def test_limits_that_are_set_later_count_at_once_for_groups_too(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 10)
    await one(mq)
    await mq.configure_topic("orders", retention_count=2)
    await clock.settle()
    assert await polled(mq) == [b"8", b"9"]
    assert (await mq.group_stats("orders", "g")).drops == {"retention": 8}
