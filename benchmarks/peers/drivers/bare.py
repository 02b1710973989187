"""The client of the bare loop: a socket, and messages of one length with nothing around them."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import cast

from ..driving import LIVE_BURST, Driver, Ears, Figures, Pace
from ..job import BATCH, BATCHES_AT_ONCE, REST_SECONDS, Job, check, latencies


class _Socket(asyncio.Protocol):
    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.got = -1  # the first byte is the welcome
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.got += len(data)
        self.answered.set()


class BareDriver(Driver):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._synced = job.durability == "synced"

    async def _open(self, kind: bytes, protocol: type[_Socket] = _Socket) -> _Socket:
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(protocol, self.job.host, self.job.port)
        socket.transport.write(kind + self.job.size.to_bytes(4))
        await socket.answered.wait()
        return socket

    async def _in_flight(self, depth: int) -> Figures:
        socket = await self._open(b"S" if self._synced else b"A")
        sent = 0
        start = monotonic()
        while monotonic() < start + self.job.seconds:
            socket.answered.clear()
            room = depth - (sent - socket.got)
            if room:
                socket.transport.write(self.value * room)
                sent += room
            await socket.answered.wait()
        while socket.got < sent:
            socket.answered.clear()
            await asyncio.wait_for(socket.answered.wait(), 10)
        took = monotonic() - start
        check("answered", expected=sent, found=socket.got)
        socket.transport.close()
        return {"count": float(sent), "seconds": took}

    async def publish(self) -> Figures:
        return await self._in_flight(self.job.in_flight)

    async def batches(self) -> Figures:
        return await self._in_flight(BATCH * BATCHES_AT_ONCE)

    async def consume(self) -> Figures:
        raise AssertionError("the bare loop keeps nothing that could be consumed")

    async def latency(self) -> Figures:
        """There and back: publisher and consumer are one."""
        socket = await self._open(b"S" if self._synced else b"E")
        taken: list[float] = []
        for _ in range(self.job.count):
            await asyncio.sleep(REST_SECONDS)
            socket.answered.clear()
            start = monotonic()
            socket.transport.write(self.value)
            await socket.answered.wait()
            taken.append(monotonic() - start)
        socket.transport.close()
        return latencies(taken)

    async def live_publish(self, pace: Pace) -> None:
        socket = await self._open(b"F")
        while await pace.may_send(LIVE_BURST):
            for _ in range(LIVE_BURST):
                socket.transport.write(self.value)
            await asyncio.sleep(0)
        socket.transport.close()
        await asyncio.sleep(0.05)

    async def live_listen(self, ears: Ears) -> None:
        size = self.job.size

        class Ear(_Socket):
            number = 0
            whole = 0

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                if (found := self.got // size) > self.whole:
                    ears.heard(self.number, found - self.whole)
                    self.whole = found

        opened = []
        for number in range(self.job.subscribers):
            ear = cast("Ear", await self._open(b"L", Ear))
            ear.number = number
            opened.append(ear)
        ears.ready()
        await ears.wait_done()
        for ear in opened:
            ear.transport.close()


DRIVER = BareDriver
