"""What a broker costs that has little to do: memory, wake-ups, connections, topics.

    .venv/bin/python -m benchmarks.server_footprint

A real `flintmq serve`, looked at from outside (/proc, so Linux only): memory is what is resident,
wake-ups are how often its threads went to sleep. One table and one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import flintmq

from .report import machine, machine_line

MIB = 1024 * 1024


class Figure(NamedTuple):
    what: str
    key: str
    figure: float
    unit: str
    wanted: str = ""


class Process:
    def __init__(self, directory: str) -> None:
        command = ["-m", "flintmq.cli", "serve", "--data-dir", directory, "--listen", "127.0.0.1:0"]
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.start_seconds = time.perf_counter() - started
        self.url = line.split("ready at ")[1].split(",")[0]

    def end(self, number: int) -> float:
        started = time.perf_counter()
        self._process.send_signal(number)
        self._process.wait()
        return time.perf_counter() - started

    def memory_mib(self) -> float:
        return self._status(Path(f"/proc/{self._process.pid}"), "VmRSS") / 1024

    def wake_ups(self) -> int:
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(self._status(task, "voluntary_ctxt_switches") for task in tasks)

    @staticmethod
    def _status(process: Path, name: str) -> int:
        for line in (process / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise RuntimeError(f"no {name} in {process}/status")


@contextlib.contextmanager
def broker() -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="flintmq-") as directory:
        process = Process(directory)
        try:
            yield process
        finally:
            process.end(signal.SIGTERM)


@contextlib.asynccontextmanager
async def clients(url: str, count: int) -> AsyncIterator[list[flintmq.Client]]:
    opened: list[flintmq.Client] = []
    try:
        for _ in range(0, count, 50):
            opened += await asyncio.gather(
                *(flintmq.connect(url) for _ in range(min(50, count - len(opened))))
            )
        yield opened
    finally:
        for start in range(0, len(opened), 50):
            await asyncio.gather(*(mq.close() for mq in opened[start : start + 50]))


async def empty(seconds: float) -> list[Figure]:
    with broker() as process:
        await asyncio.sleep(1)
        before = process.wake_ups()
        await asyncio.sleep(seconds)
        return [
            Figure("empty broker", "empty_mib", process.memory_mib(), "MiB"),
            Figure("  start until ready", "empty_start_s", process.start_seconds, "s"),
            Figure(
                "  wake-ups",
                "empty_wake_ups_per_s",
                (process.wake_ups() - before) / seconds,
                "a second",
            ),
        ]


async def idle_connections(count: int) -> list[Figure]:
    with broker() as process:
        async with clients(process.url, 1) as (mq,):
            await mq.publish("orders", b"x")
        before = process.memory_mib()
        async with clients(process.url, count) as many:
            await asyncio.sleep(0.5)
            after = process.memory_mib()
            assert len(many) == count
        return [
            Figure(
                f"{count:,} idle connections",
                "connections_mib",
                after - before,
                "MiB more",
                "under 100" if count == 2000 else "",
            ),
            Figure("  each", "connection_kib", (after - before) * 1024 / count, "KiB"),
        ]


async def parked(count: int, seconds: float) -> list[Figure]:
    """Half of them read a topic, half are members of ten groups."""
    with broker() as process:
        async with clients(process.url, 50) as many:
            before = process.memory_mib()
            waiting = []
            await many[0].create_topic("orders")
            for number in range(count):
                mq = many[number % len(many)]
                if number % 2:
                    reader = await mq.reader("orders", start="latest")
                    waiting.append(asyncio.ensure_future(reader.read()))
                else:
                    deliveries = await mq.subscribe("orders", f"group{number % 20 // 2}")
                    waiting.append(asyncio.ensure_future(deliveries.read()))
            await asyncio.sleep(2)
            memory = process.memory_mib() - before
            woken = process.wake_ups()
            await asyncio.sleep(seconds)
            woken = process.wake_ups() - woken
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return [
            Figure(f"{count:,} parked subscribers", "parked_mib", memory, "MiB more"),
            Figure("  wake-ups", "parked_wake_ups_per_s", woken / seconds, "a second", "under 10"),
        ]


async def many_topics(count: int) -> list[Figure]:
    """Make them, publish to each, stop; start again after a stop and after kill -9."""
    with tempfile.TemporaryDirectory(prefix="flintmq-") as directory:
        process = Process(directory)
        before = process.memory_mib()
        async with clients(process.url, 1) as (mq,):
            started = time.perf_counter()
            for first in range(0, count, 500):
                numbers = range(first, min(count, first + 500))
                await asyncio.gather(*(mq.create_topic(f"topic.{n}") for n in numbers))
            made = time.perf_counter() - started
            started = time.perf_counter()
            for first in range(0, count, 500):
                numbers = range(first, min(count, first + 500))
                await asyncio.gather(*(mq.publish(f"topic.{n}", b"x" * 100) for n in numbers))
            published = time.perf_counter() - started
        memory = process.memory_mib() - before
        process.end(signal.SIGKILL)
        after_kill = Process(directory)
        async with clients(after_kill.url, 1) as (mq,):
            assert len(await mq.topics()) == count
        stop = after_kill.end(signal.SIGTERM)
        after_stop = Process(directory)
        async with clients(after_stop.url, 1) as (mq,):
            assert (await mq.topic_stats(f"topic.{count - 1}")).message_count == 1
        after_stop.end(signal.SIGTERM)
    return [
        Figure(f"{count:,} topics", "topics_mib", memory, "MiB more"),
        Figure("  made", "topics_made_s", made, "s"),
        Figure("  published to, one message each", "topics_published_s", published, "s"),
        Figure("  start after kill -9", "topics_start_after_kill_s", after_kill.start_seconds, "s"),
        Figure("  stop", "topics_stop_s", stop, "s"),
        Figure("  start after a stop", "topics_start_s", after_stop.start_seconds, "s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long wake-ups are counted")
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=5000)
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = arguments.connections + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    facts = machine()

    async def measure() -> list[Figure]:
        return [
            *await empty(arguments.seconds),
            *await idle_connections(arguments.connections),
            *await parked(arguments.subscribers, arguments.seconds),
            *await many_topics(arguments.topics),
        ]

    figures = asyncio.run(measure())
    print(f"flintmq serve at rest: {machine_line(facts)}")
    for what, _, figure, unit, wish in figures:
        print(f"{what:34} {figure:10,.2f} {unit:10} {wish}".rstrip())
    print(json.dumps({**facts, **{one.key: round(one.figure, 3) for one in figures}}))


if __name__ == "__main__":
    main()
