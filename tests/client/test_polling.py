"""Polling: members that stay, long polls, and polls over partitions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import flintmq
from flintmq.errors import GroupExists, InvalidRequest, TopicDeleted
from flintmq.testing import ManualClock, settle

from ..conftest import Background
from .fake_queue import FakeBroker


async def test_a_connection_is_one_member_of_a_group_it_polls(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    for _ in range(3):
        await mq.poll("jobs", "workers")
    await asyncio.gather(*[mq.poll("jobs", "others") for _ in range(3)])

    assert broker.asked("join") == ["jobs", "jobs"]


async def test_a_poll_waits_for_the_first_message_and_not_for_more(
    mq: flintmq.Client, background: Background
) -> None:
    waiting = await background.waiting(mq.poll("jobs", "workers", max=10, wait=5))
    await mq.publish("jobs", b"1")

    assert (await waiting).values == [b"1"]


async def test_a_poll_is_empty_when_its_time_is_up(
    mq: flintmq.Client, background: Background, clock: ManualClock
) -> None:
    waiting = await background.waiting(mq.poll("jobs", "workers", wait=5))
    await clock.advance(5)

    assert await waiting == []


async def test_a_cancelled_poll_has_taken_nothing_at_whatever_turn(mq: flintmq.Client) -> None:
    for turns in range(10):
        polling = asyncio.ensure_future(mq.poll("jobs", "workers", wait=60))
        await settle()
        await mq.publish("jobs", b"%d" % turns)
        for _ in range(turns):
            await asyncio.sleep(0)
        polling.cancel()
        try:
            batch = await polling
        except asyncio.CancelledError:
            batch = await mq.poll("jobs", "workers")
        assert [(m.value, m.delivery_count) for m in batch] == [(b"%d" % turns, 1)]
        await batch.ack()


@pytest.mark.parametrize("ack", ["manual", "auto"])
async def test_a_cancelled_poll_over_partitions_has_taken_nothing_at_whatever_turn(
    mq: flintmq.Client, ack: Any
) -> None:
    await mq.create_topic("jobs", partitions=3)
    for turns in range(24):
        polling = asyncio.ensure_future(mq.poll("jobs", "workers", wait=60, ack=ack))
        await settle()
        await mq.publish_batch("jobs", [b"%d" % turns] * 2, partition=[turns % 3, (turns + 1) % 3])
        for _ in range(turns):
            await asyncio.sleep(0)
        polling.cancel()
        got: list[flintmq.Delivery] = []
        with suppress(asyncio.CancelledError):
            got += await polling
        for _ in range(3):
            await settle()
            got += await mq.poll("jobs", "workers", ack=ack)
        assert [(m.value, m.delivery_count) for m in got] == [(b"%d" % turns, 1)] * 2, turns
        await mq.ack(got)


async def test_over_partitions_each_gives_its_share(mq: flintmq.Client) -> None:
    await mq.create_topic("jobs", partitions=3)
    for partition, count in enumerate((100, 2, 100)):
        await mq.publish_batch("jobs", [b"x"] * count, partition=partition)
    batch = await mq.poll("jobs", "workers", max=12)
    partitions = [message.partition for message in batch]

    assert len(batch) == 12
    assert partitions.count(1) == 2
    assert min(partitions.count(0), partitions.count(2)) >= 4


async def test_over_partitions_a_poll_waits_at_all_of_them(
    mq: flintmq.Client, background: Background, broker: FakeBroker
) -> None:
    await mq.create_topic("jobs", partitions=3)
    for partition in (2, 0, 1):
        waiting = await background.waiting(mq.poll("jobs", "workers", max=1, wait=60))
        await mq.publish_batch("jobs", [b"a", b"b"], partition=partition)
        batch = await waiting
        assert [(m.partition, m.value) for m in batch] == [(partition, b"a")]
        await batch.ack()
        await (await mq.poll("jobs", "workers")).ack()


async def test_more_than_asked_for_is_given_back(
    mq: flintmq.Client, background: Background, broker: FakeBroker
) -> None:
    await mq.create_topic("jobs", partitions=2)
    waiting = await background.waiting(mq.poll("jobs", "workers", max=3, wait=60))
    await mq.publish_batch("jobs", [b"x"] * 4, partition=[0, 0, 1, 1])

    assert len(await waiting) == 3
    (left,) = await mq.poll("jobs", "workers")
    assert left.delivery_count == 1


async def test_auto_ack_settles_what_is_returned_and_no_more(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await mq.create_topic("parts", partitions=2)
    await mq.publish_batch("parts", [b"x"] * 4, partition=[0, 0, 1, 1])
    await mq.publish_batch("jobs", [b"x"] * 4)
    for topic in ("parts", "jobs"):
        batch = await mq.poll(topic, "workers", max=3, ack="auto")
        assert len(batch) == 3
        await batch.ack()
        with pytest.raises(InvalidRequest, match="acked before delivery"):
            await batch[0].nack()
        assert len(await mq.poll(topic, "workers")) == 1


async def test_partitions_that_are_added_are_polled(mq: flintmq.Client) -> None:
    await mq.create_topic("jobs", partitions=1)
    assert await mq.poll("jobs", "workers", start="latest") == []
    await mq.configure_topic("jobs", partitions=2)
    await mq.publish("jobs", b"new", partition=1)

    assert (await mq.poll("jobs", "workers", start="latest")).values == [b"new"]


async def test_a_poll_that_names_other_options_than_the_group_has_is_refused(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await mq.poll("jobs", "workers", order="key")
    await mq.poll("jobs", "workers")
    await mq.poll("jobs", "workers", order="key")

    with pytest.raises(GroupExists, match="order is 'key', not 'log'"):
        await mq.poll("jobs", "workers", order="log")
    assert len(broker.members) == 1


async def test_a_topic_made_anew_is_joined_anew(mq: flintmq.Client, broker: FakeBroker) -> None:
    await mq.publish("jobs", b"1")
    await mq.poll("jobs", "workers")
    broker.kill("jobs", "workers")

    assert (await mq.poll("jobs", "workers")).values == [b"1"]  # by a member of the new group


async def test_a_topic_deleted_under_a_poll_that_waits_raises(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    waiting = await background.waiting(mq.poll("jobs", "workers", wait=60))
    broker.kill("jobs", "workers")

    with pytest.raises(TopicDeleted):
        await waiting


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max": 0}, "max must be a whole number from 1 to 65,536"),
        ({"max": 65_537}, "max must be a whole number from 1 to 65,536"),
        ({"lease": 0}, "lease must be more than 0 seconds"),
        ({"wait": -1}, "wait must be 0 or more seconds"),
        ({"ack": None}, "ack must be 'manual' or 'auto', not None"),
        ({"order": "fifo"}, "order must be one of priority, key, log"),
    ],
)
async def test_wrong_options_are_refused_with_what_is_allowed(
    mq: flintmq.Client, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text):
        await mq.poll("jobs", "workers", **options)


async def test_nothing_is_kept_of_topics_and_groups_that_are_gone(
    clock: ManualClock, background: Background
) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.poll("jobs", "a")
        await mq.poll("jobs", "b")
        waiting = await background.waiting(mq.poll("jobs", "c", wait=60))
        await mq.delete_group("jobs", "a")
        assert sorted(mq._pollers._pollers) == [("jobs", "b"), ("jobs", "c")]
        await mq.delete_topic("jobs")
        with pytest.raises(TopicDeleted):
            await waiting
        assert mq._pollers._pollers == {}
