"""nats-py: JetStream, tasks that await their acknowledgement, atomic batches; core NATS live."""

from __future__ import annotations

import asyncio
from itertools import cycle
from time import monotonic
from typing import Any

import nats
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from ..driving import LIVE_BURST, Driver, Ears, Figures, Pace
from ..job import BATCH, BATCHES_AT_ONCE, LOOPS, POLL, REST_SECONDS, check, latencies

FILL_BATCH = 500


class NatsDriver(Driver):
    def __init__(self, job: Any) -> None:
        super().__init__(job)
        self._batches = self._leader = 0

    async def _connect(self, node: int = 0) -> Any:
        return await nats.connect(f"nats://{self.job.nodes[node]}")

    async def _open(self) -> tuple[Any, Any]:
        """A stream, and a connection to the node that leads it: the shortest way there is."""
        connection = await self._connect()
        jetstream = await self._stream(connection)
        if self.job.replicas > 1:
            info = await jetstream.stream_info(self.job.topic)
            self._leader = int(info.cluster.leader.removeprefix("n"))
            await connection.close()
            connection = await self._connect(self._leader)
            jetstream = connection.jetstream()
        return connection, jetstream

    async def _stream(self, connection: Any) -> Any:
        jetstream = connection.jetstream()
        storage = StorageType.MEMORY if self.job.durability == "none" else StorageType.FILE
        await jetstream.add_stream(
            StreamConfig(
                name=self.job.topic,
                subjects=[f"{self.job.topic}.>"],
                storage=storage,
                retention=RetentionPolicy.LIMITS,
                num_replicas=self.job.replicas,
                allow_atomic=True,
            )
        )
        return jetstream

    @property
    def _subject(self) -> str:
        return f"{self.job.topic}.messages"

    async def _finish(self, jetstream: Any, figures: Figures) -> Figures:
        info = await jetstream.stream_info(self.job.topic)
        acknowledged = int(figures["count"] + figures["warm"])
        check("stored", expected=acknowledged, found=info.state.messages)
        await jetstream.delete_stream(self.job.topic)
        return figures

    async def publish(self) -> Figures:
        """Many topics are subjects of one stream, as is its way."""
        connection, jetstream = await self._open()
        others = range(1, self.job.connections)
        connections = [connection, *[await self._connect(self._leader) for _ in others]]
        value = self.next_value
        streams = [one.jetstream() for one in connections]
        subjects = [f"{self._subject}.{number}" for number in range(self.job.topics)]
        turns = zip(cycle(streams), cycle(subjects), strict=False)

        async def call() -> int:
            stream, subject = next(turns)
            await stream.publish(subject, value())
            return 1

        figures = await self.in_flight(self.job.in_flight, call)
        await self._finish(jetstream, figures)
        for connection in connections:
            await connection.close()
        return figures

    async def _atomic(self, connection: Any, count: int) -> int:
        """One atomic batch: nothing of it is acknowledged before all of it is stored."""
        self._batches += 1
        name = f"{self.job.topic}-{self._batches}"
        subject, value = self._subject, self.next_value
        for number in range(1, count):
            headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
            await connection.publish(subject, value(), headers=headers)
        last = {
            "Nats-Batch-Id": name,
            "Nats-Batch-Sequence": str(count),
            "Nats-Batch-Commit": "1",
        }
        answer = await connection.request(subject, value(), timeout=10, headers=last)
        if b'"error"' in answer.data:
            raise RuntimeError(f"atomic batch refused: {answer.data!r}")
        return count

    async def batches(self) -> Figures:
        connection, jetstream = await self._open()
        figures = await self.in_flight(BATCHES_AT_ONCE, lambda: self._atomic(connection, BATCH))
        await self._finish(jetstream, figures)
        await connection.close()
        return figures

    async def consume(self) -> Figures:
        connection, jetstream = await self._open()
        for at in range(0, self.job.count, FILL_BATCH):
            await self._atomic(connection, min(FILL_BATCH, self.job.count - at))
        config = ConsumerConfig(
            durable_name="workers",
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            max_ack_pending=POLL * LOOPS * 4,
        )
        await jetstream.add_consumer(self.job.topic, config)
        taken = 0

        async def work() -> None:
            nonlocal taken
            pull = await jetstream.pull_subscribe_bind("workers", self.job.topic)
            while True:
                try:
                    messages = await pull.fetch(self.job.read, timeout=5)
                except nats.errors.TimeoutError:
                    continue
                for message in messages:
                    taken += len(message.data) == self.job.size
                    await message.ack()
                if taken == self.job.count:
                    done.set()

        done = asyncio.Event()
        start, before = monotonic(), self.server_seconds()
        tasks = [asyncio.ensure_future(work()) for _ in range(self.job.loops)]
        await asyncio.wait_for(done.wait(), 60)
        last = monotonic()
        while True:
            info = await jetstream.consumer_info(self.job.topic, "workers")
            if not info.num_ack_pending and not info.num_pending:
                break
            if monotonic() > last + 10:
                check("unacknowledged", expected=0, found=info.num_ack_pending)
        seconds, spent = monotonic() - start, self.server_seconds() - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        check("taken", expected=self.job.count, found=taken)
        await jetstream.delete_stream(self.job.topic)
        await connection.close()
        return {"count": float(taken), "seconds": seconds, "server s": spent}

    async def latency(self) -> Figures:
        live = self.job.durability == "live"
        arrived: asyncio.Event = asyncio.Event()
        jetstream = None

        async def heard(message: Any) -> None:
            arrived.set()

        if live:
            connection, other = await self._connect(), await self._connect()
            await other.subscribe(self._subject, cb=heard)
            await other.flush()
        else:
            connection, jetstream = await self._open()
            other = await self._connect(self._leader)
            await other.jetstream().subscribe(self._subject, cb=heard, manual_ack=False)
        taken: list[float] = []
        for _ in range(self.job.count):
            await asyncio.sleep(REST_SECONDS)
            arrived.clear()
            start = monotonic()
            call = connection.publish if jetstream is None else jetstream.publish
            publishing = asyncio.ensure_future(call(self._subject, self.value))
            await arrived.wait()
            taken.append(monotonic() - start)
            await publishing
        if jetstream is not None:
            await jetstream.delete_stream(self.job.topic)
        await other.close()
        await connection.close()
        return latencies(taken)

    async def live_publish(self, pace: Pace) -> None:
        connection = await self._connect()
        publish, subject, value = connection.publish, self._subject, self.next_value
        while await pace.may_send(LIVE_BURST):
            for _ in range(LIVE_BURST):
                await publish(subject, value())
            await asyncio.sleep(0)
        await connection.flush()
        await connection.close()

    async def live_listen(self, ears: Ears) -> None:
        connections = [await self._connect() for _ in range(self.job.subscribers)]
        for ear, connection in enumerate(connections):

            async def heard(message: Any, ear: int = ear) -> None:
                if len(message.data) == self.job.size:
                    ears.heard(ear)

            await connection.subscribe(self._subject, cb=heard)
            await connection.flush()
        ears.ready()
        await ears.wait_done()
        for connection in connections:
            await connection.close()


DRIVER = NatsDriver
