"""Topics with partitions, which BlipMQ's clients take for plain ones."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.batch import key_hash
from flintmq.broker_api import ReaderOpening
from flintmq.engine.broker import Broker
from flintmq.frontends.blip.options import PUSH_LEASE_SECONDS
from flintmq.frontends.blip.row import PARTITION_BITS
from flintmq.frontends.blip.server import BlipServer
from flintmq.testing import ManualClock

from .conftest import Restarted
from .raw import ACK, PUBLISH, SUBSCRIBE, RawBlip, RawFlat, publish_payload, text
from .test_refusing import figures_of

Address = tuple[str, int]


@pytest.fixture(autouse=True)
async def orders(broker: Broker) -> None:
    await broker.create_topic("orders", {"partitions": 3})


async def counts(broker: Broker) -> list[int]:
    return [(await broker.topic_stats(f"orders/{n}")).message_count for n in range(3)]


@pytest.mark.parametrize("version", [1, 2])
async def test_publishes_without_a_key_go_round_from_write_to_write(
    address: Address, broker: Broker, version: int
) -> None:
    async with RawBlip(address) as client:
        await client.login(version)
        for _ in range(6):
            client.publish("orders", b"a", 1)
            client.publish("orders", b"b", 1)  # with the one before it
            await client.ping()
    assert await counts(broker) == [4, 4, 4]


async def test_a_key_is_always_in_the_partition_where_everybody_else_puts_it(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        keys = [b"key-%d" % n for n in range(20)]
        for key in keys:
            client.publish("orders", key, 1, key=key)
        await client.ping()
    for n in range(3):
        reader = await broker.open_reader(
            ReaderOpening(
                f"orders/{n}", name=None, start="earliest", filter=None, auto_create=False
            )
        )
        assert reader.take(100).values == [key for key in keys if key_hash(key) % 3 == n]
        await reader.close()


async def test_each_refused_publish_is_named_whatever_its_partition(
    address: Address, broker: Broker
) -> None:
    await broker.configure_topic("orders", {"max_message_bytes": 3})
    async with RawBlip(address) as client:
        await client.login(2)
        refused = []
        for n in range(8):
            message = b"too long" if n % 2 else b"ok"
            id = client.publish("orders", message, 1, key=b"%d" % n)
            refused += [id] if n % 2 else []
        got = [await client.next() for _ in range(4)]
        assert sorted(one.id for one in got) == refused
        await client.ping()
    assert sum(await counts(broker)) == 4


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_polled_subscription_gets_all_of_it(
    address: Address, broker: Broker, qos: int
) -> None:
    async with RawBlip(address) as client:
        await client.login(1)
        number = await client.subscribe("orders", qos)
        sent = set()
        for n in range(9):
            client.publish("orders", b"%d" % n, qos)
            await client.ping()
            sent.add(b"%d" % n)

        got = [await client.poll(number) for _ in range(9)]

        assert {one.message for one in got if one} == sent
        assert {one.topic for one in got if one} == {"orders"}
        assert await client.poll(number) is None
        if qos:
            tags = [one.tag for one in got if one]
            assert len(set(tags)) == 9
            for tag in tags:
                client.ack(number, tag)
            await client.ping()
            assert (await broker.group_stats("orders", f"blip-{number}")).lag == 0
            refused = await client.refused(ACK, number.to_bytes(8, "big"), tags[-1])
            assert refused == (404, "unknown subscription or delivery tag")


async def test_what_is_polled_and_not_acknowledged_comes_again_under_its_tag_and_is_buried(
    address: Address, broker: Broker, clock: ManualClock
) -> None:
    async with RawBlip(address) as client:
        await client.login(1)
        number = await client.subscribe("orders", 1)
        for _ in range(3):
            client.publish("orders", b"bad", 1)
            await client.ping()
        tags = set()
        for wait in (0.1, 0.2, 0.4):
            got = [await client.poll(number) for _ in range(3)]
            tags |= {one.tag for one in got if one}
            await clock.advance(wait - 0.01)
            assert await client.poll(number) is None
            await clock.advance(0.02)
        assert await client.poll(number) is None
        assert tags == {(n << PARTITION_BITS) + 1 for n in range(3)}
        letters = await broker.dead_letters("orders", f"blip-{number}", 10)
        assert letters.values == [b"bad"] * 3


async def test_an_acknowledgement_counts_until_another_member_has_the_message(
    address: Address, clock: ManualClock
) -> None:
    key = next(key for key in (b"%d" % n for n in range(9)) if key_hash(key) % 3)
    async with RawBlip(address) as one, RawBlip(address) as two:
        await one.login(2)
        await two.login(2)
        number = await one.subscribe("orders", 1, group="g")
        one.publish("orders", b"a", 1, key=key)
        first = await one.delivery()
        assert first.tag >> PARTITION_BITS == key_hash(key) % 3
        await two.subscribe("orders", 1, group="g")
        await clock.advance(PUSH_LEASE_SECONDS + 1)
        assert await one.delivery() == first  # it waits for longer than the other
        await clock.advance(2 * PUSH_LEASE_SECONDS + 1)
        assert await two.delivery() == first

        refused = await one.refused(ACK, number.to_bytes(8, "big"), first.tag)
        assert refused == (404, "unknown subscription or delivery tag")


async def test_pushed_deliveries_come_from_all_partitions_and_are_settled(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("orders", 1, group="g")
        for n in range(30):
            client.publish("orders", b"%d" % n, 1, key=b"%d" % n)
        got = [await client.delivery() for _ in range(30)]
        assert {one.message for one in got} == {b"%d" % n for n in range(30)}
        for one in got:
            client.ack(number, one.tag)
        await client.ping()
        assert (await broker.group_stats("orders", "g")).lag == 0


async def test_what_comes_in_one_moment_from_several_partitions_is_all_delivered(
    address: Address,
) -> None:
    """The subscription waits at all of them; each round fills them anew."""
    async with RawBlip(address) as client, RawBlip(address) as publisher:
        await client.login(2)
        await publisher.login(2)
        number = await client.subscribe("orders", 1)
        for turn in range(10):
            sent = {b"%d-%d" % (turn, n) for n in range(12)}
            for message in sent:
                publisher.publish("orders", message, 1, key=message)
            await publisher.ping()
            got = [await client.delivery() for _ in range(12)]
            assert {one.message for one in got} == sent
            for one in got:
                client.ack(number, one.tag)
            await client.ping()


async def test_what_a_dead_member_had_goes_to_another_at_once(address: Address) -> None:
    async with RawBlip(address) as alive:
        await alive.login(2)
        async with RawBlip(address) as dying:
            await dying.login(2)
            await dying.subscribe("orders", 1, group="g")
            for n in range(6):
                dying.publish("orders", b"%d" % n, 1, key=b"%d" % n)
            for _ in range(6):
                await dying.delivery()
            await alive.subscribe("orders", 1, group="g")
        got = {(await alive.delivery()).message for _ in range(6)}
        assert got == {b"%d" % n for n in range(6)}


@pytest.mark.parametrize("qos", [0, 1])
async def test_offset_0_is_the_earliest_of_all_and_another_is_refused_with_the_reason(
    address: Address, qos: int
) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        for n in range(6):
            client.publish("orders", b"%d" % n, 1, key=b"%d" % n)
        await client.ping()
        wanted = text("orders") + bytes([0x40 | qos]) + (5).to_bytes(8, "big")
        code, why = await client.refused(SUBSCRIBE, wanted)
        assert code == 400
        assert "its own offsets" in why

        await client.subscribe("orders", qos, offset=0)
        got = {(await client.delivery()).message for _ in range(6)}
        assert got == {b"%d" % n for n in range(6)}
        client.publish("orders", b"new", 1)
        assert (await client.delivery()).message == b"new"
        client.publish("orders", b"live", 0)
        assert (await client.delivery()).message == b"live"


async def test_the_first_protocol_publishes_and_subscribes_there(address: Address) -> None:
    async with RawFlat(address) as flat, RawBlip(address) as client:
        await flat.subscribe(b"orders")
        await client.login(1)
        number = await client.subscribe("orders", 0)
        flat.send(0, b"orders", b"hi")
        assert (await flat.message()).payload == b"hi"
        got = await client.poll(number)
        assert got is not None
        assert got.message == b"hi"


async def test_partitions_that_are_added_are_served_too(address: Address, broker: Broker) -> None:
    async with RawBlip(address) as client, RawBlip(address) as polling, RawBlip(address) as reading:
        await client.login(2)
        await polling.login(1)
        await reading.login(2)
        pushed = await client.subscribe("orders", 1)
        polled = await polling.subscribe("orders", 1)
        await reading.subscribe("orders", 0, offset=0)
        await broker.configure_topic("orders", {"partitions": 8})
        sent = {b"%d" % n for n in range(40)}
        for message in sent:
            client.publish("orders", message, 1, key=message)

        got = [await client.delivery() for _ in range(40)]
        assert {one.message for one in got} == sent
        assert max(one.tag for one in got) >> PARTITION_BITS > 2
        for one in got:
            client.ack(pushed, one.tag)
        await client.ping()
        assert {one.message for one in [await polling.poll(polled) for _ in range(40)] if one} == (
            sent
        )
        assert {(await reading.delivery()).message for _ in range(40)} == sent


async def test_deleting_the_topic_ends_what_is_pushed_and_forgets_what_is_polled(
    address: Address, broker: Broker, server: BlipServer
) -> None:
    async with RawBlip(address) as pushed, RawBlip(address) as polling:
        await pushed.login(2)
        await polling.login(1)
        await pushed.subscribe("orders", 1)
        number = await polling.subscribe("orders", 1)
        polling.publish("orders", b"a", 1)
        await polling.ping()
        await broker.delete_topic("orders")
        assert await polling.poll(number) is None
        await asyncio.wait_for(pushed.reader.read(), 60)
    assert len(server.polled) == 0


async def test_it_counts_as_one_topic(address: Address, server: BlipServer) -> None:
    async with RawBlip(address) as client:
        await client.login(1)
        await client.ping()
        assert figures_of(server)["blipmq_topics"] == 1


async def test_all_of_it_survives_a_restart(restarted: Restarted) -> None:
    address = await restarted.start()
    assert restarted.broker is not None
    await restarted.broker.create_topic("orders", {"partitions": 3})
    async with RawBlip(address) as client, RawBlip(address) as pushed:
        await client.login(1)
        await pushed.login(2)
        number = await client.subscribe("orders", 1)
        named = await pushed.subscribe("orders", 1, group="g")
        for n in range(6):
            client.publish("orders", b"%d" % n, 1)
            await client.ping()
        done = set()
        for _ in range(2):
            got = await client.poll(number)
            assert got is not None
            client.ack(number, got.tag)
            done.add(got.message)
        settled = [await pushed.delivery() for _ in range(6)][:4]
        for one in settled:
            pushed.ack(named, one.tag)
        await client.ping()
        await pushed.ping()
    await restarted.stop()

    address = await restarted.start()
    every = {b"%d" % n for n in range(6)}
    async with RawBlip(address) as client, RawBlip(address) as pushed:
        await client.login(1)
        await pushed.login(2)
        left = set()
        while got := await client.poll(number):
            client.ack(number, got.tag)
            left.add(got.message)
        assert left == every - done
        named = await pushed.subscribe("orders", 1, group="g")
        rest = set()
        for _ in range(2):
            one = await pushed.delivery()
            pushed.ack(named, one.tag)
            rest.add(one.message)
        assert rest == every - {one.message for one in settled}


async def test_what_is_not_allowed_is_refused_there_as_anywhere(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login(1)
        assert await client.refused(PUBLISH, publish_payload("orders", b"", 2)) == (
            400,
            "invalid QoS value",
        )
