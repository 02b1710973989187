"""HELLO 1: handshake, POLL, acknowledgements, redelivery; subscriptions that outlive all that."""

from __future__ import annotations

import asyncio
import socket
import struct
import time

import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.publishing import IN_LINE_SECONDS
from flintmq.frontends.blip.server import BlipServer
from flintmq.testing import ManualClock
from tests.patience import until

from .conftest import Restarted
from .raw import (
    ACK,
    AUTH,
    DELIVER,
    HELLO,
    NACK,
    PING,
    POLL,
    PONG,
    PUBLISH,
    SUBSCRIBE,
    Delivery,
    Got,
    RawBlip,
    frame,
    nack_of,
    publish_payload,
    text,
)

Address = tuple[str, int]


async def test_the_handshake_refuses_what_is_out_of_order_and_goes_on(address: Address) -> None:
    async with RawBlip(address) as client:
        assert await client.refused(AUTH, text("k")) == (400, "HELLO not performed")
        for type in (PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL):
            assert await client.refused(type) == (401, "unauthenticated")
        assert await client.refused(HELLO, b"\0") == (400, "invalid HELLO payload")
        assert await client.refused(HELLO, b"\0\3") == (426, "unsupported protocol version")
        assert await client.ask(HELLO, b"\0\1") == Got(ACK, client.last_id, bytes(8))
        assert await client.refused(HELLO, b"\0\1") == (400, "HELLO already performed")
        assert await client.refused(PING) == (401, "unauthenticated")
        assert await client.refused(AUTH, b"\0\2k") == (400, "invalid AUTH payload")
        assert await client.refused(AUTH, text(b"\xff")) == (400, "invalid AUTH payload")
        assert await client.ask(AUTH, text("k")) == Got(ACK, client.last_id, bytes(8))
        assert await client.refused(AUTH, text("k")) == (400, "already authenticated")
        assert await client.refused(HELLO, b"") == (400, "HELLO already performed")
        await client.ping()


async def test_requests_are_refused_with_its_codes_and_texts(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login()

        for type, payload, refusal in [
            (PUBLISH, b"", (400, "invalid PUBLISH payload")),
            (PUBLISH, b"\0\0\5abc", (400, "invalid PUBLISH payload")),
            (PUBLISH, b"\0" + text(b"\xc3"), (400, "invalid PUBLISH payload")),
            (PUBLISH, b"\7" + text(""), (400, "empty topic")),
            (PUBLISH, b"\2" + text("a"), (400, "invalid QoS value")),
            (PUBLISH, b"\x81" + text("a"), (400, "invalid QoS value")),
            (SUBSCRIBE, b"\0\1a", (400, "invalid SUBSCRIBE payload")),
            (SUBSCRIBE, text("") + b"\7", (400, "empty topic")),
            (SUBSCRIBE, text("a") + b"\2", (400, "invalid QoS value")),
            (POLL, b"", (400, "invalid POLL payload")),
            (POLL, bytes(8), (400, "subscription_id must be non-zero")),
            (ACK, bytes(4), (400, "invalid ACK payload")),
            (ACK, bytes(8), (400, "subscription_id must be non-zero")),
            (ACK, bytes(7) + b"\x09", (404, "unknown subscription or delivery tag")),
        ]:
            assert await client.refused(type, payload) == refusal
        client.send(PONG)
        client.send(NACK)
        client.send(PING, b"anything")
        assert (await client.next()).type == PONG


async def test_a_publish_has_no_answer_and_a_poll_has_one_or_none(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 0)
        assert await client.poll(number) is None
        assert await client.poll(number + 10**6) is None

        client.publish("demo", b"a")
        client.publish("demo", b"b", 1)
        first, second = await client.poll(number), await client.poll(number)

        assert first is not None
        assert second is not None
        assert (first.qos, first.topic, first.message) == (0, "demo", b"a")
        assert (second.qos, second.message) == (0, b"b")
        assert await client.poll(number) is None


async def test_a_message_of_qos_1_has_its_tag_and_is_acknowledged_by_it(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"a", 1)
        client.publish("demo", b"b", 1)

        assert await client.poll(number) == Delivery(1, 1, "demo", b"a")
        assert await client.poll(number) == Delivery(1, 2, "demo", b"b")
        client.ack(number, 1)
        client.ack(number, 2)
        await client.ping()
        assert (await broker.group_stats("demo", f"blip-{number}")).lag == 0
        client.ack(number, 2)
        refused = await client.next()
        assert refused.id == 2
        assert nack_of(refused) == (404, "unknown subscription or delivery tag")


async def test_a_subscription_of_qos_1_gets_messages_of_qos_0_as_such(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"fleeting", 0)
        client.publish("demo", b"stored", 1)

        got = {await client.poll(number), await client.poll(number)}

        assert {(one.qos, one.message) for one in got if one} == {(0, b"fleeting"), (1, b"stored")}
        assert await client.poll(number) is None


async def test_what_is_not_acknowledged_comes_again_with_backoff_and_ends_as_a_dead_letter(
    address: Address, clock: ManualClock, broker: Broker
) -> None:
    """There it is gone after the last (B10)."""
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"bad", 1)

        for wait in (0.1, 0.2, 0.4):
            assert await client.poll(number) == Delivery(1, 1, "demo", b"bad")
            await clock.advance(wait - 0.01)
            assert await client.poll(number) is None
            await clock.advance(0.02)
        assert await client.poll(number) is None
        letters = await broker.dead_letters("demo", f"blip-{number}", 10)
        assert letters.values == [b"bad"]


async def test_a_late_acknowledgement_counts(address: Address, clock: ManualClock) -> None:
    """BlipMQ answers 404 and delivers it again (its B12)."""
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"a", 1)
        assert await client.poll(number) is not None
        await clock.advance(5)

        client.ack(number, 1)

        await client.ping()
        assert await client.poll(number) is None


async def test_two_connections_that_poll_one_subscription_share_it(address: Address) -> None:
    async with RawBlip(address) as one, RawBlip(address) as two:
        await one.login()
        await two.login()
        number = await one.subscribe("demo", 1)
        for n in range(4):
            one.publish("demo", b"%d" % n, 1)
        await one.ping()

        got = [await client.poll(number) for client in (one, two, one, two)]

        assert [one.message for one in got if one] == [b"0", b"1", b"2", b"3"]
        two.ack(number, 1)  # whoever it was handed to
        await two.ping()


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_subscription_outlives_its_connection(address: Address, qos: int) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", qos)
    async with RawBlip(address) as client:
        await client.login()
        client.publish("demo", b"meanwhile", qos)
        await client.ping()
        got = await client.poll(number)
        assert got is not None
        assert got.message == b"meanwhile"


async def test_a_subscription_nobody_polls_is_dropped_and_its_number_is_never_used_again(
    address: Address, clock: ManualClock, broker: Broker, server: BlipServer
) -> None:
    """There each reconnect leaves one behind that keeps filling (B16)."""
    async with RawBlip(address) as client:
        await client.login()
        kept = await client.subscribe("demo", 1)
        leaked = [await client.subscribe("demo", 1), await client.subscribe("demo", 0)]
        await clock.advance(server.options.subscription_seconds - 1)
        await client.poll(kept)
        await clock.advance(2)

        assert [info.name for info in await broker.groups("demo")] == [f"blip-{kept}"]
        assert len(server.polled) == 1
        client.publish("demo", b"a", 1)
        for number in leaked:
            assert await client.poll(number) is None
            assert (await client.refused(ACK, number.to_bytes(8, "big"), 1))[0] == 404
        assert await client.poll(kept) is not None
        assert await client.subscribe("demo", 1) > max(leaked)


async def test_messages_and_subscriptions_survive_a_restart(restarted: Restarted) -> None:
    """BlipMQ replays its log before there is a subscription, and so to nobody (its B1)."""
    address = await restarted.start()
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("a/b*", 1)
        for message in (b"a", b"b", b"c"):
            client.publish("a/b*", message, 1)
        got = await client.poll(number)
        assert got is not None
        client.ack(number, got.tag)
        await client.ping()
    await restarted.stop()

    address = await restarted.start()
    async with RawBlip(address) as client:
        await client.login()
        for message in (b"b", b"c"):
            got = await client.poll(number)
            assert got is not None
            assert (got.topic, got.message) == ("a/b*", message)
            client.ack(number, got.tag)
        assert await client.poll(number) is None
        assert await client.subscribe("a/b*", 1) > number


async def test_requests_in_one_piece_are_answered_in_order(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        poll = number.to_bytes(8, "big")
        client.writer.write(
            frame(PUBLISH, 10, publish_payload("demo", b"a", 1))
            + frame(PING, 11)
            + frame(PUBLISH, 12, publish_payload("demo", b"b", 1))
            + frame(POLL, 13, poll)
            + frame(POLL, 14, poll)
            + frame(POLL, 15, bytes(8))
            + frame(SUBSCRIBE, 16, text("other") + b"\0" + b"ignored")
            + frame(PUBLISH, 17, b"")
            + frame(PING, 18)
        )

        got = [await client.next() for _ in range(7)]

        assert [(one.type, one.id) for one in got] == [
            (PONG, 11), (PUBLISH, 1), (PUBLISH, 2), (NACK, 15), (ACK, 16), (NACK, 17), (PONG, 18),
        ]  # fmt: skip


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_was_asked_before_a_half_close_is_answered(address: Address, qos: int) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", qos)
        for message in (b"a", b"b"):
            client.publish("demo", message, qos)
        for id in (50, 51, 52):
            client.send(POLL, number.to_bytes(8, "big"), id)
        client.send(PING, id=53)
        client.writer.write_eof()
        got = [await client.next() for _ in range(3)]
        assert [one.payload[-1:] for one in got[:2]] == [b"a", b"b"]
        assert (got[2].type, got[2].id) == (PONG, 53)
        assert await client.is_closed()


async def test_frames_may_come_byte_by_byte(address: Address) -> None:
    async with RawBlip(address) as client:
        for byte in frame(HELLO, 1, b"\0\1") + frame(AUTH, 2, text("k")) + frame(PING, 3):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert [(await client.next()).type for _ in range(3)] == [ACK, ACK, PONG]


@pytest.mark.parametrize(
    "data",
    [
        bytes(4),
        struct.pack(">I", 8) + bytes(8),
        struct.pack(">I", 16 * 1024 * 1024 + 1),
        b"\xff" * 4,
        frame(0x0B, 9),
        frame(0, 9),
        frame(DELIVER, 9),
    ],
)
async def test_a_malformed_frame_ends_the_connection_without_a_word(
    address: Address, data: bytes
) -> None:
    async with RawBlip(address) as client:
        await client.login()
        client.writer.write(data)
        assert await client.is_closed()


async def test_what_came_before_a_malformed_frame_counts(address: Address) -> None:
    async with RawBlip(address) as reading, RawBlip(address) as client:
        await reading.login()
        number = await reading.subscribe("demo", 1)
        await client.login()
        client.writer.write(
            frame(PUBLISH, 8, publish_payload("demo", b"a", 1)) + frame(PING, 9) + bytes(4)
        )
        assert (await client.next()).type == PONG
        assert await client.is_closed()
        assert await reading.poll(number) is not None


@pytest.mark.slow
async def test_the_longest_frame_is_taken_and_delivered(address: Address) -> None:
    message = bytes(16 * 1024 * 1024 - 9 - 7)
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 0)
        client.publish("demo", message)
        await client.writer.drain()
        got = await client.poll(number)
        assert got is not None
        assert len(got.message) == len(message)


async def test_who_has_not_said_who_they_are_gets_little_room(address: Address) -> None:
    """There everybody may send 16 MiB, without a limit on connections (B19)."""
    async with RawBlip(address) as client:
        await client.ask(HELLO, b"\0\1")
        client.writer.write(struct.pack(">I", 1024 * 1024))
        assert await client.is_closed()


@pytest.mark.parametrize(
    "topic", ["a/b", "100%", "a*b>c", "tab\tnewline\n", "größe", " ", "a..b", "x" * 65535]
)
async def test_any_text_is_a_topic(address: Address, topic: str) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe(topic, 1)
        client.publish(topic, b"m", 1)
        got = await client.poll(number)
        assert got is not None
        assert got.topic == topic


@pytest.mark.parametrize("options", [BlipOptions(queue_capacity=2)])
async def test_a_full_live_queue_drops_the_oldest(address: Address) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 0)
        for n in range(4):
            client.publish("demo", b"%d" % n)
        got = [await client.poll(number) for _ in range(3)]
        assert [one and one.message for one in got] == [b"2", b"3", None]


@pytest.mark.parametrize("options", [BlipOptions(queue_capacity=2, overflow="block")])
async def test_a_full_live_queue_may_hold_its_publisher_back_instead(address: Address) -> None:
    async with RawBlip(address) as client, RawBlip(address) as publisher:
        await client.login()
        await publisher.login()
        number = await client.subscribe("demo", 0)
        for n in range(6):
            publisher.publish("demo", b"%d" % n)
        publisher.send(PING)
        got: list[bytes] = []
        while len(got) < 6:
            one = await client.poll(number)
            got += [] if one is None else [one.message]
        assert got == [b"%d" % n for n in range(6)]
        assert (await publisher.next()).type == PONG


async def test_many_connections_are_served(address: Address) -> None:
    clients = [RawBlip(address) for _ in range(60)]
    for client in clients:
        await client.__aenter__()
        await client.login()
    numbers = [await client.subscribe("demo", 0) for client in clients]
    clients[0].publish("demo", b"all")
    await clients[0].ping()
    for client, number in zip(clients, numbers, strict=True):
        got = await client.poll(number)
        assert got is not None
        assert got.message == b"all"
    for client in clients:
        await client.__aexit__()


@pytest.mark.slow
async def test_a_large_backlog_is_polled_without_loss(address: Address) -> None:
    """BlipMQ keeps 1024 for each subscription, and drops the rest without a word (its B8)."""
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 0)
        for n in range(3000):
            client.publish("demo", b"%d" % n)
        await client.writer.drain()
        poll = number.to_bytes(8, "big")
        for _ in range(3000):
            client.send(POLL, poll)
        got = [await client.next() for _ in range(3000)]
        assert [one.payload[7:] for one in got] == [b"%d" % n for n in range(3000)]


async def test_what_was_leased_ahead_and_is_not_polled_counts_as_not_delivered(
    address: Address, clock: ManualClock, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        for n in range(5):
            client.publish("demo", b"%d" % n, 1)
        got = await client.poll(number)
        assert got is not None
        client.ack(number, got.tag)
        await client.ping()
        assert (await broker.group_stats("demo", f"blip-{number}")).in_flight == 4

        for _ in range(4):  # more often than a message may be delivered
            await clock.advance(1.1)
            assert (await broker.group_stats("demo", f"blip-{number}")).in_flight == 0
            await client.poll(number)
            await clock.advance(0.05)
        stats = await broker.group_stats("demo", f"blip-{number}")
        assert stats.dead_lettered == 1  # the one that was polled and never acknowledged
        assert stats.lag == 3


async def test_what_expires_while_it_is_leased_ahead_is_not_handed_out(
    address: Address, clock: ManualClock
) -> None:
    async with RawBlip(address) as client, RawBlip(address) as publisher:
        await client.login(1)
        await publisher.login(2)
        number = await client.subscribe("demo", 1)
        publisher.publish("demo", b"a", 1)
        publisher.publish("demo", b"short", 1, ttl=300)
        publisher.publish("demo", b"long", 1, ttl=60_000)
        await publisher.ping()
        first = await client.poll(number)
        assert first is not None
        assert first.message == b"a"
        await clock.advance(0.5)
        got = [await client.poll(number), await client.poll(number)]
        assert {one.message for one in got if one} == {b"a", b"long"}


async def test_what_its_topic_lets_expire_while_it_is_leased_ahead_is_not_handed_out(
    address: Address, clock: ManualClock, broker: Broker
) -> None:
    await broker.create_topic("short", {"ttl": 0.3})
    async with RawBlip(address) as client:
        await client.login(1)
        number = await client.subscribe("short", 1)
        for message in (b"a", b"b"):
            client.publish("short", message, 1)
        got = await client.poll(number)
        assert got is not None
        await clock.advance(0.5)
        assert await client.poll(number) is None


async def test_a_subscription_whose_topic_is_deleted_is_not_known_any_more(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"a", 1)
        await client.ping()
        await broker.delete_topic("demo")
        assert await client.poll(number) is None
        code, _ = await client.refused(ACK, number.to_bytes(8, "big"), 1)
        assert code == 404


@pytest.mark.parametrize(("version", "code"), [(1, 500), (2, 503)])
async def test_a_publish_waits_for_room_and_is_refused_in_the_end(
    address: Address, broker: Broker, clock: ManualClock, version: int, code: int
) -> None:
    await broker.create_topic("full", {"retention_count": 1, "overflow": "block"})
    async with RawBlip(address) as reading, RawBlip(address) as client:
        await reading.login(2)
        number = await reading.subscribe("full", 1, group="g")
        await client.login(version)
        client.publish("full", b"a", 1)
        assert (await reading.delivery()).tag == 1
        waits = client.publish("full", b"b", 1)
        await until_in_line(broker)
        await clock.advance(IN_LINE_SECONDS + 1)
        got = await client.next()
        assert got.id == waits
        assert nack_of(got)[0] == code

        client.publish("full", b"c", 1)
        await until_in_line(broker)
        reading.ack(number, 1)
        assert (await reading.delivery()).message == b"c"


async def test_a_publisher_that_leaves_in_line_holds_nobody_up_for_ever(
    address: Address, broker: Broker, clock: ManualClock
) -> None:
    await broker.create_topic("full", {"retention_count": 1, "overflow": "block"})
    async with RawBlip(address) as reading:
        await reading.login(2)
        async with RawBlip(address) as client:
            await client.login(2)
            await client.subscribe("full", 1, group="g")
            client.publish("full", b"a", 1)
            assert (await client.delivery()).message == b"a"
            client.publish("full", b"waits for room", 1)
            await until_in_line(broker)
        await reading.subscribe("full", 1, group="g")
        await clock.advance(IN_LINE_SECONDS + 1)
        assert (await reading.delivery()).message == b"a"


async def until_in_line(broker: Broker) -> None:
    while not (await broker.topic_stats("full")).publishers_waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


# --- clients that were killed and started again


async def _crashed(address: Address, server: BlipServer, count: int, acknowledged: int) -> int:
    """A client that has polled so many, acknowledged some, and is gone."""
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("jobs", 1)
        for index in range(count):
            client.publish("jobs", b"%d" % index, 1)
        await client.ping()
        for index in range(count):
            got = await client.poll(number)
            assert got is not None
            if index < acknowledged:
                client.send(ACK, number.to_bytes(8, "big"), got.tag)
        await client.ping()
        client.writer.transport.abort()
    await until(lambda: not server.connections, "it is still there")
    await until(lambda: not any(one.users for one in server.polled.all()), "it is not let go of")
    return number


async def test_a_client_that_subscribes_anew_after_a_crash_gets_what_it_had_not_acknowledged(
    address: Address, server: BlipServer, clock: ManualClock
) -> None:
    number = await _crashed(address, server, 20, 4)
    async with RawBlip(address) as other:
        await other.login()
        other.publish("jobs", b"meanwhile", 1)
        await other.ping()
    async with RawBlip(address) as client:
        await client.login()
        assert await client.subscribe("jobs", 1) == number
        await clock.advance(60)
        got = []
        while (delivery := await client.poll(number)) is not None:
            got.append(delivery.message)
            client.send(ACK, number.to_bytes(8, "big"), delivery.tag)
        assert sorted(got) == sorted([*(b"%d" % index for index in range(4, 20)), b"meanwhile"])


async def test_a_subscription_is_taken_over_once_by_qos_1_and_only_of_its_own_topic(
    address: Address, server: BlipServer
) -> None:
    number = await _crashed(address, server, 1, 0)
    async with RawBlip(address) as client:
        await client.login()
        others = [await client.subscribe("jobs", 0), await client.subscribe("other", 1)]
        assert number not in others
        assert await client.subscribe("jobs", 1) == number
        assert await client.subscribe("jobs", 1) > number


async def test_a_subscription_that_another_connection_polls_is_not_taken_over(
    address: Address, server: BlipServer
) -> None:
    number = await _crashed(address, server, 1, 0)
    async with RawBlip(address) as knowing, RawBlip(address) as client:
        await knowing.login()
        await client.login()
        await knowing.poll(number)
        assert await client.subscribe("jobs", 1) != number


@pytest.mark.parametrize("options", [BlipOptions(adopt=False)])
async def test_taking_over_can_be_turned_off(address: Address, server: BlipServer) -> None:
    number = await _crashed(address, server, 1, 0)
    async with RawBlip(address) as client:
        await client.login()
        assert await client.subscribe("jobs", 1) != number


async def test_what_was_left_before_a_restart_is_taken_over_too(restarted: Restarted) -> None:
    address = await restarted.start()
    assert restarted.server is not None
    number = await _crashed(address, restarted.server, 3, 1)
    await restarted.stop()
    async with RawBlip(await restarted.start()) as client:
        await client.login()
        assert await client.subscribe("jobs", 1) == number
        assert (await client.poll(number)) is not None


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
@pytest.mark.slow
async def test_a_client_without_nodelay_does_not_wait_for_a_delayed_ack(address: Address) -> None:
    """An ACK has no answer. Each POLL behind one would take 40 ms; on a busy machine some do."""

    def talk() -> list[float]:
        taken = []
        with socket.create_connection(address) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

            def heard() -> bytes:
                length = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
                return client.recv(length, socket.MSG_WAITALL)

            client.sendall(frame(HELLO, 1, b"\0\1"))
            heard()
            client.sendall(frame(AUTH, 2, text("any")))
            heard()
            client.sendall(frame(SUBSCRIBE, 3, text("jobs") + b"\1"))
            number = heard()[9:17]
            for _ in range(80):
                client.sendall(frame(PUBLISH, 4, publish_payload("jobs", b"x", 1)))
            client.sendall(frame(PING, 5))
            heard()
            for _ in range(80):
                began = time.monotonic()
                client.sendall(frame(POLL, 6, number))
                tag = int.from_bytes(heard()[1:9], "big")
                client.sendall(frame(ACK, tag, number))
                taken.append(time.monotonic() - began)
        return taken

    later = (await asyncio.to_thread(talk))[40:]
    assert sorted(later)[5] < 0.020
