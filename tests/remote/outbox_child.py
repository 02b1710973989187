"""A device: publishes to an outbox, and says what it has a receipt for, until it is killed.

    python -m tests.remote.outbox_child URL DIRECTORY TOPIC=FIRST...

It prints `B topic first end` before these numbers are published, and `Q topic first end` once they
are queued.
"""

from __future__ import annotations

import asyncio
import random
import sys

import flintmq


async def publish(mq: flintmq.Client, topic: str, number: int) -> None:
    chance = random.Random()
    while True:
        count = chance.choice((1, 1, 3, 40))
        print(f"B {topic} {number} {number + count}", flush=True)
        values: list[bytes | str] = [b"%d" % n for n in range(number, number + count)]
        keys: list[str | bytes | None] = [f"k{n % 5}" for n in range(number, number + count)]
        await mq.publish_batch(topic, values, key=keys)
        print(f"Q {topic} {number} {number + count}", flush=True)
        number += count
        await asyncio.sleep(chance.random() * 0.004)


async def main(url: str, directory: str, *firsts: str) -> None:
    async with flintmq.connect(url, outbox=directory) as mq:
        print("O", flush=True)
        pairs = [one.split("=") for one in firsts]
        await asyncio.gather(*(publish(mq, topic, int(first)) for topic, first in pairs))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
