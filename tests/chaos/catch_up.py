"""A node that was away for a million messages catches up by segments while the load goes on.

    python -m tests.chaos.catch_up --messages 1000000

Three real processes. One follower ends at the very beginning, before there is any message: it is as
good as blank. The others take the messages, more than their logs keep for it. Then it comes back
under load. What it has at the end is read from itself, once it leads: every message once, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import flintmq
from tests.patience import PATIENCE_SECONDS, until

from .cluster import NODES, ChaosCluster, events
from .fail_over_times import TOPIC, Publisher, longest, status

BATCH = 1000
VALUE_BYTES = 330
"""So that a million of them is more than a leader keeps in its log for those that are away."""
AT_ONCE = 4


async def publish_many(mq: flintmq.Client, count: int) -> None:
    """Values begin with their number, which is their offset."""
    free = asyncio.Semaphore(AT_ONCE)

    async def batch(first: int) -> None:
        values = [value_of(number) for number in range(first, min(first + BATCH, count))]
        try:
            receipt = await mq.publish_batch(TOPIC, values)
            assert receipt.offset == first
        finally:
            free.release()

    async with asyncio.TaskGroup() as tasks:
        for first in range(0, count, BATCH):
            await free.acquire()
            tasks.create_task(batch(first))


def value_of(number: int) -> bytes:
    return number.to_bytes(8, "big") + bytes(VALUE_BYTES - 8)


async def is_caught_up(url: str, name: str) -> bool:
    nodes = {node["name"]: node for node in (await status(url)).get("nodes", [])}
    return name in nodes and nodes[name]["role"] != "down" and not nodes[name]["behind"]


async def has_lead(cluster: ChaosCluster, at: int) -> None:
    """Have a node lead: who leads is stopped until it is that one."""
    while (leader := await cluster.leading()) != at:
        node = cluster.nodes[leader]
        await asyncio.to_thread(node.stop)
        await until(lambda: cluster.leader() >= 0, "another node leads")
        await asyncio.to_thread(node.start)


async def check_all(mq: flintmq.Client, topic: str, count: int) -> str:
    """What is wrong with a topic of numbered values; nothing, if it is well."""
    expected = 0
    async with mq.reader(topic, start="earliest") as reader:
        while rows := await reader.read_batch(5000, timeout=0):
            for row in rows:
                number = int.from_bytes(bytes(row.value)[:8], "big")
                if (row.offset, number) != (expected, expected):
                    return f"offset {row.offset} has {number}, not {expected}"
                expected += 1
    return "" if expected == count else f"{expected:,} of {count:,} messages"


async def run(count: int, place: Path) -> dict[str, Any]:
    cluster = ChaosCluster(place, options=(), is_proxied=False)
    await cluster.open()
    try:
        await cluster.start()
        away = (await cluster.leading() + 1) % NODES
        node = cluster.nodes[away]
        node.kill()
        async with flintmq.connect(cluster.url, timeout=60) as mq:
            await mq.create_topic(TOPIC)
            began = time.monotonic()
            await publish_many(mq, count)
            published = time.monotonic() - began
            publisher = Publisher(mq, "load")
            publishing = asyncio.ensure_future(publisher.run())
            await until(lambda: len(publisher.times) > 100, "there is load")
            began, first = time.monotonic(), len(publisher.times)
            await asyncio.to_thread(node.start)
            name = f"node{away + 1}"
            give_up = time.monotonic() + 10 * PATIENCE_SECONDS
            while not await is_caught_up(cluster.url, name):
                assert time.monotonic() < give_up, "the node never caught up"
            seconds = time.monotonic() - began
            loaded = publisher.times[first:]
            await has_lead(cluster, away)
            publishing.cancel()
            with suppress(asyncio.CancelledError):
                await publishing
            led = await cluster.leading()
            wrong = await check_all(mq, TOPIC, count)
            load = await publisher.stored()
            assert led == await cluster.leading() == away, "it was read from another node"
        if load[: len(publisher.times)] != list(range(len(publisher.times))):
            wrong = wrong or "of the load something is missing, or twice"
        return {
            "messages": count,
            "published_seconds": round(published, 1),
            "caught_up_seconds": round(seconds, 1),
            "checkpoints_taken": events(node.log, "cluster_caught_up"),
            "receipts_meanwhile": len(loaded),
            "longest_pause_seconds": round(longest(loaded), 3),
            "wrong": wrong,
        }
    finally:
        cluster.leave()
        await cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        report = asyncio.run(run(options.messages, Path(place)))
    print(json.dumps(report))
    return 0 if not report["wrong"] and report["checkpoints_taken"] else 1


if __name__ == "__main__":
    sys.exit(main())
