"""Acks nobody waits for: gathered, in order, flushed at the end, and told of where they fail."""

from __future__ import annotations

import pytest

import flintmq
from flintmq.testing import ManualClock

from .conftest import Connect
from .queues import numbered, one, polled


async def test_who_asks_about_a_group_sees_what_it_acked_without_waiting(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 3)
    for message in await mq.poll("orders", "g"):
        message.ack_nowait()
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.in_flight) == (0, 0)
    assert mq.not_settled == 0


async def test_a_batch_is_acked_without_waiting(mq: flintmq.Client) -> None:
    await numbered(mq, 5)
    found = await mq.poll("orders", "g")
    await found[1].nack(60)
    found.ack_nowait()
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.in_flight) == (1, 0)


async def test_a_message_is_nacked_without_waiting(mq: flintmq.Client, clock: ManualClock) -> None:
    await numbered(mq, 2)
    first, second = await mq.poll("orders", "g")
    first.nack_nowait()
    second.nack_nowait(delay=5)
    again = await one(mq)
    assert (again.value, again.delivery_count) == (b"0", 2)
    assert await polled(mq) == []
    await clock.advance(6)
    assert await polled(mq) == [b"1"]


async def test_a_poll_comes_behind_what_was_acked_before_it(mq: flintmq.Client) -> None:
    for number in range(3):
        await mq.publish("orders", b"%d" % number, key="same")
    seen: list[bytes] = []
    while found := await mq.poll("orders", "g", 1, order="key", wait=1 if len(seen) < 3 else 0):
        seen += found.values
        found[0].ack_nowait()
    assert seen == [b"0", b"1", b"2"]


async def test_settling_twice_is_as_if_one_had_waited(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    message = await one(mq)
    message.ack_nowait()
    message.ack_nowait()
    await message.ack()
    with pytest.raises(flintmq.InvalidRequest, match="it cannot be nacked now"):
        message.nack_nowait()


async def test_who_waits_after_all_hears_that_the_lease_was_lost(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    message = await one(mq, lease=10)
    await clock.advance(11)
    second = await one(mq)
    message.ack_nowait()
    with pytest.raises(flintmq.LeaseLost):
        await message.ack()
    await second.ack()


async def test_an_ack_that_fails_is_counted_told_and_logged(
    mq: flintmq.Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[flintmq.NotSettled] = []
    mq.on_not_settled(told.append)
    await numbered(mq, 3)
    found = await mq.poll("orders", "g", lease=10)
    await found[2].extend(60)
    await clock.advance(11)
    assert await polled(mq) == [b"0", b"1"]  # they are another's now
    for message in found:
        message.ack_nowait()
    stats = await mq.group_stats("orders", "g")

    assert mq.not_settled == 2
    lost = [(one.topic, one.group, offset, one.how) for one in told for offset in one.offsets]
    assert lost == [("orders", "g", 0, "ack"), ("orders", "g", 1, "ack")]
    assert all(isinstance(one.error, flintmq.LeaseLost) for one in told)
    assert "was not settled: the lease of group 'g'" in caplog.text
    assert stats.lag == 2, "what was not lost is settled"


async def test_leaving_flushes_what_was_acked(connect: Connect) -> None:
    async with connect() as mq:
        await numbered(mq, 40)
        async with mq.subscribe("orders", "g") as subscription:
            async for message in subscription:
                async with message.process():
                    pass
                if message.offset == 39:
                    break
        assert await polled(mq) == [], "nothing was given back"


async def test_a_subscription_that_is_closed_at_once_has_acked(mq: flintmq.Client) -> None:
    await numbered(mq, 3)
    subscription = await mq.subscribe("orders", "g")
    for message in await subscription.read_batch(3):
        message.ack_nowait()
    await subscription.close()
    assert await polled(mq) == []
    assert mq.not_settled == 0


async def test_messages_of_a_key_come_in_order_however_they_are_settled(
    mq: flintmq.Client,
) -> None:
    for number in range(12):
        await mq.publish("orders", b"%d" % number, key=f"key {number % 2}")
    seen: dict[int, list[int]] = {0: [], 1: []}
    failed: set[int] = set()
    async with mq.subscribe("orders", "g", order="key") as subscription:
        async for message in subscription:
            number = int(message.value)
            async with message.process(backoff=0):
                if number % 5 == 0 and number not in failed:
                    failed.add(number)
                    raise ValueError("once")
                seen[number % 2].append(number)
            if sum(map(len, seen.values())) == 12:
                break
    assert seen == {0: [0, 2, 4, 6, 8, 10], 1: [1, 3, 5, 7, 9, 11]}
