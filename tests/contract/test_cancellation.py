"""Cancelling any call at any point loses no message."""

from __future__ import annotations

import asyncio
import random

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


@pytest.mark.parametrize("name", [None, "n"])
@pytest.mark.parametrize("turns", range(5))
async def test_a_read_cancelled_right_when_a_message_comes_leaves_it_to_be_read(
    mq: flintmq.Client, background: Background, name: str | None, turns: int
) -> None:
    async with mq.reader("orders", name=name) as reader:
        reading = await background.waiting(reader.read())
        publishing = background.start(mq.publish("orders", b"x"))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        await publishing
        got: list[flintmq.Message | None] = [] if reading.cancelled() else [reading.result()]
        got.append(await reader.read(timeout=0))
        assert [message.value for message in got if message is not None] == [b"x"]


@pytest.mark.parametrize("turns", range(5))
async def test_the_same_holds_for_a_feed(
    mq: flintmq.Client, background: Background, turns: int
) -> None:
    async with mq.live("orders") as feed:
        reading = await background.waiting(feed.read_batch(10))
        publishing = background.start(mq.publish_batch("orders", [b"x", b"y"]))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        await publishing
        got = [] if reading.cancelled() else list(reading.result().values)
        got += (await feed.read_batch(timeout=0)).values
        assert got == [b"x", b"y"]


async def test_a_message_meant_for_a_cancelled_reader_goes_to_another_of_its_name(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
        first = await background.waiting(a.read())
        second = await background.waiting(b.read())
        await mq.publish("orders", b"x")
        first.cancel()
        await asyncio.wait([first])
        # Where publishing takes its time, the first may have been faster than we are.
        message = await second if first.cancelled() else first.result()
        assert message is not None
        assert message.value == b"x"


async def test_an_iteration_can_be_cancelled_and_begun_again(
    mq: flintmq.Client, background: Background
) -> None:
    got: list[bytes] = []
    async with mq.reader("orders") as reader:

        async def loop() -> None:
            async for message in reader:
                got.append(message.value)

        for n in range(5):
            looping = await background.waiting(loop())
            await mq.publish("orders", b"%d" % n)
            if n % 2:
                await background.settle()
            looping.cancel()
            await asyncio.wait([looping])
        looping = await background.waiting(loop())
        assert got == [b"%d" % n for n in range(5)]


async def test_wait_for_around_a_read_loses_nothing(mq: flintmq.Client) -> None:
    async with mq.reader("orders") as reader:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), timeout=0.001)
        await mq.publish("orders", b"x")
        message = await asyncio.wait_for(reader.read(), timeout=5)
        assert message is not None
        assert message.value == b"x"


@pytest.mark.parametrize("seed", range(8))
async def test_tasks_that_are_cancelled_at_any_turn_share_every_message_once(
    mq: flintmq.Client, seed: int
) -> None:
    chance = random.Random(seed)
    got: list[bytes] = []
    reader = await mq.reader("orders", name="n")
    other = await mq.reader("orders", name="n")

    async def take() -> None:
        source = chance.choice((reader, other))
        if chance.random() < 0.5:
            message = await source.read()
            assert message is not None
            got.append(message.value)
        else:
            got.extend((await source.read_batch(chance.randrange(1, 5))).values)

    published = 0
    tasks: list[asyncio.Task[None]] = []
    for _ in range(400):
        action = chance.randrange(4)
        if action == 0:
            tasks.append(asyncio.ensure_future(take()))
        elif action == 1 and tasks:
            chance.choice(tasks).cancel()
        elif action == 2:
            count = chance.randrange(1, 4)
            await mq.publish_batch("orders", [b"%d" % (published + n) for n in range(count)])
            published += count
        else:
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for source in (other, reader):
        while rows := await source.read_batch(10_000, timeout=0):
            got += rows.values
    assert sorted(map(int, got)) == list(range(published))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_publishes_that_are_cancelled_are_either_there_once_or_not_at_all(
    mq: flintmq.Client, clock: ManualClock, way: str, seed: int
) -> None:
    chance = random.Random(seed)
    await mq.create_topic("orders", retention_count=3, overflow="block")
    async with mq.reader("orders") as reader:
        read: list[bytes] = []
        tasks: dict[bytes, asyncio.Task[flintmq.Receipt]] = {}
        for n in range(300):
            action = chance.randrange(4)
            if action == 0:
                value = b"%d" % n
                tasks[value] = asyncio.ensure_future(mq.publish("orders", value, timeout=1000))
            elif action == 1 and tasks:
                chance.choice(list(tasks.values())).cancel()
            elif action == 2:
                read += (await reader.read_batch(chance.randrange(1, 3), timeout=0)).values
            else:
                await asyncio.sleep(0)
        while not all(task.done() for task in tasks.values()):
            read += (await reader.read_batch(timeout=0)).values
            await asyncio.sleep(0)
        await clock.settle()
        read += (await reader.read_batch(timeout=0)).values
        done = [value for value, task in tasks.items() if not task.cancelled()]
        # What has its place is not taken back: its publisher has left, it is there.
        assert set(done) <= set(read)
        assert read == [value for value in tasks if value in read]  # once, in the order begun
        assert (await mq.topic_stats("orders")).publishers_waiting == 0


async def test_a_cancelled_wait_leaves_no_timer_behind(
    mq: flintmq.Client, background: Background
) -> None:
    clock = background._clock
    await mq.create_topic("full", retention_count=1, overflow="block")
    await mq.publish("full", b"x")
    async with mq.reader("orders") as reader, mq.live("orders") as feed:
        waiting = [
            await background.waiting(reader.read(timeout=60)),
            await background.waiting(feed.read(timeout=60)),
        ]
        blocked = await background.waiting(mq.publish("full", b"y", timeout=60))
        assert clock.pending() >= 3  # over the network the client has one too
        for task in (*waiting, blocked):
            task.cancel()
        await background.settle()
        assert clock.pending() == 0
