"""Whether one consumer keeps up with eight publishers, by how it settles its messages.

    .venv/bin/python -m benchmarks.keeping_up --seconds 3

A real `flintmq serve` that syncs every publish, eight clients that publish one message after the
other, and one subscription over a connection of its own: with `await ack()`, and with `process()`,
which settles in the background. How far the consumer is behind when the publishers stop, and how
long it takes until everything is settled. One table and one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

import flintmq

from .report import machine, machine_line
from .server_footprint import broker

PUBLISHERS = 8
VALUE = bytes(100)


async def measured(url: str, way: str, seconds: float) -> dict[str, Any]:
    topic = f"orders.{way}"
    published = consumed = 0
    is_over = asyncio.Event()
    stopped_at = time.monotonic() + seconds

    async def publish() -> None:
        nonlocal published
        async with flintmq.connect(url) as mq:
            while time.monotonic() < stopped_at:
                await mq.publish(topic, VALUE)
                published += 1

    async def consume() -> None:
        nonlocal consumed
        async with flintmq.connect(url) as mq, mq.subscribe(topic, "workers") as subscription:
            async for message in subscription:
                if way == "process":
                    async with message.process():
                        consumed += 1
                else:
                    consumed += 1
                    await message.ack()
                if is_over.is_set() and consumed == published:
                    return

    async with flintmq.connect(url) as mq:
        await mq.create_topic(topic)
        consuming = asyncio.ensure_future(consume())
        await asyncio.gather(*(publish() for _ in range(PUBLISHERS)))
        is_over.set()
        behind, since = published - consumed, time.monotonic()
        if behind:
            await consuming
        else:
            consuming.cancel()
            await asyncio.wait([consuming])
        late = time.monotonic() - since
        left = (await mq.group_stats(topic, "workers")).lag
    return {
        "way": way,
        "published": published,
        "behind": behind,
        "late_s": round(late, 3),
        "left": left,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of publishing, for each way")
    seconds = parser.parse_args().seconds
    facts = machine()
    print(machine_line(facts))
    print(
        f"{'settled by':<12} {'published/s':>12} {'behind':>8} {'caught up after':>16} {'left':>6}"
    )
    rows = []
    for way in ("ack", "process"):
        with broker() as server:
            row = asyncio.run(measured(server.url, way, seconds))
        rows.append(row)
        print(
            f"{way:<12} {row['published'] / seconds:>12,.0f} {row['behind']:>8,} "
            f"{row['late_s']:>14.2f} s {row['left']:>6,}"
        )
    print(json.dumps({"machine": facts, "keeping_up": rows}))


if __name__ == "__main__":
    main()
