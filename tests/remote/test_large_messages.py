"""Messages of all sizes: a reply carries what fits, and the rest comes with the next."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

import flintmq
from flintmq.engine.broker import Broker
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.serde.codec import Codec


@pytest.fixture
async def mq() -> AsyncIterator[flintmq.Client]:
    broker = Broker(None, Codec())
    server = NativeServer(broker, limits=Limits(frame_bytes=1024 * 1024, delivery_bytes=20_000))
    host, port = await server.start("127.0.0.1", 0)
    async with flintmq.connect(f"flint://{host}:{port}") as client:
        yield client
    await server.close()
    await broker.close()


def _values(count: int, seed: int = 3) -> list[bytes]:
    chance = random.Random(seed)
    sizes = (0, 10, 100, 3_000, 30_000, 900_000)
    weights = (10, 30, 30, 10, 5, 1)
    return [b"%d:" % n + bytes(chance.choices(sizes, weights)[0]) for n in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "n"])
@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_readers_get_everything_in_order_whatever_its_size(
    mq: flintmq.Client, name: str | None, step: int
) -> None:
    values = _values(300)
    for start in range(0, 300, 10):
        for value in values[start : start + 10]:
            await mq.publish("orders", value)
    got: list[bytes] = []
    async with mq.reader("orders", name=name) as reader:
        while len(got) < 300:
            rows = await reader.read_batch(step, timeout=60)
            assert len(rows) == min(step, 300 - len(got))
            got += rows.values
            assert await reader.position() == len(got)
            assert await reader.lag() == 300 - len(got)
        if name is not None:
            assert await reader.commit() == 300
    assert got == values


async def test_a_reader_that_closes_early_leaves_the_rest_to_others(mq: flintmq.Client) -> None:
    values = [b"%d" % n + bytes(5000) for n in range(100)]
    await mq.publish_batch("orders", values)
    async with mq.reader("orders", name="n") as keeps, mq.reader("orders", name="n") as leaves:
        first = (await leaves.read_batch(10)).values
        assert len(first) == 10
        assert await leaves.commit() == len(first)
        await leaves.close()
        got = list(first)
        while rows := await keeps.read_batch(100, timeout=0):
            got += rows.values
    assert got == values


async def test_queues_lease_what_a_reply_can_carry(mq: flintmq.Client) -> None:
    values = _values(200, seed=5)
    for value in values:
        await mq.publish("jobs", value)
    got: list[bytes] = []
    while found := await mq.poll("jobs", "workers", 200):
        got += found.values
        assert (await mq.group_stats("jobs", "workers")).in_flight == len(found)
        await found.ack()
    assert got == values
    stats = await mq.group_stats("jobs", "workers")
    assert (stats.lag, stats.redelivered) == (0, 0)


async def test_a_feed_gets_everything_too(mq: flintmq.Client) -> None:
    values = _values(200, seed=7)
    async with mq.live("orders", capacity=1000) as feed:
        for value in values:
            await mq.publish("orders", value)
        got: list[bytes] = []
        while rows := await feed.read_batch(1000, timeout=0):
            got += rows.values
    assert got == values


async def test_a_message_that_fits_no_frame_is_refused_here(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.MessageTooLarge, match="frame_bytes"):
        await mq.publish("orders", bytes(1024 * 1024))
    with pytest.raises(flintmq.MessageTooLarge, match="frame_bytes"):
        await mq.publish_batch("orders", [bytes(100_000)] * 20)
    assert (await mq.publish("orders", bytes(1_000_000))).offset == 0
