"""Connections that break: everything goes on where it was, or says that it cannot."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

import flintmq
from flintmq.net.server.native import NativeServer

from .proxy import Proxy, Way

pytestmark = pytest.mark.slow

Seen = list[object]
Script = Callable[[str], Awaitable[Seen]]
_numbers = itertools.count()


async def _session(url: str) -> Seen:
    """A bit of everything; what it has seen in the end must not depend on the network."""
    seen: Seen = []
    async with flintmq.connect(url, timeout=60) as mq:
        info = await mq.create_topic("orders", retention_count=1000)
        seen.append(info.options.retention_count)
        seen.append([r.offset for r in [await mq.publish("orders", b"%d" % n) for n in range(5)]])
        batch = await mq.publish_batch("orders", [b"x" * 50] * 70)
        seen.append((batch.offset, batch.count, batch.duplicate))
        async with mq.reader("orders", name="n") as reader:
            seen.append((await reader.read_batch(3)).values)
            seen.append(await reader.commit())
            seen.append(await reader.position())
        async with mq.reader("orders", name="n") as reader:
            message = await reader.read()
            assert message is not None
            seen.append(message.offset)
            await reader.seek(70)
            seen.append((await reader.read_batch(100)).offsets)
        async with mq.reader("orders", start="latest") as reader:
            reading = asyncio.ensure_future(reader.read())
            receipts = await asyncio.gather(*(mq.publish("orders", b"%d" % n) for n in range(3)))
            seen.append([receipt.offset for receipt in receipts])
            message = await reading
            assert message is not None
            seen.append(message.offset)
        writer = f"writer {next(_numbers)}"
        await mq.stage(writer, 1, "part", {"orders": [b"staged"]})
        seen.append([r.offset for r in await mq.commit(writer, 1, ["part"])])
        stats = await mq.topic_stats("orders")
        seen.append((stats.message_count, stats.next_offset))
        await mq.delete_topic("orders")
        seen.append(await mq.topics())
    return seen


async def _queues(url: str) -> Seen:
    """The same for queues and live feeds. Topics are made anew each time."""
    seen: Seen = []
    async with flintmq.connect(url, timeout=60) as mq:
        await mq.create_topic("jobs", partitions=2)
        await mq.publish_batch("jobs", [b"%d" % n for n in range(10)], partition=1)
        first = await mq.poll("jobs", "workers", 4, lease=60)
        seen.append((first.values, [message.delivery_count for message in first]))
        await first[0].ack()
        await first[1].nack()
        await first[2].reject("no good")
        await first[3].extend(100)
        again = await mq.poll("jobs", "workers", 1, lease=60)
        seen.append((again.values, again[0].delivery_count))
        async with mq.subscribe("jobs", "workers", prefetch=3) as deliveries:
            for _ in range(6):
                message = await deliveries.read()
                assert message is not None
                seen.append((message.value, message.delivery_count))
                await message.ack()
        await mq.ack([*again, first[3]])
        stats = await mq.group_stats("jobs", "workers")
        seen.append((stats.lag, stats.settled, stats.redelivered, stats.dead_letters))
        seen.append([letter.message.value for letter in await mq.dead_letters("jobs", "workers")])
        seen.append(await mq.redrive("jobs", "workers"))
        seen.append((await mq.poll("jobs", "workers", 5, ack="auto")).values)
        async with mq.live("live.>") as feed:
            for n in range(3):
                await mq.publish(f"live.{n}", b"%d" % n)
            got: list[bytes] = []
            while len(got) < 3:
                got += (await feed.read_batch(2)).values
            seen.append(got)
        for topic in await mq.topics():
            await mq.delete_topic(topic)
    return seen


@pytest.mark.parametrize("script", [_session, _queues])
@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_connection_may_break_at_any_byte_of_a_session(
    url: str, proxy: Proxy, server: NativeServer, way: Way, script: Script
) -> None:
    expected = await script(url)
    length = proxy.passed[way]

    for position in range(1, length, 29):
        proxy.passed[way] = 0
        proxy.cut_at = (way, position)
        cuts = proxy.cuts
        try:
            got = await asyncio.wait_for(script(url), 60)
        except flintmq.Disconnected:
            assert position < 120, "only the first connect may fail, and says so"
            continue
        assert got == expected, f"cut {way} at byte {position} of {length}"
        # How many bytes a session takes depends on what shares a frame: a short one is not cut.
        assert proxy.cuts == cuts + 1 or proxy.passed[way] < position


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_broker_that_has_forgotten_the_session_is_asked_again(
    url: str, proxy: Proxy, server: NativeServer, way: Way
) -> None:
    """As after a restart: what may be repeated is repeated, and what may not says so."""
    expected = await _session(url)
    length = proxy.passed[way]

    def forget() -> None:
        for session in list(server.sessions.values()):
            session.end()

    proxy.on_cut = forget
    unknown = 0
    for position in range(130, length, 41):
        proxy.passed[way] = 0
        proxy.cut_at = (way, position)
        try:
            got = await asyncio.wait_for(_session(url), 60)
        except flintmq.OutcomeUnknown:
            unknown += 1
            async with flintmq.connect(url) as mq:
                if await mq.topics():
                    await mq.delete_topic("orders")
            continue
        assert got == expected, f"cut {way} at byte {position} of {length}"
    assert unknown < 10, "only to delete a topic may not be repeated"


@pytest.mark.parametrize("seed", range(4))
async def test_cuts_now_and_then_lose_and_double_nothing(url: str, proxy: Proxy, seed: int) -> None:
    async def cut_now_and_then() -> None:
        while True:
            await asyncio.sleep(0.01 + seed / 200)
            proxy.cut()

    got: list[int] = []

    async def read(mq: flintmq.Client) -> None:
        async with mq.reader("numbers") as reader:
            while len(got) < 2000:
                got.extend(map(int, (await reader.read_batch(100)).values))

    async with flintmq.connect(url) as mq, flintmq.connect(url) as other:
        cutting = asyncio.ensure_future(cut_now_and_then())
        try:
            reading = asyncio.ensure_future(asyncio.wait_for(read(other), 60))
            for start in range(0, 2000, 40):
                await asyncio.gather(
                    *(mq.publish("numbers", b"%d" % n) for n in range(start, start + 40))
                )
                await asyncio.sleep(0.005)
            await reading
            stats = await mq.topic_stats("numbers")
        finally:
            cutting.cancel()
    assert sorted(got) == list(range(2000))
    assert stats.message_count == 2000
    assert proxy.cuts > 3
