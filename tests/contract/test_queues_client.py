"""Queues as their users see them: subscribe, poll, settle, process; on every way of running."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import flintmq
from flintmq.client.queue_verbs import Ack
from flintmq.errors import (
    Closed,
    GroupExists,
    GroupNotFound,
    InvalidRequest,
    LeaseLost,
    TopicDeleted,
)
from flintmq.testing import ManualClock

from ..conftest import Background
from .queues import deleted


async def publish(mq: flintmq.Client, count: int, topic: str = "jobs") -> None:
    await mq.publish_batch(topic, [b"%d" % number for number in range(count)])


# --- subscribing


async def test_a_subscription_hands_out_what_is_there_and_what_comes(mq: flintmq.Client) -> None:
    await publish(mq, 2)
    seen = []
    async with mq.subscribe("jobs", group="workers") as deliveries:
        async for message in deliveries:
            seen.append(message.value)
            await message.ack()
            if len(seen) == 2:
                await mq.publish("jobs", b"later")
            if len(seen) == 3:
                break

    assert seen == [b"0", b"1", b"later"]
    assert (await mq.group_stats("jobs", "workers")).lag == 0


async def test_a_message_says_who_has_it_and_for_the_how_many_th_time(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 1)
    async with mq.subscribe("jobs", "workers", lease=20) as deliveries:
        message = await deliveries.read(timeout=0)
        await clock.settle()
        message = message or await deliveries.read(timeout=0)
        assert message is not None
        assert (message.group, message.delivery_count, message.offset) == ("workers", 1, 0)
        await clock.advance(4)
        (flying,) = await mq.in_flight("jobs", "workers")

    assert (flying.offset, flying.delivery_count, flying.token) == (0, 1, message.token)
    assert (flying.age, flying.expires_in) == (4, 16)
    assert flying.holder.count(":") >= 2


async def test_two_subscriptions_split_a_group_and_two_groups_do_not(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 6)
    async with (
        mq.subscribe("jobs", "a", prefetch=3) as one,
        mq.subscribe("jobs", "a", prefetch=3) as two,
        mq.subscribe("jobs", "b", prefetch=6) as other,
    ):
        await clock.settle()
        first = (await one.read_batch(10)).values
        second = (await two.read_batch(10)).values
        assert sorted(first + second) == [b"%d" % number for number in range(6)]
        assert (await other.read_batch(10)).values == [b"%d" % number for number in range(6)]


async def test_no_more_than_prefetch_are_out_at_once(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 10)
    async with mq.subscribe("jobs", "workers", prefetch=4) as deliveries:
        await clock.settle()
        batch = await deliveries.read_batch(100)
        await clock.settle()
        assert len(batch) == 4
        assert (await mq.group_stats("jobs", "workers")).in_flight == 4
        assert await deliveries.read(timeout=0) is None

        await batch.ack()
        await clock.settle()
        assert (await deliveries.read_batch(100)).values == [b"4", b"5", b"6", b"7"]


async def test_leases_are_renewed_while_the_handler_works(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 2)
    async with mq.subscribe("jobs", "workers", lease=10, prefetch=2) as deliveries:
        await clock.settle()
        batch = await deliveries.read_batch(2)
        await clock.advance(300)
        assert await mq.poll("jobs", "workers") == []
        await batch.ack()

    stats = await mq.group_stats("jobs", "workers")
    assert (stats.lag, stats.leases_expired, stats.redelivered) == (0, 0, 0)


async def test_after_lease_max_another_gets_the_message_with_a_higher_token(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 1)
    async with mq.subscribe("jobs", "workers", lease=10, lease_max=25, prefetch=1) as deliveries:
        await clock.settle()
        (message,) = await deliveries.read_batch(1)
        waiting = asyncio.ensure_future(mq.poll("jobs", "workers", wait=60))
        await clock.advance(24)
        assert not waiting.done()
        await clock.advance(2)
        (again,) = await waiting

        assert again.delivery_count == 2
        assert again.token > message.token
        with pytest.raises(LeaseLost):
            await message.ack()
        await again.ack()


async def test_closing_gives_everything_back_and_counts_only_what_was_seen(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 4)
    async with mq.subscribe("jobs", "workers", prefetch=4) as deliveries:
        await clock.settle()
        await deliveries.read()
    again = await mq.poll("jobs", "workers")

    assert [(m.value, m.delivery_count) for m in again][1:] == [(b"1", 1), (b"2", 1), (b"3", 1)]
    assert again[0].delivery_count == 2


async def test_a_subscription_to_a_missing_topic_makes_it_unless_told_otherwise(
    mq: flintmq.Client,
) -> None:
    async with mq.subscribe("new", "workers"):
        assert await mq.topics() == ["new"]
    with pytest.raises(flintmq.TopicNotFound):
        await mq.subscribe("other", "workers", auto_create=False)


async def test_deleting_the_topic_raises_into_who_waits(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.subscribe("jobs", "workers") as deliveries:
        waiting = await background.waiting(deliveries.read())
        await deleted(mq, "jobs")

        with pytest.raises(TopicDeleted):
            await waiting


async def test_deleting_the_group_raises_into_who_waits(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.subscribe("jobs", "workers") as deliveries:
        waiting = await background.waiting(deliveries.read())
        await mq.delete_group("jobs", "workers")

        with pytest.raises(GroupNotFound):
            await waiting


async def test_closing_ends_an_iterator_that_waits(
    mq: flintmq.Client, background: Background
) -> None:
    deliveries = await mq.subscribe("jobs", "workers")

    async def consume() -> str:
        async for _ in deliveries:
            pass
        return "ended"

    consuming = await background.waiting(consume())
    await deliveries.close()

    assert await consuming == "ended"
    with pytest.raises(Closed):
        await deliveries.read()


async def test_with_auto_ack_a_message_is_settled_once_it_is_handed_out(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 4)
    async with mq.subscribe("jobs", "workers", ack="auto", prefetch=4) as deliveries:
        await clock.settle()
        message = await deliveries.read()
        assert message is not None
        stats = await mq.group_stats("jobs", "workers")
        assert (stats.settled, stats.lag) == (1, 3)
        assert (await deliveries.read_batch(2)).values == [b"1", b"2"]

    assert (await mq.poll("jobs", "workers")).values == [b"3"]


async def test_options_of_a_group_are_those_of_whoever_made_it(mq: flintmq.Client) -> None:
    async with mq.subscribe("jobs", "workers", order="key", filter="priority > 3", start="latest"):
        (info,) = await mq.groups("jobs")
        assert (info.order, info.filter, info.start) == ("key", "priority > 3", "latest")
        await mq.poll("jobs", "workers", order="key")
        await mq.poll("jobs", "workers")
        with pytest.raises(GroupExists, match="order is 'key', not 'log'"):
            await mq.subscribe("jobs", "workers", order="log")
        with pytest.raises(GroupExists, match="filter is 'priority > 3'"):
            await mq.poll("jobs", "workers", filter="priority > 4")


async def test_what_the_filter_rejects_is_settled_without_delivery(mq: flintmq.Client) -> None:
    await mq.publish_batch("jobs", [b"0", b"1", b"2"], priority=[1, 5, 1])

    batch = await mq.poll("jobs", "high", filter="priority > 3")
    assert batch.values == [b"1"]
    await batch.ack()
    stats = await mq.group_stats("jobs", "high")
    assert (stats.lag, stats.drops["filtered"]) == (0, 2)


async def test_a_name_is_a_cursor_or_a_queue_and_not_both(mq: flintmq.Client) -> None:
    await publish(mq, 1)
    async with mq.reader("jobs", name="readers"):
        with pytest.raises(GroupExists):
            await mq.poll("jobs", "readers")
    await mq.poll("jobs", "workers")
    with pytest.raises(GroupExists):
        await mq.reader("jobs", name="workers")


# --- polling


async def test_a_poll_returns_what_is_there_by_leases(mq: flintmq.Client) -> None:
    await publish(mq, 5)
    first = await mq.poll("jobs", "workers", max=2)
    second = await mq.poll("jobs", "workers")

    assert (first.values, second.values) == ([b"0", b"1"], [b"2", b"3", b"4"])
    assert await mq.poll("jobs", "workers") == []


async def test_a_poll_waits_for_the_first_message(
    mq: flintmq.Client, background: Background, clock: ManualClock
) -> None:
    waiting = await background.waiting(mq.poll("jobs", "workers", wait=60))
    await mq.publish("jobs", b"1")
    assert (await waiting).values == [b"1"]

    waiting = await background.waiting(mq.poll("jobs", "workers", wait=5))
    await clock.advance(5)
    assert await waiting == []


async def test_polled_messages_come_again_when_their_lease_ran_out(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 2)
    old = await mq.poll("jobs", "workers", lease=10)
    await clock.advance(10.1)
    new = await mq.poll("jobs", "workers", max=1)

    assert (new[0].offset, new[0].delivery_count) == (0, 2)
    with pytest.raises(LeaseLost) as lost:
        await old.ack()  # of offset 1 it counts: nobody else has it
    assert lost.value.offsets == [0]
    await new.ack()
    assert (await mq.group_stats("jobs", "workers")).lag == 0


async def test_auto_ack_of_a_poll_settles_what_it_returns(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 3)
    batch = await mq.poll("jobs", "workers", max=2, ack="auto")
    await clock.advance(100)

    assert batch.values == [b"0", b"1"]
    assert (await mq.poll("jobs", "workers")).values == [b"2"]
    with pytest.raises(InvalidRequest, match="acked before delivery"):
        await batch[0].nack()


async def test_a_poll_on_a_missing_topic_makes_a_group_that_misses_nothing(
    mq: flintmq.Client,
) -> None:
    assert await mq.poll("new", "workers") == []
    await mq.publish("new", b"1")

    assert (await mq.poll("new", "workers")).values == [b"1"]


async def test_a_topic_deleted_and_made_anew_is_polled_from_its_start(mq: flintmq.Client) -> None:
    await publish(mq, 3)
    await mq.poll("jobs", "workers")
    await deleted(mq, "jobs")
    await mq.publish("jobs", b"new")

    assert (await mq.poll("jobs", "workers")).values == [b"new"]


# --- settling


async def test_nack_brings_a_message_back_after_the_delay(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 1)
    (message,) = await mq.poll("jobs", "workers")
    await message.nack(delay=5)
    await clock.advance(4.9)
    assert await mq.poll("jobs", "workers") == []
    await clock.advance(0.15)
    (again,) = await mq.poll("jobs", "workers")

    assert again.delivery_count == 2
    assert again.token > message.token


async def test_extend_keeps_a_message(mq: flintmq.Client, clock: ManualClock) -> None:
    await publish(mq, 1)
    (message,) = await mq.poll("jobs", "workers", lease=10)
    await clock.advance(9)
    await message.extend(60)
    await clock.advance(50)

    assert await mq.poll("jobs", "workers") == []
    await message.ack()


async def test_many_are_settled_in_one_call_over_topics_and_groups(mq: flintmq.Client) -> None:
    await publish(mq, 20)
    await publish(mq, 20, "others")
    everything = [
        *await mq.poll("jobs", "a"),
        *await mq.poll("jobs", "b"),
        *await mq.poll("others", "a"),
    ]
    await mq.ack(everything[:30])
    await mq.nack(everything[30:])

    lags = [(await mq.group_stats(*place)).lag for place in [("jobs", "a"), ("jobs", "b")]]
    assert lags == [0, 10]
    again = await mq.poll("others", "a")
    assert [message.delivery_count for message in again] == [2] * 20


async def test_settling_twice_is_fine_and_otherwise_is_not(mq: flintmq.Client) -> None:
    await publish(mq, 1)
    (message,) = await mq.poll("jobs", "workers")
    await message.ack()
    await message.ack()
    await mq.ack([message])

    with pytest.raises(InvalidRequest, match="was acked: it cannot be nacked now"):
        await message.nack()


# --- process


async def test_a_block_that_ends_well_acks_and_one_that_fails_is_tried_again_later(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await publish(mq, 2)
    done: list[tuple[bytes, int]] = []
    async with mq.subscribe("jobs", "workers", prefetch=2) as deliveries:
        async for message in deliveries:
            async with message.process(backoff=10, jitter=0):
                if message.value == b"0" and message.delivery_count < 3:
                    raise RuntimeError("not yet")
                done.append((message.value, message.delivery_count))
            if len(done) == 2:
                break
            await clock.advance(20.1)

    assert done == [(b"1", 1), (b"0", 3)]
    assert (await mq.group_stats("jobs", "workers")).lag == 0


async def test_after_its_retries_a_message_is_a_dead_letter_with_the_reason(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("jobs", {"id": 7}, key="k", headers={"region": "eu"}, priority=2)
    for _ in range(3):
        (message,) = await mq.poll("jobs", "workers")
        async with message.process(retries=2, backoff=1, jitter=0):
            raise ValueError("no such order")
        await clock.advance(5)
    (letter,) = await mq.dead_letters("jobs", "workers")

    assert (letter.topic, letter.partition, letter.offset) == ("jobs", 0, 0)
    assert (letter.group, letter.reason) == ("workers", "ValueError: no such order")
    assert letter.delivery_count == 3
    assert letter.time == pytest.approx(clock.now_ms() / 1000 - 5)
    assert letter.message.decode() == {"id": 7}
    assert (letter.message.key, letter.message.headers) == ("k", {"region": "eu"})
    assert (letter.message.topic, letter.message.offset) == ("jobs", 0)
    assert letter.message.priority == 2


async def test_max_deliveries_wins_over_retries(mq: flintmq.Client) -> None:
    await mq.create_topic("jobs", max_deliveries=2)
    await publish(mq, 1)
    for _ in range(2):
        (message,) = await mq.poll("jobs", "workers")
        async with message.process(retries=100, backoff=0):
            raise ValueError("no")

    assert await mq.poll("jobs", "workers") == []
    assert len(await mq.dead_letters("jobs", "workers")) == 1


async def test_a_block_that_is_cancelled_gives_its_message_back_uncounted(
    mq: flintmq.Client,
) -> None:
    await publish(mq, 1)
    (message,) = await mq.poll("jobs", "workers")
    with pytest.raises(asyncio.CancelledError):
        async with message.process():
            raise asyncio.CancelledError

    (again,) = await mq.poll("jobs", "workers")
    assert again.delivery_count == 1


# --- dead letters and back


async def test_dead_letters_go_back_one_by_id_some_by_filter_all(mq: flintmq.Client) -> None:
    await mq.publish_batch("jobs", [b"%d" % n for n in range(6)], priority=[0, 0, 0, 0, 5, 5])
    for message in await mq.poll("jobs", "workers"):
        await message.reject("broken")
    letters = {letter.message.value: letter for letter in await mq.dead_letters("jobs", "workers")}
    assert len(letters) == 6
    assert {letter.reason for letter in letters.values()} == {"broken"}

    assert await mq.redrive("jobs", "workers", letters[b"1"]) == 1
    assert (await mq.poll("jobs", "workers")).values == [b"1"]
    assert await mq.redrive("jobs", "workers", [letters[b"0"].id, letters[b"2"]]) == 2
    assert await mq.redrive("jobs", "workers", filter="priority == 5") == 2
    assert sorted((await mq.poll("jobs", "workers")).values) == [b"0", b"2", b"4", b"5"]
    assert await mq.redrive("jobs", "workers") == 1
    assert await mq.redrive("jobs", "workers") == 0
    assert await mq.dead_letters("jobs", "workers") == []


async def test_redrive_refuses_what_it_does_not_understand(mq: flintmq.Client) -> None:
    await mq.poll("jobs", "workers")
    with pytest.raises(InvalidRequest, match="`which` or `filter`, not both"):
        await mq.redrive("jobs", "workers", 1, filter="priority == 5")
    with pytest.raises(InvalidRequest, match="redrive takes dead letters or their ids"):
        await mq.redrive("jobs", "workers", ["first"])  # type: ignore[list-item]


# --- groups


async def test_a_paused_group_hands_out_nothing_and_goes_on_when_resumed(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.poll("jobs", "workers")
    await mq.pause_group("jobs", "workers")
    waiting = await background.waiting(mq.poll("jobs", "workers", wait=60))
    await publish(mq, 1)
    await background.settle()
    assert not waiting.done()
    assert (await mq.groups("jobs"))[0].paused

    await mq.resume_group("jobs", "workers")
    assert (await waiting).values == [b"0"]


async def test_a_group_can_be_set_back_and_forth(mq: flintmq.Client) -> None:
    await publish(mq, 5)
    await (await mq.poll("jobs", "workers")).ack()
    await mq.reset_group("jobs", "workers", 3)
    assert (await mq.poll("jobs", "workers")).values == [b"3", b"4"]
    await mq.reset_group("jobs", "workers", "earliest")
    assert len(await mq.poll("jobs", "workers")) == 5
    await mq.reset_group("jobs", "workers", "latest")
    assert await mq.poll("jobs", "workers") == []


async def test_peek_shows_what_comes_next_and_leases_nothing(mq: flintmq.Client) -> None:
    await mq.publish_batch("jobs", [b"low", b"high"], priority=[0, 7])
    await mq.poll("jobs", "workers", max=1, lease=1)
    await mq.reset_group("jobs", "workers", "earliest")

    assert (await mq.peek("jobs", "workers")).values == [b"high", b"low"]
    assert (await mq.peek("jobs", "workers", max=1)).values == [b"high"]
    assert (await mq.group_stats("jobs", "workers")).in_flight == 0


async def test_a_deleted_group_is_gone(mq: flintmq.Client) -> None:
    await mq.poll("jobs", "workers")
    await mq.delete_group("jobs", "workers")

    assert await mq.groups("jobs") == []
    with pytest.raises(GroupNotFound):
        await mq.group_stats("jobs", "workers")


# --- delays


async def test_a_message_is_due_at_a_time(mq: flintmq.Client, clock: ManualClock) -> None:
    now = clock.now_ms() / 1000
    await mq.publish("jobs", b"seconds", at=now + 10)
    await mq.publish("jobs", b"datetime", at=datetime.fromtimestamp(now + 20, UTC))
    await mq.publish("jobs", b"past", at=now - 100)
    await mq.publish_batch("jobs", [b"a", b"b"], at=[now + 30, None])
    async with mq.publisher("jobs") as publisher:
        publisher.send(b"sent", at=datetime.fromtimestamp(now, UTC) + timedelta(seconds=40))

    got = [(await mq.poll("jobs", "workers", ack="auto")).values]
    for _ in range(4):
        await clock.advance(10.05)
        got.append((await mq.poll("jobs", "workers", ack="auto")).values)
    assert got == [[b"past", b"b"], [b"seconds"], [b"datetime"], [b"a"], [b"sent"]]


async def test_a_delay_and_a_time_together_are_refused(mq: flintmq.Client) -> None:
    with pytest.raises(InvalidRequest, match="pass only one of them"):
        await mq.publish("jobs", b"x", delay=1, at=1)
    with pytest.raises(InvalidRequest, match="pass only one of them"):
        await mq.publish_batch("jobs", [b"x"], delay=1, at=[1])
    with pytest.raises(InvalidRequest, match="at must be a datetime or seconds since 1970"):
        await mq.publish("jobs", b"x", at="noon")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="at must be at most"):
        await mq.publish("jobs", b"x", at=1e15)


async def test_delayed_messages_are_withdrawn_by_their_receipt(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("parts", partitions=2)
    one = await mq.publish("jobs", b"x", delay=10)
    many = await mq.publish_batch("jobs", [b"x"] * 3, delay=[10, 0, 10])
    spread = await mq.publish_batch("parts", [b"x"] * 4, delay=10, partition=[0, 1, 0, 1])

    assert await mq.cancel(one) == 1
    assert await mq.cancel(one) == 0
    assert await mq.cancel(many) == 2
    assert await mq.cancel(spread) == 4
    await clock.advance(11)
    assert len(await mq.poll("jobs", "workers")) == 1
    assert await mq.poll("parts", "workers") == []
    with pytest.raises(InvalidRequest, match="cancel takes the receipt"):
        await mq.cancel(7)  # type: ignore[arg-type]


# --- partitions


async def test_a_group_over_partitions_gets_everything_once(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("jobs", partitions=3)
    for number in range(30):
        await mq.publish("jobs", b"%d" % number, key=str(number))
    seen: list[bytes] = []
    async with (
        mq.subscribe("jobs", "workers", prefetch=4) as one,
        mq.subscribe("jobs", "workers", prefetch=4) as two,
    ):
        await clock.settle()
        while len(seen) < 30:
            for deliveries in (one, two):
                batch = await deliveries.read_batch(10, timeout=0)
                seen += batch.values
                await batch.ack()
                await clock.settle()

    assert sorted(map(int, seen)) == list(range(30))
    assert (await mq.group_stats("jobs", "workers")).lag == 0


async def test_a_poll_over_partitions_waits_at_all_of_them(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("jobs", partitions=3)
    for partition in (1, 2, 0):
        waiting = await background.waiting(mq.poll("jobs", "workers", wait=60))
        await mq.publish("jobs", b"x", partition=partition)
        (message,) = await waiting
        assert message.partition == partition
        await message.ack()


@pytest.mark.parametrize("ack", ["manual", "auto"])
async def test_a_cancelled_poll_over_partitions_leaves_everything_for_the_next(
    mq: flintmq.Client, background: Background, ack: Ack
) -> None:
    await mq.create_topic("jobs", partitions=3)
    waiting = await background.waiting(mq.poll("jobs", "workers", wait=60, ack=ack))
    waiting.cancel()
    await background.settle()
    await mq.publish_batch("jobs", [b"x"] * 3, partition=[0, 1, 2])
    batch = await mq.poll("jobs", "workers", ack=ack)

    assert [message.delivery_count for message in batch] == [1, 1, 1]


async def test_partitions_that_are_added_belong_to_the_group(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("jobs", partitions=1)
    async with mq.subscribe("jobs", "workers", start="latest") as deliveries:
        await mq.configure_topic("jobs", partitions=2)
        await mq.publish_batch("jobs", [b"0", b"1"], partition=[0, 1])
        await clock.settle()
        seen = []
        for _ in range(2):
            batch = await deliveries.read_batch(timeout=0)
            seen += batch.values
            await batch.ack()
            await clock.settle()
        assert sorted(seen) == [b"0", b"1"]
    async with mq.subscribe("jobs", "workers", start="latest"):
        pass


async def test_a_subscription_that_waits_hears_of_added_partitions(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("jobs", partitions=1)
    async with mq.subscribe("jobs", "workers") as deliveries:
        waiting = await background.waiting(deliveries.read())
        await mq.configure_topic("jobs", partitions=2)
        await mq.publish("jobs", b"new", partition=1)
        await background.settle()

        assert waiting.done()
        message = await waiting
        assert message is not None
        assert message.value == b"new"


async def test_a_poll_that_waits_hears_of_added_partitions(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("jobs", partitions=1)
    waiting = await background.waiting(mq.poll("jobs", "workers", wait=60))
    await mq.configure_topic("jobs", partitions=2)
    await mq.publish("jobs", b"new", partition=1)
    await background.settle()

    assert waiting.done()
    assert (await waiting).values == [b"new"]


async def test_dead_letters_of_a_partition_go_back_there(mq: flintmq.Client) -> None:
    await mq.create_topic("jobs", partitions=2)
    await mq.publish_batch("jobs", [b"0", b"1"], partition=[0, 1])
    for message in await mq.poll("jobs", "workers"):
        await message.reject("no")
    letters = await mq.dead_letters("jobs", "workers")
    assert sorted((letter.topic, letter.partition) for letter in letters) == [
        ("jobs", 0),
        ("jobs", 1),
    ]

    assert await mq.redrive("jobs", "workers") == 2
    again = await mq.poll("jobs", "workers")
    assert sorted((message.partition, message.value) for message in again) == [(0, b"0"), (1, b"1")]
