"""Subscribe: a connection that is taken over, messages pushed, leases that outlast a timeout."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.hermes.server import HermesServer
from flintmq.testing import ManualClock

from .client import HermesClient, Refused
from .conftest import Connect


async def subscribed(
    connect: Connect, topic: str = "t", group: str = "g", **fields: object
) -> HermesClient:
    client = await connect()
    client.send("subscribe", topic=topic, group=group, **fields)
    return client


async def test_messages_are_pushed_one_by_one_as_they_come(
    client: HermesClient, connect: Connect
) -> None:
    subscriber = await subscribed(connect, prefetch=10)
    assert await subscriber.is_silent()
    for number in range(3):
        await client.produce("t", b"%d" % number)

    found = [await subscriber.pushed() for _ in range(3)]
    assert [item.payload for item in found] == [b"0", b"1", b"2"]
    assert len({item.lease_id for item in found}) == 3


async def test_what_was_asked_before_is_answered_first(client: HermesClient) -> None:
    client.send("produce", topic="t", payload=b"x")
    client.send("poll", topic="none", group="g")
    client.send("subscribe", topic="t", group="g", prefetch=5)

    assert (await client.read_ok()).offset == 0
    assert (await client.read()).WhichOneof("kind") == "polled"
    assert (await client.pushed()).payload == b"x"


@pytest.mark.parametrize(("prefetch", "live"), [(0, 1), (1, 1), (3, 3)])
async def test_no_more_than_prefetch_are_out(
    client: HermesClient, connect: Connect, prefetch: int, live: int
) -> None:
    for _ in range(10):
        await client.produce("t", b"x")
    subscriber = await subscribed(connect, prefetch=prefetch)
    items = [await subscriber.pushed() for _ in range(live)]
    assert await subscriber.is_silent()
    subscriber.send("ack", lease_id=items[0].lease_id)

    assert (await subscriber.pushed()).offset == live
    assert await subscriber.is_silent()


async def test_only_lease_ids_of_acks_and_nacks_count_and_anything_else_is_passed_over(
    client: HermesClient, connect: Connect
) -> None:
    for payload in (b"a", b"b"):
        await client.produce("t", payload)
    subscriber = await subscribed(connect, prefetch=2)
    a, b = await subscriber.pushed(), await subscriber.pushed()
    subscriber.send("stats")
    subscriber.writer.write(bytes.fromhex("00000001ff"))
    subscriber.send("ack", topic="other", group="other", lease_id=a.lease_id)
    subscriber.send("nack", lease_id=b.lease_id)

    again = await subscriber.pushed()
    assert (again.payload, again.lease_id != b.lease_id) == (b"b", True)
    subscriber.send("ack", lease_id=again.lease_id)
    assert await subscriber.is_silent()
    stats = await client.call("stats")
    assert (stats.messages, stats.in_flight) == (0, 0)


async def test_w2_a_pushed_message_stays_its_subscribers_for_three_timeouts(
    client: HermesClient, connect: Connect, clock: ManualClock
) -> None:
    """HermesMQ leases anew after each timeout, and another consumer may come between."""
    await client.produce("t", b"slow")
    subscriber = await subscribed(connect, prefetch=1, visibility_timeout_ms=10_000)
    item = await subscriber.pushed()
    for _ in range(2):
        await clock.advance(14)
        assert await client.poll("t") == []
    subscriber.send("ack", lease_id=item.lease_id)
    assert await subscriber.is_silent()
    await clock.advance(60)

    assert await client.poll("t") == []


async def test_w2_after_three_timeouts_it_is_pushed_again_and_every_id_of_it_settles_it(
    client: HermesClient, connect: Connect, clock: ManualClock
) -> None:
    await client.produce("t", b"slow")
    subscriber = await subscribed(connect, prefetch=1, visibility_timeout_ms=10_000)
    first = await subscriber.pushed()
    await clock.advance(31)
    second = await subscriber.pushed()
    assert second.lease_id != first.lease_id
    subscriber.send("ack", lease_id=first.lease_id)
    assert await subscriber.is_silent()

    assert (await client.call("stats")).messages == 0


async def test_a_pushed_message_has_30_seconds_unless_told_otherwise(
    client: HermesClient, connect: Connect, clock: ManualClock
) -> None:
    for payload in (b"slow", b"next"):
        await client.produce("t", payload)
    subscriber = await subscribed(connect)
    assert (await subscriber.pushed()).payload == b"slow"
    await clock.advance(29.9)
    assert await subscriber.is_silent()
    await clock.advance(0.2)

    assert (await subscriber.pushed()).payload == b"next"


async def test_prefetch_is_1024_at_most(client: HermesClient, connect: Connect) -> None:
    for _ in range(1030):
        client.send("produce", topic="t", payload=b"x")
    for _ in range(1030):
        await client.read_ok()
    subscriber = await subscribed(connect, prefetch=2**32 - 1)
    for _ in range(1024):
        await subscriber.pushed()

    assert await subscriber.is_silent()


async def test_a_group_that_an_operator_deletes_is_made_anew(
    client: HermesClient, connect: Connect, broker: Broker
) -> None:
    await client.produce("t", b"x")
    subscriber = await subscribed(connect, prefetch=5)
    old = await subscriber.pushed()
    await broker.delete_group("t", "g")
    new = await subscriber.pushed()
    subscriber.send("ack", lease_id=old.lease_id)
    assert await subscriber.is_silent()
    assert (await client.call("stats")).in_flight == 1
    subscriber.send("ack", lease_id=new.lease_id)
    assert await subscriber.is_silent()

    assert (await client.call("stats")).messages == 0


async def test_one_that_takes_longer_than_its_timeout_does_not_hold_up_the_next(
    client: HermesClient, connect: Connect, clock: ManualClock
) -> None:
    for payload in (b"slow", b"next"):
        await client.produce("t", payload)
    subscriber = await subscribed(connect, prefetch=1, visibility_timeout_ms=10_000)
    assert (await subscriber.pushed()).payload == b"slow"
    await clock.advance(10)

    assert (await subscriber.pushed()).payload == b"next"


@pytest.mark.parametrize("goodbye", ["close", "half-close", "abort"])
async def test_w3_what_a_subscriber_has_goes_to_the_next_at_once_when_it_leaves(
    client: HermesClient, connect: Connect, goodbye: str
) -> None:
    """HermesMQ leaves such leases to run out."""
    await client.produce("t", b"x")
    subscriber = await subscribed(connect, prefetch=1)
    await subscriber.pushed()
    client.send("poll", topic="t", group="g", wait_ms=60_000)
    if goodbye == "half-close":
        subscriber.writer.write_eof()
    elif goodbye == "abort":
        subscriber.abort()
    else:
        await subscriber.close()

    assert [item.payload for item in (await client.read_ok()).items] == [b"x"]


async def test_a_deleted_topic_that_is_made_anew_is_taken_up(
    client: HermesClient, connect: Connect
) -> None:
    await client.produce("t", b"old")
    subscriber = await subscribed(connect, prefetch=1)
    old = await subscriber.pushed()
    await client.call("delete_topic", topic="t")
    await client.produce("t", b"new")

    new = await subscriber.pushed()
    assert (new.payload, new.offset) == (b"new", 0)
    subscriber.send("ack", lease_id=old.lease_id)
    assert await subscriber.is_silent()
    assert (await client.call("stats")).in_flight == 1


async def test_in_auto_mode_everything_is_pushed_and_done(
    client: HermesClient, connect: Connect
) -> None:
    for _ in range(5):
        await client.produce("t", b"x")
    subscriber = await subscribed(connect, prefetch=2, ack_mode="auto")
    items = [await subscriber.pushed() for _ in range(5)]
    subscriber.send("nack", lease_id=items[0].lease_id)

    assert await subscriber.is_silent()
    assert (await client.call("stats")).messages == 0


@pytest.mark.slow
async def test_who_does_not_read_gets_no_more_even_in_auto_mode(
    client: HermesClient, connect: Connect
) -> None:
    """What nobody reads is not settled: a slow reader that dies loses what was on the way only."""
    for _ in range(40):
        await client.produce("t", bytes(2**20))
    subscriber = await subscribed(connect, prefetch=1, ack_mode="auto")
    transport = subscriber.writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]
    kept = 0
    async with asyncio.timeout(60):
        while True:
            before, kept = kept, (await client.call("stats")).messages
            await asyncio.sleep(0.05)
            if before == kept:
                break
    assert kept > 20
    transport.resume_reading()  # type: ignore[attr-defined]

    for _ in range(40):
        await subscriber.pushed()


async def test_two_subscribers_of_a_group_share_and_two_groups_each_get_all(
    client: HermesClient, connect: Connect
) -> None:
    ours, theirs = await subscribed(connect), await subscribed(connect)
    others = await subscribed(connect, group="other", prefetch=10)
    for number in range(2):
        await client.produce("t", b"%d" % number)

    shared = [(await one.pushed()).payload for one in (ours, theirs)]
    assert sorted(shared) == [b"0", b"1"]
    assert [(await others.pushed()).payload for _ in range(2)] == [b"0", b"1"]


@pytest.mark.parametrize("mode", ["manual", "auto"])
async def test_w13_a_rate_limit_spreads_what_is_pushed(
    client: HermesClient, connect: Connect, clock: ManualClock, mode: str
) -> None:
    """HermesMQ looks five times a second, and may bring far less than the rate."""
    await client.call("set_rate_limit", topic="t", rate_per_sec=1000.0, burst=1)
    for _ in range(50):
        await client.produce("t", b"x")
    subscriber = await subscribed(connect, prefetch=50, ack_mode=mode)
    await subscriber.pushed()
    await clock.advance(0.049)

    for _ in range(49):
        await subscriber.pushed()


async def test_a_draining_node_refuses_subscribers(
    client: HermesClient, server: HermesServer
) -> None:
    await client.produce("t", b"x")
    await server.drain(5)
    client.send("subscribe", topic="t", group="g")
    with pytest.raises(Refused) as caught:
        await client.read_ok()

    assert caught.value.code == "not_leader"
    assert await client.is_closed()
