"""Publishes in every way there is: one, many, through a publisher, once, staged."""

from __future__ import annotations

import asyncio
from typing import Any

import flintmq

from ..checker.content import value_of
from .common import BRIEF, EVENTS, JOBS, KEYED, LEDGERS, ONCE, RING, VAULT, Worker

KEYS = 8
TTLS = (None, None, 0.5, 1.0, 3600.0)


async def run(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        for task in (
            singles,
            hasty,
            batches,
            through_publisher,
            jobs,
            keyed,
            once,
            ring,
            brief,
            vault,
        ):
            tasks.create_task(task(worker))
        tasks.create_task(staged(worker))


async def singles(worker: Worker) -> None:
    async def one(values: list[bytes]) -> flintmq.Receipt:
        return await worker.mq.publish(EVENTS, values[0])

    while not worker.done.is_set():
        many = worker.chance.choice((1, 1, 5))
        await asyncio.gather(
            *(worker.publish(EVENTS, worker.names(1), one, how="single") for _ in range(many))
        )
        await worker.pause(0.02)


async def hasty(worker: Worker) -> None:
    """Gives up soon, so that some are refused and of some nobody knows."""

    async def one(values: list[bytes]) -> flintmq.Receipt:
        return await worker.mq.publish(EVENTS, values[0], timeout=0.2)

    while not worker.done.is_set():
        await worker.publish(EVENTS, worker.names(1), one, how="hasty")
        await worker.pause(0.05)


async def batches(worker: Worker) -> None:
    while not worker.done.is_set():
        names = worker.names(worker.chance.randint(1, 40))
        compression = worker.chance.choice(("none", "none", "lz4"))
        keys: list[Any] = [worker.chance.choice((None, "a", "b")) for _ in names]

        async def many(
            values: list[bytes], compression: str = compression, keys: list[Any] = keys
        ) -> flintmq.Receipt:
            return await worker.mq.publish_batch(
                EVENTS, values, key=keys, batch_compression=compression
            )

        await worker.publish(EVENTS, names, many, how="batch", keys=keys)
        await worker.pause(0.05)


async def through_publisher(worker: Worker) -> None:
    while not worker.done.is_set():
        async with worker.mq.publisher(EVENTS) as publisher:
            for _ in range(50):
                if worker.done.is_set():
                    return

                async def send(
                    values: list[bytes], publisher: flintmq.Publisher = publisher
                ) -> flintmq.Receipt | None:
                    for value in values:
                        publisher.send(value)
                    await publisher.flush()
                    return None

                names = worker.names(worker.chance.randint(1, 20))
                if (await worker.publish(EVENTS, names, send, how="publisher")) is None:
                    await worker.pause(0.05)


async def jobs(worker: Worker) -> None:
    """For a queue: priorities, delays, and delayed ones that are cancelled."""
    chance = worker.chance
    while not worker.done.is_set():
        names = worker.names(chance.choice((1, 1, 4)))
        priorities = [chance.choice((0, 0, 3, 7)) for _ in names]
        delay = chance.choice((None, None, None, 0.2, 1.0))

        async def many(
            values: list[bytes], priorities: list[int] = priorities, delay: float | None = delay
        ) -> flintmq.Receipt:
            return await worker.mq.publish_batch(JOBS, values, priority=priorities, delay=delay)

        receipt = await worker.publish(
            JOBS, names, many, how="batch", priorities=priorities, delay=delay
        )
        if receipt is not None and delay == 1.0 and chance.random() < 0.3:
            await worker.change(
                "cancel", JOBS, worker.mq.cancel(receipt), names=names, offset=receipt.offset
            )
        await worker.pause(0.05)


async def keyed(worker: Worker) -> None:
    while not worker.done.is_set():
        key = f"k{worker.chance.randrange(KEYS)}"

        async def one(values: list[bytes], key: str = key) -> flintmq.Receipt:
            return await worker.mq.publish(KEYED, values[0], key=key)

        await worker.publish(KEYED, worker.names(1), one, how="single", keys=[key])
        await worker.pause(0.06)


async def once(worker: Worker) -> None:
    """With a producer and a sequence; each is repeated until it has a receipt, and at times after
    that."""
    producer, sequence = f"p-{worker.story.worker}", 0
    while not worker.done.is_set():
        names = worker.names(worker.chance.choice((1, 1, 6)))
        size, first = worker.chance.choice((8, 200)), sequence
        sequence += len(names)

        async def many(values: list[bytes], first: int = first) -> flintmq.Receipt:
            return await worker.mq.publish_batch(
                ONCE, values, producer=producer, sequence=first, timeout=3
            )

        receipts = 0
        while receipts < 1 or worker.chance.random() < 0.15:
            receipt = await worker.publish_sized(
                ONCE, names, size, many, how="once", producer=producer, sequence=first
            )
            receipts += receipt is not None
            if receipt is None:
                if worker.done.is_set():
                    return
                await worker.pause(0.2)
        await worker.pause(0.03)


async def ring(worker: Worker) -> None:
    """Retention takes the oldest of these."""
    while not worker.done.is_set():
        names = worker.names(worker.chance.randint(1, 12))

        async def many(values: list[bytes]) -> flintmq.Receipt:
            return await worker.mq.publish_batch(RING, values)

        await worker.publish(RING, names, many, how="batch")
        await worker.pause(0.05)


async def brief(worker: Worker) -> None:
    """Some expire soon, some late, some never."""
    while not worker.done.is_set():
        ttl = worker.chance.choice(TTLS)

        async def one(values: list[bytes], ttl: float | None = ttl) -> flintmq.Receipt:
            return await worker.mq.publish(BRIEF, values[0], ttl=ttl)

        await worker.publish(BRIEF, worker.names(1), one, how="single", ttl=ttl)
        await worker.pause(0.05)


async def vault(worker: Worker) -> None:
    """Large ones, so that there are segments of some size."""
    while not worker.done.is_set():
        names = worker.names(8)

        async def many(values: list[bytes]) -> flintmq.Receipt:
            return await worker.mq.publish_batch(VAULT, values)

        await worker.publish_sized(VAULT, names, 6000, many, how="batch")
        await worker.pause(0.3)


async def staged(worker: Worker) -> None:
    """Two topics, two parts, one commit; at times an abort, or a commit repeated."""
    story, mq, chance = worker.story, worker.mq, worker.chance
    writer, number = f"s-{story.worker}", 0
    while not worker.done.is_set():
        number += 1
        parts = ("one", "two")[: chance.choice((1, 2, 2))]
        size = chance.choice((8, 200))
        for part in parts:
            batches = {topic: worker.names(chance.randint(1, 5)) for topic in LEDGERS}
            values = {
                topic: [value_of(name, size) for name in names] for topic, names in batches.items()
            }
            op = story.next_op()
            facts: dict[str, Any] = {"writer": writer, "number": number, "part": part}
            story.tell("stage", op=op, size=size, batches=batches, **facts)
            while True:
                try:
                    await mq.stage(writer, number, part, values)
                except flintmq.FlintError as error:
                    worker.failed(op, error)
                    if worker.done.is_set():
                        return
                    await worker.pause(0.2)
                    continue
                story.tell("staged", op=op)
                break
        if chance.random() < 0.1:
            await _end_of_stage(worker, "abort", writer, number, ())
            continue
        while not await _end_of_stage(worker, "commit", writer, number, parts):
            if worker.done.is_set():
                return
            await worker.pause(0.2)
        if chance.random() < 0.2:
            await _end_of_stage(worker, "commit", writer, number, parts)
        await worker.pause(0.1)


async def _end_of_stage(
    worker: Worker, verb: str, writer: str, number: int, parts: tuple[str, ...]
) -> bool:
    story, op = worker.story, worker.story.next_op()
    story.tell(verb, op=op, writer=writer, number=number, parts=list(parts))
    try:
        if verb == "abort":
            await worker.mq.abort(writer, number)
            story.tell("aborted", op=op)
        else:
            receipts = await worker.mq.commit(writer, number, parts)
            told = [[one.topic, one.offset, one.count, one.duplicate] for one in receipts]
            story.tell("committed", op=op, receipts=told)
    except flintmq.FlintError as error:
        worker.failed(op, error)
        return False
    return True
