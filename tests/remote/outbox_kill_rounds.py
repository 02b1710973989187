"""Kill a device with an outbox and its broker, in turn and at random, and see that nothing queued
is lost, doubled or out of order. With `--cluster`, there are three nodes, and the leader is killed.

    python -m tests.remote.outbox_kill_rounds --rounds 50
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import flintmq
from tests.cluster.processes import NodeProcess, founded, leader_of
from tests.integration.served import Served
from tests.patience import PATIENCE_SECONDS, free_port

TOPICS = ("plain", "rows")
"""The second has partitions."""


@dataclass
class OutboxResult:
    rounds: int = 0
    device_kills: int = 0
    broker_kills: int = 0
    queued: int = 0
    stored: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.device_kills} kills of the device, "
            f"{self.broker_kills} of the broker; {self.queued:,} queued, {self.stored:,} stored, "
            f"{len(self.faults)} faults" + "".join(f"\n{fault}" for fault in self.faults[:10])
        )


class OneBroker:
    def __init__(self, directory: Path) -> None:
        self._directory = directory / "broker"
        self._listen = f"127.0.0.1:{free_port()}"
        self.url = f"flint://{self._listen}"
        self._served: Served | None = None

    @property
    def is_up(self) -> bool:
        return self._served is not None

    async def start(self) -> None:
        self._served = await Served(self._directory, listen=self._listen).start()

    async def kill(self) -> None:
        if self._served is not None:
            await self._served.end(signal.SIGKILL)
        self._served = None

    async def end(self) -> None:
        await self.kill()


class ThreeNodes:
    """Two of them go on where one is killed: who leads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "cluster"
        self._stack = AsyncExitStack()
        self._nodes: dict[str, NodeProcess] = {}
        self._killed: NodeProcess | None = None
        self.url = ""

    @property
    def is_up(self) -> bool:
        return bool(self._nodes) and self._killed is None

    async def start(self) -> None:
        if self._killed is not None:
            await self._killed.start()
            await self._killed.ready()
            self._killed = None
            return
        self._nodes = await self._stack.enter_async_context(founded(self._directory, "a", "b", "c"))
        places = [node.url.removeprefix("flint://") for node in self._nodes.values()]
        self.url = "flint://" + ",".join(places)

    async def kill(self) -> None:
        self._killed = await leader_of(self._nodes)
        await self._killed.kill()

    async def end(self) -> None:
        await self._stack.aclose()


class OutboxRounds:
    def __init__(
        self, directory: Path, seed: int, most_seconds: float, *, cluster: bool = False
    ) -> None:
        self._directory, self._most = directory, most_seconds
        self._chance = random.Random(seed)
        self._broker = ThreeNodes(directory) if cluster else OneBroker(directory)
        self._begun = dict.fromkeys(TOPICS, 0)
        self._queued: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        self.result = OutboxResult()

    async def run(self, rounds: int) -> OutboxResult:
        try:
            await self._broker.start()
            async with flintmq.connect(self._broker.url) as mq:
                await mq.create_topic("rows", partitions=3)
            for _ in range(rounds):
                await self._round()
            if not self._broker.is_up:
                await self._broker.start()
            async with self._outbox() as mq:
                if not await mq.flush_outbox(10 * PATIENCE_SECONDS):
                    self.result.faults.append(f"not all was sent: {await mq.outbox_stats()}")
                if (stats := await mq.outbox_stats()).refused:
                    self.result.faults.append(f"refused: {stats}")
            await self._check()
        finally:
            await self._broker.end()
        return self.result

    def _outbox(self) -> flintmq.Client:
        return flintmq.connect(self._broker.url, outbox=self._directory / "outbox")

    async def _round(self) -> None:
        """A life of the device; the broker is killed in it, or is away, or comes back in it."""
        self.result.rounds += 1
        device = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.remote.outbox_child"),
            *(self._broker.url, str(self._directory / "outbox")),
            *(f"{topic}={self._begun[topic]}" for topic in TOPICS),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        listening = asyncio.create_task(self._listen(device))
        try:
            await asyncio.sleep(self._chance.random() * self._most)
            if not self._broker.is_up:
                await self._broker.start()
            elif self._chance.random() < 0.7:
                await self._broker.kill()
                self.result.broker_kills += 1
            await asyncio.sleep(self._chance.random() * self._most)
        finally:
            device.kill()
            await device.wait()
            await listening
        self.result.device_kills += 1

    async def _listen(self, device: asyncio.subprocess.Process) -> None:
        assert device.stdout is not None
        async for line in device.stdout:
            words = line.decode().split()
            if not line.endswith(b"\n") or len(words) != 4:
                continue  # torn, or that it is open
            numbers = range(int(words[2]), int(words[3]))
            # What was begun and is not queued may be there or not: its numbers are not used again.
            self._begun[words[1]] = numbers.stop
            if words[0] == "Q":
                self._queued[words[1]].update(numbers)
                self.result.queued += len(numbers)

    async def _check(self) -> None:
        async with flintmq.connect(self._broker.url) as mq:
            for topic in TOPICS:
                await self._check_topic(mq, topic)

    async def _check_topic(self, mq: flintmq.Client, topic: str) -> None:
        faults, seen = self.result.faults, set[int]()
        last: dict[object, int] = {}
        async with mq.reader(topic) as reader:
            while rows := await reader.read_batch(timeout=0):
                for message in rows:
                    number = int(message.value)
                    if number in seen:
                        faults.append(f"{topic}: {number} is there twice")
                    elif number < last.get(message.key, -1):
                        faults.append(f"{topic}: {number} comes behind {last[message.key]}")
                    seen.add(number)
                    last[message.key] = number
        self.result.stored += len(seen)
        if lost := sorted(self._queued[topic] - seen):
            faults.append(f"{topic}: {len(lost)} were queued and are lost, from {lost[0]} on")
        if invented := [number for number in seen if number >= self._begun[topic]]:
            faults.append(f"{topic}: {len(invented)} were never published")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=2.0, help="half a life at most")
    parser.add_argument("--cluster", action="store_true", help="three nodes, of which one leads")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        rounds = OutboxRounds(
            Path(directory), options.seed, options.seconds, cluster=options.cluster
        )
        result = asyncio.run(rounds.run(options.rounds))
    print(result)
    sys.exit(bool(result.faults))


if __name__ == "__main__":
    main()
