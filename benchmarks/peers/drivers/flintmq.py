"""FlintMQ's own client: publish, publish_batch, publisher.send, poll and ack, live."""

from __future__ import annotations

import asyncio
from time import monotonic

import flintmq
from flintmq.model import Storage

from ..driving import LIVE_BURST, Driver, Ears, Figures, Pace, in_flight
from ..job import BATCH, BATCHES_AT_ONCE, LOOPS, POLL, REST_SECONDS, check, latencies

GROUP = "workers"
FEED_MESSAGES = 16_384
SENT_AT_ONCE = 1000
UNDER_WAY_MAX = 60_000


class FlintDriver(Driver):
    @property
    def _url(self) -> str:
        return f"flint://{self.job.address}"

    async def _topic(self, mq: flintmq.Client) -> str:
        storage: Storage = "memory" if self.job.durability == "none" else "durable"
        await mq.create_topic(self.job.topic, storage=storage)
        return self.job.topic

    async def _finish(self, mq: flintmq.Client, figures: Figures) -> Figures:
        stats = await mq.topic_stats(self.job.topic)
        acknowledged = int(figures["count"] + figures["warm"])
        check("stored", expected=acknowledged, found=stats.next_offset)
        await mq.delete_topic(self.job.topic)
        return figures

    async def publish(self) -> Figures:
        async with flintmq.connect(self._url) as mq:
            topic, value = await self._topic(mq), self.value
            if self.job.shape == "pipeline":
                figures = await self._send(mq, topic)
            else:

                async def call() -> int:
                    await mq.publish(topic, value)
                    return 1

                figures = await in_flight(self.job.in_flight, self.job.seconds, call)
            return await self._finish(mq, figures)

    async def _send(self, mq: flintmq.Client, topic: str) -> Figures:
        """So many sent, all of them acknowledged before the next."""
        async with mq.publisher(topic) as publisher:
            send, value, depth = publisher.send, self.value, self.job.in_flight

            async def call() -> int:
                for _ in range(depth):
                    send(value)
                await publisher.flush()
                return depth

            return await in_flight(1, self.job.seconds, call)

    async def batches(self) -> Figures:
        async with flintmq.connect(self._url) as mq:
            topic, values = await self._topic(mq), [self.value] * BATCH
            if self.job.shape == "pipeline":
                return await self._finish(mq, await self._stream(mq, topic))

            async def call() -> int:
                return (await mq.publish_batch(topic, values)).count

            figures = await in_flight(BATCHES_AT_ONCE, self.job.seconds, call)
            return await self._finish(mq, figures)

    async def _stream(self, mq: flintmq.Client, topic: str) -> Figures:
        """One call a message, and the publisher makes the batches."""
        async with mq.publisher(topic) as publisher:
            send, value = publisher.send, self.value
            start = monotonic()
            while monotonic() < start + self.job.seconds:
                for _ in range(SENT_AT_ONCE):
                    send(value)
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
                await mq.publish_batch(topic, [self.value] * min(1000, self.job.count - at))
            taken = 0

            async def work() -> None:
                nonlocal taken
                while found := await mq.poll(topic, GROUP, POLL):
                    taken += sum(len(value) == self.job.size for value in found.values)
                    await mq.ack(found)

            start = monotonic()
            await asyncio.gather(*(work() for _ in range(LOOPS)))
            seconds = monotonic() - start
            check("taken", expected=self.job.count, found=taken)
            check("left", expected=0, found=(await mq.group_stats(topic, GROUP)).lag)
            await mq.delete_topic(topic)
            return {"count": float(taken), "seconds": seconds}

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
            send, value = publisher.send, self.value
            while await pace.may_send(LIVE_BURST):
                for _ in range(LIVE_BURST):
                    send(value)
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
