"""Members that come, go and are cancelled at any turn: nothing is lost, nothing is counted twice.

Over the real engine, in memory, on a clock that does not move: no lease ever runs out, so whatever
is delivered again was given back by somebody, and whatever nobody saw counts as never delivered.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

import flintmq
from flintmq.testing import ManualClock, settle

COUNT = 120


class Crowd:
    """Consumers that settle, give back, or are cancelled, as a seed says."""

    def __init__(self, mq: flintmq.Client, seed: int, partitions: int | None) -> None:
        self.mq, self.random, self.partitions = mq, random.Random(seed), partitions
        self.seen: Counter[bytes] = Counter()
        self.done: set[bytes] = set()

    async def turns(self, most: int) -> None:
        for _ in range(self.random.randrange(most)):
            await asyncio.sleep(0)

    async def note(self, messages: list[flintmq.Delivery]) -> None:
        """In the step in which they were handed out: each was given back as often as seen."""
        for message in messages:
            assert message.value not in self.done, "settled, and delivered again"
            self.seen[message.value] += 1
            assert message.delivery_count == self.seen[message.value], message

    async def settle(self, messages: list[flintmq.Delivery]) -> None:
        if self.random.random() < 0.2:
            await self.mq.nack(messages)
        else:
            self.done.update(message.value for message in messages)
            await self.mq.ack(messages)

    async def subscribe(self) -> None:
        prefetch = self.random.choice([1, 2, 7, 30])
        async with self.mq.subscribe("jobs", "workers", prefetch=prefetch) as deliveries:
            while True:
                batch = list(await deliveries.read_batch(self.random.randint(1, 10)))
                await self.note(batch)
                await asyncio.shield(asyncio.ensure_future(self.settle(batch)))
                await self.turns(4)

    async def poll(self) -> None:
        while True:
            batch = list(await self.mq.poll("jobs", "workers", self.random.randint(1, 10), wait=9))
            await self.note(batch)
            await asyncio.shield(asyncio.ensure_future(self.settle(batch)))
            await self.turns(4)

    async def subscribe_auto(self) -> None:
        prefetch = self.random.choice([1, 2, 7, 30])
        async with self.mq.subscribe("jobs", "workers", prefetch=prefetch, ack="auto") as messages:
            while True:
                batch = await messages.read_batch(self.random.randint(1, 10))
                self.seen.update(batch.values)
                await self.turns(4)

    async def poll_auto(self) -> None:
        while True:
            most = self.random.randint(1, 10)
            batch = await self.mq.poll("jobs", "workers", most, wait=9, ack="auto")
            self.seen.update(batch.values)
            await self.turns(4)

    async def publish(self) -> None:
        for number in range(COUNT):
            where = {} if self.partitions is None else {"partition": number % self.partitions}
            await self.mq.publish("jobs", b"%d" % number, **where)  # type: ignore[arg-type]
            await self.turns(3)


SEEDS = [*range(12), 136]  # 136: a poll that was cancelled while it gave back what was too much


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_is_cancelled_when_every_message_is_settled_once(
    clock: ManualClock, seed: int, partitions: int | None
) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.create_topic("jobs", partitions=partitions, max_deliveries=None)
        crowd = Crowd(mq, seed, partitions)
        publishing = asyncio.ensure_future(crowd.publish())
        while len(crowd.done) < COUNT:
            kind = crowd.random.choice([crowd.subscribe, crowd.subscribe, crowd.poll])
            consumers = [asyncio.ensure_future(kind()) for _ in range(crowd.random.randint(1, 4))]
            await crowd.turns(60)
            for consumer in consumers:
                consumer.cancel()
            for consumer in consumers:
                with suppress(asyncio.CancelledError):
                    await consumer
            await settle()
        await publishing

        stats = await mq.group_stats("jobs", "workers")
        assert (stats.lag, stats.in_flight, stats.settled) == (0, 0, COUNT)
        await clock.advance(60)  # a group may look once more whether a lease has run out
        assert clock.pending() == 0


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_cancelled_when_with_auto_ack_every_message_is_handed_out_once(
    clock: ManualClock, seed: int, partitions: int | None
) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.create_topic("jobs", partitions=partitions)
        crowd = Crowd(mq, seed, partitions)
        publishing = asyncio.ensure_future(crowd.publish())
        while len(crowd.seen) < COUNT:
            kind = crowd.random.choice([crowd.subscribe_auto, crowd.poll_auto])
            consumers = [asyncio.ensure_future(kind()) for _ in range(crowd.random.randint(1, 4))]
            await crowd.turns(60)
            for consumer in consumers:
                consumer.cancel()
            for consumer in consumers:
                with suppress(asyncio.CancelledError):
                    await consumer
            await settle()
        await publishing

        assert set(crowd.seen.values()) == {1}
        stats = await mq.group_stats("jobs", "workers")
        assert (stats.lag, stats.settled, stats.redelivered) == (0, COUNT, 0)
