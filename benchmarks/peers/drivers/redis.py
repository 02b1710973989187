"""redis-py with hiredis, the blocking client: in flight is the depth of a pipeline.

All replies of a pipeline are read before the next is sent, as redis-py has it.
"""

from __future__ import annotations

import asyncio
import threading
from itertools import cycle, islice
from time import monotonic, sleep
from typing import Any

import redis

from ..driving import Driver, Ears, Figures, Pace
from ..job import BATCH, BATCHES_AT_ONCE, REST_SECONDS, check, latencies

GROUP, CONSUMER = "workers", "one"
FILL = 1000


class RedisDriver(Driver):
    def _connect(self) -> Any:
        return redis.Redis(
            host=self.job.host, port=self.job.port, max_connections=self.job.connections + 10
        )

    async def _pipelines(self, depth: int) -> Figures:
        client = self._connect()
        topic, value = self.job.topic, self.next_value

        async def gathered(count: int) -> int:
            if count == 1:
                client.xadd(topic, {b"v": value()})
                return 1
            pipeline = client.pipeline(transaction=False)
            add = pipeline.xadd
            for _ in range(count):
                add(topic, {b"v": value()})
            return len(pipeline.execute())

        figures = await self.in_flight(1, lambda: gathered(depth), gathered)
        acknowledged = int(figures["count"] + figures["warm"])
        check("stored", expected=acknowledged, found=client.xlen(topic))
        client.unlink(topic)
        client.close()
        return figures

    async def _spread(self) -> Figures:
        """A command on every one of the next connections, then all their replies."""
        client = self._connect()
        topics = [f"{self.job.topic}.{number}" for number in range(self.job.topics)]
        pool = client.connection_pool
        connections = [pool.get_connection() for _ in range(self.job.connections)]
        turns, value = zip(cycle(connections), cycle(topics), strict=False), self.next_value
        depth = self.job.in_flight

        async def call() -> int:
            if self.job.connections == 1:
                pipeline = client.pipeline(transaction=False)
                for _, topic in islice(turns, depth):
                    pipeline.xadd(topic, {b"v": value()})
                return len(pipeline.execute())
            asked = [connection for connection, _ in islice(turns, depth)]
            for connection in asked:
                connection.send_command("XADD", topics[0], "*", b"v", value())
            for connection in asked:
                connection.read_response()
            return depth

        figures = await self.in_flight(1, call)
        acknowledged = int(figures["count"] + figures["warm"])
        check("stored", expected=acknowledged, found=sum(map(client.xlen, topics)))
        client.unlink(*topics)
        for connection in connections:
            pool.release(connection)
        client.close()
        return figures

    async def publish(self) -> Figures:
        if self.job.topics > 1 or self.job.connections > 1:
            return await self._spread()
        return await self._pipelines(self.job.in_flight)

    async def batches(self) -> Figures:
        return await self._pipelines(BATCH * BATCHES_AT_ONCE)

    async def consume(self) -> Figures:
        client = self._connect()
        topic, value, size = self.job.topic, self.next_value, self.job.size
        for at in range(0, self.job.count, FILL):
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(FILL, self.job.count - at)):
                pipeline.xadd(topic, {b"v": value()})
            pipeline.execute()
        client.xgroup_create(topic, GROUP, id="0")
        streams = {topic: ">"}
        taken = 0
        ids: list[bytes] = []
        start, before = monotonic(), self.server_seconds()
        while True:
            # What was taken is acknowledged on the way to what comes next.
            pipeline = client.pipeline(transaction=False)
            if ids:
                pipeline.xack(topic, GROUP, *ids)
            pipeline.xreadgroup(GROUP, CONSUMER, streams, count=self.job.read)
            found = pipeline.execute()[-1]
            if not found:
                break
            entries = next(iter(found.values()))[0] if isinstance(found, dict) else found[0][1]
            taken += sum(len(entry[b"v"]) == size for _, entry in entries)
            ids = [number for number, _ in entries]
        seconds, spent = monotonic() - start, self.server_seconds() - before
        check("taken", expected=self.job.count, found=taken)
        check("unacknowledged", expected=0, found=client.xpending(topic, GROUP)["pending"])
        client.unlink(topic)
        client.close()
        return {"count": float(taken), "seconds": seconds, "server s": spent}

    async def latency(self) -> Figures:
        return self._latency()

    def _latency(self) -> Figures:
        """The consumer is a thread: its client blocks."""
        client, other = self._connect(), self._connect()
        live = self.job.durability == "live"
        topic = self.job.topic
        arrived = threading.Semaphore(0)
        times: list[float] = []
        count = self.job.count
        subscription = other.pubsub(ignore_subscribe_messages=True)
        if live:
            subscription.subscribe(topic)
            subscription.get_message(timeout=1)
        else:
            client.xgroup_create(topic, GROUP, id="0", mkstream=True)

        def listen() -> None:
            while len(times) < count:
                if live:
                    found = subscription.get_message(timeout=5)
                else:
                    found = other.xreadgroup(GROUP, CONSUMER, {topic: ">"}, count=1, block=5000)
                if found:
                    times.append(monotonic())
                    arrived.release()

        thread = threading.Thread(target=listen)
        thread.start()
        taken: list[float] = []
        for _ in range(count):
            sleep(REST_SECONDS)
            start = monotonic()
            if live:
                client.publish(topic, self.value)
            else:
                client.xadd(topic, {b"v": self.value})
            if not arrived.acquire(timeout=5):
                check("arrived", expected=count, found=len(taken))
            taken.append(times[-1] - start)
        thread.join()
        client.unlink(topic)
        subscription.close()
        other.close()
        client.close()
        return latencies(taken)

    async def live_publish(self, pace: Pace) -> None:
        client = self._connect()
        while await pace.may_send(BATCH):
            pipeline = client.pipeline(transaction=False)
            publish = pipeline.publish
            for _ in range(BATCH):
                publish(self.job.topic, self.value)
            pipeline.execute()
        client.close()

    async def live_listen(self, ears: Ears) -> None:
        """A thread for each connection."""
        over = threading.Event()

        def listen(ear: int, subscription: Any) -> None:
            while not over.is_set():
                found = subscription.get_message(timeout=0.2)
                if found and len(found["data"]) == self.job.size:
                    ears.heard(ear)

        threads = []
        for ear in range(self.job.subscribers):
            subscription = self._connect().pubsub(ignore_subscribe_messages=True)
            subscription.subscribe(self.job.topic)
            subscription.get_message(timeout=1)
            threads.append(threading.Thread(target=listen, args=(ear, subscription), daemon=True))
        for thread in threads:
            thread.start()
        ears.ready()
        await ears.wait_done()
        over.set()
        await asyncio.sleep(0.3)


DRIVER = RedisDriver
