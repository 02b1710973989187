"""The broker of the benchmark, its two topics, and the jobs on them."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flintmq
from flintmq.daemon.process import loop_factory
from flintmq.spark import direct_bounds

from ..meters import wait_quiet
from .jobs import KEY_BYTES, SCHEMA, VALUE_BYTES, Job, Jobs, Table

BATCHED, SINGLY = "batched", "singly"
BATCH_ROWS = 1000
BATCHES_AT_ONCE = 16
SINGLES_AT_ONCE = 512


class FlintBroker:
    """`flintmq serve` on a port of its own choice, synced before every receipt."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "flint-data"
        self._log = (folder / "flint.log").open("w")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(self.data),
                "--listen", "127.0.0.1:0", "--fsync", "always",
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "ready at " not in line:
            raise RuntimeError(f"flintmq serve did not start: {line.strip() or 'no word from it'}")
        self.url = line.split("ready at ")[1].split(",")[0].strip()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def close(self) -> None:
        self.stop()
        self._log.close()

    def delete(self, topic: str) -> None:
        with flintmq.connect_sync(self.url) as mq:
            mq.delete_topic(topic)
        wait_quiet(self.pid)


@contextmanager
def flint_broker(folder: Path) -> Iterator[FlintBroker]:
    broker = FlintBroker(folder)
    try:
        yield broker
    finally:
        broker.close()


def _row(number: int) -> tuple[bytes, bytes]:
    key = b"%0*d" % (KEY_BYTES, number % 10**KEY_BYTES)
    return key, b"%012d" % number + b"x" * (VALUE_BYTES - 12)


def fill(broker: FlintBroker, topic: str, rows: int) -> float:
    """Publish so many messages to a topic; how many a second."""
    work = _publish_batches if topic == BATCHED else _publish_singly
    start = time.perf_counter()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work(broker.url, topic, rows))
    return rows / (time.perf_counter() - start)


async def _publish_batches(url: str, topic: str, rows: int) -> None:
    starts = iter(range(0, rows, BATCH_ROWS))
    async with flintmq.connect(url) as mq:

        async def work() -> None:
            for start in starts:
                pairs = [_row(number) for number in range(start, min(start + BATCH_ROWS, rows))]
                keys: list[Any] = [key for key, _ in pairs]
                await mq.publish_batch(topic, [value for _, value in pairs], key=keys)

        await asyncio.gather(*(work() for _ in range(BATCHES_AT_ONCE)))


async def _publish_singly(url: str, topic: str, rows: int) -> None:
    """One `await publish` for each message. Those that are under way together share batches."""
    numbers = iter(range(rows))
    async with flintmq.connect(url) as mq:

        async def work() -> None:
            for number in numbers:
                key, value = _row(number)
                await mq.publish(topic, value, key=key)

        await asyncio.gather(*(work() for _ in range(SINGLES_AT_ONCE)))


class FlintJobs:
    """The jobs on our topics, by name."""

    def __init__(self, jobs: Jobs, broker: FlintBroker) -> None:
        self._jobs, self._broker = jobs, broker
        self._numbers = itertools.count()

    def jobs(self) -> dict[str, Job]:
        jobs = self._jobs
        batched, singly = self._topic(BATCHED), self._topic(SINGLY)
        limited = self._topic(BATCHED, maxOffsetsPerTrigger="1000000")
        return {
            "batch read": lambda: jobs.read(batched),
            "batch read, count and sum": lambda: jobs.count(batched),
            "batch read, published singly": lambda: jobs.read(singly),
            "count and sum, published singly": lambda: jobs.count(singly),
            "stream read": lambda: jobs.stream(limited),
            "direct segment read": self._direct(BATCHED),
            "direct segment read, published singly": self._direct(SINGLY),
        }

    def write_jobs(self) -> dict[str, tuple[Job, Job]]:
        """Jobs that leave a topic behind; with each, what checks it and takes it away."""
        return {
            "batch write, exactly once": self._write("exactly_once"),
            "batch write, at least once": self._write("at_least_once"),
            "stream write, exactly once": self._write("exactly_once", streams=True),
        }

    def _topic(self, name: str, **more: str) -> Table:
        options = {"servers": self._broker.url, "subscribe": name, "startingOffsets": "earliest"}
        return Table("flintmq", options | more, SCHEMA)

    def _direct(self, name: str) -> Job:
        path = str(self._broker.data)

        def work() -> int:
            first, end = direct_bounds(path)[name][0]
            if end - first != self._jobs.rows:
                raise AssertionError(f"{end - first:,} rows in segments, not {self._jobs.rows:,}")
            return self._jobs.read(Table("flintmq", {"path": path, "subscribe": name}, SCHEMA))

        return work

    def _write(self, delivery: str, *, streams: bool = False) -> tuple[Job, Job]:
        topics: list[str] = []

        def write() -> int:
            topics.append(f"written-{next(self._numbers)}")
            options = {"servers": self._broker.url, "topic": topics[-1], "delivery": delivery}
            work = self._jobs.stream_write if streams else self._jobs.write
            return work("flintmq", options)

        def check() -> int:
            with flintmq.connect_sync(self._broker.url) as mq:
                count = mq.topic_stats(topics[-1]).message_count
            self._broker.delete(topics[-1])
            if count != self._jobs.rows:
                raise AssertionError(f"{count:,} rows arrived of {self._jobs.rows:,}")
            return count

        return write, check
