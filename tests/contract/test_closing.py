"""Closing: everything held is given back, everybody who waits is told, twice is fine."""

from __future__ import annotations

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background
from tests.contract.conftest import Connect
from tests.contract.over_blocking import async_side


async def _collect(stream: flintmq.Reader | flintmq.Feed) -> list[bytes]:
    return [message.value async for message in stream]


async def test_closing_a_reader_ends_what_waits_in_it(
    mq: flintmq.Client, background: Background
) -> None:
    reader = await mq.reader("orders")
    reading = await background.waiting(reader.read())
    batching = await background.waiting(reader.read_batch(10, timeout=60))
    await reader.close()
    for task in (reading, batching):
        with pytest.raises(flintmq.Closed):
            await task


@pytest.mark.parametrize("kind", ["reader", "named", "feed"])
async def test_closing_ends_an_iteration_without_an_error(
    mq: flintmq.Client, background: Background, kind: str
) -> None:
    stream: flintmq.Reader | flintmq.Feed
    if kind == "feed":
        stream = await mq.live("orders")
    else:
        stream = await mq.reader("orders", name="n" if kind == "named" else None)
    collecting = await background.waiting(_collect(stream))
    await mq.publish("orders", b"x")
    await background.settle()
    await stream.close()
    assert await collecting == [b"x"]
    assert await _collect(stream) == []


async def test_events_end_with_their_reader(mq: flintmq.Client, background: Background) -> None:
    reader = await mq.reader("orders")

    async def collect() -> list[object]:
        return [event async for event in reader.events()]

    collecting = await background.waiting(collect())
    await reader.close()
    assert await collecting == []


async def test_a_closed_reader_says_so(mq: flintmq.Client) -> None:
    async with mq.reader("orders", name="n") as reader:
        pass
    with pytest.raises(flintmq.Closed):
        (await reader.read(timeout=0))
    for call in (reader.read, reader.read_batch, reader.position, reader.lag, reader.commit):
        with pytest.raises(flintmq.Closed):
            await call()
    with pytest.raises(flintmq.Closed):
        await reader.seek(0)
    with pytest.raises(flintmq.Closed):
        await reader
    await reader.close()


async def test_closing_one_reader_of_a_name_leaves_the_others(
    mq: flintmq.Client, background: Background
) -> None:
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    reading_a = await background.waiting(a.read())
    reading_b = await background.waiting(b.read())
    await a.close()
    with pytest.raises(flintmq.Closed):
        await reading_a
    assert not reading_b.done()
    await mq.publish("orders", b"x")
    message = await reading_b
    assert message is not None
    assert message.value == b"x"


async def test_an_unnamed_reader_leaves_nothing_behind(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"x")
    async with mq.reader("orders"):
        assert len((await mq.topic_stats("orders")).lag) == 1
    stats = await mq.topic_stats("orders")
    assert (stats.lag, stats.missed, stats.subscribers) == ({}, {}, 0)


async def test_a_reader_that_closes_lets_go_of_what_it_held_back(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    slow, fast = await mq.reader("orders"), await mq.reader("orders")
    await mq.publish("orders", b"0")
    await fast.read()
    publishing = await background.waiting(mq.publish("orders", b"1"))
    await slow.close()
    assert (await publishing).offset == 1


async def test_an_error_in_the_block_closes_too(mq: flintmq.Client) -> None:
    await mq.create_topic("orders")
    with pytest.raises(ZeroDivisionError):
        async with mq.reader("orders"), mq.live("orders"):
            raise ZeroDivisionError
    assert (await mq.topic_stats("orders")).subscribers == 0


async def test_closing_the_connection_closes_everything_of_it(
    connect: Connect, background: Background, clock: ManualClock
) -> None:
    mq = await connect()
    await mq.create_topic("full", retention_count=1, overflow="block", retention_age=60)
    await mq.publish("full", b"x")
    await mq.publish("orders", b"later", delay=60)
    reader, feed = await mq.reader("orders", start="latest"), await mq.live("orders")
    reading = await background.waiting(reader.read(timeout=60))
    collecting = await background.waiting(_collect(feed))
    publishing = await background.waiting(mq.publish("full", b"y"))

    await mq.close()

    with pytest.raises(flintmq.Closed):
        await reading
    assert await collecting == []
    with pytest.raises(flintmq.Closed):
        await publishing
    assert clock.pending() == 0
    await mq.close()


async def test_a_closed_connection_says_so(connect: Connect) -> None:
    async with connect() as mq:
        await mq.publish("orders", b"x")
    with pytest.raises(flintmq.Closed):
        await mq.publish("orders", b"x")
    with pytest.raises(flintmq.Closed):
        await mq.publish_batch("orders", [b"x"])
    with pytest.raises(flintmq.Closed):
        await mq.publish_many([("orders", b"x")])
    for call in (mq.create_topic, mq.configure_topic, mq.delete_topic, mq.topic_stats):
        with pytest.raises(flintmq.Closed):
            await call("orders")
    with pytest.raises(flintmq.Closed):
        await mq.topics()
    with pytest.raises(flintmq.Closed):
        await mq.reader("orders")
    with pytest.raises(flintmq.Closed):
        await mq.live("orders")
    with pytest.raises(flintmq.Closed):
        mq.publisher("orders")
    with pytest.raises(flintmq.Closed):
        async with mq:
            pass


async def test_a_connection_can_be_awaited(connect: Connect) -> None:
    mq = await connect()
    assert (await mq.publish("orders", b"x")).offset == 0
    await mq.close()


@pytest.mark.parametrize("url", ["", "memory:", "redis://x", "memory://shared", "memory"])
async def test_a_url_that_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        flintmq.connect(url)


async def test_a_part_that_cannot_be_closed_keeps_nothing_else_open(
    mq: flintmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await mq.reader("orders")
    feed = await mq.live("orders")

    async def fails(closer: object) -> None:
        raise flintmq.OutcomeUnknown("by chance")

    monkeypatch.setattr(async_side(reader), "_close_for", fails)
    closed: list[str] = []
    broker = async_side(mq)._broker
    close = broker.close

    async def close_broker() -> None:
        await close()
        closed.append("broker")

    monkeypatch.setattr(broker, "close", close_broker)
    with pytest.raises(flintmq.OutcomeUnknown, match="by chance"):
        await mq.close()

    assert closed == ["broker"]
    with pytest.raises(flintmq.Closed):
        await feed.read()
