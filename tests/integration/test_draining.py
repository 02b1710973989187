"""A broker that is told to stop waits for what consumers have in work, so long and no longer."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import flintmq
from tests.patience import free_port, until
from tests.servers.blip.raw import RawBlip
from tests.servers.hermes.client import HermesClient

from .served import Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    made: list[Served] = []
    listen = f"127.0.0.1:{free_port()}"

    def make(*arguments: str) -> Served:
        made.append(Served(tmp_path / "data", *arguments, listen=listen))
        return made[-1]

    yield make
    for broker in made:
        await broker.leave()


async def is_told(broker: Served, mq: flintmq.Client) -> None:
    """Have it told to stop, and wait until it refuses what is new."""
    broker.process.send_signal(signal.SIGTERM)

    async def refuses() -> bool:
        try:
            async with flintmq.connect(broker.url, timeout=1):
                return False
        except flintmq.Disconnected:
            return True

    await until(refuses, "it does not stop")
    assert broker.process.returncode is None, "it is to wait"


async def test_what_is_in_work_is_settled_before_it_stops_and_what_was_taken_ahead_goes_back(
    serve: Serve,
) -> None:
    broker = await serve("--drain-seconds", "60").start()
    async with flintmq.connect(broker.url, timeout=60) as mq:
        await mq.publish_batch("jobs", [b"%d" % n for n in range(30)])
        async with mq.subscribe("jobs", "workers", prefetch=20) as deliveries:
            message = await deliveries.read()
            polled = await mq.poll("jobs", "workers", 2, lease=600)
            await is_told(broker, mq)
            polling = asyncio.ensure_future(mq.poll("jobs", "workers", 1))
            await message.ack()
            await polled.ack()
            assert await broker.wait(30) == 0, "long before its time is up"
            assert await broker.complaints() == []
            await broker.start()

            again = await polling
            assert [one.delivery_count for one in again] == [1], "nobody had seen it"
            await again.ack()
            left = {b"%d" % n for n in range(30)} - {message.value, *polled.values, *again.values}
            while left:
                other = await deliveries.read(timeout=30)
                assert other is not None
                assert other.delivery_count == 1
                left.remove(other.value)
                await other.ack()


async def test_nothing_is_waited_for_where_nothing_is_in_work(serve: Serve) -> None:
    broker = await serve("--drain-seconds", "600").start()
    async with flintmq.connect(broker.url) as mq:
        await mq.publish_batch("jobs", [b"0", b"1"])
        await (await mq.poll("jobs", "workers", 1)).ack()
        async with mq.subscribe("jobs", "others", prefetch=2) as deliveries:

            async def is_out() -> bool:
                return (await mq.group_stats("jobs", "others")).in_flight == 2

            await until(is_out, "it has not taken ahead")
            assert await broker.end(signal.SIGTERM, seconds=60) == 0, "nobody has seen those"
            assert deliveries.read_batch_nowait() == []


async def test_who_does_not_settle_is_waited_for_so_long_and_no_longer(serve: Serve) -> None:
    broker = await serve("--drain-seconds", "0.3").start()
    async with flintmq.connect(broker.url, timeout=60) as mq:
        await mq.publish("jobs", b"0")
        found = await mq.poll("jobs", "workers", 1, lease=600)
        assert await broker.end(signal.SIGTERM, seconds=60) == 0
        await broker.start()

        await found.ack()
        assert (await mq.group_stats("jobs", "workers")).lag == 0


async def test_hermesmqs_clients_can_settle_what_they_polled_and_what_was_pushed(
    serve: Serve,
) -> None:
    port = free_port()
    broker = await serve("--drain-seconds", "60", "--hermes", f"127.0.0.1:{port}").start()
    async with (
        await HermesClient.connect(("127.0.0.1", port)) as client,
        await HermesClient.connect(("127.0.0.1", port)) as subscriber,
        flintmq.connect(broker.url, timeout=60) as mq,
    ):
        for _ in range(2):
            await client.produce("t", b"x")
        (polled,) = await client.poll("t", max=1, visibility_timeout_ms=600_000)
        subscriber.send("subscribe", topic="t", group="g", visibility_timeout_ms=600_000)
        pushed = await subscriber.pushed()
        await is_told(broker, mq)
        await client.ack("t", polled.lease_id)
        subscriber.send("ack", topic="t", group="g", lease_id=pushed.lease_id)

        assert await broker.wait(30) == 0
        assert await subscriber.is_closed()
        await broker.start()
        assert (await mq.group_stats("t", "g")).lag == 0


@pytest.mark.parametrize("version", [1, 2])
async def test_blipmqs_clients_can_settle_what_they_have(serve: Serve, version: int) -> None:
    port = free_port()
    arguments = ("--drain-seconds", "60", "--blip", f"127.0.0.1:{port}")
    broker = await serve(*arguments, "--blip-retry-backoff", "600").start()
    async with (
        RawBlip(("127.0.0.1", port)) as client,
        flintmq.connect(broker.url, timeout=60) as mq,
    ):
        await client.login(version)
        number = await client.subscribe("t", 1, group=None if version == 1 else "g")
        for _ in range(3):
            await mq.publish("t", b"x")
        if version == 1:
            polled = await client.poll(number)
            assert polled is not None
            tags = [polled.tag]
        else:
            tags = [(await client.delivery()).tag for _ in range(3)]
        await is_told(broker, mq)
        for tag in tags:
            client.ack(number, tag)

        assert await broker.wait(30) == 0
        await broker.start()
        group = f"blip-{number}" if version == 1 else "g"
        assert (await mq.group_stats("t", group)).lag == 3 - len(tags)
