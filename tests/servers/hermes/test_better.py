"""Weaknesses of HermesMQ that we do not have. Those tests are named test_w1_... to test_w20_...
in all files here: `pytest tests/servers/hermes -k w13`. The rest are the cluster's, or the wire's;
docs/migrating/from-hermesmq.md has them all.
"""

from __future__ import annotations

import asyncio
import sys
import time
from types import FrameType
from typing import Any

import pytest

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.engine.broker import Broker
from flintmq.engine.leading.topic_figures import figures_of
from flintmq.frontends.hermes.server import HermesLimits, HermesServer
from flintmq.net.server.native import NativeServer
from flintmq.testing import ManualClock

from .client import HermesClient
from .conftest import Connect


async def test_w1_a_group_that_waits_misses_nothing_that_another_is_done_with(
    client: HermesClient, connect: Connect
) -> None:
    await client.call("create_topic", topic="t")
    assert await client.poll("t", "waits") == []
    await client.produce("t", b"x")
    (item,) = await client.poll("t", "fast")
    await client.ack("t", item.lease_id, "fast")

    assert await client.payloads("t", "waits") == [b"x"]
    assert await client.payloads("t", "comes later") == [b"x"]


@pytest.mark.parametrize("goodbye", ["close", "abort"])
async def test_w3_what_a_poller_had_comes_back_shortly_after_it_has_left(
    client: HermesClient, connect: Connect, clock: ManualClock, server: HermesServer, goodbye: str
) -> None:
    await client.produce("t", b"x")
    poller = await connect()
    await poller.poll("t", visibility_timeout_ms=600_000)
    await leave(poller, goodbye, server, 1)
    await clock.advance(4.9)
    assert await client.poll("t") == []
    await clock.advance(0.2)

    assert await client.payloads("t") == [b"x"]


async def test_w3_a_poller_that_comes_back_in_time_can_ack(
    client: HermesClient, connect: Connect, clock: ManualClock, server: HermesServer
) -> None:
    await client.produce("t", b"x")
    poller = await connect()
    (item,) = await poller.poll("t")
    await leave(poller, "abort", server, 1)
    await clock.advance(4)
    await client.ack("t", item.lease_id)
    await clock.advance(60)

    assert await client.poll("t") == []


@pytest.mark.parametrize("mode", ["manual", "auto"])
async def test_w3_a_parked_poll_of_a_dead_client_takes_nothing(
    client: HermesClient, connect: Connect, server: HermesServer, mode: str
) -> None:
    await client.call("create_topic", topic="t")
    poller = await connect()
    poller.send("poll", topic="t", group="g", wait_ms=60_000, ack_mode=mode)
    assert await poller.is_silent()
    poller.abort()
    await client.produce("t", b"x")

    assert await client.payloads("t", wait_ms=60_000) == [b"x"]


async def test_w3_so_do_many_of_them(
    client: HermesClient, connect: Connect, server: HermesServer
) -> None:
    await client.call("create_topic", topic="t")
    poller = await connect()
    for _ in range(100):
        poller.send("poll", topic="t", group="g", wait_ms=60_000, ack_mode="auto")
    assert await poller.is_silent()
    await leave(poller, "abort", server, 1)
    await client.produce("t", b"x")

    assert await client.payloads("t") == [b"x"]


async def test_w3_in_auto_mode_who_says_nothing_more_is_not_waited_for(
    client: HermesClient, connect: Connect
) -> None:
    """A client that has half closed may as well be gone: what it got would be lost for good."""
    await client.call("create_topic", topic="t")
    poller = await connect()
    poller.send("poll", topic="t", group="g", wait_ms=60_000, ack_mode="auto")
    assert await poller.is_silent()
    poller.writer.write_eof()
    assert list((await poller.read_ok()).items) == []
    await client.produce("t", b"x")

    assert await client.payloads("t") == [b"x"]


@pytest.mark.parametrize("priorities", [1, 8])
async def test_w4_a_poll_looks_at_what_it_takes_and_not_at_the_backlog(
    client: HermesClient, broker: Broker, priorities: int
) -> None:
    """Counted in lines of ours that are run, for one message polled and given back."""
    costs = []
    for topic, count in (("few", 100), ("many", 20_000)):
        await client.call("create_topic", topic=topic)
        rows = BatchBuilder()
        for number in range(count):
            rows.append_row(b"x", priority=number % priorities)
        await broker.publish(topic, rows, qos=1, auto_create=False, timeout=None)
        for _ in range(2):
            with LinesRun() as lines:
                (item,) = await client.poll(topic, max=1)
                await client.nack(topic, item.lease_id)
        costs.append(lines.count)

    assert 0 < costs[1] < 2 * costs[0]


async def test_w5_one_message_wakes_one_of_those_who_wait(
    client: HermesClient, connect: Connect, broker: Broker, server: HermesServer
) -> None:
    await client.call("create_topic", topic="t")
    waiting = [await connect() for _ in range(20)]
    for one in waiting:
        one.send("poll", topic="t", group="g", wait_ms=60_000)
    async with asyncio.timeout(60):
        while waiting_in(broker) < 20:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await client.produce("t", b"x")

    assert len((await waiting[0].read_ok()).items) == 1
    stats = await broker.group_stats("t", "g")
    assert (stats.delivered, stats.waiting) == (1, 19)


async def test_w5_nobody_looks_while_nothing_comes(
    client: HermesClient, connect: Connect, broker: Broker, clock: ManualClock
) -> None:
    """HermesMQ wakes each of them five times a second."""
    await client.call("create_topic", topic="t")
    waiting = [await connect() for _ in range(10)]
    for number, one in enumerate(waiting):
        if number % 2:
            one.send("poll", topic="t", group="g", wait_ms=60_000)
        else:
            one.send("subscribe", topic="t", group="g", prefetch=5)
    async with asyncio.timeout(60):
        while waiting_in(broker) < 10:  # noqa: ASYNC110
            await asyncio.sleep(0)
    for one in waiting:
        assert await one.is_silent(0.001)
    with LinesRun("/frontends/", "/net/", "/engine/", "/groups/") as lines:
        for _ in range(20):
            await clock.advance(1)

    assert lines.count == 0


@pytest.mark.parametrize("limits", [HermesLimits(reply_bytes=100_000)])
@pytest.mark.parametrize("mode", ["manual", "auto"])
async def test_w11_a_reply_is_never_larger_than_a_client_can_read(
    client: HermesClient, mode: str, clock: ManualClock
) -> None:
    for number in range(25):
        await client.produce("t", b"%02d" % number + bytes(29_998))
    got = []
    for _ in range(9):
        items = await client.poll("t", max=1000, ack_mode=mode)
        assert sum(len(item.payload) for item in items) <= 100_000
        got += [item.payload[:2] for item in items]

    assert got == [b"%02d" % number for number in range(25)]


@pytest.mark.parametrize("limits", [HermesLimits(reply_bytes=1000)])
async def test_w11_a_message_that_is_larger_than_that_comes_alone(client: HermesClient) -> None:
    for _ in range(3):
        await client.produce("t", bytes(5000))

    assert [len(await client.poll("t")) for _ in range(4)] == [1, 1, 1, 0]


async def test_w14_retention_needs_no_produce(client: HermesClient, clock: ManualClock) -> None:
    for _ in range(3):
        await client.produce("t", b"x")
    await client.call("set_retention", topic="t", max_messages=1)
    assert (await client.call("stats")).messages == 1
    await client.call("set_retention", topic="t", max_age_ms=1000)
    await clock.advance(2)

    assert await client.poll("t") == []


async def test_w15_a_hot_producer_takes_nobody_elses_window(
    client: HermesClient, broker: Broker
) -> None:
    first = await client.produce("t", b"x", producer_id="rare", seq=1)
    topic = broker.shard.topics["t"]
    topic.state.producers.add("hot", 0, 150_000, 1)  # as if it had sent so many

    assert await client.produce("t", b"x", producer_id="rare", seq=1) == first


async def test_w16_a_stale_ack_settles_nobody_elses_message(
    client: HermesClient, connect: Connect, clock: ManualClock
) -> None:
    await client.produce("t", b"x")
    other = await connect()
    (stale,) = await other.poll("t", visibility_timeout_ms=1000)
    await clock.advance(2)
    (ours,) = await client.poll("t")
    await other.ack("t", stale.lease_id)
    await other.nack("t", stale.lease_id)
    assert (await client.call("stats")).in_flight == 1
    await client.ack("t", ours.lease_id)

    assert (await client.call("stats")).messages == 0


async def test_w16_what_their_protocol_lacks_is_there_for_the_same_topics(
    client: HermesClient, broker: Broker, clock: ManualClock
) -> None:
    """Listing, peeking, replay, delays, counts of deliveries, dead letters and taking them back."""
    native = NativeServer(broker)
    host, port = await native.start("127.0.0.1", 0)
    async with flintmq.connect(f"flint://{host}:{port}") as mq:
        await client.produce("a/b", b"done")
        (item,) = await client.poll("a/b")
        await client.ack("a/b", item.lease_id)
        assert await mq.topics() == ["a%2Fb"]
        async with mq.reader("a%2Fb", start="earliest") as reader:
            assert (await reader.read_batch(10, timeout=60)).values == [b"done"]
        await mq.publish("a%2Fb", b"later", delay=5, headers={"region": "eu"}, key="k")
        assert await client.poll("a/b") == []
        await clock.advance(time.time() - clock.now_ms() / 1000 + 5)  # a client has its own clock
        await mq.configure_topic("a%2Fb", max_deliveries=2)
        for _ in range(2):
            (item,) = await client.poll("a/b")
            assert item.payload == b"later"
            await client.nack("a/b", item.lease_id)
        assert await client.poll("a/b") == []
        (dead,) = await mq.dead_letters("a%2Fb", "g")
        assert (dead.message.value, dead.delivery_count) == (b"later", 2)
        assert await mq.redrive("a%2Fb", "g") == 1
        (again,) = await mq.poll("a%2Fb", "g", max=1, wait=60)
        assert (again.value, again.headers["region"]) == (b"later", "eu")
    await native.close()


async def test_an_idle_server_gives_up_memberships_and_sleeps(
    client: HermesClient, clock: ManualClock, broker: Broker
) -> None:
    await client.produce("t", b"x")
    (item,) = await client.poll("t")
    await client.ack("t", item.lease_id)
    assert (await broker.group_stats("t", "g")).members == 1
    await clock.advance(31)

    assert (await broker.group_stats("t", "g")).members == 0
    assert clock.pending() == 0
    await client.produce("t", b"y")
    assert await client.payloads("t") == [b"y"]


class LinesRun:
    """Counts the lines of ours that are run, of all modules or of those in some places."""

    def __init__(self, *places: str) -> None:
        self._places = places or ("/flintmq/",)
        self.count = 0

    def __enter__(self) -> LinesRun:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "/flintmq/" not in name or not any(place in name for place in self._places):
            return None
        self.count += event == "line"
        return self._trace


def waiting_in(broker: Broker) -> int:
    """How many polls wait for a message of the topic."""
    return sum(group.waiting for group in figures_of(broker.shard.topics["t"]).groups)


async def leave(client: HermesClient, how: str, server: HermesServer, left: int) -> None:
    """Go, and wait until the server has noticed."""
    if how == "abort":
        client.abort()
    else:
        await client.close()
    async with asyncio.timeout(60):
        while len(server.connections) > left:  # noqa: ASYNC110
            await asyncio.sleep(0)
