"""FlintMQ's own client: publish, publish_batch, publisher.send, poll and ack, live."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import cycle
from time import monotonic

import flintmq
from flintmq.client.keywords import BatchKeywords
from flintmq.group_model import Order
from flintmq.model import Storage

from ..driving import LIVE_BURST, Driver, Ears, Figures, Pace
from ..job import BATCH, BATCHES_AT_ONCE, POLL, REST_SECONDS, check, latencies

GROUP = "workers"
FEED_MESSAGES = 16_384
SENT_AT_ONCE = 1000
UNDER_WAY_MAX = 60_000
FILLED_AT_ONCE = 1000
PARKED_MESSAGES = 10
"""One after the other, when all groups have had the one before."""


def _said(variety: str, numbers: range) -> BatchKeywords:
    """What the messages of a drain have besides their value."""
    match variety:
        case "headers":
            return {"headers": {"kind": "order", "trace": "4bf92f3577b34da6a3ce929d0e0e4736"}}
        case "ttl":
            return {"ttl": 3600}
        case "keys":
            return {"key": [f"key {number % 1000}" for number in numbers]}
        case "priority":
            return {"priority": [number * 3 % 8 for number in numbers]}
        case "filter":
            return {"headers": [{"kind": str(number % 10)} for number in numbers]}
    return {}


class FlintDriver(Driver):
    @property
    def _url(self) -> str:
        return f"flint://{self.job.address}"

    @property
    def _storage(self) -> Storage:
        return "memory" if self.job.durability == "none" else "durable"

    async def _topic(self, mq: flintmq.Client) -> str:
        await mq.create_topic(self.job.topic, storage=self._storage)
        return self.job.topic

    async def _finish(self, mq: flintmq.Client, figures: Figures) -> Figures:
        stats = await mq.topic_stats(self.job.topic)
        acknowledged = int(figures["count"] + figures["warm"])
        check("stored", expected=acknowledged, found=stats.next_offset)
        await mq.delete_topic(self.job.topic)
        return figures

    async def publish(self) -> Figures:
        if self.job.topics > 1 or self.job.connections > 1:
            return await self._spread()
        async with flintmq.connect(self._url) as mq:
            topic, value = await self._topic(mq), self.next_value
            if self.job.shape == "pipeline":
                figures = await self._send(mq, topic)
            else:

                async def call() -> int:
                    await mq.publish(topic, value())
                    return 1

                figures = await self.in_flight(self.job.in_flight, call)
            return await self._finish(mq, figures)

    async def _spread(self) -> Figures:
        """Every publish goes to the next topic, over the next connection."""
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(flintmq.connect(self._url))
                for _ in range(self.job.connections)
            ]
            topics = [f"{self.job.topic}.{number}" for number in range(self.job.topics)]
            for topic in topics:
                await clients[0].create_topic(topic, storage=self._storage)
            turns, value = zip(cycle(clients), cycle(topics), strict=False), self.next_value

            async def call() -> int:
                mq, topic = next(turns)
                await mq.publish(topic, value())
                return 1

            figures = await self.in_flight(self.job.in_flight, call)
            stored = 0
            for topic in topics:
                stored += (await clients[0].topic_stats(topic)).next_offset
                await clients[0].delete_topic(topic)
            check("stored", expected=int(figures["count"] + figures["warm"]), found=stored)
            return figures

    async def _send(self, mq: flintmq.Client, topic: str) -> Figures:
        """So many sent, all of them acknowledged before the next."""
        async with mq.publisher(topic) as publisher:
            send, value, depth = publisher.send, self.next_value, self.job.in_flight

            async def call() -> int:
                for _ in range(depth):
                    send(value())
                await publisher.flush()
                return depth

            return await self.in_flight(1, call)

    async def batches(self) -> Figures:
        async with flintmq.connect(self._url) as mq:
            topic = await self._topic(mq)
            if self.job.shape == "pipeline":
                return await self._finish(mq, await self._stream(mq, topic))

            async def call() -> int:
                return (await mq.publish_batch(topic, self.values(BATCH))).count

            figures = await self.in_flight(BATCHES_AT_ONCE, call)
            return await self._finish(mq, figures)

    async def _stream(self, mq: flintmq.Client, topic: str) -> Figures:
        """One call a message, and the publisher makes the batches."""
        async with mq.publisher(topic) as publisher:
            send, value = publisher.send, self.next_value
            start = monotonic()
            while monotonic() < start + self.job.seconds:
                for _ in range(SENT_AT_ONCE):
                    send(value())
                await asyncio.sleep(0)
                while publisher.sent - publisher.acknowledged > UNDER_WAY_MAX:  # noqa: ASYNC110
                    await asyncio.sleep(0.0005)
            await publisher.flush()
            seconds = monotonic() - start
            return {"count": float(publisher.acknowledged), "seconds": seconds, "warm": 0.0}

    async def consume(self) -> Figures:
        async with flintmq.connect(self._url) as mq:
            topic = await self._topic(mq)
            await mq.poll(topic, GROUP, 1)  # the group is there before the clock starts
            for at in range(0, self.job.count, 1000):
                await mq.publish_batch(topic, self.values(min(1000, self.job.count - at)))
            taken = 0

            async def work() -> None:
                nonlocal taken
                while found := await mq.poll(topic, GROUP, self.job.read):
                    taken += sum(len(value) == self.job.size for value in found.values)
                    await mq.ack(found)

            start, before = monotonic(), self.server_seconds()
            await asyncio.gather(*(work() for _ in range(self.job.loops)))
            seconds, spent = monotonic() - start, self.server_seconds() - before
            check("taken", expected=self.job.count, found=taken)
            check("left", expected=0, found=(await mq.group_stats(topic, GROUP)).lag)
            await mq.delete_topic(topic)
            return {"count": float(taken), "seconds": seconds, "server s": spent}

    async def drain(self) -> Figures:
        variety = self.job.variety
        order: Order = "key" if variety == "keys" else "priority"
        passing = "headers.kind == '0'" if variety == "filter" else None
        async with flintmq.connect(self._url) as mq:
            topic = await self._topic(mq)
            await mq.poll(topic, GROUP, 1, order=order, filter=passing)
            for at in range(0, self.job.count, FILLED_AT_ONCE):
                numbers = range(at, at + FILLED_AT_ONCE)
                await mq.publish_batch(topic, self.values(len(numbers)), **_said(variety, numbers))
            taken = 0
            start, before = monotonic(), self.server_seconds()
            if variety in ("each", "process"):
                async with mq.subscribe(topic, GROUP) as arriving:
                    async for message in arriving:
                        if variety == "process":
                            async with message.process():
                                taken += 1
                        else:
                            await message.ack()
                            taken += 1
                        if taken == self.job.count:
                            break
            else:
                while found := await mq.poll(topic, GROUP, POLL):
                    taken += len(found)
                    await mq.ack(found)
            seconds, spent = monotonic() - start, self.server_seconds() - before
            expected = self.job.count // 10 if passing else self.job.count
            check("taken", expected=expected, found=taken)
            await mq.delete_topic(topic)
            return {"count": float(self.job.count), "seconds": seconds, "server s": spent}

    async def parked(self) -> Figures:
        async with flintmq.connect(self._url) as mq:
            topic = await self._topic(mq)
            groups = [f"{GROUP}{number}" for number in range(self.job.subscribers)]
            for group in groups:
                await mq.poll(topic, group, 1)
            taken, count = 0, PARKED_MESSAGES * len(groups)
            rested = asyncio.Event()

            async def work(group: str) -> None:
                nonlocal taken
                for _ in range(PARKED_MESSAGES):
                    found = await mq.poll(topic, group, 1, wait=60, ack="auto")
                    taken += len(found)
                    if not taken % len(groups):
                        rested.set()

            tasks = [asyncio.ensure_future(work(group)) for group in groups]
            await asyncio.sleep(1)
            start, before = monotonic(), self.server_seconds()
            for _ in range(PARKED_MESSAGES):
                rested.clear()
                await mq.publish(topic, self.value)
                await rested.wait()
            seconds, spent = monotonic() - start, self.server_seconds() - before
            await asyncio.gather(*tasks)
            check("taken", expected=count, found=taken)
            await mq.delete_topic(topic)
            return {"count": float(count), "seconds": seconds, "server s": spent}

    async def latency(self) -> Figures:
        taken: list[float] = []
        async with flintmq.connect(self._url) as mq, flintmq.connect(self._url) as other:
            topic = self.job.topic
            live = self.job.durability == "live"
            if not live:
                await self._topic(mq)
            opened = other.live(topic) if live else other.subscribe(topic, GROUP)
            async with opened as arriving:
                arrivals = aiter(arriving)
                for _ in range(self.job.count):
                    waiting = asyncio.ensure_future(anext(arrivals))
                    await asyncio.sleep(REST_SECONDS)
                    start = monotonic()
                    publishing = asyncio.ensure_future(
                        mq.publish(topic, self.value, qos=0 if live else 1)
                    )
                    message = await waiting
                    taken.append(monotonic() - start)
                    await publishing
                    if not live:
                        await other.ack([message])
            if not live:
                await mq.delete_topic(topic)
        return latencies(taken)

    async def live_publish(self, pace: Pace) -> None:
        async with (
            flintmq.connect(self._url) as mq,
            mq.publisher(self.job.topic, qos=0) as publisher,
        ):
            send, value = publisher.send, self.next_value
            while await pace.may_send(LIVE_BURST):
                for _ in range(LIVE_BURST):
                    send(value())
                await asyncio.sleep(0)

    async def live_listen(self, ears: Ears) -> None:
        clients = [await flintmq.connect(self._url) for _ in range(self.job.subscribers)]
        feeds = [
            await mq.live(self.job.topic, capacity=FEED_MESSAGES, overflow="block")
            for mq in clients
        ]

        async def listen(ear: int, feed: flintmq.Feed) -> None:
            while True:
                rows = await feed.read_batch(FEED_MESSAGES)
                ears.heard(ear, sum(len(value) == self.job.size for value in rows.values))

        tasks = [asyncio.ensure_future(listen(ear, feed)) for ear, feed in enumerate(feeds)]
        ears.ready()
        await ears.wait_done()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for mq in clients:
            await mq.close()


DRIVER = FlintDriver
