"""What BlipMQ does not do well (its B1 to B46, docs/migrating/from-blipmq.md), and we do.

Those that are not here are in the other files of this directory, each named by its number.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.errors import StorageFull
from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.server import BlipServer
from flintmq.frontends.blip.settings import TOPIC_DEFAULTS
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.testing import ManualClock
from tests.power_cut import copy_as_cut

from .conftest import Restarted
from .raw import (
    ACK,
    PING,
    POLL,
    PONG,
    PUBLISH,
    SUBSCRIBE,
    Delivery,
    RawBlip,
    RawFlat,
    frame,
    nack_of,
    publish_payload,
    text,
)
from .test_refusing import figures_of

Address = tuple[str, int]


# --- durability


async def test_a_torn_tail_is_cut_and_no_later_start_fails(
    restarted: Restarted, tmp_path: Path
) -> None:
    """There, the next record lands behind the torn bytes and the start after that fails (B2)."""
    sent = []
    number = 0
    for turn in range(3):
        address = await restarted.start()
        crashed = tmp_path / f"crashed-{turn}"
        async with RawBlip(address) as client:
            await client.login()
            number = number or await client.subscribe("demo", 1)
            sent.append(b"%d" % turn)
            client.publish("demo", sent[-1], 1)
            await client.ping()
            copy_as_cut(tmp_path / "data", crashed)
            client.publish("demo", b"torn", 1)
            await client.ping()
        _tear(crashed, tmp_path / "data")
        await restarted.stop()
        shutil.rmtree(tmp_path / "data")
        crashed.rename(tmp_path / "data")
    address = await restarted.start()
    async with RawBlip(address) as client:
        await client.login()
        got = []
        while one := await client.poll(number):
            client.ack(number, one.tag)
            got.append(one.message)
    assert got == sent


def _tear(crashed: Path, later: Path) -> None:
    """Of what was written since, the first bytes have reached the disk."""
    journal = max(crashed.glob("journal/journal-*"))
    data = bytearray(journal.read_bytes())
    written = (later / "journal" / journal.name).read_bytes()
    start = next(at for at, (one, two) in enumerate(zip(data, written, strict=True)) if one != two)
    data[start : start + 40] = written[start : start + 40]
    journal.write_bytes(data)


async def test_what_no_subscription_waits_for_goes_and_what_one_does_stays(
    address: Address, broker: Broker, clock: ManualClock
) -> None:
    """There the file grows for ever (B4), as there is no retention (B44); later, what was never
    acknowledged could go (B39)."""
    broker.set_topic_defaults(TOPIC_DEFAULTS)
    async with RawBlip(address) as client:
        await client.login(2)
        number = await client.subscribe("demo", 1, group="g")
        for n in range(4):
            client.publish("demo", b"%d" % n, 1)
        got = [await client.delivery() for _ in range(4)]
        for one in got[:2]:
            client.ack(number, one.tag)
        await client.ping()
    await clock.advance(2 * 86_400)
    stats = await broker.topic_stats("demo")
    assert (stats.first_offset, stats.next_offset) == (2, 4)


async def test_tags_only_grow_whoever_publishes_and_over_restarts(restarted: Restarted) -> None:
    """There, concurrent publishers may swap ids, and a restart may give some out again (B5)."""
    last = 0
    for _ in range(2):
        address = await restarted.start()
        async with RawBlip(address) as one, RawBlip(address) as two, RawBlip(address) as reading:
            for client in (one, two, reading):
                await client.login(2)
            await reading.subscribe("demo", 1)
            for _ in range(10):
                one.publish("demo", b"", 1)
                two.publish("demo", b"", 1)
            tags = [(await reading.delivery()).tag for _ in range(20)]
            assert tags == list(range(last + 1, last + 21))
            last = tags[-1]
        await restarted.stop()


async def test_a_full_disk_is_told_to_publishers_and_consumers_go_on(clock: ManualClock) -> None:
    """There its writer ends, and every later publish is refused until a restart (B42)."""

    class Full:
        def __init__(self, broker: Broker) -> None:
            self._broker = broker
            self.is_full = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._broker, name)

        def publish_nowait(self, topic: str, rows: Any, *, qos: int, **rest: Any) -> Any:
            if self.is_full and qos:
                raise StorageFull("journal", "no space left on device")
            return self._broker.publish_nowait(topic, rows, qos=qos, **rest)

    memory = Broker(clock)
    broker: Any = Full(memory)
    server = BlipServer(broker)
    try:
        address = await server.start("127.0.0.1", 0)
        async with RawBlip(address) as client:
            await client.login()
            number = await client.subscribe("demo", 1)
            client.publish("demo", b"before", 1)
            await client.ping()
            broker.is_full = True
            code, why = await client.refused(PUBLISH, publish_payload("demo", b"", 1))
            assert code == 500
            assert "no space left on device" in why
            got = await client.poll(number)
            assert got is not None
            client.ack(number, got.tag)
            await client.ping()
            broker.is_full = False
            client.publish("demo", b"after", 1)
            got = await client.poll(number)
            assert got is not None
            assert got.message == b"after"
    finally:
        await server.close()
        await memory.close()


async def test_the_disk_can_be_left_out(tmp_path: Path) -> None:
    """There the log cannot be turned off (B29)."""
    broker = durable_broker(LocalFileSystem(tmp_path), decoder=Codec())
    broker.set_topic_defaults({"storage": "memory"})
    await broker.open()
    server = BlipServer(broker)
    try:
        async with RawBlip(await server.start("127.0.0.1", 0)) as client:
            await client.login()
            number = await client.subscribe("demo", 1)
            client.publish("demo", b"a", 1)
            got = await client.poll(number)
            assert got is not None
            client.ack(number, got.tag)
            await client.ping()
        assert (await broker.topic_info("demo")).options.storage == "memory"
    finally:
        await server.close()
        await broker.close()


# --- delivery


async def test_what_expires_is_counted(
    address: Address, broker: Broker, clock: ManualClock, server: BlipServer
) -> None:
    """There it goes without a count (B9)."""
    async with RawBlip(address) as client:
        await client.login(2)
        await client.subscribe("demo", 1, group="g")
        client.publish("demo", b"warm", 1)
        await client.delivery()
    async with RawBlip(address) as client:
        await client.login(2)
        client.publish("demo", b"short", 1, ttl=100)
        await client.ping()
        await clock.advance(1)
        await client.subscribe("demo", 1, group="g")
        assert (await client.delivery()).message == b"warm"
        await client.ping()
    assert (await broker.group_stats("demo", "g")).drops == {"expired": 1}


async def test_what_comes_again_comes_before_what_is_newer(
    address: Address, clock: ManualClock
) -> None:
    """There it goes behind everything that waits (B13)."""
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        for message in (b"a", b"b", b"c"):
            client.publish("demo", message, 1)
        first = await client.poll(number)
        assert first == Delivery(1, 1, "demo", b"a")
        await clock.advance(0.11)

        got = [await client.poll(number) for _ in range(3)]

        assert [one and one.message for one in got] == [b"a", b"b", b"c"]
        for tag in (1, 2, 3):
            client.ack(number, tag)
        await client.ping()
        assert await client.poll(number) is None


async def test_what_is_polled_and_acknowledged_leaves_nothing_behind(
    address: Address, server: BlipServer, clock: ManualClock
) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        for _ in range(50):
            client.publish("demo", b"", 1)
            got = await client.poll(number)
            assert got is not None
            client.ack(number, got.tag)
            await client.ping()
            await clock.advance(0.05)
        held = server.polled.find(number)
        assert held is not None
        assert held.leases is not None
        assert len(held.leases) == 0
        assert len(held.leases._due) <= 3


async def test_a_message_that_is_never_acknowledged_holds_up_nobody_behind_it(
    address: Address, clock: ManualClock
) -> None:
    """It comes again as often as it may, and in between others have their turn."""
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        for n in range(40):
            client.publish("demo", b"%d" % n, 1)
        got: list[bytes] = []
        while one := await client.poll(number):
            got.append(one.message)
            if one.message != b"0":
                client.ack(number, one.tag)
                await client.ping()
            await clock.advance(0.03)
        assert got.count(b"0") == 3
        assert [message for message in got if message != b"0"] == [b"%d" % n for n in range(1, 40)]


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_replay_that_meets_new_messages_brings_each_once(
    address: Address, qos: int
) -> None:
    """There it may bring those twice that are published meanwhile (B46)."""
    async with RawBlip(address) as client, RawBlip(address) as publisher:
        await client.login(2)
        await publisher.login(2)
        for n in range(300):
            publisher.publish("demo", b"%d" % n, 1)
        await publisher.ping()
        for n in range(300, 600):  # they and the subscription come at the same time
            publisher.publish("demo", b"%d" % n, 1)
        await client.subscribe("demo", qos, offset=0)
        publisher.publish("demo", b"end", 1)
        got = []
        while (one := await client.delivery()).message != b"end":
            got.append(one.message)
        assert got == [b"%d" % n for n in range(600)]


# --- resources


@pytest.mark.parametrize("options", [BlipOptions(queue_capacity=10)])
async def test_a_subscription_that_nobody_polls_costs_no_more_than_its_queue(
    address: Address, server: BlipServer, clock: ManualClock
) -> None:
    """There it keeps a few bytes of every message for ever (B17)."""
    async with RawBlip(address) as client, RawBlip(address) as publisher:
        await client.login()
        await publisher.login(2)
        number = await client.subscribe("demo", 0)
        for _ in range(100):
            publisher.publish("demo", bytes(100), ttl=50)
        await publisher.ping()
        await clock.advance(1)
        held = server.polled.find(number)
        assert held is not None
        assert len(held.feed.take(1000)) == 0
        assert held.feed.dropped == 90


async def test_an_idle_broker_has_one_timer_for_all_subscriptions(
    address: Address, clock: ManualClock
) -> None:
    """There all of them are looked through five times a second (B20)."""
    async with RawBlip(address) as client:
        await client.login()
        for _ in range(50):
            await client.subscribe("demo", 1)
        assert clock.pending() == 1


async def test_a_topic_can_be_deleted_and_is_as_if_it_had_never_been(
    address: Address, broker: Broker, server: BlipServer
) -> None:
    """There topics stay for ever (B18)."""
    async with RawBlip(address) as client:
        await client.login()
        numbers = [await client.subscribe("demo", qos) for qos in (0, 1)]
        client.publish("demo", b"old", 1)
        await client.ping()
        await broker.delete_topic("demo")
        got = await client.poll(numbers[0])  # it waited in the live queue
        assert got is not None
        for number in numbers:
            for _ in range(2):
                assert await client.poll(number) is None
        assert len(server.polled) == 0
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"new", 1)
        assert await client.poll(number) == Delivery(1, 1, "demo", b"new")


async def test_who_asks_for_much_and_reads_nothing_is_answered_bit_by_bit(
    address: Address, server: BlipServer
) -> None:
    """There each connection may have 16 MiB waiting, and then loses messages (B19)."""
    count, size = 64, 256 * 1024
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 0)
        for _ in range(count):
            client.publish("demo", bytes(size))
        await client.writer.drain()
        await client.ping()
        client.writer.write(frame(POLL, 7, number.to_bytes(8, "big")) * count)
        await _at_rest(server)
        assert _unsent(server) < 4 * 1024 * 1024
        for _ in range(count):
            assert len((await client.next()).payload) == 3 + 4 + size
        await client.ping()


@pytest.mark.parametrize("protocol", ["flat", "pushed", "group", "stored"])
async def test_what_is_pushed_to_who_reads_nothing_stays_in_its_queue(
    address: Address, server: BlipServer, protocol: str
) -> None:
    """As above, for what comes by itself (B19)."""
    count, size = 48, 256 * 1024
    async with RawBlip(address) as publisher, RawBlip(address) as slow, RawFlat(address) as flat:
        await publisher.login(2)
        qos = 1 if protocol == "stored" else 0
        if protocol == "flat":
            await flat.subscribe(b"demo")
        else:
            await slow.login(2)
            await slow.subscribe("demo", qos, group="g" if protocol == "group" else None)
        for _ in range(count):
            publisher.publish("demo", bytes(size), qos)
        await publisher.writer.drain()
        await publisher.ping()
        await _at_rest(server)
        assert _unsent(server) < 5 * 1024 * 1024
        for _ in range(count):
            if protocol == "flat":
                assert len((await flat.message()).payload) == size
            else:
                assert len((await slow.delivery()).message) == size


async def _at_rest(server: BlipServer) -> None:
    """Until nothing more is read or written."""
    still, before = 0, server.traffic()
    while still < 5:
        await asyncio.sleep(0.005)
        for _ in range(20):  # after a stall of the machine that was one turn
            await asyncio.sleep(0)
        now = server.traffic()
        still, before = (still + 1, now) if now == before else (0, now)


def _unsent(server: BlipServer) -> int:
    transports = [connection._transport for connection in server.connections]
    return sum(one.get_write_buffer_size() for one in transports if one is not None)


# --- security, operations, performance


async def test_it_begins_without_a_topic_a_subscription_or_a_message(
    address: Address, server: BlipServer
) -> None:
    """There a test of its own takes the topic `test` and a record of the log (B30)."""
    figures = figures_of(server)
    for name in ("topics", "subscribers", "wal_appends_total", "messages_published_total"):
        assert figures[name] == figures[f"blipmq_{name}"] == 0
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("test", 1)
        assert await client.poll(number) is None


async def test_host_names_are_addresses(broker: Broker) -> None:
    """There anything but numbers is a panic (B28)."""
    server = BlipServer(broker)
    try:
        host, port = await server.start("localhost", 0)
        async with RawBlip((host, port)) as client:
            await client.login()
    finally:
        await server.close()


async def test_small_answers_are_not_held_back(address: Address, server: BlipServer) -> None:
    """There TCP waits for more (B32)."""
    async with RawBlip(address) as client:
        await client.login()
        (connection,) = server.connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_what_is_asked_together_is_answered_together(
    address: Address, server: BlipServer
) -> None:
    """There each answer is a system call (B33)."""
    async with RawBlip(address) as client:
        await client.login()
        before = server.counters.writes
        client.writer.write(b"".join(frame(PING, id) for id in range(200)))
        assert [(await client.next()).id for _ in range(200)] == list(range(200))
        assert server.counters.writes - before <= 3


# --- of its later protocol


async def test_the_names_of_groups_that_come_and_go_are_not_for_others(
    address: Address, broker: Broker
) -> None:
    """One named `blip-push-1` would end with the next start, and all it waits for."""
    async with RawBlip(address) as client:
        await client.login(2)
        for name in ("blip-1", "blip-push-77"):
            refused = await client.refused(SUBSCRIBE, text("demo") + b"\x81" + text(name))
            assert refused == (400, "reserved consumer group name")
        await client.subscribe("demo", 1, group="blip-workers")
        assert [info.name for info in await broker.groups("demo")] == ["blip-workers"]


async def test_a_group_of_qos_0_whose_topic_is_deleted_ends_its_connections(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as one, RawBlip(address) as two:
        for client in (one, two):
            await client.login(2)
            await client.subscribe("demo", 0, group="g")
        one.publish("demo", b"")
        one.publish("demo", b"")
        await one.delivery()
        await two.delivery()
        await broker.delete_topic("demo")
        assert await one.is_closed()
        assert await two.is_closed()


@pytest.mark.parametrize("options", [BlipOptions(queue_capacity=2)])
async def test_counters_never_go_back(address: Address, server: BlipServer, broker: Broker) -> None:
    """What live queues have dropped is counted after they are closed, too (its B8)."""
    async with RawBlip(address) as client, RawBlip(address) as group, RawFlat(address) as flat:
        await client.login()
        await group.login(2)
        polled = await client.subscribe("demo", 0)
        await group.subscribe("demo", 0, group="g")
        await flat.subscribe(b"demo")
        client.writer.write(frame(PUBLISH, 9, publish_payload("demo", b"", 0)) * 10)
        await client.ping()
        before = figures_of(server)["blipmq_push_dropped_total"]
        assert before == 3 * 8
        await broker.delete_topic("demo")
        while await client.poll(polled):
            pass
    while server.connections:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert figures_of(server)["blipmq_push_dropped_total"] == before


async def test_a_refused_publish_names_its_cause_even_for_the_longest_names(
    address: Address,
) -> None:
    """A name of 65,535 bytes that have to be escaped is longer than any of ours."""
    async with RawBlip(address) as client:
        await client.login()
        name = "/" * 65_535
        code, why = await client.refused(PUBLISH, publish_payload(name, b"", 1))
        assert (code, why) == (
            500,
            "durable publish failed: log corruption: topic name too long for WAL record",
        )
        assert (await client.refused(SUBSCRIBE, text(name) + b"\1"))[0] == 400
        assert nack_of(await client.ask(ACK, (5).to_bytes(8, "big"), 5))[0] == 404
        got = await client.ask(PING)
        assert got.type == PONG
