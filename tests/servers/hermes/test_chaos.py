"""Many clients of HermesMQ's at once that do everything and go in every way there is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any

import pytest

from flintmq.clock import SystemClock
from flintmq.daemon.process import loop_factory
from flintmq.engine.broker import Broker
from flintmq.frontends.hermes.server import HermesLimits, HermesServer
from flintmq.serde.codec import Codec

from .client import HermesClient

LOST = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)
GROUP = "g"


class Story:
    """What clients were told, and what they have said."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self.address, self.chance = address, random.Random(seed)
        self.produced: set[int] = set()
        self.maybe_acked: set[int] = set()
        """Offsets whose ack was sent, whether or not it arrived."""

    async def live(self) -> None:
        with contextlib.suppress(*LOST):
            for _ in range(6):
                client = await HermesClient.connect(self.address)
                try:
                    await self.chance.choice((self._produce, self._poll, self._subscribe))(client)
                finally:
                    await self._leave(client)

    async def _produce(self, client: HermesClient) -> None:
        count = self.chance.randrange(1, 40)
        for _ in range(count):
            client.send("produce", topic="t", payload=b"x", priority=self.chance.randrange(8))
        for _ in range(self.chance.choice((count, count, count // 2))):
            self.produced.add((await client.read_ok()).offset)

    async def _poll(self, client: HermesClient) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            client.send("poll", topic="t", group=GROUP, max=5, wait_ms=self.chance.choice((0, 20)))
            if self.chance.random() < 0.2:
                return  # without having read what it asked for
            for item in (await client.read_ok()).items:
                self._settle(client, item)
                await client.read_ok()

    async def _subscribe(self, client: HermesClient) -> None:
        client.send("subscribe", topic="t", group=GROUP, prefetch=self.chance.randrange(1, 9))
        with contextlib.suppress(TimeoutError):
            for _ in range(self.chance.randrange(1, 30)):
                self._settle(client, await client.pushed(0.05))

    def _settle(self, client: HermesClient, item: Any) -> None:
        kind = self.chance.choice(("ack", "ack", "nack"))
        lease, offset = item.lease_id, item.offset
        if kind == "ack":
            self.maybe_acked.add(offset)
        client.send(kind, topic="t", group=GROUP, lease_id=lease)

    async def _leave(self, client: HermesClient) -> None:
        match self.chance.randrange(4):
            case 0:
                client.reset()
            case 1:
                client.abort()
            case 2:
                with contextlib.suppress(OSError):
                    client.writer.write_eof()
                await asyncio.sleep(0.005)
                client.abort()
            case _:
                await client.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_and_nobody_is_left_behind(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """By turns on asyncio's loop and on uvloop's, as they differ in what a closed socket says."""
    with (
        caplog.at_level(logging.WARNING),
        asyncio.Runner(loop_factory=loop_factory() if seed % 2 else None) as runner,
    ):
        runner.run(_tell(seed))

    complaints = [
        record
        for record in caplog.records
        if record.name.startswith("flintmq") or record.levelno >= logging.ERROR
    ]
    assert complaints == []


async def _tell(seed: int) -> None:
    broker = Broker(SystemClock(), Codec())
    server = HermesServer(broker, limits=HermesLimits(grace_seconds=0.1))
    story = Story(await server.start("127.0.0.1", 0), seed)
    await asyncio.gather(*(story.live() for _ in range(40)))
    async with asyncio.timeout(60):
        while server.connections or (await broker.group_stats("t", GROUP)).in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    stored = (await broker.topic_stats("t")).next_offset
    async with await HermesClient.connect(story.address) as client:
        rest = [item.offset for item in await _all(client, GROUP)]
        everything = [item.offset for item in await _all(client, "other")]
    await server.close()
    await broker.close()

    assert sorted(everything) == list(range(stored))
    assert story.produced <= set(everything)
    assert len(rest) == len(set(rest))
    assert set(rest) | story.maybe_acked == set(everything), "neither acked nor delivered again"


async def _all(client: HermesClient, group: str) -> list[Any]:
    found: list[Any] = []
    while items := await client.poll("t", group, max=1024, ack_mode="auto"):
        found += items
    return found
