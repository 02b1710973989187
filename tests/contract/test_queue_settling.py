"""Leases and settling: ack, nack, extend, reject; late, lost, given back, and many at once."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background

from .queues import GraceEnds, numbered, one, polled

# --- leases


async def test_a_leased_message_is_nobody_elses_until_its_lease_runs_out(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    first = await one(mq, lease=10)
    await clock.advance(9.9)
    assert await polled(mq) == []
    await clock.advance(0.2)
    second = await one(mq)
    assert (first.delivery_count, second.delivery_count) == (1, 2)
    assert second.token > first.token

    with pytest.raises(flintmq.LeaseLost) as lost:
        await first.ack()
    assert lost.value.offsets == [0]
    with pytest.raises(flintmq.LeaseLost):
        await first.ack()  # and it stays lost
    await second.ack()
    assert (await mq.group_stats("orders", "g")).lag == 0


@pytest.mark.parametrize(
    ("verb", "argument"), [("nack", 0), ("nack", 5), ("reject", "no"), ("extend", 10)]
)
async def test_whoever_lost_a_lease_can_do_nothing_to_the_message(
    mq: flintmq.Client,
    clock: ManualClock,
    grace_ends: GraceEnds,
    verb: str,
    argument: float | str,
) -> None:
    await numbered(mq, 1)
    first = await one(mq, lease=10)
    await clock.advance(11)
    found = await mq.poll("orders", "g", 1)
    if not found:
        await grace_ends()
        found = await mq.poll("orders", "g", 1)
    (second,) = found
    with pytest.raises(flintmq.LeaseLost):
        await getattr(first, verb)(argument)
    assert await polled(mq) == []
    await second.ack()
    assert await mq.dead_letters("orders", "g") == []


async def test_a_late_settle_counts_until_another_has_the_message(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 4)
    found = await mq.poll("orders", "g", lease=10)
    await clock.advance(15)
    await found[0].ack()
    await found[1].nack(delay=5)
    await found[2].extend(10)
    await found[3].reject("late")

    assert await polled(mq) == []
    await clock.advance(6)
    assert await polled(mq) == [b"1"]
    await clock.advance(5)
    assert await polled(mq) == [b"2"]
    (letter,) = await mq.dead_letters("orders", "g")
    assert (letter.message.value, letter.reason) == (b"3", "late")


async def test_an_extended_lease_ends_that_many_seconds_from_now(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 2)
    found = await mq.poll("orders", "g", lease=10)
    await clock.advance(8)
    await found[0].extend(20)
    await clock.advance(3)
    assert await polled(mq, lease=100) == [b"1"]
    await clock.advance(16.9)
    assert await polled(mq) == []
    await clock.advance(0.2)
    assert await polled(mq) == [b"0"]


async def test_a_lease_may_be_made_shorter(mq: flintmq.Client, clock: ManualClock) -> None:
    await numbered(mq, 1)
    message = await one(mq, lease=1000)
    await message.extend(1)
    await clock.advance(1.1)
    assert await polled(mq) == [b"0"]


@pytest.mark.parametrize("lease", [0, -1, 12 * 3600 + 1, float("nan")])
async def test_leases_nobody_can_give_are_refused(mq: flintmq.Client, lease: float) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.poll("orders", "g", lease=lease)
    with pytest.raises(flintmq.InvalidRequest):
        mq.subscribe("orders", "g", lease=lease)


async def test_closing_a_subscription_gives_its_leases_back_at_once(
    mq: flintmq.Client, background: Background
) -> None:
    await numbered(mq, 3)
    async with mq.subscribe("orders", "g") as deliveries:
        seen = await deliveries.read()
        assert seen is not None
        assert await polled(mq) == []
        waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    found = [*await waiting, *await mq.poll("orders", "g")]
    counts = {message.value: message.delivery_count for message in found}
    # what it had taken ahead and shown to nobody was no delivery
    assert counts == {b"0": 2, b"1": 1, b"2": 1}
    with pytest.raises(flintmq.FlintError):
        await seen.ack()


async def test_leases_of_a_subscription_are_renewed_while_a_handler_works_up_to_the_maximum(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    async with mq.subscribe("orders", "g", lease=10, lease_max=60) as deliveries:
        message = await deliveries.read()
        assert message is not None
        for _ in range(11):
            await clock.advance(5)
            assert await polled(mq) == []
        await clock.advance(6)  # 61 seconds since it was handed out
        again = await deliveries.read()
        assert again is not None
        assert again.delivery_count == 2
        with pytest.raises(flintmq.LeaseLost):
            await message.ack()


async def test_leases_of_polled_messages_are_not_renewed(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    await one(mq, lease=10)
    await clock.advance(11)
    assert (await one(mq)).delivery_count == 2


# --- settling


async def test_a_nacked_message_comes_again_in_its_place(mq: flintmq.Client) -> None:
    await numbered(mq, 4)
    found = await mq.poll("orders", "g", 2)
    await found[1].nack()
    await found[0].nack()

    assert await polled(mq) == [b"0", b"1", b"2", b"3"]


async def test_a_nacked_message_comes_again_when_its_delay_is_over_to_who_waits(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await numbered(mq, 1)
    await (await one(mq)).nack(delay=5)
    waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    await clock.advance(4.95)
    assert not waiting.done()
    await clock.advance(0.05)
    (message,) = await waiting
    assert message.delivery_count == 2


async def test_settled_twice_in_one_way_is_settled_once_and_in_another_is_an_error(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 2)
    done, undone = await mq.poll("orders", "g")
    await done.ack()
    await done.ack()
    with pytest.raises(flintmq.InvalidRequest, match="acked"):
        await done.nack()
    with pytest.raises(flintmq.InvalidRequest, match="acked"):
        await done.extend(5)
    await undone.nack()
    await undone.nack()
    assert await polled(mq) == [b"1"]


async def test_many_are_settled_at_once_by_ranges_over_several_topics_and_partitions(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("row", partitions=3)
    for topic in ("orders", "bills"):
        await numbered(mq, 50, topic)
    for n in range(30):
        await mq.publish("row", b"%d" % n, partition=n % 3)
    found = [
        *await mq.poll("orders", "g"),
        *await mq.poll("bills", "h"),
        *await mq.poll("row", "g"),
        *await mq.poll("row", "g"),
        *await mq.poll("row", "g"),
    ]
    assert len(found) == 130
    await mq.ack(message for message in found if int(message.value) % 2)
    await mq.nack([message for message in found if int(message.value) % 2 == 0])

    for topic, group, left in (("orders", "g", 25), ("bills", "h", 25), ("row", "g", 15)):
        stats = await mq.group_stats(topic, group)
        assert (stats.lag, stats.settled) == (left, left)
    assert await polled(mq) == [b"%d" % n for n in range(0, 50, 2)]


async def test_deliveries_settle_what_was_not_settled_one_by_one(mq: flintmq.Client) -> None:
    await numbered(mq, 5)
    found = await mq.poll("orders", "g")
    await found[1].nack()
    await found[3].reject("bad")
    await found.ack()

    assert await polled(mq) == [b"1"]
    assert (await mq.group_stats("orders", "g")).lag == 1


async def test_of_many_some_of_which_are_lost_the_others_are_settled(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 4)
    early = await mq.poll("orders", "g", 2, lease=5)
    late = await mq.poll("orders", "g", 2, lease=50)
    await clock.advance(6)
    again = await mq.poll("orders", "g")
    with pytest.raises(flintmq.LeaseLost) as lost:
        await mq.ack([*early, *late])
    assert sorted(lost.value.offsets) == [0, 1]

    assert (await mq.group_stats("orders", "g")).lag == 2
    await again.ack()
    assert (await mq.group_stats("orders", "g")).lag == 0


async def test_only_messages_of_queues_can_be_settled(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    async with mq.reader("orders") as reader:
        message = await reader.read()
    for wrong in (message, [message], b"0", 7):
        with pytest.raises(flintmq.InvalidRequest):
            await mq.ack(wrong)  # type: ignore[arg-type]
    await mq.ack([])


# --- process


async def test_a_block_that_ends_well_acks_and_one_that_fails_is_tried_later(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 2)
    good, bad = await mq.poll("orders", "g")
    async with good.process():
        pass
    async with bad.process(backoff=4, jitter=0):
        raise RuntimeError("not today")

    waits = []
    for delay in (4, 8, 16):
        await clock.advance(delay - 0.05)
        assert await polled(mq) == []
        await clock.advance(0.1)
        message = await one(mq)
        waits.append(message.delivery_count)
        async with message.process(backoff=4, jitter=0):
            raise RuntimeError("nor now")
    assert waits == [2, 3, 4]


async def test_jitter_spreads_the_retries(mq: flintmq.Client, clock: ManualClock) -> None:
    await numbered(mq, 40)
    for message in await mq.poll("orders", "g"):
        async with message.process(backoff=10, jitter=0.5):
            raise RuntimeError
    await clock.advance(4.9)
    assert await polled(mq) == []
    await clock.advance(5.1)
    about_half = len(await polled(mq))
    assert 0 < about_half < 40
    await clock.advance(5.1)
    assert len(await polled(mq)) == 40 - about_half


async def test_once_it_was_retried_often_enough_it_is_a_dead_letter_with_the_exception(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    for _ in range(3):
        async with (await one(mq)).process(retries=2, backoff=1, jitter=0):
            raise RuntimeError("no way")
        await clock.advance(10)
    (letter,) = await mq.dead_letters("orders", "g")
    assert (letter.reason, letter.delivery_count) == ("RuntimeError: no way", 3)


async def test_max_deliveries_wins_over_retries(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("orders", max_deliveries=2)
    await numbered(mq, 1)
    for _ in range(2):
        async with (await one(mq)).process(retries=10, backoff=1, jitter=0):
            raise RuntimeError("no way")
        await clock.advance(10)
    assert await polled(mq) == []
    (letter,) = await mq.dead_letters("orders", "g")
    assert letter.delivery_count == 2


async def test_a_block_that_is_cancelled_gives_the_message_back_and_it_counts_as_no_delivery(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 1)
    with pytest.raises(asyncio.CancelledError):
        async with (await one(mq)).process():
            raise asyncio.CancelledError
    assert (await one(mq)).delivery_count == 1


async def test_a_block_that_settles_the_message_itself_has_the_last_word(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 2)
    one_message, other = await mq.poll("orders", "g")
    async with one_message.process():
        await one_message.nack()
    async with other.process():
        await other.ack()
        raise RuntimeError("after all was done")
    assert await polled(mq) == [b"0"]


# --- the handler form


async def test_a_handler_works_on_each_message_and_what_fails_comes_again(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await numbered(mq, 10)
    seen: list[tuple[bytes, int]] = []

    async def handle(message: flintmq.Delivery) -> None:
        seen.append((message.value, message.delivery_count))
        if message.value == b"3" and message.delivery_count == 1:
            raise RuntimeError("once")

    subscription = mq.subscribe("orders", "g")
    running = background.start(subscription.run(handle, concurrency=3, backoff=5, jitter=0))
    await background.settle()
    while (await mq.group_stats("orders", "g")).settled < 9:
        await background.settle()
    while not (await mq.group_stats("orders", "g")).delayed:
        await background.settle()
    await clock.advance(5.1)
    while (await mq.group_stats("orders", "g")).settled < 10:
        await background.settle()
    await subscription.close()
    await running
    assert sorted(seen) == sorted([(b"%d" % n, 1) for n in range(10)] + [(b"3", 2)])


async def test_no_more_handlers_run_at_once_than_was_said(
    mq: flintmq.Client, background: Background
) -> None:
    await numbered(mq, 10)
    running, most = 0, 0
    three_run, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: flintmq.Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            three_run.set()
        await go_on.wait()
        running -= 1

    subscription = mq.subscribe("orders", "g")
    task = background.start(subscription.run(handle, concurrency=3))
    await three_run.wait()
    await background.settle()
    go_on.set()
    while (await mq.group_stats("orders", "g")).settled < 10:
        await background.settle()
    await subscription.close()
    await task
    assert most == 3


# --- at most once


async def test_auto_ack_settles_before_it_hands_out(mq: flintmq.Client, clock: ManualClock) -> None:
    await numbered(mq, 3)
    found = await mq.poll("orders", "g", 2, ack="auto")
    assert found.values == [b"0", b"1"]
    assert (await mq.group_stats("orders", "g")).lag == 1
    await found.ack()  # nothing is left to do
    with pytest.raises(flintmq.InvalidRequest, match="auto"):
        await found[0].nack()
    await clock.advance(1000)
    async with mq.subscribe("orders", "g", ack="auto") as deliveries:
        message = await deliveries.read()
        assert message is not None
        assert message.value == b"2"
        assert (await mq.group_stats("orders", "g")).lag == 0
    assert await polled(mq) == []


@pytest.mark.parametrize("ack", ["manual", "auto"])
@pytest.mark.parametrize("turns", range(7))
async def test_a_poll_that_is_cancelled_at_any_turn_loses_nothing(
    mq: flintmq.Client, background: Background, turns: int, ack: str
) -> None:
    waiting = await background.waiting(mq.poll("orders", "g", wait=100, ack=ack))  # type: ignore[arg-type]
    publishing = background.start(mq.publish("orders", b"one"))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await publishing
    await background.settle()
    if waiting.cancelled():
        found = await mq.poll("orders", "g", ack=ack)  # type: ignore[arg-type]
        assert [message.delivery_count for message in found] == [1]
    else:
        found = waiting.result()
    assert found.values == [b"one"]
    assert await polled(mq) == []


@pytest.mark.parametrize("turns", range(5))
async def test_an_ack_that_is_cancelled_at_any_turn_can_be_repeated(
    mq: flintmq.Client, background: Background, turns: int
) -> None:
    await numbered(mq, 3)
    found = await mq.poll("orders", "g")
    acking = background.start(found.ack())
    for _ in range(turns):
        await asyncio.sleep(0)
    acking.cancel()
    await asyncio.wait([acking])
    await background.settle()
    lag = (await mq.group_stats("orders", "g")).lag
    assert lag in (0, 3)
    try:
        await found.ack()
    except flintmq.LeaseLost:
        assert lag == 0, "only what was done already can be lost"
    assert (await mq.group_stats("orders", "g")).lag == 0


async def test_many_members_that_come_and_go_settle_each_message_once(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 200)
    done: list[int] = []

    async def work(number: int) -> None:
        for turn in range(20):
            found = await mq.poll("orders", "g", 1 + (number + turn) % 5)
            for message in found:
                if (int(message.value) + message.delivery_count) % 3:
                    await message.ack()
                    done.append(int(message.value))
                else:
                    await message.nack()
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(6)))
    while found := await mq.poll("orders", "g"):
        done += [int(message.value) for message in found]
        await found.ack()
    assert sorted(done) == list(range(200))
