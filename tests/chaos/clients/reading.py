"""Readers with a name and without one, and live feeds."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

from flintmq.model import Start

from .common import (
    BRIEF,
    EVENTS,
    LEDGERS,
    ONCE,
    RING,
    VAULT,
    Worker,
    read_past_damage,
    rows_of,
    until_done,
)

NAME = "auditors"
_lives = itertools.count()


async def run(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        for topic in (EVENTS, BRIEF, RING, VAULT, ONCE, *LEDGERS):
            tasks.create_task(until_done(worker, partial(read, worker, topic, None)))
        for _ in range(2):
            tasks.create_task(until_done(worker, partial(read, worker, EVENTS, NAME)))
        tasks.create_task(until_done(worker, partial(watch, worker)))


async def read(worker: Worker, topic: str, name: str | None) -> None:
    """A life of a reader: on through the topic, with commits where it has a name."""
    life = f"{worker.story.worker}/{topic}/{next(_lives)}"
    story, chance = worker.story, worker.chance
    start: Start | None = None if name else chance.choice(("earliest", "latest"))
    async with worker.mq.reader(topic, name=name, start=start) as reader:
        for _ in range(chance.choice((3, 30, 300))):
            rows = await read_past_damage(reader, chance.choice((1, 30, 300)), 0.5)
            if len(rows):
                story.tell("read", reader=life, topic=topic, name=name, rows=rows_of(rows))
            if name and len(rows) and chance.random() < 0.5:
                story.tell("keep", reader=life, topic=topic, name=name)
                offset = await reader.commit()
                story.tell("kept", reader=life, topic=topic, name=name, offset=offset)
            if worker.done.is_set():
                break
            await worker.pause(0.02)
        if name:
            story.tell("keep", reader=life, topic=topic, name=name)
            offset = await reader.commit()
            story.tell("kept", reader=life, topic=topic, name=name, offset=offset)
    story.tell("reader_ends", reader=life)


async def watch(worker: Worker) -> None:
    life = f"{worker.story.worker}/live/{next(_lives)}"
    async with worker.mq.live(">", capacity=10_000) as feed:
        for _ in range(300):
            rows = await feed.read_batch(200, timeout=0.5)
            told = [[message.topic, *row] for message, row in zip(rows, rows_of(rows), strict=True)]
            if told:
                worker.story.tell("feed", feed=life, rows=told)
            if worker.done.is_set():
                return
