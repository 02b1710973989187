"""Groups over partitioned topics: one queue to its members, whatever it is made of."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background

from .queues import one, polled


async def _row(mq: flintmq.Client, count: int = 12, partitions: int = 3) -> None:
    await mq.create_topic("orders", partitions=partitions)
    for n in range(count):
        await mq.publish("orders", b"%d" % n, partition=n % partitions)


async def _all(mq: flintmq.Client, group: str = "g") -> list[flintmq.Delivery]:
    found: list[flintmq.Delivery] = []
    while some := await mq.poll("orders", group):
        found += some
    return found


async def test_a_group_sees_every_partition_and_members_split_them(
    mq: flintmq.Client, background: Background
) -> None:
    await _row(mq)
    async with (
        mq.subscribe("orders", "g", prefetch=6) as a,
        mq.subscribe("orders", "g", prefetch=6) as b,
    ):
        got = []
        for _ in range(6):
            await background.settle()
            for member in (a, b):
                message = await member.read(timeout=0)
                if message is not None:
                    got.append((message.partition, int(message.value)))
                    await message.ack()
    assert sorted(got) == sorted((n % 3, n) for n in range(12))
    assert (await mq.group_stats("orders", "g")).lag == 0


async def test_order_holds_within_a_partition(mq: flintmq.Client) -> None:
    await _row(mq, 30)
    by_partition: dict[int, list[int]] = {0: [], 1: [], 2: []}
    while found := await mq.poll("orders", "g", 4):
        for message in found:
            by_partition[message.partition].append(int(message.value))
        await found.ack()
    assert by_partition == {p: [*range(p, 30, 3)] for p in range(3)}


async def test_no_partition_is_forgotten_by_polls_of_one(mq: flintmq.Client) -> None:
    await _row(mq, 30)
    seen = [(await one(mq)).partition for _ in range(9)]
    assert {seen.count(partition) for partition in range(3)} == {3}


async def test_a_poll_that_waits_gets_what_comes_to_any_partition(
    mq: flintmq.Client, background: Background
) -> None:
    await _row(mq, 0)
    for partition in (2, 0, 1):
        waiting = await background.waiting(mq.poll("orders", "g", wait=100))
        await mq.publish("orders", b"%d" % partition, partition=partition)
        (message,) = await waiting
        assert message.partition == partition
        await message.ack()
    assert await mq.in_flight("orders", "g") == []


async def test_a_hundred_polls_wait_on_all_partitions_and_one_gets_the_message(
    mq: flintmq.Client, background: Background
) -> None:
    await _row(mq, 0)
    await polled(mq)
    waiting = [background.start(mq.poll("orders", "g", wait=100)) for _ in range(30)]
    await background.settle()
    await mq.publish("orders", b"one", partition=1)
    await background.settle()
    assert sum(task.done() for task in waiting) == 1


async def test_partitions_that_are_added_belong_to_the_group(
    mq: flintmq.Client, background: Background
) -> None:
    await _row(mq, 3)
    assert len(await _all(mq)) == 3
    async with mq.subscribe("orders", "h") as deliveries:
        await background.settle()
        while message := await deliveries.read(timeout=0):
            await message.ack()
        await mq.configure_topic("orders", partitions=5)
        await mq.publish("orders", b"new", partition=4)
        assert [message.value for message in await _all(mq)] == [b"new"]
        await mq.publish("orders", b"wakes", partition=0)
        await background.settle()
        got = []
        while message := await deliveries.read(timeout=0):
            got.append(message.value)
            await message.ack()
            await background.settle()
        assert sorted(got) == [b"new", b"wakes"]


async def test_partitions_that_are_added_have_the_options_of_the_group(mq: flintmq.Client) -> None:
    await _row(mq, 0)
    await mq.poll("orders", "g", filter="priority > 3", order="log", start="latest")
    await mq.configure_topic("orders", partitions=5)
    await mq.publish("orders", b"low", partition=4)
    await mq.publish("orders", b"high", partition=4, priority=5)
    assert [message.value for message in await _all(mq)] == [b"high"]
    (info,) = await mq.groups("orders")
    assert (info.filter, info.order, info.start) == ("priority > 3", "log", "latest")
    with pytest.raises(flintmq.GroupExists):
        await mq.poll("orders", "g", order="key")


async def test_options_and_names_are_of_the_whole_row(mq: flintmq.Client) -> None:
    await _row(mq, 3)
    await mq.poll("orders", "g", order="log")
    with pytest.raises(flintmq.GroupExists) as told:
        await mq.poll("orders", "g", order="key")
    assert set(told.value.differing) == {"order"}
    with pytest.raises(flintmq.GroupExists):
        await mq.reader("orders", name="g")
    with pytest.raises(flintmq.InvalidRequest, match="partition"):
        await mq.poll("orders", "new", start=3)
    assert [info.name for info in await mq.groups("orders")] == ["g"]


async def test_the_figures_are_sums_and_each_partition_has_its_own(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await _row(mq)
    found = await _all(mq)
    await mq.ack(message for message in found if message.partition == 1)
    await next(m for m in found if m.partition == 0).reject("no")
    await next(m for m in found if m.partition == 2).nack(delay=10)
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.in_flight, stats.delayed, stats.ready) == (7, 6, 1, 0)
    assert (stats.settled, stats.delivered, stats.dead_letters) == (5, 12, 1)
    assert [part.lag for part in stats.partitions] == [3, 0, 4]
    assert (stats.members, stats.name, stats.topic) == (1, "g", "orders")
    flying = await mq.in_flight("orders", "g")
    assert sorted({one.partition for one in flying}) == [0, 2]
    await clock.advance(11)
    assert len(await mq.peek("orders", "g")) == 1


async def test_dead_letters_of_a_row_go_back_to_their_partition(mq: flintmq.Client) -> None:
    await _row(mq, 6)
    for message in await _all(mq):
        await message.reject(f"of {message.partition}")
    letters = await mq.dead_letters("orders", "g")
    assert sorted((letter.partition, letter.offset) for letter in letters) == [
        (p, n) for p in range(3) for n in range(2)
    ]
    assert all(letter.topic == "orders" for letter in letters)
    assert await mq.redrive("orders", "g") == 6
    again = await _all(mq)
    assert sorted((m.partition, m.value) for m in again) == sorted(
        (n % 3, b"%d" % n) for n in range(6)
    )


async def test_pausing_resetting_and_deleting_are_of_the_whole_row(
    mq: flintmq.Client, background: Background
) -> None:
    await _row(mq, 6)
    await mq.ack(await _all(mq))
    await mq.pause_group("orders", "g")
    waiting = await background.waiting(mq.poll("orders", "g", 100, wait=100))
    await mq.reset_group("orders", "g", {0: 1, 2: 0})
    await background.settle()
    assert not waiting.done()
    await mq.resume_group("orders", "g")
    got = [*await waiting, *await _all(mq)]
    assert sorted((m.partition, m.offset) for m in got) == [(0, 1), (2, 0), (2, 1)]
    await mq.reset_group("orders", "g", "earliest")
    assert len(await _all(mq)) == 6
    with pytest.raises(flintmq.InvalidRequest, match="partition"):
        await mq.reset_group("orders", "g", 1)
    with pytest.raises(flintmq.InvalidRequest, match="partition"):
        await mq.reset_group("orders", "g", {7: 0})
    await mq.delete_group("orders", "g")
    assert await mq.groups("orders") == []
    assert len(await _all(mq)) == 6


async def test_messages_of_a_key_come_in_order_over_a_row_too(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=3)
    for n in range(12):
        await mq.publish("orders", b"%d" % n, key=f"k{n % 4}")
    seen: dict[object, list[int]] = {}
    await mq.poll("orders", "g", 1, order="key", lease=1000)
    await mq.reset_group("orders", "g", "earliest")
    while found := await _all(mq):
        for message in found:
            seen.setdefault(message.key, []).append(int(message.value))
        await mq.ack(found)
    assert seen == {f"k{k}": [k, k + 4, k + 8] for k in range(4)}


async def test_delays_are_cancelled_by_a_receipt_of_many_parts(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", partitions=3)
    receipt = await mq.publish_batch(
        "orders", [b"%d" % n for n in range(9)], key=[f"k{n}" for n in range(9)], delay=10
    )
    assert await mq.cancel(receipt) == 9
    await mq.publish("orders", b"comes", delay=10)
    await clock.advance(11)
    assert [message.value for message in await _all(mq)] == [b"comes"]


async def test_a_rate_of_a_row_holds_for_it(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("orders", partitions=2, rate_limit=10, rate_burst=1)
    for n in range(100):
        await mq.publish("orders", b"x", partition=n % 2)
    got = 0
    for _ in range(20):
        await clock.advance(0.1)
        got += len(await polled(mq))
    assert 18 <= got <= 22


@pytest.mark.parametrize("turns", range(6))
async def test_a_poll_of_a_row_that_is_cancelled_at_any_turn_loses_nothing(
    mq: flintmq.Client, background: Background, turns: int
) -> None:
    await _row(mq, 0)
    waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    publishing = background.start(mq.publish_batch("orders", [b"0", b"1"], partition=1))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await publishing
    await background.settle()
    if waiting.cancelled():
        found = await mq.poll("orders", "g")
        assert [message.delivery_count for message in found] == [1, 1]
    else:
        found = waiting.result()
    assert found.values == [b"0", b"1"]
