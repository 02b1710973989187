"""Opening a large data directory after `kill -9`, and reading it from the beginning.

python -m benchmarks recovery                              a gigabyte
python -m benchmarks.scenarios.recovery --gigabytes 5      as large as you like
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import psutil

import flintmq

from ..disks import data_directory
from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import MIB, WrongResult, distinct_values
from .memory import resident_bytes

GB = 1_000_000_000
VALUE_BYTES = 1_000
ROWS = 100
IN_FLIGHT = 32
TOPICS = 4
ROOT = Path(__file__).parents[2]


async def fill(directory: Path, wanted_bytes: int) -> None:
    """Publish until so much is acknowledged, then die in the middle of more."""
    values = distinct_values(VALUE_BYTES, ROWS)
    left = wanted_bytes

    async def publish(mq: flintmq.Client, topic: str) -> None:
        nonlocal left
        while True:
            await mq.publish_batch(topic, values)
            left -= VALUE_BYTES * ROWS
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async with flintmq.connect(f"file://{directory}") as mq:
        await asyncio.gather(*(publish(mq, f"topic-{n % TOPICS}") for n in range(IN_FLIGHT)))


async def open_and_read(directory: Path) -> dict[str, float]:
    before = resident_bytes()
    start = perf_counter()
    async with flintmq.connect(f"file://{directory}", auto_create=False) as mq:
        opened = perf_counter() - start
        idle = resident_bytes()
        await asyncio.sleep(1)
        settled = resident_bytes()
        names = await mq.topics()
        stored = sum([(await mq.topic_stats(name)).message_count for name in names])
        start, peak, count = perf_counter(), settled, 0
        for name in names:
            async with mq.reader(name, start=0) as reader:
                while rows := reader.read_batch_nowait(1000):
                    count += len(rows.values)
                    peak = max(peak, int(psutil.Process().memory_info().rss))
        if count != stored:
            raise WrongResult(f"{count:,} read, {stored:,} stored")
        return {
            "stored": stored * VALUE_BYTES / MIB,
            "open": opened,
            "before": before / MIB,
            "idle": idle / MIB,
            "settled": settled / MIB,
            "read": count / (perf_counter() - start),
            "peak": peak / MIB,
        }


def measure(wanted_bytes: int) -> Figures:
    """Fill in one process, which is killed; open and read in another."""
    with data_directory() as directory:
        data = str(directory / "data")
        module = [sys.executable, "-m", "benchmarks.scenarios.recovery"]
        start = perf_counter()
        done = subprocess.run(
            [*module, "--fill", data, "--gigabytes", str(wanted_bytes / GB)], cwd=ROOT, check=False
        )
        if done.returncode != -signal.SIGKILL:
            raise WrongResult(f"the filling process was to be killed, and gave {done.returncode}")
        filled = wanted_bytes / MIB / (perf_counter() - start)
        opening = subprocess.run(
            [*module, "--open", data], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        figures: dict[str, float] = json.loads(opening.stdout)
        return {"filled": filled, **figures}


@dataclass(frozen=True, slots=True)
class Workload:
    gigabytes: float

    async def run(self, settings: Settings) -> Figures:
        wanted = settings.pick(self.gigabytes, 0.005)
        return await asyncio.to_thread(measure, int(wanted * GB))


COLUMNS = (
    Column("filled", "filled MiB/s", "MiB"),
    Column("stored", "MiB", "MiB"),
    Column("open", "open s", "seconds", with_range=True),
    Column("idle", "then RSS", "MiB"),
    Column("settled", "a second later", "MiB"),
    Column("read", "read/s", "rate"),
    Column("peak", "peak RSS", "MiB"),
)

SCENARIO = Scenario(
    title="opening after kill -9, resident memory, and reading everything from offset 0",
    columns=COLUMNS,
    cases={"1 GB": Case(Workload(1.0).run)},
    notes=(
        f"Messages of {VALUE_BYTES:,} bytes in {TOPICS} topics, killed while publishing. RSS: "
        "resident MiB of the process that opened it. For more than a gigabyte: "
        "python -m benchmarks.scenarios.recovery --gigabytes 5",
    ),
    every_loop=False,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill is not None:
        asyncio.run(fill(options.fill, int(options.gigabytes * GB)))
    elif options.open is not None:
        print(json.dumps(asyncio.run(open_and_read(options.open))))
    else:
        figures = measure(int(options.gigabytes * GB))
        for column in COLUMNS:
            print(f"{column.heading:16} {figures[column.name]:12,.3f}")


if __name__ == "__main__":
    main()
