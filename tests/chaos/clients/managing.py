"""Makes topics, changes them, purges and deletes them, and looks at the figures of others."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

import flintmq

from .common import EVENTS, GROUPS, RING, RING_COUNT, Worker, read_past_damage, rows_of, until_done

_lives = itertools.count()


async def run(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(2):
            topic = f"churn.{worker.story.worker}.{number}"
            tasks.create_task(until_done(worker, partial(churn, worker, topic)))
        tasks.create_task(until_done(worker, partial(look, worker)))


async def churn(worker: Worker, topic: str) -> None:
    """The lives of a topic. Whoever uses it is in here, so that one thing comes after another."""
    mq, chance = worker.mq, worker.chance
    await worker.change("create", topic, mq.create_topic(topic, retention_bytes=None))
    for _ in range(chance.randint(1, 6)):
        for _ in range(chance.randint(1, 5)):
            names = worker.names(chance.randint(1, 10))

            async def many(values: list[bytes]) -> flintmq.Receipt:
                return await mq.publish_batch(topic, values, auto_create=False)

            await worker.publish(topic, names, many, how="batch")
        await read_all(worker, topic)
        if worker.done.is_set():
            return
        match chance.randrange(4):
            case 0:
                await worker.change("purge", topic, mq.purge_topic(topic))
            case 1:
                limit = chance.choice((None, 3600, 7200))
                await worker.change(
                    "configure", topic, mq.configure_topic(topic, retention_age=limit)
                )
        await worker.pause(0.1)
    await worker.change("delete", topic, mq.delete_topic(topic))
    await worker.pause(0.1)


async def read_all(worker: Worker, topic: str) -> None:
    life = f"{worker.story.worker}/{topic}/{next(_lives)}"
    async with worker.mq.reader(topic, auto_create=False) as reader:
        while rows := await read_past_damage(reader, 1000, 0):
            worker.story.tell("read", reader=life, topic=topic, name=None, rows=rows_of(rows))
    worker.story.tell("reader_ends", reader=life)


async def look(worker: Worker) -> None:
    mq = worker.mq
    await worker.pause(0.3)
    for topic in (RING, EVENTS):
        stats = await mq.topic_stats(topic)
        worker.story.tell("stats", topic=topic, first=stats.first_offset, next=stats.next_offset)
    for topic, group in GROUPS.items():
        await mq.group_stats(topic, group)
        await mq.peek(topic, group, 5)
        await mq.in_flight(topic, group)
    await worker.change("configure", RING, mq.configure_topic(RING, retention_count=RING_COUNT))
