"""What publishers hear where a message is not stored, and what ends with the broker."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.broker_api import BrokerApi
from flintmq.engine.broker import Broker
from flintmq.errors import (
    Closed,
    MessageTooLarge,
    QueueFull,
    StorageFailed,
    StorageFull,
    TopicFull,
)
from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.refusals import ShuttingDown, publish_refusal
from flintmq.frontends.blip.server import BlipServer
from flintmq.frontends.http.exposition import Page
from flintmq.testing import ManualClock

from .raw import NACK, PING, PONG, PUBLISH, RawBlip, nack_of, publish_payload

Address = tuple[str, int]


@pytest.mark.parametrize(
    ("error", "first", "second"),
    [
        (
            QueueFull("the journal", 1, "wait"),
            (500, "durable publish failed: wal overload: wal channel full"),
            (503, "wal_busy: "),
        ),
        (
            StorageFailed("fsync", "journal", "EIO"),
            (500, "durable publish failed: wal writer stopped"),
            (503, "wal_writer_stopped: "),
        ),
        (
            ShuttingDown("soon"),
            (
                500,
                "durable publish failed: log corruption: write-ahead log not available: broker "
                "shutting down",
            ),
            (503, "wal_writer_stopped: "),
        ),
        (
            Closed("the broker"),
            (
                500,
                "durable publish failed: log corruption: write-ahead log not available: broker "
                "shutting down",
            ),
            (503, "wal_writer_stopped: "),
        ),
        (
            MessageTooLarge("a message", 2, 1, "max_message_bytes"),
            (500, "durable publish failed: log corruption: record too large"),
            (500, "durable_publish_failed: "),
        ),
        (
            StorageFull("journal", "no space left"),
            (500, "durable publish failed: "),
            (500, "durable_publish_failed: "),
        ),
        (TopicFull("t", "1", "full"), (500, "durable publish failed: "), (503, "wal_busy: ")),
        (OSError("torn"), (500, "durable publish failed: I/O error: torn"), (500, "durable_")),
    ],
)  # fmt: skip
def test_why_a_message_is_not_stored_is_said_in_its_words(
    error: Exception, first: tuple[int, str], second: tuple[int, str]
) -> None:
    for version, (code, begins) in ((1, first), (2, second)):
        refusal = publish_refusal(error, version)
        assert refusal[0] == code
        assert refusal[1].startswith(begins)


@pytest.mark.parametrize("version", [1, 2])
async def test_each_publish_that_is_refused_is_named_by_its_id(
    address: Address, broker: Broker, version: int
) -> None:
    await broker.create_topic("small", {"max_message_bytes": 3})
    async with RawBlip(address) as client:
        await client.login(version)
        data = b"".join(
            (9 + len(payload)).to_bytes(4, "big")
            + bytes([PUBLISH])
            + id.to_bytes(8, "big")
            + payload
            for id, payload in (
                (71, publish_payload("small", b"fits", 1)),
                (72, publish_payload("small", b"ok", 1)),
                (73, publish_payload("small", b"too long", 1)),
            )
        )
        client.writer.write(data)
        got = [await client.next(), await client.next()]
        assert [(one.type, one.id) for one in got] == [(NACK, 71), (NACK, 73)]
        assert nack_of(got[0])[0] == 500
        await client.ping()
        assert (await broker.topic_stats("small")).message_count == 1


async def test_a_broker_that_makes_no_topics_says_so_to_qos_1_alone(
    address: Address, broker: Broker, server: BlipServer
) -> None:
    broker.auto_create = False
    async with RawBlip(address) as client:
        await client.login()
        client.publish("none", b"", 0)
        await client.ping()
        assert server.counters.dropped == 1
        code, why = await client.refused(PUBLISH, publish_payload("none", b"", 1))
        assert code == 500
        assert "none" in why


async def test_a_broker_on_its_way_down_refuses_what_it_could_lose(
    address: Address, server: BlipServer
) -> None:
    async with RawBlip(address) as client:
        await client.login()
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"before", 1)
        await client.ping()
        await server.drain(1)

        code, why = await client.refused(PUBLISH, publish_payload("demo", b"after", 1))
        assert code == 500
        assert why.endswith("broker shutting down")
        client.publish("demo", b"", 0)
        got = await client.poll(number)
        assert got is not None
        client.ack(number, got.tag)  # in flight may still be settled
        await client.ping()
        await server.close()
        assert await client.is_closed()


class Slow:
    """A broker whose disk takes its time: receipts come when told."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.receipts: list[asyncio.Future[object]] = []
        self._is_asked = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)

    async def asked(self, times: int) -> None:
        while len(self.receipts) < times:
            await asyncio.wait_for(self._is_asked.wait(), 60)
            self._is_asked.clear()

    def publish_nowait(self, topic: str, rows: object, *, qos: int, **rest: object) -> object:
        receipt: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.receipts.append(receipt)
        self._is_asked.set()
        return receipt


async def test_a_ping_is_answered_once_the_publishes_before_it_are_safe(clock: ManualClock) -> None:
    """There a publisher cannot know (B6), and a sync that fails is nobody's business (B7)."""
    broker = Broker(clock)
    slow = Slow(broker)
    as_broker: BrokerApi = slow  # type: ignore[assignment]
    server = BlipServer(as_broker)
    address = await server.start("127.0.0.1", 0)
    try:
        async with RawBlip(address) as client:
            await client.login()
            client.publish("demo", b"a", 1)
            client.send(PING, id=90)
            client.publish("demo", b"b", 1)
            client.send(PING, id=91)
            await slow.asked(1)
            answer = asyncio.ensure_future(client.next())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not answer.done()
            slow.receipts[0].set_result(None)
            assert (await answer).id == 90
            await slow.asked(2)
            slow.receipts[1].set_exception(StorageFailed("fsync", "journal", "EIO"))
            refused = await client.next()
            assert nack_of(refused) == (500, "durable publish failed: wal writer stopped")
            assert await client.next() == (PONG, 91, b"")
    finally:
        await server.close()
        await broker.close()


async def test_who_publishes_faster_than_the_disk_is_not_read_from(clock: ManualClock) -> None:
    """BlipMQ takes what fits its channel and refuses the rest (its B42)."""
    from flintmq.net.server.limits import Limits

    broker = Broker(clock)
    slow = Slow(broker)
    as_broker: BrokerApi = slow  # type: ignore[assignment]
    server = BlipServer(as_broker, limits=Limits(in_flight_bytes=1000))
    address = await server.start("127.0.0.1", 0)
    try:
        async with RawBlip(address) as client:
            await client.login()
            client.publish("demo", bytes(2000), 1)
            await slow.asked(1)
            client.publish("demo", b"waits", 1)
            await client.writer.drain()
            await asyncio.sleep(0.02)
            assert len(slow.receipts) == 1
            slow.receipts[0].set_result(None)
            await slow.asked(2)
            slow.receipts[1].set_result(None)
    finally:
        await server.close()
        await broker.close()


@pytest.mark.parametrize("options", [BlipOptions(queue_capacity=1)])
async def test_every_counter_counts(address: Address, server: BlipServer) -> None:
    """Those of BlipMQ stand at 0 for ever (its B25)."""
    async with RawBlip(address) as client, RawBlip(address) as pushed:
        await client.login()
        await pushed.login(2)
        await pushed.subscribe("demo", 1)
        number = await client.subscribe("demo", 1)
        lossy = await client.subscribe("demo", 0)
        for n in range(3):
            client.publish("demo", b"%d" % n, 1)
        await client.ping()
        assert await client.poll(number) is not None
        assert await client.poll(lossy) is not None
        for _ in range(3):
            await pushed.delivery()
        await client.refused(3, b"")

        figures = figures_of(server)
    assert figures["topics"] == figures["blipmq_topics"] == 1
    assert figures["subscribers"] == 3
    assert figures["messages_published_total"] == figures["blipmq_published"] == 3
    assert figures["messages_delivered_total"] == 5
    assert figures["messages_inflight"] == 4
    assert figures["wal_appends_total"] == 3
    assert figures["wal_bytes_total"] > 3
    assert figures["blipmq_push_dropped_total"] == 2
    assert figures["blipmq_flush_bytes"] > 100
    assert figures['flintmq_blip_refusals_total{code="400"}'] == 1
    assert figures['flintmq_blip_connections{version="2"}'] == 1


NAMES = {
    "second": (
        *("topics", "subscribers", "messages_published_total", "messages_delivered_total"),
        *("messages_inflight", "subscriber_expiration_heap_size", "subscriber_retry_heap_size"),
        *("wal_appends_total", "wal_bytes_total"),
    ),
    "first": (
        *("blipmq_published", "blipmq_enqueued", "blipmq_dropped_ttl"),
        *("blipmq_dropped_sub_queue_full", "blipmq_flush_bytes", "blipmq_flush_batches"),
    ),
    "later": (
        *("blipmq_topics", "blipmq_subscribers", "blipmq_messages_published_total"),
        *("blipmq_messages_delivered_total", "blipmq_messages_inflight"),
        *("blipmq_push_dropped_total", "blipmq_subscriber_expiration_heap_size"),
        *("blipmq_subscriber_retry_heap_size", "blipmq_wal_appends_total"),
        "blipmq_wal_bytes_total",
    ),
}


@pytest.mark.parametrize("generation", NAMES)
async def test_its_metrics_have_their_names(
    address: Address, server: BlipServer, generation: str
) -> None:
    assert set(NAMES[generation]) <= figures_of(server).keys()


def figures_of(server: BlipServer) -> dict[str, float]:
    collectors = server.collectors()
    page = Page(family for collector in collectors for family in collector.families)
    for collector in collectors:
        for _ in collector.collect(page):
            pass
    lines = b"".join(page.chunks(is_open=False)).decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


async def test_a_subscription_that_is_dead_ends_its_connection(
    address: Address, broker: Broker
) -> None:
    async with RawBlip(address) as client:
        await client.login(2)
        await client.subscribe("demo", 1)
        await broker.delete_topic("demo")
        assert await client.is_closed()
