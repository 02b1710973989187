"""What is done to groups: pausing, resetting, peeking, looking, deleting, closing under them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background

from .queues import deleted, numbered, one, polled

# --- pausing


async def test_a_paused_group_hands_out_nothing_and_can_be_settled(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await numbered(mq, 3)
    held = await one(mq)
    await mq.pause_group("orders", "g")
    await mq.pause_group("orders", "g")
    assert await polled(mq) == []
    waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    await held.ack()
    await mq.publish("orders", b"3")
    await clock.advance(50)
    assert not waiting.done()
    assert (await mq.groups("orders"))[0].paused
    assert (await mq.group_stats("orders", "g")).paused
    assert len(await polled(mq, "other")) == 4  # others do not care
    await mq.resume_group("orders", "g")
    assert (await waiting).values == [b"1", b"2", b"3"]
    assert not (await mq.group_stats("orders", "g")).paused


async def test_leases_run_out_while_a_group_is_paused(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    await one(mq, lease=5)
    await mq.pause_group("orders", "g")
    await clock.advance(6)
    await mq.resume_group("orders", "g")
    assert (await one(mq)).delivery_count == 2


async def test_a_subscription_goes_on_when_its_group_does(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.subscribe("orders", "g") as deliveries:
        await background.settle()
        await mq.pause_group("orders", "g")
        waiting = await background.waiting(deliveries.read())
        await numbered(mq, 1)
        await background.settle()
        assert not waiting.done()
        await mq.resume_group("orders", "g")
        message = await waiting
        assert message is not None
        assert message.value == b"0"


# --- resetting


@pytest.mark.parametrize(("to", "first"), [(4, 4), ("earliest", 0), ("latest", 10), (0, 0)])
async def test_a_group_goes_on_from_where_it_is_set(
    mq: flintmq.Client, to: str | int, first: int
) -> None:
    await numbered(mq, 10)
    found = await mq.poll("orders", "g", 7)
    await mq.ack(found[:5])
    await mq.reset_group("orders", "g", to)  # type: ignore[arg-type]
    stats = await mq.group_stats("orders", "g")
    assert (stats.position, stats.lag, stats.in_flight) == (first, 10 - first, 0)

    with pytest.raises(flintmq.LeaseLost):
        await found[6].ack()
    again = await mq.poll("orders", "g")
    assert again.offsets == [*range(first, 10)]
    assert all(message.delivery_count == 1 for message in again)


async def test_a_group_may_be_set_to_a_time(mq: flintmq.Client, clock: ManualClock) -> None:
    await numbered(mq, 3)
    await clock.advance(60)
    when = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    await mq.publish("orders", b"then")
    await (await mq.poll("orders", "g")).ack()
    await mq.reset_group("orders", "g", when)
    assert await polled(mq) == [b"then"]


async def test_who_waits_gets_what_a_reset_brings_back(
    mq: flintmq.Client, background: Background
) -> None:
    await numbered(mq, 2)
    await (await mq.poll("orders", "g")).ack()
    waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    await mq.reset_group("orders", "g", "earliest")
    assert (await waiting).values == [b"0", b"1"]


async def test_a_reset_brings_back_priorities_and_delays_that_are_over(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"plain")
    await mq.publish("orders", b"was late", delay=5, priority=2)
    await mq.publish("orders", b"high", priority=7)
    await mq.publish("orders", b"not yet", delay=1000)
    await clock.advance(6)
    found = await mq.poll("orders", "g")
    assert found.values == [b"high", b"was late", b"plain"]
    await found.ack()
    await mq.reset_group("orders", "g", "earliest")
    assert await polled(mq) == [b"high", b"was late", b"plain"]
    await clock.advance(1000)
    assert b"not yet" in await polled(mq)


async def test_what_lies_before_a_reset_is_passed_over(mq: flintmq.Client) -> None:
    await numbered(mq, 10)
    await one(mq)
    await mq.reset_group("orders", "g", 8)
    assert await polled(mq) == [b"8", b"9"]
    assert (await mq.group_stats("orders", "g")).drops == {"reset": 8}
    other = await mq.poll("orders", "other")
    assert len(other) == 10


async def test_a_group_is_not_set_to_nowhere(mq: flintmq.Client) -> None:
    await numbered(mq, 3)
    await polled(mq)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.reset_group("orders", "g", "committed")
    with pytest.raises(flintmq.InvalidRequest):
        await mq.reset_group("orders", "g", -1)
    with pytest.raises(flintmq.GroupNotFound):
        await mq.reset_group("orders", "missing", 0)


# --- looking


async def test_peeking_leases_nothing_and_changes_nothing(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(6)], priority=[0, 0, 5, 0, 7, 0])
    held = await one(mq)
    assert held.value == b"4"
    for _ in range(3):
        assert (await mq.peek("orders", "g")).values == [b"2", b"0", b"1", b"3", b"5"]
        assert (await mq.peek("orders", "g", 2)).values == [b"2", b"0"]
    stats = await mq.group_stats("orders", "g")
    assert (stats.delivered, stats.in_flight) == (1, 1)
    assert await polled(mq, max=2) == [b"2", b"0"]


async def test_peeking_shows_nothing_that_would_not_be_delivered(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.poll("orders", "g", filter="priority < 5")
    await mq.publish("orders", b"first")
    await mq.publish("orders", b"filtered", priority=6)
    await mq.publish("orders", b"expired", ttl=1)
    await mq.publish("orders", b"delayed", delay=100)
    await mq.publish("orders", b"last")
    await clock.advance(2)
    assert (await mq.peek("orders", "g")).values == [b"first", b"last"]


async def test_what_is_in_flight_is_listed_with_age_holder_and_count(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 4)
    await (await one(mq)).nack()
    first = await mq.poll("orders", "g", 2, lease=20)
    await clock.advance(5)
    async with mq.subscribe("orders", "g", prefetch=1) as deliveries:
        await deliveries.read()
        await clock.advance(1)
        flying = {one.offset: one for one in await mq.in_flight("orders", "g")}
    assert sorted(flying) == [0, 1, 2]
    assert [flying[n].age for n in range(3)] == [6, 6, 1]
    assert [flying[n].delivery_count for n in range(3)] == [2, 1, 1]
    assert [flying[n].expires_in for n in range(3)] == [14, 14, 29]
    assert [flying[n].token for n in range(2)] == [first[0].token] * 2
    assert flying[0].holder == flying[1].holder != flying[2].holder
    assert all((one.topic, one.partition) == ("orders", 0) for one in flying.values())
    assert len(await mq.in_flight("orders", "g", 1)) == 1
    await first.ack()
    assert all(one.offset == 2 for one in await mq.in_flight("orders", "g"))


async def test_the_figures_of_a_group_add_up(mq: flintmq.Client, clock: ManualClock) -> None:
    await polled(mq)
    empty = await mq.group_stats("orders", "g")
    assert (empty.lag, empty.ready, empty.oldest_age, empty.position) == (0, 0, None, 0)
    await numbered(mq, 8)
    await clock.advance(10)
    await mq.publish("orders", b"delayed", delay=100)
    await mq.publish("orders", b"late")
    found = await mq.poll("orders", "g", 5)
    await found[0].ack()
    await found[1].nack(delay=50)
    await found[2].nack()
    await found[3].reject("no")

    stats = await mq.group_stats("orders", "g")
    assert (stats.name, stats.topic, stats.kind) == ("g", "orders", "queue")
    assert stats.position == 1
    assert stats.lag == 8
    assert stats.in_flight == 1
    assert stats.delayed == 2
    assert stats.ready == 5
    assert stats.lag == stats.ready + stats.in_flight + stats.delayed
    assert stats.oldest_age == 10
    assert (stats.delivered, stats.redelivered) == (5, 0)
    assert (stats.dead_lettered, stats.dead_letters) == (1, 1)
    assert (stats.members, stats.waiting) == (1, 0)
    await one(mq)
    await clock.advance(31)
    stats = await mq.group_stats("orders", "g")
    assert (stats.redelivered, stats.leases_expired) == (1, 2)
    assert (await mq.topic_stats("orders")).lag == {"g": 8}


async def test_the_oldest_age_is_that_of_what_is_not_settled(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    for n in range(3):
        await mq.publish("orders", b"%d" % n)
        await clock.advance(10)
    found = await mq.poll("orders", "g")
    await found[1].ack()
    assert (await mq.group_stats("orders", "g")).oldest_age == 30
    await found[0].ack()
    assert (await mq.group_stats("orders", "g")).oldest_age == 10


async def test_groups_and_topics_that_are_not_there_are_named(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    for call in (mq.group_stats, mq.pause_group, mq.peek, mq.in_flight, mq.delete_group):
        with pytest.raises(flintmq.GroupNotFound, match="'nobody'"):
            await call("orders", "nobody")
        with pytest.raises(flintmq.TopicNotFound, match="'nothing'"):
            await call("nothing", "nobody")
    assert await mq.groups("orders") == []
    with pytest.raises(flintmq.TopicNotFound):
        await mq.groups("nothing")


# --- the end of groups, topics and connections


async def test_a_deleted_group_is_forgotten_and_may_begin_anew(
    mq: flintmq.Client, background: Background
) -> None:
    await numbered(mq, 3)
    held = await one(mq, order="log")
    await (await one(mq)).ack()
    waiting = await background.waiting(_until_error(mq))
    await mq.delete_group("orders", "g")
    with pytest.raises(flintmq.GroupNotFound):
        await waiting
    with pytest.raises(flintmq.FlintError):
        await held.ack()
    assert await mq.groups("orders") == []
    assert await polled(mq, order="key") == [b"0", b"1", b"2"]


async def _until_error(mq: flintmq.Client) -> None:
    async with mq.subscribe("orders", "g") as deliveries:
        async for _ in deliveries:
            pass


async def test_a_cursor_is_deleted_like_a_group_once_nobody_has_it_open(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 1)
    async with mq.reader("orders", name="n"):
        with pytest.raises(flintmq.InvalidRequest, match="open"):
            await mq.delete_group("orders", "n")
    await mq.delete_group("orders", "n")
    assert await polled(mq, "n") == [b"0"]


async def test_a_topic_deleted_under_its_members_ends_them_with_an_error(
    mq: flintmq.Client, background: Background
) -> None:
    await numbered(mq, 1)
    held = await one(mq)
    polling = await background.waiting(mq.poll("orders", "g", wait=100))
    subscribed = await background.waiting(_until_error(mq))
    await deleted(mq)
    for task in (polling, subscribed):
        with pytest.raises(flintmq.TopicNotFound):
            await task
    with pytest.raises(flintmq.FlintError):
        await held.ack()


async def test_a_topic_made_anew_is_another_one_to_its_groups(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 3)
    await (await mq.poll("orders", "g")).ack()
    await deleted(mq, "orders")
    await numbered(mq, 2)
    assert await polled(mq) == [b"0", b"1"]


async def test_closing_the_connection_ends_polls_and_subscriptions_that_wait(
    mq: flintmq.Client, background: Background
) -> None:
    polling = await background.waiting(mq.poll("orders", "g", wait=100))
    subscribed = await background.waiting(_until_error(mq))
    await mq.close()
    await background.settle()
    with pytest.raises(flintmq.Closed):
        await polling
    assert subscribed.done()
    with pytest.raises(flintmq.Closed):
        await mq.poll("orders", "g")


# --- what a review found


async def test_a_group_that_begins_after_a_cancel_does_not_wait_for_what_was_cancelled(
    mq: flintmq.Client,
) -> None:
    await mq.cancel(await mq.publish("orders", b"never", delay=100))
    await mq.publish("orders", b"now")
    await (await one(mq)).ack()
    stats = await mq.group_stats("orders", "g")
    assert (stats.position, stats.lag, stats.ready) == (2, 0, 0)

    await mq.reset_group("orders", "g", "earliest")
    assert await polled(mq, ack="auto") == [b"now"]
    stats = await mq.group_stats("orders", "g")
    assert (stats.position, stats.lag, stats.drops["cancelled"]) == (2, 0, 2)


async def test_delayed_messages_from_before_a_group_began_are_not_its_own(
    mq: flintmq.Client,
) -> None:
    for _ in range(10):
        await mq.publish("orders", b"later", delay=100)
    assert await polled(mq, start="latest") == []
    await numbered(mq, 5)
    await mq.publish("orders", b"later", delay=100)
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.ready, stats.delayed) == (6, 5, 1)


async def test_tokens_grow_when_a_group_is_made_anew(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    for _ in range(3):
        message = await one(mq)
        await message.nack()
    await mq.delete_group("orders", "g")
    assert (await one(mq)).token > message.token


async def test_peek_finds_what_passes_the_filter_behind_what_does_not(mq: flintmq.Client) -> None:
    assert await polled(mq, filter="priority == 7", order="log") == []
    await mq.publish_batch("orders", [b"no"] * 3000, priority=0)
    await mq.publish_batch("orders", [b"yes"] * 3, priority=7)
    await mq.pause_group("orders", "g")
    await mq.reset_group("orders", "g", "earliest")
    assert list((await mq.peek("orders", "g", 2)).values) == [b"yes"] * 2


async def test_partitions_that_are_added_to_a_paused_group_are_paused(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=1)
    await polled(mq)
    await mq.pause_group("orders", "g")
    await mq.configure_topic("orders", partitions=2)
    await mq.publish_batch("orders/1", [b"x"])
    assert await polled(mq) == []
    assert (await mq.group_stats("orders", "g")).paused
    await mq.resume_group("orders", "g")
    assert await polled(mq) == [b"x"]


async def test_a_name_of_the_other_kind_says_what_to_do(mq: flintmq.Client) -> None:
    async with mq.reader("orders", name="r"):
        with pytest.raises(flintmq.GroupExists, match="share one namespace: use another name"):
            await polled(mq, "r")
