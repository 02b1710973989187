"""Kill a device with an outbox and its broker, in turn and at random, and see that nothing queued
is lost, doubled or out of order.

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
from dataclasses import dataclass, field
from pathlib import Path

import flintmq
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


class OutboxRounds:
    def __init__(self, directory: Path, seed: int, most_seconds: float) -> None:
        self._directory, self._most = directory, most_seconds
        self._chance = random.Random(seed)
        self._port = free_port()
        self._broker: Served | None = None
        self._begun = dict.fromkeys(TOPICS, 0)
        self._queued: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        self.result = OutboxResult()

    async def run(self, rounds: int) -> OutboxResult:
        await self._start_broker()
        async with flintmq.connect(self._url) as mq:
            await mq.create_topic("rows", partitions=3)
        try:
            for _ in range(rounds):
                await self._round()
            if self._broker is None:
                await self._start_broker()
            async with self._outbox() as mq:
                if not await mq.flush_outbox(10 * PATIENCE_SECONDS):
                    self.result.faults.append(f"not all was sent: {await mq.outbox_stats()}")
                if (stats := await mq.outbox_stats()).refused:
                    self.result.faults.append(f"refused: {stats}")
            await self._check()
        finally:
            if self._broker is not None:
                await self._broker.end(signal.SIGKILL)
        return self.result

    @property
    def _url(self) -> str:
        return f"flint://127.0.0.1:{self._port}"

    def _outbox(self) -> flintmq.Client:
        return flintmq.connect(self._url, outbox=self._directory / "outbox")

    async def _start_broker(self) -> None:
        self._broker = await Served(
            self._directory / "broker", listen=f"127.0.0.1:{self._port}"
        ).start()

    async def _round(self) -> None:
        """A life of the device; the broker is killed in it, or is away, or comes back in it."""
        self.result.rounds += 1
        device = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.remote.outbox_child"),
            *(self._url, str(self._directory / "outbox")),
            *(f"{topic}={self._begun[topic]}" for topic in TOPICS),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        listening = asyncio.create_task(self._listen(device))
        try:
            await asyncio.sleep(self._chance.random() * self._most)
            if self._broker is None:
                await self._start_broker()
            elif self._chance.random() < 0.7:
                await self._broker.end(signal.SIGKILL)
                self._broker = None
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
        async with flintmq.connect(self._url) as mq:
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
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        rounds = OutboxRounds(Path(directory), options.seed, options.seconds)
        result = asyncio.run(rounds.run(options.rounds))
    print(result)
    sys.exit(bool(result.faults))


if __name__ == "__main__":
    main()
