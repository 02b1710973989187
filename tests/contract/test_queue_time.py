"""What time does to queues: delays, schedules, expiry, and the pace of deliveries."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background

from .conftest import Connect
from .queues import numbered, one, polled

# --- delayed and scheduled


async def test_a_delayed_message_comes_exactly_when_it_is_due(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    began = clock.monotonic()
    for seconds in (3600, 5, 0.05):
        await mq.publish("orders", b"%g" % seconds, delay=seconds)
    for seconds in (0.05, 5, 3600):
        waiting = await background.waiting(mq.poll("orders", "g", wait=10_000))
        await clock.advance(began + seconds - clock.monotonic() - 0.001)
        assert not waiting.done(), "it came before its time"
        await clock.advance(0.05)
        assert waiting.done(), "it is late"
        found = await waiting
        assert found.values == [b"%g" % seconds]
        await found.ack()


async def test_a_scheduled_message_comes_at_its_time_by_priority(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    at = datetime.fromtimestamp(clock.now_ms() / 1000 + 60, UTC)
    await mq.publish("orders", b"low", at=at)
    await mq.publish("orders", b"high", at=clock.now_ms() / 1000 + 60, priority=3)
    await mq.publish("orders", b"past", at=clock.now_ms() / 1000 - 60)
    await (await mq.poll("orders", "g")).ack()
    await clock.advance(59.9)
    assert await polled(mq) == []
    await clock.advance(0.11)
    assert await polled(mq) == [b"high", b"low"]


async def test_every_group_gets_a_delayed_message_also_one_made_later(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    assert await polled(mq, "before") == []
    await mq.publish("orders", b"later", delay=10)
    assert await polled(mq, "between") == []
    await clock.advance(10)
    for group in ("before", "between", "after"):
        found = await mq.poll("orders", group)
        assert found.values == [b"later"]
        assert found[0].delivery_count == 1
        await found.ack()
        assert (await mq.group_stats("orders", group)).lag == 0


async def test_a_lease_begins_with_the_delivery_not_with_the_publish(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"later", delay=1000)
    await polled(mq)
    await clock.advance(1000)
    message = await one(mq, lease=10)
    await clock.advance(9)
    await message.ack()


async def test_a_thousand_delays_each_come_in_their_turn(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish_batch(
        "orders", [b"%d" % n for n in range(1000)], delay=[(n * 37 % 100) + 1 for n in range(1000)]
    )
    assert (await mq.poll("orders", "g")) == []
    assert (await mq.group_stats("orders", "g")).delayed == 1000
    for second in range(1, 101, 9):
        await clock.advance(9 if second > 1 else 1)
        due = sorted(int(value) for value in await polled(mq, max=1000, lease=1000))
        first = second - 8 if second > 1 else 1
        assert due == [n for n in range(1000) if first <= n * 37 % 100 + 1 <= second]


async def test_a_delayed_message_can_be_cancelled_by_its_receipt(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await polled(mq)
    receipt = await mq.publish("orders", b"no", delay=5)
    batch = await mq.publish_batch("orders", [b"now", b"soon", b"never"], delay=[None, 5, 9])
    assert await mq.cancel(receipt) == 1
    assert await mq.cancel(receipt) == 0
    assert await mq.cancel(batch) == 2
    assert await polled(mq) == [b"now"]
    await clock.advance(10)
    assert await polled(mq) == []
    assert await polled(mq, "later") == [b"now"]
    stats = await mq.group_stats("orders", "g")
    assert stats.drops == {"cancelled": 3}
    assert (stats.lag, stats.delayed) == (1, 0)


async def test_what_is_due_can_no_longer_be_cancelled(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    receipt = await mq.publish("orders", b"due", delay=5)
    plain = await mq.publish("orders", b"plain")
    await clock.advance(5)
    assert await mq.cancel(receipt) == 0
    assert await mq.cancel(plain) == 0
    assert await polled(mq) == [b"due", b"plain"]
    with pytest.raises(flintmq.InvalidRequest, match="receipt"):
        await mq.cancel(0)  # type: ignore[arg-type]


# --- expiry


async def test_a_message_that_expires_in_the_queue_is_not_delivered_and_is_counted(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await polled(mq)
    await mq.publish("orders", b"long")
    await mq.publish("orders", b"short", ttl=5)
    await mq.publish("orders", b"exact", ttl=6)
    await clock.advance(5.5)
    found = await mq.poll("orders", "g")
    assert found.values == [b"long", b"exact"]
    await found.ack()
    await clock.settle()
    stats = await mq.group_stats("orders", "g")
    assert (stats.drops, stats.lag) == ({"expired": 1}, 0)


async def test_everything_expired_is_counted_also_when_nobody_polled(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await polled(mq)
    await mq.create_topic("other")
    await mq.publish_batch("orders", [b"x"] * 7, ttl=5)
    await clock.advance(60)
    assert await polled(mq) == []
    await clock.settle()
    stats = await mq.group_stats("orders", "g")
    assert (stats.drops, stats.lag, stats.ready) == ({"expired": 7}, 0, 0)


async def test_a_message_that_expires_while_leased_can_be_settled_and_never_comes_again(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"settled", ttl=5)
    await mq.publish("orders", b"left", ttl=5)
    await mq.publish("orders", b"stays")
    settled, _, stays = await mq.poll("orders", "g", lease=10)
    await stays.ack()
    await clock.advance(6)
    await settled.ack()
    await clock.advance(10)
    assert await polled(mq) == []
    await clock.settle()
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.in_flight) == (0, 0)
    assert await mq.dead_letters("orders", "g") == []


async def test_a_nacked_message_does_not_outlive_its_time(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"first")
    await mq.publish("orders", b"short", ttl=5)
    _, short = await mq.poll("orders", "g")
    await short.nack(delay=6)
    await clock.advance(7)
    assert await polled(mq) == []
    await clock.settle()
    assert (await mq.group_stats("orders", "g")).drops == {"expired": 1}


async def test_a_poll_that_waits_is_not_given_what_expires_meanwhile(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await polled(mq)
    await mq.pause_group("orders", "g")
    waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    await mq.publish("orders", b"short", ttl=5)
    await clock.advance(6)
    await mq.resume_group("orders", "g")
    await background.settle()
    assert not waiting.done()
    await mq.publish("orders", b"fresh")
    assert (await waiting).values == [b"fresh"]


async def test_the_ttl_of_a_topic_counts_for_its_groups(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", ttl=5)
    await polled(mq)
    await mq.publish("orders", b"old")
    await clock.advance(4)
    await mq.publish("orders", b"young")
    await clock.advance(2)
    assert await polled(mq) == [b"young"]


async def test_a_delayed_message_whose_time_ends_before_it_comes_never_comes(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await polled(mq)
    await mq.publish("orders", b"never", delay=10, ttl=5)
    await mq.publish("orders", b"once", delay=5, ttl=10)
    await clock.advance(6)
    found = await mq.poll("orders", "g")
    assert found.values == [b"once"]
    await found.ack()
    await clock.advance(5)
    assert await polled(mq) == []


async def test_a_delayed_message_whose_time_ended_is_counted(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await polled(mq)
    await mq.publish("orders", b"never", delay=10, ttl=5)
    await clock.advance(11)
    assert await polled(mq) == []
    await clock.settle()
    assert (await mq.group_stats("orders", "g")).drops.get("expired") == 1


# --- the pace


async def test_a_rate_of_a_thousand_a_second_is_kept_smoothly(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await mq.create_topic("orders", rate_limit=1000)
    await mq.publish_batch("orders", [b"x"] * 2000)
    await mq.poll("orders", "g", 10_000, ack="auto")  # the first burst
    most = 0
    total = 0
    for _ in range(20):
        waiting = await background.waiting(mq.poll("orders", "g", 10_000, wait=10, ack="auto"))
        began = clock.monotonic()
        while not waiting.done():
            await clock.advance(0.001)
        count = len(await waiting)
        most, total = max(most, count), total + count
        assert clock.monotonic() - began <= 0.0021
    assert most <= 3  # about one each millisecond, never a lump
    assert 19 <= total <= 45


async def test_below_one_a_second_a_poll_parks_until_the_token_is_there(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await mq.create_topic("orders", rate_limit=0.1)
    await numbered(mq, 3)
    assert await polled(mq) == [b"0"]
    assert await polled(mq) == []
    for expected in (b"1", b"2"):
        waiting = await background.waiting(mq.poll("orders", "g", wait=100))
        await clock.advance(9.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert (await waiting).values == [expected]


async def test_two_groups_share_the_rate(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("orders", rate_limit=10, rate_burst=1)
    await mq.publish_batch("orders", [b"x"] * 100)
    got = 0
    for _ in range(100):
        await clock.advance(0.1)
        got += len(await polled(mq, "a")) + len(await polled(mq, "b"))
    assert 99 <= got <= 102


async def test_a_rate_never_slows_publishers_or_readers(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", rate_limit=0.001)
    began = clock.monotonic()
    for _ in range(10):
        await numbered(mq, 10)
    async with mq.reader("orders") as reader:
        assert len(await reader.read_batch(1000)) == 100
    assert clock.monotonic() == began


async def test_a_rate_can_be_changed_and_lifted_and_who_waits_is_told(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await mq.create_topic("orders", rate_limit=0.001)
    await numbered(mq, 10)
    assert await polled(mq) == [b"0"]
    waiting = await background.waiting(mq.poll("orders", "g", wait=10_000))
    await mq.configure_topic("orders", rate_limit=None)
    await background.settle()
    assert (await waiting).values == [b"%d" % n for n in range(1, 10)]


async def test_tokens_are_spent_on_what_is_delivered_only(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", rate_limit=1, rate_burst=5)
    assert await polled(mq) == []
    await numbered(mq, 3)
    assert len(await polled(mq)) == 3
    await numbered(mq, 10)
    assert len(await polled(mq)) == 2
    assert await polled(mq) == []


async def test_a_subscription_is_paced_too(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("orders", rate_limit=2, rate_burst=1)
    await numbered(mq, 20)
    got = []
    async with mq.subscribe("orders", "g") as deliveries:
        for _ in range(5):
            await clock.advance(1)
            got.append(len(found := deliveries.read_batch_nowait()))
            await found.ack()
    assert sum(got) == 10 + 1
    assert max(got) <= 3


@pytest.mark.parametrize("rate", [0, -1, 0.0001, float("inf"), "10"])
async def test_rates_nobody_can_keep_are_refused(connect: Connect, rate: float) -> None:
    async with connect() as mq:
        with pytest.raises(flintmq.InvalidRequest, match="rate_limit"):
            await mq.create_topic("orders", rate_limit=rate)
