"""What a broker does over loopback: `flintmq serve` in one process, clients in others.

    .venv/bin/python -m benchmarks.network --seconds 3

Messages have 100 bytes. Durable topics are synced before the receipt; live ones are in memory. One
table and one JSON line. The bare rows are what the machine itself needs, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from statistics import median
from typing import cast

import flintmq
from flintmq.daemon.process import loop_factory

VALUE = b"x" * 100
Work = Callable[[str, float], Awaitable[dict[str, float]]]


@contextlib.contextmanager
def broker(directory: str, *arguments: str) -> Iterator[str]:
    """A broker in a process of its own; its URL."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "flintmq.cli",
            "serve",
            "--data-dir",
            directory,
            "--listen",
            "127.0.0.1:0",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield line.split("ready at ")[1].split(",")[0]
    finally:
        process.terminate()
        process.wait()


async def bare_syncs(url: str, seconds: float) -> dict[str, float]:
    """What the disk needs for a write of 16 KiB that is synced, and nothing else."""
    taken: list[float] = []
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 22))
        os.fsync(file.fileno())
        for number in range(200):
            start = time.perf_counter()
            os.pwrite(file.fileno(), bytes(16_384), number * 16_384)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - start)
    return {"p50 ms": median(taken) * 1000}


class _Echo(asyncio.Protocol):
    def __init__(self, heard: Callable[[], None] | None = None) -> None:
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._heard is None:
            self.transport.write(data)
        else:
            self._heard()


async def bare_echo(url: str, seconds: float) -> dict[str, float]:
    """Loopback there and back through a process that only echoes, after rests as below."""
    loop = asyncio.get_running_loop()
    code = (
        "import asyncio, benchmarks.network as n\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    server = await loop.create_server(n._Echo, '127.0.0.1', 0)\n"
        "    print(server.sockets[0].getsockname()[1], flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "with asyncio.Runner(loop_factory=n.loop_factory()) as runner: runner.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        heard = asyncio.Event()
        _, echo = await loop.create_connection(lambda: _Echo(heard.set), "127.0.0.1", port)
        taken: list[float] = []
        for _ in range(300):
            await asyncio.sleep(0.003)
            heard.clear()
            start = time.perf_counter()
            echo.transport.write(VALUE)
            await heard.wait()
            taken.append(time.perf_counter() - start)
    finally:
        process.kill()
        process.wait()
    return {"p50 ms": median(taken) * 1000}


async def publish_batch(url: str, seconds: float, at_once: int = 16) -> dict[str, float]:
    """Batches of 100, sixteen under way."""
    async with flintmq.connect(url) as mq:
        values = [VALUE] * 100
        count = 0
        end = time.perf_counter() + seconds

        async def work() -> None:
            nonlocal count
            while time.perf_counter() < end:
                await mq.publish_batch("batches", values)
                count += 100

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(at_once)))
        return {"msgs/s": count / (time.perf_counter() - start)}


async def publish_more_batches(url: str, seconds: float) -> dict[str, float]:
    return await publish_batch(url, seconds, 64)


async def send(url: str, seconds: float) -> dict[str, float]:
    """`publisher.send`, one by one, flushed now and then."""
    async with flintmq.connect(url) as mq, mq.publisher("sent") as publisher:
        count = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(20):
                for _ in range(1000):
                    publisher.send(VALUE)
                await asyncio.sleep(0)
            count += 20_000
            while publisher.sent - publisher.acknowledged > 60_000:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await publisher.flush()
        return {"msgs/s": count / (time.perf_counter() - start)}


async def single(url: str, seconds: float) -> dict[str, float]:
    """`await publish`, 512 under way."""
    async with flintmq.connect(url) as mq:
        count = 0
        end = time.perf_counter() + seconds

        async def work() -> None:
            nonlocal count
            while time.perf_counter() < end:
                await mq.publish("singles", VALUE)
                count += 1

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(512)))
        return {"msgs/s": count / (time.perf_counter() - start)}


async def consume(url: str, seconds: float) -> dict[str, float]:
    """Poll 256, ack 256, four at a time."""
    async with flintmq.connect(url) as mq:
        total = int(100_000 * seconds)
        for _ in range(total // 1000):
            await mq.publish_batch("queue", [VALUE] * 1000)
        count = 0
        await mq.poll("queue", "workers", 1)

        async def work() -> None:
            nonlocal count
            while found := await mq.poll("queue", "workers", 256):
                await mq.ack(found)
                count += len(found)

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(4)))
        return {"msgs/s": count / (time.perf_counter() - start)}


async def read(url: str, seconds: float) -> dict[str, float]:
    """A reader in batches of 1000, of what is there."""
    async with flintmq.connect(url) as mq:
        total = int(200_000 * seconds)
        for _ in range(total // 1000):
            await mq.publish_batch("log", [VALUE] * 1000)
        async with mq.reader("log") as reader:
            count = 0
            start = time.perf_counter()
            while count < total:
                count += len((await reader.read_batch(1000)).values)
            return {"msgs/s": count / (time.perf_counter() - start)}


async def _fan_out(url: str, seconds: float, feeds: int, batch: int) -> dict[str, float]:
    """QoS 0, without a disk: what every subscriber gets, together."""
    clients = [await flintmq.connect(url) for _ in range(feeds + 1)]
    mq, *others = clients
    opened = [await one.live("live", capacity=8192, overflow="block") for one in others]
    got = 0
    done = False

    async def take(feed: flintmq.Feed) -> None:
        nonlocal got
        while not done:
            rows = await feed.read_batch(8192, timeout=0.5)
            got += len(rows.values)

    tasks = [asyncio.ensure_future(take(feed)) for feed in opened]
    start = time.perf_counter()
    if batch > 1:
        values = [VALUE] * batch

        async def work() -> None:
            while time.perf_counter() - start < seconds:
                await mq.publish_batch("live", values, qos=0)

        await asyncio.gather(*(work() for _ in range(8)))
    else:
        async with mq.publisher("live", qos=0) as publisher:
            while time.perf_counter() - start < seconds:
                for _ in range(1000):
                    publisher.send(VALUE)
                await asyncio.sleep(0)
                while publisher.sent - publisher.acknowledged > 20_000:  # noqa: ASYNC110
                    await asyncio.sleep(0)
    elapsed = time.perf_counter() - start
    rate = got / elapsed
    done = True
    await asyncio.gather(*tasks)
    for client in clients:
        await client.close()
    return {"msgs/s": rate}


async def live_batches(url: str, seconds: float) -> dict[str, float]:
    return await _fan_out(url, seconds, 1, 1000)


async def live_sends(url: str, seconds: float) -> dict[str, float]:
    return await _fan_out(url, seconds, 1, 1)


async def live_to_eight(url: str, seconds: float) -> dict[str, float]:
    return await _fan_out(url, seconds, 8, 1000)


async def _latency(url: str, qos: int) -> dict[str, float]:
    """From publish to delivery, one at a time, nothing else going on."""
    taken: list[float] = []
    async with flintmq.connect(url) as mq, flintmq.connect(url) as other:
        topic = f"idle {qos}".replace(" ", "-")
        async with other.live(topic) as feed:
            for _ in range(300):
                reading = asyncio.ensure_future(feed.read())
                await asyncio.sleep(0.003)
                start = time.perf_counter()
                publishing = asyncio.ensure_future(mq.publish(topic, VALUE, qos=qos))
                await reading
                taken.append(time.perf_counter() - start)
                await publishing
    return {"p50 ms": median(taken) * 1000}


async def latency_durable(url: str, seconds: float) -> dict[str, float]:
    return await _latency(url, 1)


async def latency_live(url: str, seconds: float) -> dict[str, float]:
    return await _latency(url, 0)


CASES: dict[str, tuple[Work, str]] = {
    "bare write and fdatasync": (bare_syncs, "-"),
    "bare echo over loopback": (bare_echo, "-"),
    "publish_batch of 100, 16 at once": (publish_batch, "400,000"),
    "publish_batch of 100, 64 at once": (publish_more_batches, "400,000"),
    "publisher.send": (send, "320,000 (Kafka 312,000)"),
    "await publish, 512 at once": (single, "80,000 (Redis 74,000)"),
    "poll and ack, 256": (consume, "200,000 (Kafka 154,000)"),
    "reader, 1000": (read, "-"),
    "live 1:1 in batches": (live_batches, "1,000,000"),
    "live 1:1 by send": (live_sends, "300,000 (NATS 155,000)"),
    "live 1:8 in batches": (live_to_eight, "1,000,000 (NATS 177,000)"),
    "idle latency, durable": (latency_durable, "0.9 ms (NATS 0.75)"),
    "idle latency, live": (latency_live, "0.35 ms (NATS 0.23)"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    print(f"{'case':36}{'figure':>14}   wanted")
    for name, (work, wanted) in CASES.items():
        if arguments.only not in name:
            continue
        with (
            tempfile.TemporaryDirectory() as directory,
            broker(directory) as url,
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            figures[name] = runner.run(work(url, arguments.seconds))  # type: ignore[arg-type]
        for unit, figure in figures[name].items():
            shown = f"{figure:,.0f}" if figure > 100 else f"{figure:.3f}"
            print(f"{name:36}{shown:>14}   {wanted} {unit}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
