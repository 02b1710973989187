"""HELLO 2: pushed deliveries, groups, offsets, TTL and keys."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.blip.options import PUSH_LEASE_SECONDS
from flintmq.frontends.blip.server import BlipServer
from flintmq.testing import ManualClock

from .conftest import Restarted
from .raw import (
    ACK,
    DELIVER,
    NACK,
    PING,
    POLL,
    PONG,
    PUBLISH,
    SUBSCRIBE,
    Delivery,
    RawBlip,
    frame,
    publish_payload,
    text,
)

Address = tuple[str, int]


async def test_a_message_of_qos_0_is_pushed_to_every_subscriber(address: Address) -> None:
    """Nobody has to poll (B14)."""
    async with RawBlip(address) as one, RawBlip(address) as two:
        await one.login(2)
        await two.login(2)
        await one.subscribe("demo")
        await two.subscribe("demo")

        two.publish("demo", b"hi")
        two.publish("demo", b"")

        for client in (one, two):
            assert await client.delivery() == Delivery(0, 0, "demo", b"hi")
            assert await client.delivery() == Delivery(0, 0, "demo", b"")


async def test_qos_is_the_lower_of_publisher_and_subscriber(address: Address) -> None:
    """There a subscriber's own does not count for what is pushed (B37)."""
    async with RawBlip(address) as low, RawBlip(address) as high:
        await low.login(2)
        await high.login(2)
        await low.subscribe("demo", 0)
        await high.subscribe("demo", 1)

        low.publish("demo", b"stored", 1)
        assert (await low.delivery()).qos == 0
        assert await high.delivery() == Delivery(1, 1, "demo", b"stored")

        low.publish("demo", b"fleeting", 0)
        assert (await low.delivery()).qos == 0
        assert await high.delivery() == Delivery(0, 0, "demo", b"fleeting")


async def test_what_is_acknowledged_is_settled_and_what_is_not_comes_again(
    address: Address, clock: ManualClock, broker: Broker
) -> None:
    """There what is pushed is never sent again (B37)."""
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1, group="workers")
        client.publish("demo", b"a", 1)
        client.publish("demo", b"b", 1)
        assert [(await client.delivery()).tag for _ in range(2)] == [1, 2]

        client.ack(number, 1)
        await client.ping()
        assert (await broker.group_stats("demo", "workers")).settled == 1
        await clock.advance(PUSH_LEASE_SECONDS + 1)

        assert await client.delivery() == Delivery(1, 2, "demo", b"b")
        await clock.advance(PUSH_LEASE_SECONDS + 1)  # twice as long now
        await client.ping()
        await clock.advance(PUSH_LEASE_SECONDS)
        assert (await client.delivery()).tag == 2
        client.ack(number, 2)
        await client.ping()
        assert (await broker.group_stats("demo", "workers")).lag == 0


async def test_a_message_nobody_acknowledges_ends_as_a_dead_letter(
    address: Address, clock: ManualClock, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        await client.subscribe("demo", 1, group="workers")
        client.publish("demo", b"bad", 1)
        for _ in range(3):
            assert (await client.delivery()).message == b"bad"
            await clock.advance(PUSH_LEASE_SECONDS * 8)

        client.publish("demo", b"good", 1)
        assert (await client.delivery()).message == b"good"
        letters = await broker.dead_letters("demo", "workers", 10)
        assert letters.values == [b"bad"]


async def test_members_of_a_group_share_what_is_published(address: Address) -> None:
    async with RawBlip(address) as one, RawBlip(address) as two, RawBlip(address) as all_of_it:
        for client in (one, two, all_of_it):
            await client.login(2)
        await one.subscribe("demo", 1, group="g")
        await two.subscribe("demo", 1, group="g")
        await all_of_it.subscribe("demo", 1)

        for number in range(4):
            all_of_it.publish("demo", b"%d" % number, 1)
            await all_of_it.delivery()
        got = {(await client.delivery()).message for client in (one, two) for _ in range(2)}
        assert got == {b"0", b"1", b"2", b"3"}


async def test_members_of_a_group_share_qos_0_too_and_a_key_goes_to_one(address: Address) -> None:
    async with RawBlip(address) as one, RawBlip(address) as two:
        for client in (one, two):
            await client.login(2)
            await client.subscribe("demo", 0, group="g")
        for _ in range(4):
            one.publish("demo", b"x")
        await one.delivery()
        await one.delivery()
        await two.delivery()
        await two.delivery()

        for number in range(6):
            one.publish("demo", b"%d" % number, key=b"k")
        one.publish("other", b"")
        first = asyncio.ensure_future(one.delivery())
        second = asyncio.ensure_future(two.delivery())
        done, pending = await asyncio.wait({first, second}, return_when="FIRST_COMPLETED")
        assert len(done) == 1
        client = one if first in done else two
        assert [(await client.delivery()).message for _ in range(5)] == [
            b"%d" % number for number in range(1, 6)
        ]
        for waiting in pending:
            assert not waiting.done()
            waiting.cancel()


async def test_messages_of_one_key_come_in_order_one_at_a_time(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1, group="g")
        client.publish("demo", b"a1", 1, key=b"a")
        client.publish("demo", b"a2", 1, key=b"a")
        client.publish("demo", b"b1", 1, key=b"b")

        got = [await client.delivery(), await client.delivery()]
        assert [one.message for one in got] == [b"a1", b"b1"]
        client.ack(number, got[0].tag)
        assert (await client.delivery()).message == b"a2"


async def test_a_named_group_outlives_its_connection_and_another_does_not(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        named = await client.subscribe("demo", 1, group="g")
        await client.subscribe("demo", 1)
        assert len(await broker.groups("demo")) == 2
        client.publish("demo", b"a", 1)
        client.publish("demo", b"b", 1)
        got = [await client.delivery() for _ in range(4)]
        client.ack(named, got[0].tag)

    async with RawBlip(address) as client:
        await client.login(2)
        while len(await broker.groups("demo")) == 2:
            await client.ping()
        client.publish("demo", b"c", 1)
        await client.ping()
        await client.subscribe("demo", 1, group="g")
        assert [(await client.delivery()).message for _ in range(2)] == [b"b", b"c"]


async def test_what_a_dead_member_had_goes_to_another_at_once(address: Address) -> None:
    """There it is dropped (B40)."""
    async with RawBlip(address) as alive:
        await alive.login(2)
        async with RawBlip(address) as dying:
            await dying.login(2)
            await dying.subscribe("demo", 1, group="g")
            dying.publish("demo", b"job", 1)
            assert (await dying.delivery()).message == b"job"
            await alive.subscribe("demo", 1, group="g")
        assert await alive.delivery() == Delivery(1, 1, "demo", b"job")


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_subscription_may_begin_at_an_offset_and_goes_on_live(
    address: Address, qos: int
) -> None:
    """What was published before anybody has subscribed is there, too (B11)."""
    async with RawBlip(address) as client:
        await client.login(2)
        for number in range(4):
            client.publish("demo", b"%d" % number, 1)
        await client.ping()

        await client.subscribe("demo", qos, offset=2)
        assert [(await client.delivery()).message for _ in range(2)] == [b"2", b"3"]
        client.publish("demo", b"new", 1)
        assert (await client.delivery()).message == b"new"
        client.publish("demo", b"live", 0)
        assert (await client.delivery()).message == b"live"


async def test_a_tag_is_the_offset_to_go_on_from(address: Address) -> None:
    """There nobody learns an offset (B41)."""
    async with RawBlip(address) as client:
        await client.login(2)
        await client.subscribe("demo", 1, offset=0)
        client.publish("demo", b"a", 1)
        client.publish("demo", b"b", 1)
        first = await client.delivery()

    async with RawBlip(address) as client:
        await client.login(2)
        await client.subscribe("demo", 1, offset=first.tag)
        assert (await client.delivery()).message == b"b"


async def test_a_new_subscription_gets_nothing_of_before(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        client.publish("demo", b"old", 1)
        await client.subscribe("demo", 1)
        await client.subscribe("demo", 1, group="g")
        client.publish("demo", b"new", 1)
        assert [(await client.delivery()).message for _ in range(2)] == [b"new", b"new"]


async def test_nobody_is_handed_a_message_beyond_its_ttl(
    address: Address, clock: ManualClock
) -> None:
    """There a stored one has none, whatever its publisher says (B46)."""
    async with RawBlip(address) as client:
        await client.login(2)
        client.publish("demo", b"short", 1, ttl=1000)
        client.publish("demo", b"long", 1, ttl=60_000)
        await client.ping()
        await clock.advance(2)

        await client.subscribe("demo", 1, offset=0)
        assert (await client.delivery()).message == b"long"


async def test_poll_is_met_with_silence(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1)

        client.send(POLL, number.to_bytes(8, "big"))
        await client.ping()


async def test_refusals_have_its_codes_and_texts(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login(2)

        for type, payload, refusal in [
            (PUBLISH, b"\0\0\0", (400, "empty topic")),
            (PUBLISH, b"\0" + text(b"a\0b"), (400, "topic contains NUL byte")),
            (PUBLISH, b"\2" + text("a"), (400, "invalid QoS value")),
            (PUBLISH, b"\x40" + text("") + text("a"), (400, "empty message key")),
            (PUBLISH, b"\x80\0\0\0", (400, "invalid PUBLISH payload")),
            (PUBLISH, b"\0" + text(b"\xff"), (400, "invalid PUBLISH payload")),
            (SUBSCRIBE, text("a") + b"\x80" + text(""), (400, "empty consumer group name")),
            (SUBSCRIBE, text(b"\0") + b"\0", (400, "topic contains NUL byte")),
            (SUBSCRIBE, text("") + b"\0", (400, "empty topic")),
            (SUBSCRIBE, text("a") + b"\3", (400, "invalid QoS value")),
            (SUBSCRIBE, text("a") + b"\x40\0", (400, "invalid SUBSCRIBE payload")),
            (POLL, bytes(8), (400, "subscription_id must be non-zero")),
            (POLL, bytes(7), (400, "invalid POLL payload")),
            (ACK, bytes(8), (400, "subscription_id must be non-zero")),
            (ACK, bytes(9), (400, "invalid ACK payload")),
            (ACK, bytes(7) + b"\1", (404, "unknown subscription or delivery tag")),
        ]:
            assert await client.refused(type, payload) == refusal
        await client.ping()


@pytest.mark.slow
async def test_a_slow_reader_costs_no_stored_message_and_holds_nobody_up(
    address: Address, server: BlipServer
) -> None:
    payload = bytes(64 * 1024)
    count = 160  # 10 MiB: more than sockets and buffers hold
    async with RawBlip(address) as slow, RawBlip(address) as quick, RawBlip(address) as publisher:
        for client in (slow, quick, publisher):
            await client.login(2)
        number = await slow.subscribe("demo", 1, group="slow")
        await quick.subscribe("demo", 1)
        for n in range(count):
            publisher.publish("demo", b"%d:" % n + payload, 1)
        await publisher.writer.drain()
        await publisher.ping()

        for n in range(count):
            assert (await quick.delivery()).message.startswith(b"%d:" % n)
        for n in range(count):
            got = await slow.delivery()
            assert got.message.startswith(b"%d:" % n)
            slow.ack(number, got.tag)
        await slow.ping()


async def test_what_is_behind_a_half_closed_connection_is_still_answered(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        client.publish("demo", b"last", 1)
        client.send(PING)
        client.writer.write_eof()

        assert (await client.next())[:1] == (8,)
        assert await client.is_closed()
    async with RawBlip(address) as client:
        await client.login(2)
        await client.subscribe("demo", 1, offset=0)
        assert (await client.delivery()).message == b"last"


async def test_requests_in_one_piece_are_answered_in_order(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        client.writer.write(
            frame(SUBSCRIBE, 20, text("demo") + b"\1")
            + frame(PUBLISH, 21, publish_payload("demo", b"a", 1))
            + frame(PUBLISH, 22, publish_payload("demo", b"b", 1, ttl=1000, key=b"k"))
            + frame(PING, 23)
            + frame(PUBLISH, 24, b"\xff")
            + frame(SUBSCRIBE, 25, text("other") + b"\x81" + text("g"))
            + frame(PING, 26)
        )
        got = [await client.next() for _ in range(7)]
        deliveries = [one.id for one in got if one.type == DELIVER]
        assert deliveries == [1, 2]
        assert [(one.type, one.id) for one in got if one.type != DELIVER] == [
            (ACK, 20), (PONG, 23), (NACK, 24), (ACK, 25), (PONG, 26),
        ]  # fmt: skip


async def test_groups_and_their_messages_survive_a_restart(restarted: Restarted) -> None:
    """There acknowledgements are not logged (B3), and later belong to a connection (B38)."""
    address = await restarted.start()
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1, group="g")
        await client.subscribe("demo", 1)
        for message in (b"a", b"b", b"c"):
            client.publish("demo", message, 1)
        got = [await client.delivery() for _ in range(6)]
        client.ack(number, got[0].tag)
        await client.ping()
    await restarted.stop()

    address = await restarted.start()
    assert restarted.broker is not None
    assert [info.name for info in await restarted.broker.groups("demo")] == ["g"]
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1, group="g")
        for message in (b"b", b"c"):
            got_again = await client.delivery()
            assert got_again.message == message
            client.ack(number, got_again.tag)


async def test_an_acknowledgement_out_of_order_loses_nothing_at_a_restart(
    restarted: Restarted,
) -> None:
    """BlipMQ keeps the highest that was acknowledged: 4 would be lost with it (its B38)."""
    address = await restarted.start()
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1, group="g")
        for n in range(1, 6):
            client.publish("demo", b"%d" % n, 1)
        got = [await client.delivery() for _ in range(5)]
        for index in (0, 1, 2, 4):
            client.ack(number, got[index].tag)
        await client.ping()
    await restarted.stop()

    address = await restarted.start()
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1, group="g")
        fourth = await client.delivery()
        assert fourth.message == b"4"
        client.ack(number, fourth.tag)
        client.publish("demo", b"6", 1)
        assert (await client.delivery()).message == b"6"


async def test_two_subscriptions_of_one_topic_are_settled_each_by_itself(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        one = await client.subscribe("demo", 1, group="one")
        await client.subscribe("demo", 1, group="two")
        client.publish("demo", b"a", 1)
        assert [(await client.delivery()).tag for _ in range(2)] == [1, 1]
        client.ack(one, 1)
        client.ack(one, 1)
        got = await client.next()
        assert (got.type, got.id) == (NACK, 1)
        await client.ping()
        assert (await broker.group_stats("demo", "one")).lag == 0
        assert (await broker.group_stats("demo", "two")).lag == 1
