"""Requests while connections are cut and the broker is killed: every reply comes to the one who
asked, none is lost while the broker lives, and nobody there is said at once.

    python -m tests.remote.request_rounds --rounds 50

Two clients ask, each over a link of its own, and two answer: one over a live feed, one as a queue
group. In every round each link is cut once or twice, wherever the bytes are; in every fifth the
broker is killed (-9) as well, and started again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import flintmq
from tests.integration.served import Served
from tests.patience import PATIENCE_SECONDS, free_port

from .proxy import Proxy, Way

TOPICS = ("live", "group")
IN_ROUND = 40
"""Requests of each asker to each topic."""
MAY_FAIL = (flintmq.OutcomeUnknown, flintmq.NoResponders, flintmq.Disconnected)
"""With the broker, what was asked of it is gone: then it is said so."""


@dataclass
class RequestResult:
    rounds: int = 0
    cuts: int = 0
    kills: int = 0
    replies: int = 0
    told: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    nobody_ms: float = 0.0

    def __str__(self) -> str:
        told = ", ".join(f"{count} {name}" for name, count in sorted(self.told.items()))
        return (
            f"{self.rounds} rounds, {self.cuts} cuts, {self.kills} kills of the broker; "
            f"{self.replies:,} replies, each to who asked; with the broker gone: {told or 'none'}; "
            f"nobody there: said in {self.nobody_ms:.1f} ms; {len(self.faults)} faults"
            + "".join(f"\n{fault}" for fault in self.faults[:10])
        )


class RequestRounds:
    def __init__(self, directory: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._listen = f"127.0.0.1:{free_port()}"
        self._directory = directory
        self._number = 0
        self.result = RequestResult()

    async def run(self, rounds: int, kill_every: int = 5) -> RequestResult:
        result = self.result
        broker = await self._start()
        self._proxies = [Proxy(broker.address) for _ in range(4)]
        urls = []
        for proxy in self._proxies:
            host, port = await proxy.start()
            urls.append(f"flint://{host}:{port}")
        try:
            async with flintmq.connect(broker.url) as mq:
                for topic in TOPICS:
                    await mq.create_topic(topic)
                result.nobody_ms = await _nobody_there(mq)
            async with (
                flintmq.connect(urls[0], timeout=60) as one,
                flintmq.connect(urls[1], timeout=60) as other,
            ):
                answering = [
                    asyncio.create_task(_answer_live(urls[2])),
                    asyncio.create_task(_answer_group(urls[3])),
                ]
                try:
                    for number in range(rounds):
                        await _until_answered(one)
                        kills = kill_every > 0 and number % kill_every == kill_every - 1
                        asking = [
                            asyncio.create_task(self._ask(mq, topic, kills=kills))
                            for mq in (one, other)
                            for topic in TOPICS
                        ]
                        self._cut_soon()
                        if kills:
                            await asyncio.sleep(self._chance.random() * 0.1)
                            await broker.end(signal.SIGKILL)
                            result.kills += 1
                            broker = await self._start()
                        await asyncio.gather(*asking)
                        result.rounds += 1
                finally:
                    for task in answering:
                        task.cancel()
                    await asyncio.wait(answering)
        finally:
            result.cuts = sum(proxy.cuts for proxy in self._proxies)
            for proxy in self._proxies:
                await proxy.close()
            await broker.end(signal.SIGKILL)
        return result

    async def _start(self) -> Served:
        return await Served(self._directory / "broker", listen=self._listen).start()

    def _cut_soon(self) -> None:
        chance = self._chance
        for proxy in self._proxies:
            way: Way = "up" if chance.random() < 0.5 else "down"
            proxy.cut_at = (way, proxy.passed[way] + chance.randrange(1, 8000))

    async def _ask(self, mq: flintmq.Client, topic: str, *, kills: bool) -> None:
        """So many requests, eight of them under way."""
        left = iter(range(IN_ROUND))

        async def asker() -> None:
            for _ in left:
                self._number += 1
                await self._ask_one(mq, topic, self._number, may_fail=kills)

        await asyncio.gather(*(asker() for _ in range(8)))

    async def _ask_one(self, mq: flintmq.Client, topic: str, n: int, *, may_fail: bool) -> None:
        result = self.result
        try:
            reply = (await mq.request(topic, {"n": n}, timeout=60)).decode()
        except flintmq.FlintError as error:
            result.told[type(error).__name__] += 1
            if not may_fail or not isinstance(error, MAY_FAIL):
                result.faults.append(f"{topic}, request {n}: {error!r}")
            return
        if reply != {"n": n, "square": n * n}:
            result.faults.append(f"{topic}, request {n} got {reply}")
        result.replies += 1


async def _answer_live(url: str) -> None:
    while True:
        with contextlib.suppress(flintmq.FlintError):
            async with flintmq.connect(url, timeout=60) as mq, mq.live("live") as feed:
                async for message in feed:
                    n = message.decode()["n"]
                    await mq.reply(message, {"n": n, "square": n * n})
        await asyncio.sleep(0.05)


async def _answer_group(url: str) -> None:
    async def handle(delivery: flintmq.Delivery) -> None:
        n = delivery.decode()["n"]
        await delivery.reply({"n": n, "square": n * n})

    while True:
        with contextlib.suppress(flintmq.FlintError):
            async with (
                flintmq.connect(url, timeout=60) as mq,
                mq.subscribe("group", group="squares") as requests,
            ):
                await requests.run(handle, concurrency=8)
        await asyncio.sleep(0.05)


async def _nobody_there(mq: flintmq.Client) -> float:
    began = time.perf_counter()
    try:
        await mq.request("live", b"?", timeout=PATIENCE_SECONDS)
    except flintmq.NoResponders:
        return 1e3 * (time.perf_counter() - began)
    raise AssertionError("somebody answered")


async def _until_answered(mq: flintmq.Client) -> None:
    """Both are there, again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for topic in TOPICS:
            while True:
                with contextlib.suppress(*MAY_FAIL, flintmq.NoReply):
                    await mq.request(topic, {"n": 0}, timeout=5)
                    break
                await asyncio.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--kill-every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        rounds = RequestRounds(Path(directory), options.seed)
        result = asyncio.run(rounds.run(options.rounds, options.kill_every))
    print(result)
    sys.exit(bool(result.faults))


if __name__ == "__main__":
    main()
