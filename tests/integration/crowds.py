"""What many do at once to a broker, and what is dear for each message: loads of `longest_turn`.

Each does its work and ends; who has something to tell beside that returns it as a sentence.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import cycle

import flintmq

UNDER_WAY = 64
NOBODY = "headers.kind == 'nobody'"
FILLED_AT_ONCE = 10_000


async def _publish(clients: list[flintmq.Client], topics: list[str], count: int) -> None:
    """So many messages, each to the next topic over the next connection."""
    turns = zip(cycle(clients), cycle(topics), range(count), strict=False)

    async def work() -> None:
        for mq, topic, _ in turns:
            await mq.publish(topic, b"one of many")

    await asyncio.gather(*(work() for _ in range(UNDER_WAY)))


async def publish_to_topics(url: str, topics: int, count: int) -> None:
    async with flintmq.connect(url) as mq:
        names = [f"crowd-{number}" for number in range(topics)]
        for name in names:
            await mq.create_topic(name)
        await _publish([mq], names, count)


async def publish_over_connections(url: str, connections: int, count: int) -> None:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(flintmq.connect(url)) for _ in range(connections)
        ]
        await clients[0].create_topic("crowded")
        await _publish(clients, ["crowded"], count)


async def deliver_to_groups(url: str, groups: int, count: int) -> None:
    """Every message goes to all groups, which wait for it."""
    async with flintmq.connect(url) as mq:
        await mq.create_topic("parked")
        names = [f"group-{number}" for number in range(groups)]
        for name in names:
            await mq.poll("parked", name, 1)

        async def work(name: str) -> None:
            for _ in range(count):
                found = await mq.poll("parked", name, 1, wait=60)
                await found.ack()

        waiting = asyncio.gather(*map(work, names))
        for _ in range(count):
            await mq.publish("parked", b"for all")
        await waiting


async def fill_with_priorities(url: str, count: int) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("urgent", retention_bytes=None)
        for at in range(0, count, FILLED_AT_ONCE):
            numbers = range(at, min(count, at + FILLED_AT_ONCE))
            priorities = [number * 3 % 8 for number in numbers]
            await mq.publish_batch("urgent", [b"small"] * len(numbers), priority=priorities)


async def drain_by_priority(url: str) -> None:
    async with flintmq.connect(url) as mq:
        while found := await mq.poll("urgent", "drain", 256, order="priority"):
            await found.ack()


async def fill_with_headers(url: str, count: int) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("somebody", retention_bytes=None)
        for at in range(0, count, FILLED_AT_ONCE):
            values = [b"small"] * min(FILLED_AT_ONCE, count - at)
            await mq.publish_batch("somebody", values, headers={"kind": "somebody"})


async def wait_for_nobody(url: str, wait: float) -> str:
    """A poll with a filter that passes nothing comes back when its time is up, however much there
    is to be looked through."""
    async with flintmq.connect(url) as mq:
        began = time.perf_counter()
        found = await mq.poll("somebody", "nobody", wait=wait, filter=NOBODY)
        seconds = time.perf_counter() - began
        seen = (await mq.group_stats("somebody", "nobody")).lag
    return f"poll(wait={wait:g}) came back with {len(found)} after {seconds:.2f} s, {seen:,} left"


async def publish_alone(url: str, count: int) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("alone")
        for _ in range(count):
            await mq.publish("alone", b"x" * 100)
