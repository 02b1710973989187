"""paho-mqtt: its network loop in a thread, QoS 1 bounded by what is unacknowledged, QoS 0 live.

What is published is kept for a session that is offline, as Mosquitto keeps nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from time import monotonic, sleep
from typing import Any

import paho.mqtt.client as mqtt

from ..driving import LIVE_BURST, Driver, Ears, Figures, Pace
from ..job import BATCH, BATCHES_AT_ONCE, QUIET_SECONDS, REST_SECONDS, check, latencies

AT_ONCE_MAX = 65_535


class MosquittoDriver(Driver):
    def _client(self, name: str = "", *, clean: bool = True) -> Any:
        return mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean or not name
        )

    def _open(self, client: Any) -> None:
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.max_inflight_messages_set(AT_ONCE_MAX)
        client.max_queued_messages_set(0)
        client.connect(self.job.host, self.job.port)
        client.loop_start()
        if not connected.wait(10):
            raise RuntimeError("Mosquitto did not accept the connection")

    def _close(self, client: Any) -> None:
        client.disconnect()
        client.loop_stop()

    def _subscribe(self, client: Any, qos: int) -> None:
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        client.subscribe(self.job.topic, qos)
        if not subscribed.wait(10):
            raise RuntimeError("Mosquitto did not accept the subscription")

    def _offline_session(self) -> None:
        client = self._client(f"{self.job.topic}-session", clean=False)
        self._open(client)
        self._subscribe(client, 1)
        self._close(client)

    def _take_session(self, expected: int) -> tuple[int, float]:
        """Come back as the session that was offline: how many arrive, and in which time."""
        client = self._client(f"{self.job.topic}-session", clean=False)
        taken = 0
        last = monotonic()
        done = threading.Event()

        def heard(_client: Any, _data: Any, message: Any) -> None:
            nonlocal taken, last
            taken += len(message.payload) == self.job.size
            last = monotonic()
            if taken == expected:
                done.set()

        client.on_message = heard
        start = monotonic()
        self._open(client)
        while not done.is_set() and monotonic() < last + QUIET_SECONDS:
            done.wait(0.05)
        self._close(client)
        gone = self._client(f"{self.job.topic}-session", clean=True)
        self._open(gone)
        self._close(gone)
        return taken, last - start

    def _publish(self, depth: int, seconds: float, count: int | None = None) -> tuple[int, float]:
        client = self._client()
        free = threading.Semaphore(depth)
        acknowledged = 0

        def on_publish(*_: Any) -> None:
            nonlocal acknowledged
            acknowledged += 1
            free.release()

        client.on_publish = on_publish
        self._open(client)
        sent = 0
        start = monotonic()
        while (monotonic() < start + seconds) if count is None else (sent < count):
            if not free.acquire(timeout=QUIET_SECONDS):
                break
            client.publish(self.job.topic, self.value, 1)
            sent += 1
        for _ in range(depth):
            free.acquire(timeout=QUIET_SECONDS)
        took = monotonic() - start
        self._close(client)
        check("acknowledged", expected=sent, found=acknowledged)
        return acknowledged, took

    async def publish(self) -> Figures:
        return self._stored(self.job.in_flight)

    async def batches(self) -> Figures:
        return self._stored(BATCH * BATCHES_AT_ONCE)

    def _stored(self, depth: int) -> Figures:
        self._offline_session()
        count, seconds = self._publish(depth, self.job.seconds)
        check("stored", expected=count, found=self._take_session(count)[0])
        return {"count": float(count), "seconds": seconds}

    async def consume(self) -> Figures:
        self._offline_session()
        self._publish(512, 0.0, self.job.count)
        taken, seconds = self._take_session(self.job.count)
        check("taken", expected=self.job.count, found=taken)
        return {"count": float(taken), "seconds": seconds}

    async def latency(self) -> Figures:
        return self._latency()

    def _latency(self) -> Figures:
        qos = 0 if self.job.durability == "live" else 1
        client, other = self._client(), self._client()
        arrived = threading.Semaphore(0)
        at = 0.0

        def heard(*_: Any) -> None:
            nonlocal at
            at = monotonic()
            arrived.release()

        other.on_message = heard
        self._open(client)
        self._open(other)
        self._subscribe(other, qos)
        taken: list[float] = []
        for _ in range(self.job.count):
            sleep(REST_SECONDS)
            start = monotonic()
            client.publish(self.job.topic, self.value, qos)
            if not arrived.acquire(timeout=QUIET_SECONDS):
                check("arrived", expected=self.job.count, found=len(taken))
            taken.append(at - start)
        self._close(client)
        self._close(other)
        return latencies(taken)

    async def live_publish(self, pace: Pace) -> None:
        client = self._client()
        self._open(client)
        while await pace.may_send(LIVE_BURST):
            for _ in range(LIVE_BURST):
                info = client.publish(self.job.topic, self.value, 0)
        info.wait_for_publish(QUIET_SECONDS)
        self._close(client)

    async def live_listen(self, ears: Ears) -> None:
        clients = []
        for ear in range(self.job.subscribers):
            client = self._client()

            def heard(_client: Any, _data: Any, message: Any, ear: int = ear) -> None:
                if len(message.payload) == self.job.size:
                    ears.heard(ear)

            client.on_message = heard
            self._open(client)
            self._subscribe(client, 0)
            clients.append(client)
        ears.ready()
        await ears.wait_done()
        for client in clients:
            self._close(client)
        await asyncio.sleep(0)


DRIVER = MosquittoDriver
