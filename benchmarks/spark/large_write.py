"""One exactly-once batch write of many gigabytes from Spark, and the broker's memory meanwhile.

    scripts/spark-large-write --gigabytes 20

Every row has its number in it: they are counted and summed again after the write, and after a
restart of the broker.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

import flintmq.spark

from .flint import FlintBroker, flint_broker

GIGABYTE = 10**9


class Watch:
    """Looks at a process and its directory four times a second."""

    def __init__(self, pid: int, directory: Path) -> None:
        self._process, self._directory = psutil.Process(pid), directory
        self.most_memory = self.most_disk = self.memory = 0
        self.slowest_answer = 0.0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self.memory = self._process.memory_full_info().uss
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(0.25):
            self.most_memory = max(self.most_memory, self._process.memory_full_info().uss)
            self.most_disk = max(self.most_disk, size_of(self._directory))


class Answers:
    """Publishes one small message after the other to another topic: how long each takes."""

    def __init__(self, url: str) -> None:
        self._url, self.seconds = url, list[float]()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)

    def __enter__(self) -> Answers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _publish(self) -> None:
        with flintmq.connect_sync(self._url) as mq:
            while not self._ends.wait(0.1):
                begun = time.perf_counter()
                mq.publish("others", b"are served meanwhile")
                self.seconds.append(time.perf_counter() - begun)

    def __str__(self) -> str:
        found = sorted(self.seconds)
        middle, late = found[len(found) // 2], found[len(found) * 99 // 100]
        return f"median {middle:.3f} s, 99 of 100 within {late:.3f} s, slowest {found[-1]:.3f} s"


def size_of(directory: Path) -> int:
    size = 0
    for path in directory.rglob("*"):
        try:
            size += path.stat().st_blocks * 512
        except OSError:
            continue
    return size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--row-bytes", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=0, help="of the topic")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="large-write-", dir=given.directory))
    rows = round(given.gigabytes * GIGABYTE / given.row_bytes)
    try:
        with flint_broker(folder) as broker:
            run(broker, folder, rows, given.row_bytes, given.partitions, given.tasks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(
    broker: FlintBroker, folder: Path, rows: int, row_bytes: int, partitions: int, tasks: int
) -> None:
    spark = flintmq.spark.session(app_name="large-write", config={"spark.local.dir": str(folder)})
    options = {"servers": broker.url, "topic": "rows"}
    with flintmq.connect_sync(broker.url) as mq:
        # As much as there is: what a topic keeps is 256 MiB unless it says otherwise.
        kept: dict[str, Any] = {"retention_bytes": 10**15, "retention_count": 10**12}
        mq.create_topic("rows", partitions=partitions or None, **kept)
    filler = "x" * (row_bytes - 12)
    made = spark.range(0, rows, 1, tasks).selectExpr(
        f"concat(lpad(cast(id as string), 12, '0'), '{filler}') as value"
    )
    print(f"{rows:,} rows of {row_bytes:,} bytes, {tasks} tasks", flush=True)
    with Watch(broker.pid, broker.data) as watch, Answers(broker.url) as answers:
        begun = time.perf_counter()
        made.write.format("flintmq").options(**options).mode("append").save()
        seconds = time.perf_counter() - begun
        print(f"write: {seconds:.1f} s, {rows * row_bytes / seconds / 1e6:.0f} MB/s", flush=True)
        settle(broker.data, rows * row_bytes)
        print(f"settled {time.perf_counter() - begun - seconds:.1f} s later", flush=True)
    print(
        f"broker's own memory: {watch.memory >> 20} MiB before, {watch.most_memory >> 20} MiB most"
    )
    print(f"data directory: {watch.most_disk / GIGABYTE:.1f} GB most")
    print(f"others' publishes meanwhile: {answers}", flush=True)

    def check(when: str) -> None:
        begun = time.perf_counter()
        found = (
            spark.read.format("flintmq").options(servers=broker.url, subscribe="rows").load()
            .selectExpr("count(*)", "sum(cast(substring(cast(value as string), 1, 12) as bigint))")
            .collect()[0]
        )  # fmt: skip
        expected = (rows, rows * (rows - 1) // 2)
        assert tuple(found) == expected, f"{when}: {tuple(found)} and not {expected}"
        print(f"{when}: each row once ({time.perf_counter() - begun:.1f} s)", flush=True)

    check("after the write")
    broker.stop()
    begun = time.perf_counter()
    broker.start()
    print(f"restart: {time.perf_counter() - begun:.1f} s", flush=True)
    options["servers"] = broker.url
    check("after a restart")
    print(f"memory after reading: {psutil.Process(broker.pid).memory_full_info().uss >> 20} MiB")
    spark.stop()


def settle(directory: Path, expected: int) -> None:
    """Wait until what was staged is gone: then the rows are there once."""
    until = time.monotonic() + 600
    while size_of(directory) > 1.3 * expected + (256 << 20) and time.monotonic() < until:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
