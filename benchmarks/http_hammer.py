"""Does anybody who hammers /metrics slow messages down?

    .venv/bin/python -m benchmarks.http_hammer --rounds 5 --seconds 3 --topics 1000

`flintmq serve` in one process, with many topics. A client publishes one message at a time to one
in memory and reads it back, then publishes batches as fast as it can. Three cases take turns:

    alone      nobody asks for anything
    beside     a third process hammers /metrics of a second broker of the same kind, over eight
               connections: what the machine itself loses by it, on few cores
    hammered   the same, of the broker that is measured

Ratios are within a round; their median is in the table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median

import flintmq
from flintmq.daemon.process import loop_factory

VALUE = b"x" * 100
CONNECTIONS = 8
LATENCY_REST_SECONDS = 0.002


@contextlib.contextmanager
def broker(directory: str, *arguments: str) -> Iterator[tuple[str, str]]:
    """A broker in a process of its own; where it is, and where its HTTP is."""
    command = [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", directory]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().split("ready at ")[1]
        url, http, _ = line.split(", ", 2)
        yield url, http.removeprefix("http://")
    finally:
        process.terminate()
        process.wait()


# --- the hammer, in a process of its own


async def hammer(address: str, path: str, headers: str) -> None:
    """Ask until the end of the input; then say how often that was, and how many bytes came."""
    host, _, port = address.rpartition(":")
    asked = received = 0

    async def ask() -> None:
        nonlocal asked, received
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
        while True:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: flint\r\n{headers}\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(size)
            received += len(body)
            asked += 1

    tasks = [asyncio.ensure_future(ask()) for _ in range(CONNECTIONS)]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    print(json.dumps({"asked": asked, "received": received}))


class Hammer:
    def __init__(self, address: str, path: str, headers: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.http_hammer", "--hammer", address, path, headers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> dict[str, float]:
        said, _ = self._process.communicate("")
        figures: dict[str, float] = json.loads(said)
        return figures


# --- what is measured


async def latencies(mq: flintmq.Client, seconds: float) -> dict[str, float]:
    """One message at a time, from its publish to its receipt and to its reader."""
    receipts: list[float] = []
    arrivals: list[float] = []
    async with mq.reader("latency", start="latest") as reader:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await asyncio.sleep(LATENCY_REST_SECONDS)
            start = time.perf_counter()
            await mq.publish("latency", VALUE)
            receipts.append(time.perf_counter() - start)
            await reader.read(timeout=10)
            arrivals.append(time.perf_counter() - start)
    return {
        "receipt p50": quantile(receipts, 0.5),
        "receipt p99": quantile(receipts, 0.99),
        "arrival p50": quantile(arrivals, 0.5),
        "arrival p99": quantile(arrivals, 0.99),
    }


async def throughput(mq: flintmq.Client, seconds: float) -> float:
    """Batches of 100, four under way, and a reader that takes them."""
    values = [VALUE] * 100
    start = time.perf_counter()
    end = start + seconds

    async def publish() -> int:
        sent = 0
        while time.perf_counter() < end:
            await mq.publish_batch("throughput", values)
            sent += len(values)
        return sent

    async with mq.reader("throughput", start="latest") as reader:
        publishing = asyncio.gather(*(publish() for _ in range(4)))
        count = 0
        while not publishing.done():
            count += len(await reader.read_batch(1000, timeout=0.5))
        total = sum(await publishing)
        while count < total:
            count += len(await reader.read_batch(1000, timeout=5))
    return total / (time.perf_counter() - start)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


async def measure(url: str, seconds: float) -> dict[str, float]:
    async with flintmq.connect(url) as mq:
        figures = await latencies(mq, seconds)
        figures["msgs/s"] = await throughput(mq, seconds)
        return figures


async def prepare(url: str, topics: int) -> None:
    async with flintmq.connect(url) as mq:
        for name in ("latency", "throughput"):
            await mq.create_topic(name, storage="memory", retention_bytes=1 << 26)
        for start in range(0, topics, 100):
            names = range(start, min(topics, start + 100))
            await asyncio.gather(*(mq.publish(f"topic.{n}", VALUE) for n in names))


CASES = ("alone", "beside", "hammered")
NAMES = ("receipt p50", "receipt p99", "arrival p50", "arrival p99", "msgs/s")


def run(
    url: str, addresses: dict[str, str], rounds: int, seconds: float, path: str, headers: str
) -> dict[str, float]:
    """Medians of each case, and of the ratios of each round."""
    found: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    asked: list[float] = []

    def measured() -> dict[str, float]:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(measure(url, seconds))

    measured()  # warm
    for number in range(rounds):
        for case in CASES[number % 3 :] + CASES[: number % 3]:
            if case == "alone":
                found[case].append(measured())
                continue
            tool = Hammer(addresses[case], path, headers)
            time.sleep(0.5)  # it has begun
            start = time.perf_counter()
            found[case].append(measured())
            elapsed = time.perf_counter() - start + 0.5
            count = tool.end()["asked"]
            if case == "hammered":
                asked.append(count / elapsed)
    figures = {"asked/s": median(asked)}
    for name in NAMES:
        for case in CASES:
            figures[f"{name} {case}"] = median(one[name] for one in found[case])
        for case in CASES[:2]:
            pairs = zip(found[case], found["hammered"], strict=True)
            figures[f"{name} x {case}"] = median(two[name] / one[name] for one, two in pairs)
    return figures


def show(title: str, figures: dict[str, float]) -> None:
    print(f"\n{title}: {figures['asked/s']:.0f} requests/s answered")
    print(f"{'':16}{'alone':>12}{'beside':>12}{'hammered':>12}{'x alone':>10}{'x beside':>10}")
    for name in NAMES:
        unit, digits = ("", 0) if name == "msgs/s" else (" ms", 3)
        row = "".join(f"{figures[f'{name} {case}']:>12,.{digits}f}" for case in CASES)
        row += "".join(f"{figures[f'{name} x {case}']:>10.2f}" for case in CASES[:2])
        print(f"{name + unit:16}{row}")
    print(json.dumps({"benchmark": "http_hammer", "case": title, **figures}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hammer", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--share", default="0.1", help="http_cpu_share; 1: no budget")
    parser.add_argument("--max-series", default="100000")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--path", default="/metrics")
    options = parser.parse_args()
    if options.hammer is not None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(hammer(*options.hammer))
        return
    headers = "Accept-Encoding: gzip\r\n" if options.gzip else ""
    settings = ["--http-cpu-share", options.share, "--metrics-max-series", options.max_series]
    with (
        tempfile.TemporaryDirectory() as directory,
        tempfile.TemporaryDirectory() as other_directory,
        broker(directory, *settings) as (url, http),
        broker(other_directory, *settings) as (other_url, other_http),
    ):
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(prepare(url, options.topics))
            runner.run(prepare(other_url, options.topics))
        title = f"{options.path}{' gzip' if options.gzip else ''}, share {options.share}"
        addresses = {"hammered": http, "beside": other_http}
        show(
            f"{title}, {options.topics} topics",
            run(url, addresses, options.rounds, options.seconds, options.path, headers),
        )


if __name__ == "__main__":
    main()
