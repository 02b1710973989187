"""A client whose clock is wrong: times that are said as durations count by the broker's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import flintmq
from flintmq.batch import RELATIVE, RecordBatch, RowSource
from flintmq.engine.broker import Broker
from flintmq.net.server.native import NativeServer
from flintmq.net.wire import hello
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock
from flintmq.testing.manual_clock import START_MS

Connect = Callable[[int], flintmq.Client]

SKEWS = [-60, 0, 60]
"""Seconds that the client's clock is ahead of the broker's."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[Broker]:
    broker = Broker(clock, Codec())
    yield broker
    await broker.close()


@pytest.fixture
async def server(broker: Broker) -> AsyncIterator[NativeServer]:
    server = NativeServer(broker)
    yield server
    await server.close()


@pytest.fixture
async def connect(server: NativeServer) -> Connect:
    host, port = await server.start("127.0.0.1", 0)

    def connect_with(skew: int) -> flintmq.Client:
        theirs = ManualClock(START_MS + skew * 1000)
        return flintmq.connect(f"flint://{host}:{port}", clock=theirs)

    return connect_with


async def read_all(mq: flintmq.Client) -> list[flintmq.Message]:
    async with mq.reader("orders", start="earliest") as reader:
        return list(await reader.read_batch(10, timeout=0))


@pytest.mark.parametrize("skew", SKEWS)
async def test_a_ttl_counts_from_when_the_broker_took_the_message_in(
    connect: Connect, clock: ManualClock, skew: int
) -> None:
    async with connect(skew) as mq:
        await mq.publish("orders", b"short", ttl=30)
        (found,) = await read_all(mq)
        assert found.value == b"short"
        assert found.expires_at == START_MS / 1000 + 30

        await clock.advance(31)
        assert await read_all(mq) == []


@pytest.mark.parametrize("skew", SKEWS)
async def test_a_delay_counts_from_when_the_broker_took_the_message_in(
    connect: Connect, clock: ManualClock, skew: int
) -> None:
    async with connect(skew) as mq:
        await mq.publish("orders", b"later", delay=1)
        assert await mq.poll("orders", "workers", wait=0) == []
        await clock.advance(1.1)
        assert (await mq.poll("orders", "workers", wait=0)).values == [b"later"]


@pytest.mark.parametrize("skew", SKEWS)
async def test_a_time_stays_the_time_it_is(connect: Connect, clock: ManualClock, skew: int) -> None:
    async with connect(skew) as mq:
        await mq.publish("orders", b"later", at=START_MS / 1000 + 30)
        await clock.advance(29)
        assert await mq.poll("orders", "workers", wait=0) == []
        await clock.advance(1)
        assert (await mq.poll("orders", "workers", wait=0)).values == [b"later"]


async def test_what_is_held_ahead_expires_by_the_clock_of_the_broker(connect: Connect) -> None:
    """A client that is an hour fast does not drop what it was just sent."""
    async with asyncio.timeout(10), connect(3600) as mq, mq.live("orders") as feed:
        await mq.create_topic("prices", ttl=30)
        await mq.publish("orders", b"own", ttl=30)
        assert (await feed.read()).value == b"own"
        await mq.publish("prices", b"of the topic")
        async with mq.reader("prices", start="earliest") as reader:
            assert (await reader.read()).value == b"of the topic"


async def test_times_and_durations_share_a_batch(connect: Connect, clock: ManualClock) -> None:
    async with connect(60) as mq:
        await mq.publish_batch("orders", [b"a", b"b", b"c"], ttl=[30, None, 3600])
        async with mq.publisher("orders") as publisher:
            publisher.send(b"d", delay=5)
            publisher.send(b"e", at=START_MS / 1000 + 10)
            publisher.send(b"f", ttl=1)
        now = START_MS / 1000
        found = await read_all(mq)
        assert [message.expires_at for message in found] == [
            *(now + 30, None, now + 3600),
            *(None, None, now + 1),
        ]
        assert [message.deliver_at for message in found] == [
            *(None, None, None),
            *(now + 5, now + 10, None),
        ]


# --- peers that do not know of durations


def stored(broker: Broker) -> list[RecordBatch | RowSource]:
    log = broker.shard.topics["orders"].log
    found, offset = [], log.first_offset
    while offset < log.next_offset:
        source, row, stop = log.locate(offset)
        found.append(source)
        offset += stop - row
    return found


async def test_an_older_client_is_sent_times(
    connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(0) as mq:
        await mq.publish("orders", b"short", ttl=30)
    assert stored(broker)[0].columns & RELATIVE

    monkeypatch.setattr("flintmq.net.remote.connection.client_hello", lambda: older_hello())
    async with connect(0) as mq:
        (found,) = await read_all(mq)
        assert not found._source.columns & RELATIVE
        assert found.expires_at == START_MS / 1000 + 30
        (polled,) = await mq.poll("orders", "workers")
        assert not polled._source.columns & RELATIVE


async def test_an_older_broker_is_sent_times_by_the_clock_of_the_client(
    connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "flintmq.net.server.connection.server_hello", lambda theirs: (older_hello(), True)
    )
    async with connect(10) as mq:
        await mq.publish("orders", b"short", ttl=30)
        (found,) = await read_all(mq)
    assert not stored(broker)[0].columns & RELATIVE
    assert found.expires_at == START_MS / 1000 + 40


def older_hello() -> bytes:
    return hello.HELLO.pack(hello.MAGIC, hello.VERSION, hello.VERSION, 0, 0)


async def test_a_publish_that_is_sent_again_is_the_same_byte_for_byte(
    connect: Connect, server: NativeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    publish = Broker.publish_nowait

    def lose(self: Broker, topic: str, rows: Any, **keywords: Any) -> Any:
        sent.append(bytes(rows.body))
        if len(sent) == 1:
            for session in list(server.sessions.values()):
                session.end()
            for connection in list(server.connections):
                connection.abort()
            raise flintmq.Closed("this one was lost")
        return publish(self, topic, rows, **keywords)

    async with connect(60) as mq:
        monkeypatch.setattr(Broker, "publish_nowait", lose)
        await mq.publish("orders", b"short", ttl=30, delay=1)
    assert len(sent) == 2
    assert sent[0] == sent[1]
