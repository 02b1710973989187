"""A device with much in its outbox comes back over a slow link; what do other clients notice?

    python -m tests.remote.outbox_slow_link [--mib 100] [--mib-per-second 8]

A broker in a process of its own. Another client publishes and waits for its receipt, one message at
a time: first alone, then while the device sends. It prints both latencies, and what arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path

import flintmq
from tests.integration.served import Served
from tests.patience import free_port

VALUE = b"x" * 1000
PIECE = 16 * 1024


class SlowLink:
    """Forwards bytes to a server, at so many bytes a second."""

    def __init__(self, target: tuple[str, int], bytes_per_second: float) -> None:
        self._target, self._rate = target, bytes_per_second

    async def start(self) -> tuple[asyncio.Server, str]:
        server = await asyncio.start_server(self._link, "127.0.0.1", 0, limit=PIECE)
        return server, f"flint://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        free_at = loop.time()
        while data := await reader.read(PIECE):
            free_at = max(free_at, loop.time()) + len(data) / self._rate
            await asyncio.sleep(free_at - loop.time())
            writer.write(data)
            await writer.drain()
        writer.close()


async def latencies(mq: flintmq.Client, stop: asyncio.Event) -> list[float]:
    found: list[float] = []
    while not stop.is_set():
        began = time.perf_counter()
        await mq.publish("other", b"x" * 100)
        found.append(time.perf_counter() - began)
        await asyncio.sleep(0.002)
    return sorted(found)


def told(found: list[float]) -> str:
    at = [1e3 * found[int(share * (len(found) - 1))] for share in (0.5, 0.95, 0.99, 1)]
    figures = f"p50 {at[0]:.2f}, p95 {at[1]:.2f}, p99 {at[2]:.2f}, max {at[3]:.2f} ms"
    return f"{len(found):,} publishes, {figures}"


async def run(directory: Path, mib: int, mib_per_second: float) -> bool:
    outbox = directory / "outbox"
    count = mib * 1024 * 1024 // len(VALUE)
    away = f"flint://127.0.0.1:{free_port()}"
    async with flintmq.connect(away, outbox=outbox, fsync="never") as mq:
        for start in range(0, count, 1000):
            await mq.publish_batch("readings", [VALUE] * min(1000, count - start))
        print(f"queued: {await mq.outbox_stats()}", flush=True)
    broker = await Served(directory / "broker", "--fsync", "never").start()
    server, url = await SlowLink(broker.address, mib_per_second * (1 << 20)).start()
    try:
        async with flintmq.connect(broker.url) as other:
            stop = asyncio.Event()
            measuring = asyncio.create_task(latencies(other, stop))
            await asyncio.sleep(mib / mib_per_second / 2)
            stop.set()
            print(f"alone:      {told(await measuring)}", flush=True)
            device = await asyncio.create_subprocess_exec(
                sys.executable, "-c",
                "import flintmq, sys; mq = flintmq.connect_sync(sys.argv[1], outbox=sys.argv[2], "
                "fsync='never'); assert mq.flush_outbox(600); print(mq.outbox_stats()); mq.close()",
                url, str(outbox),
            )  # fmt: skip
            began, stop = time.perf_counter(), asyncio.Event()
            measuring = asyncio.create_task(latencies(other, stop))
            code = await device.wait()
            stop.set()
            seconds = time.perf_counter() - began
            print(f"with device: {told(await measuring)}; sent in {seconds:.1f} s", flush=True)
            stats = await other.topic_stats("readings")
            print(f"{stats.message_count:,} of {count:,} arrived")
            return code == 0 and stats.message_count == count
    finally:
        server.close()
        await broker.end(signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=100)
    parser.add_argument("--mib-per-second", type=float, default=8.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        is_good = asyncio.run(run(Path(directory), options.mib, options.mib_per_second))
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
