"""aio-pika: confirms awaited by tasks, a prefetch and multiple acknowledgements, fanout live."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import aio_pika
from aio_pika import DeliveryMode, ExchangeType, Message

from ..driving import LIVE_BURST, Driver, Ears, Figures, Pace
from ..job import BATCH, BATCHES_AT_ONCE, POLL, REST_SECONDS, check, latencies

ACK_EACH = 128
FILL_AT_ONCE = 512


class RabbitDriver(Driver):
    async def _connect(self) -> Any:
        return await aio_pika.connect(f"amqp://guest:guest@{self.job.nodes[0]}/")

    async def _queue(self, channel: Any) -> Any:
        durable = self.job.mode != "transient"
        is_quorum = self.job.mode.startswith("quorum")
        arguments = {"x-queue-type": "quorum"} if is_quorum else None
        return await channel.declare_queue(self.job.topic, durable=durable, arguments=arguments)

    def _message(self) -> Any:
        transient = self.job.mode == "transient"
        mode = DeliveryMode.NOT_PERSISTENT if transient else DeliveryMode.PERSISTENT
        return Message(self.value, delivery_mode=mode)

    async def _in_flight(self, count: int) -> Figures:
        connection = await self._connect()
        channel = await connection.channel(publisher_confirms=True)
        queue = await self._queue(channel)
        publish, topic = channel.default_exchange.publish, self.job.topic

        async def call() -> int:
            await publish(self._message(), topic)
            return 1

        figures = await self.in_flight(count, call)
        acknowledged = int(figures["count"] + figures["warm"])
        await self._check_stored(channel, acknowledged)
        await queue.delete(if_unused=False, if_empty=False)
        await connection.close()
        return figures

    async def _check_stored(self, channel: Any, expected: int) -> None:
        """A quorum queue counts a moment after it confirms."""
        give_up_at = monotonic() + 5
        while True:
            told = await channel.declare_queue(self.job.topic, passive=True)
            found = told.declaration_result.message_count
            if found == expected or monotonic() > give_up_at:
                break
            await asyncio.sleep(0.1)
        check("stored", expected=expected, found=found)

    async def publish(self) -> Figures:
        return await self._in_flight(self.job.in_flight)

    async def batches(self) -> Figures:
        return await self._in_flight(BATCH * BATCHES_AT_ONCE)

    async def consume(self) -> Figures:
        connection = await self._connect()
        channel = await connection.channel(publisher_confirms=True)
        queue = await self._queue(channel)
        left = self.job.count

        async def fill() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await channel.default_exchange.publish(self._message(), self.job.topic)

        await asyncio.gather(*(fill() for _ in range(FILL_AT_ONCE)))
        await channel.set_qos(prefetch_count=POLL)
        taken = 0
        done = asyncio.Event()

        async def heard(message: Any) -> None:
            nonlocal taken
            taken += len(message.body) == self.job.size
            if not taken % ACK_EACH or taken == self.job.count:
                await message.ack(multiple=True)
            if taken == self.job.count:
                done.set()

        start, before = monotonic(), self.server_seconds()
        tag = await queue.consume(heard)
        await asyncio.wait_for(done.wait(), 60)
        await queue.cancel(tag)  # answered after the acknowledgements before it were read
        seconds, spent = monotonic() - start, self.server_seconds() - before
        check("taken", expected=self.job.count, found=taken)
        await channel.close()
        channel = await connection.channel()
        told = await channel.declare_queue(self.job.topic, passive=True)
        check("left", expected=0, found=told.declaration_result.message_count)
        await told.delete(if_unused=False, if_empty=False)
        await connection.close()
        return {"count": float(taken), "seconds": seconds, "server s": spent}

    async def latency(self) -> Figures:
        connection, other = await self._connect(), await self._connect()
        channel = await connection.channel(publisher_confirms=True)
        queue = await self._queue(channel)
        listening = await (await other.channel()).get_queue(self.job.topic)
        arrived = asyncio.Event()

        async def heard(message: Any) -> None:
            arrived.set()
            await message.ack()

        await listening.consume(heard)
        taken: list[float] = []
        for _ in range(self.job.count):
            await asyncio.sleep(REST_SECONDS)
            arrived.clear()
            start = monotonic()
            publishing = asyncio.ensure_future(
                channel.default_exchange.publish(self._message(), self.job.topic)
            )
            await arrived.wait()
            taken.append(monotonic() - start)
            await publishing
        await queue.delete(if_unused=False, if_empty=False)
        await other.close()
        await connection.close()
        return latencies(taken)

    async def live_publish(self, pace: Pace) -> None:
        connection = await self._connect()
        channel = await connection.channel(publisher_confirms=False)
        exchange = await channel.declare_exchange(self.job.topic, ExchangeType.FANOUT)
        message = Message(self.value, delivery_mode=DeliveryMode.NOT_PERSISTENT)
        while await pace.may_send(LIVE_BURST):
            for _ in range(LIVE_BURST):
                await exchange.publish(message, "")
        await exchange.delete()
        await connection.close()

    async def live_listen(self, ears: Ears) -> None:
        connections = [await self._connect() for _ in range(self.job.subscribers)]
        for ear, connection in enumerate(connections):
            channel = await connection.channel()
            exchange = await channel.declare_exchange(self.job.topic, ExchangeType.FANOUT)
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange)

            async def heard(message: Any, ear: int = ear) -> None:
                if len(message.body) == self.job.size:
                    ears.heard(ear)

            await queue.consume(heard, no_ack=True)
        ears.ready()
        await ears.wait_done()
        for connection in connections:
            await connection.close()


DRIVER = RabbitDriver
