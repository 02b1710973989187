"""The end of a chaos run: settle what is left in the queues, then tell everything there is."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import flintmq

from ..story import Story
from .common import (
    EVENTS,
    GROUPS,
    Worker,
    connected,
    damaged_range,
    read_past_damage,
    rows_of,
)
from .queueing import LEASE_SECONDS, Poller
from .reading import NAME

DRAIN_SECONDS = 90.0
LETTERS_MAX = 10_000


async def drain(url: str, story: Story) -> None:
    """Take and ack until nothing is left of any group."""
    async with connected(url) as mq:
        for topic, group in GROUPS.items():
            give_up = time.monotonic() + DRAIN_SECONDS
            while time.monotonic() < give_up:
                if (await mq.group_stats(topic, group)).lag == 0:
                    break
                with suppress(flintmq.Corrupt):
                    await _drain_some(mq, story, topic)
        await _read_on_by_name(mq, story)


async def _read_on_by_name(mq: flintmq.Client, story: Story) -> None:
    facts = {"reader": "drain", "topic": EVENTS, "name": NAME}
    async with mq.reader(EVENTS, name=NAME) as reader:
        while rows := await read_past_damage(reader, 1000, 0):
            story.tell("read", rows=rows_of(rows), **facts)
            story.tell("keep", **facts)
            story.tell("kept", offset=await reader.commit(), **facts)


async def _drain_some(mq: flintmq.Client, story: Story, topic: str) -> None:
    worker = Worker(mq, story, random.Random(0), asyncio.Event())
    member = Poller(worker, topic, "drain", LEASE_SECONDS)
    asked_ns = time.monotonic_ns()
    messages = (await mq.poll(topic, GROUPS[topic], 256, LEASE_SECONDS, 0.5))[:]
    if messages:
        member.told(messages, LEASE_SECONDS, asked_ns)
        await member.settle(messages, "ack")


async def tell_everything(url: str, story: Story, look: int) -> None:
    async with connected(url) as mq:
        for topic in await mq.topics():
            await _tell_topic(mq, story, look, topic)
        for topic, group in GROUPS.items():
            stats = await mq.group_stats(topic, group)
            letters = await mq.dead_letters(topic, group, LETTERS_MAX)
            story.tell(
                "final_group",
                look=look,
                topic=topic,
                group=group,
                lag=stats.lag,
                letters=[[one.offset, *rows_of([one.message])[0][1:3]] for one in letters],
            )


async def _tell_topic(mq: flintmq.Client, story: Story, look: int, topic: str) -> None:
    before = await mq.topic_stats(topic)
    story.tell(
        "final_topic", look=look, topic=topic, first=before.first_offset, next=before.next_offset
    )
    async with mq.reader(topic, start="earliest", auto_create=False) as reader:
        while True:
            try:
                rows = await reader.read_batch(500, timeout=0)
            except flintmq.Corrupt as error:
                first, end = damaged_range(error, await reader.position(), before.next_offset)
                facts = {"first": first, "end": end, "text": str(error)[:300]}
                story.tell("final_damage", look=look, topic=topic, **facts)
                await reader.seek(end)
                continue
            if not rows:
                return
            story.tell("final_rows", look=look, topic=topic, rows=rows_of(rows))
