"""confluent-kafka: acks=all, callbacks, a bound on what is unacknowledged; consume and commit."""

from __future__ import annotations

import threading
from time import monotonic, sleep
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..driving import Driver, Ears, Figures, Pace
from ..job import POLL, REST_SECONDS, check, latencies

BATCHED_AT_ONCE = 100_000
BATCHED = {"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": 200_000}
SINGLY = {"linger.ms": 0}


class KafkaDriver(Driver):
    def _topic(self) -> str:
        admin = AdminClient({"bootstrap.servers": self.job.address})
        config = {"flush.messages": "1"} if self.job.mode == "fsync" else {}
        topic = NewTopic(self.job.topic, 1, 1, config=config)
        for future in admin.create_topics([topic]).values():
            future.result(30)
        return self.job.topic

    def _delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.job.address})
        for future in admin.delete_topics([self.job.topic]).values():
            future.result(30)

    def _consumer(self) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self.job.address,
                "group.id": f"{self.job.topic}-workers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def _produce(
        self, depth: int, seconds: float, settings: dict[str, Any], count: int | None = None
    ) -> tuple[int, float]:
        producer = Producer({"bootstrap.servers": self.job.address, "acks": "all", **settings})
        topic, value = self.job.topic, self.next_value
        acknowledged = sent = 0

        def delivered(error: KafkaError | None, _message: Any) -> None:
            nonlocal acknowledged
            if error is None:
                acknowledged += 1

        producer.produce(topic, value(), on_delivery=delivered)
        producer.flush(30)
        sent = 1
        start = monotonic()
        while (monotonic() < start + seconds) if count is None else (sent < count):
            while sent - acknowledged >= depth:
                producer.poll(0.01)
            producer.produce(topic, value(), on_delivery=delivered)
            sent += 1
            if not sent & 63:
                producer.poll(0)
        producer.flush(30)
        took = monotonic() - start
        check("acknowledged", expected=sent, found=acknowledged)
        return acknowledged - 1, took

    async def publish(self) -> Figures:
        return self._stored(self.job.in_flight, SINGLY)

    async def batches(self) -> Figures:
        return self._stored(BATCHED_AT_ONCE, BATCHED)

    def _stored(self, depth: int, settings: dict[str, Any]) -> Figures:
        topic = self._topic()
        count, seconds = self._produce(depth, self.job.seconds, settings)
        consumer = self._consumer()
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.close()
        check("stored", expected=count + 1, found=end)
        self._delete()
        return {"count": float(count), "seconds": seconds}

    async def consume(self) -> Figures:
        topic = self._topic()
        self._produce(BATCHED_AT_ONCE, 0.0, BATCHED, self.job.count)
        consumer = self._consumer()
        consumer.subscribe([topic])
        taken = 0
        start = 0.0
        give_up_at = monotonic() + 60
        while taken < self.job.count and monotonic() < give_up_at:
            messages = consumer.consume(POLL, 1.0)
            # Joining a group takes seconds; it is not what is measured.
            start = start or monotonic()
            taken += sum(len(message.value()) == self.job.size for message in messages)
            if messages:
                consumer.commit(asynchronous=taken < self.job.count)
        seconds = monotonic() - start
        committed = consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].offset
        consumer.close()
        check("taken", expected=self.job.count, found=taken)
        check("committed", expected=self.job.count, found=committed)
        self._delete()
        return {"count": float(taken), "seconds": seconds}

    async def latency(self) -> Figures:
        return self._latency()

    def _latency(self) -> Figures:
        topic = self._topic()
        producer = Producer({"bootstrap.servers": self.job.address, "acks": "all", **SINGLY})
        consumer = self._consumer()
        consumer.subscribe([topic])
        arrived = threading.Semaphore(0)
        at = 0.0
        heard = 0

        def listen() -> None:
            nonlocal at, heard
            while heard < self.job.count + 1:
                if consumer.poll(5.0) is not None:
                    at = monotonic()
                    heard += 1
                    arrived.release()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        taken: list[float] = []
        for number in range(self.job.count + 1):
            sleep(REST_SECONDS)
            start = monotonic()
            producer.produce(topic, self.value)
            producer.poll(0)
            if not arrived.acquire(timeout=30):
                check("arrived", expected=self.job.count, found=len(taken))
            if number:  # the first waits for the consumer to join its group
                taken.append(at - start)
        thread.join(10)
        producer.flush(10)
        consumer.close()
        self._delete()
        return latencies(taken)

    async def live_publish(self, pace: Pace) -> None:
        raise AssertionError("Kafka has no path that stores nothing")

    async def live_listen(self, ears: Ears) -> None:
        raise AssertionError("Kafka has no path that stores nothing")


DRIVER = KafkaDriver
