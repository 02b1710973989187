"""Three nodes on this machine; the leader is killed while orders arrive and are processed.

`make run ARGS=--cluster`. The data is in a directory of its own that is gone afterwards. In the end
every order that was acknowledged is read back and counted. The exit code is 1 if one is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import flintmq

NODES = 3
KILL_AFTER = 0.3
"""The leader is killed when that part of the time is over."""


class Orders:
    """Publishes and processes orders, one by one, and keeps count."""

    def __init__(self, mq: flintmq.Client) -> None:
        self._mq = mq
        self.acknowledged: list[int] = []
        self.processed: set[int] = set()
        self._news = asyncio.Event()
        self.pause = 0.0
        """The longest time from one receipt to the next."""

    async def publish(self) -> None:
        last = time.monotonic()
        number = 0
        while True:
            receipt = await self._mq.publish("orders", {"id": number})
            assert receipt.durability == "replicated", receipt
            self.acknowledged.append(number)
            number += 1
            now = time.monotonic()
            self.pause = max(self.pause, now - last)
            last = now
            await asyncio.sleep(0.002)

    async def process(self) -> None:
        async with self._mq.subscribe("orders", "billing") as deliveries:
            async for message in deliveries:
                async with message.process():
                    self.processed.add(message.decode()["id"])
                self._news.set()

    async def all_processed(self) -> None:
        while not self.processed.issuperset(self.acknowledged):
            self._news.clear()
            await self._news.wait()

    async def stored(self) -> list[int]:
        async with self._mq.reader("orders", start="earliest") as reader:
            found: list[int] = []
            while rows := await reader.read_batch(1000, timeout=0):
                found += [row.decode()["id"] for row in rows]
            return found


async def status(url: str) -> dict[str, str]:
    """The state of each node, by name; empty while nobody can be asked."""
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "cluster", "status", "--server", url),
        *("--output", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    told, _ = await asking.communicate()
    return {node["name"]: node["role"] for node in json.loads(told)["nodes"]} if told else {}


async def leader(url: str) -> str:
    while True:
        for name, state in (await status(url)).items():
            if state == "leader":
                return name


async def show(url: str, directory: Path, seconds: float) -> int:
    async with flintmq.connect(url, timeout=30) as mq:
        await mq.create_topic("orders")
        orders = Orders(mq)
        running = [asyncio.ensure_future(work) for work in (orders.publish(), orders.process())]
        try:
            first = await leader(url)
            print(f"  {first} leads; orders are published and processed", flush=True)
            await asyncio.sleep(seconds * KILL_AFTER)
            orders.pause = 0.0
            print(f"  {len(orders.acknowledged):6,} published; kill -9 of {first}", flush=True)
            os.kill(int((directory / first / "lock").read_text()), signal.SIGKILL)
            await asyncio.sleep(seconds * (1 - KILL_AFTER))
            states = await status(url)
            second = next((name for name, state in states.items() if state == "leader"), "nobody")
            print(f"  {len(orders.acknowledged):6,} published; {second} leads; publishing paused "
                  f"for {orders.pause:.1f} s", flush=True)  # fmt: skip
            running[0].cancel()
            with suppress(TimeoutError):
                await asyncio.wait_for(orders.all_processed(), 30)
        finally:
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        stored = await orders.stored()
    lost = set(orders.acknowledged).difference(stored)
    doubled = len(stored) - len(set(stored))
    left = set(orders.acknowledged).difference(orders.processed)
    is_ordered = stored == sorted(stored)
    order = "in order" if is_ordered else "NOT IN ORDER"
    print(f"  {len(orders.acknowledged):,} orders acknowledged: {len(lost)} lost, {doubled} stored "
          f"twice, {order}, {len(left)} not processed")  # fmt: skip
    return 1 if lost or doubled or left or not is_ordered or second in ("nobody", first) else 0


async def main(seconds: float) -> int:
    with tempfile.TemporaryDirectory(prefix="flintmq-") as place:
        directory = Path(place) / "cluster"
        cluster = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flintmq.cli", "cluster", "run", "--nodes", str(NODES)),
            *("--data-dir", str(directory), "--base-port", "0"),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us
        )
        try:
            assert cluster.stdout is not None
            line = (await cluster.stdout.readline()).decode()
            if "ready at " not in line:
                return await cluster.wait() or 1
            url = line.strip().split("ready at ")[1]
            print(f"  {NODES} nodes at {url}")
            reading = asyncio.ensure_future(cluster.stdout.read())
            try:
                return await show(url, directory, seconds)
            finally:
                reading.cancel()
        finally:
            if cluster.returncode is None:
                cluster.terminate()
                await cluster.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/run --cluster", description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="this program")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long orders arrive")
    given = parser.parse_args()
    title = f"A cluster of {NODES} nodes loses its leader"
    print(f"{title}\n{'-' * len(title)}")
    try:
        sys.exit(asyncio.run(main(given.seconds)))
    except KeyboardInterrupt:
        sys.exit(130)
