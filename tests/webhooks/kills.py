"""Kill a broker that delivers webhooks, again and again, and judge what the target got.

    python -m tests.webhooks.kills --rounds 20
    python -m tests.webhooks.kills --rounds 20 --cluster    # the leader of three nodes

The target is in this process. Every message that was acknowledged has to arrive at least once, and
those of a key in their order: what arrives for the first time never comes before one that was
published earlier.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import flintmq

from ..cluster.processes import founded, leader_of, own_port
from .targets import OK, Got, Target, answer, target

KEYS = 5
FIGURES = ("rounds", "acknowledged", "requests", "repeated", "lost", "out of order")

Kill = Callable[[], Awaitable[None]]
Served = Callable[[Path], AbstractAsyncContextManager[tuple[str, Kill]]]


async def start(directory: Path, port: int) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(directory)),
        *("--listen", f"127.0.0.1:{port}", "--webhook-networks", "127.0.0.0/8"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    return process, line.split("ready at ")[1].split(",")[0].strip()


async def publish(
    mq: flintmq.Client, acknowledged: dict[str, list[int]], stopping: asyncio.Event
) -> None:
    number = 0
    while not stopping.is_set():
        key = f"key{number % KEYS}"
        await mq.publish("orders", b"%d" % number, key=key)
        acknowledged.setdefault(key, []).append(number)
        number += 1


def judged(acknowledged: dict[str, list[int]], there: Target) -> Counter[str]:
    counts: Counter[str] = Counter()
    delivered = [got for got in there.got if got.headers.get("x-accepted") == "yes"]
    for key, wanted in acknowledged.items():
        got = [int(one.body) for one in delivered if one.headers["x-flint-key"] == key]
        first = list(dict.fromkeys(got))
        counts["acknowledged"] += len(wanted)
        counts["lost"] += len(set(wanted) - set(got))
        counts["repeated"] += len(got) - len(first)
        counts["out of order"] += sum(a > b for a, b in pairwise(first))
    counts["requests"] = len(there.got)
    return counts


@asynccontextmanager
async def alone(directory: Path) -> AsyncIterator[tuple[str, Kill]]:
    """One broker; each kill is followed by a start on the same directory and port."""
    process, url = await start(directory, own_port())
    port = int(url.rpartition(":")[2])

    async def kill() -> None:
        nonlocal process
        process.send_signal(signal.SIGKILL)
        await process.wait()
        process, _ = await start(directory, port)

    try:
        yield url, kill
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


@asynccontextmanager
async def three_nodes(directory: Path) -> AsyncIterator[tuple[str, Kill]]:
    """A cluster; each kill takes its leader, which comes back."""
    extra = ("--webhook-networks", "127.0.0.0/8")
    async with founded(directory, "a", "b", "c", extra=extra) as nodes:

        async def kill() -> None:
            leader = await leader_of(nodes)
            await leader.kill()
            await leader.start(*extra)
            await leader.ready()

        addresses = ",".join(node.url.removeprefix("flint://") for node in nodes.values())
        yield f"flint://{addresses}", kill


async def run(rounds: int, seed: int, served: Served = alone) -> Counter[str]:
    chance = random.Random(seed)

    def moody(got: Got) -> bytes:
        if chance.random() < 0.05:
            return answer(chance.choice([500, 503]), b"", "retry-after: 0")
        got.headers["x-accepted"] = "yes"
        return OK

    acknowledged: dict[str, list[int]] = {}
    stopping = asyncio.Event()
    with tempfile.TemporaryDirectory() as directory:
        async with (
            target(moody) as there,
            served(Path(directory)) as (url, kill),
            flintmq.connect(url, timeout=120) as mq,
        ):
            await mq.create_topic("orders", max_deliveries=None)
            await mq.create_webhook(
                "orders", group="hook", url=there.url, order="key", backoff=0.05,
                backoff_max=0.2, concurrency=8, retries=1000,
            )  # fmt: skip
            publishing = asyncio.create_task(publish(mq, acknowledged, stopping))
            for _ in range(rounds):
                await there.wait_for(len(there.got) + chance.randint(20, 200))
                await kill()
            stopping.set()
            await publishing
            while (await mq.group_stats("orders", "hook")).lag:
                await there.wait_a_moment()
    return Counter(rounds=rounds) + judged(acknowledged, there)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.webhooks.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true", help="kill leaders of three nodes")
    options = parser.parse_args()
    served = three_nodes if options.cluster else alone
    counts = asyncio.run(run(options.rounds, options.seed, served))
    print(json.dumps({name: counts[name] for name in FIGURES}))
    return 1 if counts["lost"] or counts["out of order"] else 0


if __name__ == "__main__":
    sys.exit(main())
