"""The process that is killed: publishers and a reader on one data directory, telling what they do.

Lines on standard output, each written at once and whole:

    O <seconds>                          the broker is open
    T <topic> <worker> <first> <count>   about to publish these
    A <topic> <worker> <first> <count> <offset> <duplicate 0|1>   acknowledged; offset -1: not told
    N <offset>                           the named reader's position when it was opened
    t <offset>   c <offset>              about to commit a position; committed
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

import flintmq
from flintmq.client.client import Client
from flintmq.engine.host import durable_broker
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem

CHECKPOINT_BYTES = 96 << 10
JOURNAL_FILE_BYTES = 256 << 10
READER = "kept"
ONCE = "once"
"""The topic whose publishes have a producer and a sequence, and are sent again after a crash."""


def value_of(worker: str, number: int) -> bytes:
    """Recognizable, of a length that varies, and with no byte that could be another's."""
    name = f"{worker} {number} ".encode()
    return name + name * (number * 7919 % 23)


def connect(directory: Path) -> Client:
    codec = Codec()
    broker = durable_broker(
        LocalFileSystem(directory),
        decoder=codec,
        checkpoint_bytes=CHECKPOINT_BYTES,
        journal_file_bytes=JOURNAL_FILE_BYTES,
    )
    return Client(broker, codec, auto_create=True, timeout=30)


def tell(*facts: object) -> None:
    os.write(1, (" ".join(map(str, facts)) + "\n").encode())


async def singly(mq: Client, topic: str, worker: str) -> None:
    number = 0
    while True:
        tell("T", topic, worker, number, 1)
        receipt = await mq.publish(topic, value_of(worker, number))
        tell("A", topic, worker, number, 1, receipt.offset, 0)
        number += 1


async def in_batches(mq: Client, topic: str, worker: str, chance: random.Random) -> None:
    number = 0
    while True:
        count = chance.choice((1, 3, 10, 40, 80))
        tell("T", topic, worker, number, count)
        receipt = await mq.publish_batch(
            topic, [value_of(worker, n) for n in range(number, number + count)]
        )
        tell("A", topic, worker, number, count, receipt.offset, 0)
        number += count
        await asyncio.sleep(chance.random() / 100)


async def by_publisher(mq: Client, topic: str, worker: str, chance: random.Random) -> None:
    number = 0
    async with mq.publisher(topic) as publisher:
        while True:
            count = chance.randint(1, 60)
            tell("T", topic, worker, number, count)
            for n in range(number, number + count):
                publisher.send(value_of(worker, n))
            await publisher.flush()
            tell("A", topic, worker, number, count, -1, 0)
            number += count
            await asyncio.sleep(chance.random() / 100)


async def once(mq: Client, first: int, counts: list[int], chance: random.Random) -> None:
    """Batches with a sequence. `counts`: those the last process had begun and not heard of."""
    number = first
    while True:
        count = counts.pop(0) if counts else chance.randint(1, 20)
        tell("T", ONCE, ONCE, number, count)
        receipt = await mq.publish_batch(
            ONCE,
            [value_of(ONCE, n) for n in range(number, number + count)],
            producer="the one",
            sequence=number,
        )
        tell("A", ONCE, ONCE, number, count, receipt.offset, int(receipt.duplicate))
        number += count


async def read_and_commit(mq: Client, topic: str, chance: random.Random) -> None:
    async with mq.reader(topic, name=READER) as reader:
        tell("N", await reader.position())
        while True:
            rows = await reader.read_batch(chance.randint(1, 50))
            assert len(rows)
            position = await reader.position()
            tell("t", position)
            await reader.commit()
            tell("c", position)


async def main(directory: Path, life: int, first: int, counts: list[int]) -> None:
    chance = random.Random(life)
    start = time.perf_counter()
    async with connect(directory) as mq:
        tell("O", time.perf_counter() - start)
        async with asyncio.TaskGroup() as tasks:
            for at in range(4):
                tasks.create_task(singly(mq, "singles", f"single-{life}-{at}"))
            for at in range(2):
                tasks.create_task(in_batches(mq, "batches", f"batch-{life}-{at}", chance))
            tasks.create_task(in_batches(mq, "singles", f"mixed-{life}", chance))
            tasks.create_task(by_publisher(mq, "sent", f"sent-{life}", chance))
            tasks.create_task(once(mq, first, counts, chance))
            tasks.create_task(read_and_commit(mq, "singles", chance))


if __name__ == "__main__":
    assert flintmq
    asyncio.run(
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), list(map(int, sys.argv[4:])))
    )
