"""A compacted topic beside a plain one: `python -m benchmarks.compaction [UPDATES] [KEYS]`.

Both get the same updates of random keys, in batches of 1,000 with 16 in flight, each topic in a
broker and a process of its own, by turns: rate, memory, disk, and how long a start takes. One key
is written once, at the beginning, so that the first offset cannot move. In the end every key of the
compacted topic has its last value.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from array import array
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import flintmq

BATCH, IN_FLIGHT = 1000, 16
TOPIC = "prices"
VALUE = b"x" * 92


def size_of(place: Path) -> int:
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


async def fill(place: Path, compact: str | None, updates: int, keys: int) -> dict[str, Any]:
    random = Random(1)
    names: list[str | bytes | None] = [f"key-{n:09d}" for n in range(keys)]
    last = array("q", [-1]) * keys
    peak = 0
    async with flintmq.connect(f"file://{place}") as mq:
        await mq.create_topic(TOPIC, compact=compact)  # type: ignore[arg-type]
        await mq.publish(TOPIC, b"first", key="pinned")
        under_way: set[asyncio.Task[Any]] = set()
        began, cpu = time.perf_counter(), time.process_time()
        for start in range(0, updates, BATCH):
            drawn = [int(random.random() * keys) for _ in range(BATCH)]
            for offset, key in enumerate(drawn, start + 1):
                last[key] = offset
            values = [b"%08d" % n + VALUE for n in range(start + 1, start + 1 + BATCH)]
            publish = mq.publish_batch(TOPIC, values, key=[names[key] for key in drawn])
            under_way.add(asyncio.ensure_future(publish))
            if len(under_way) >= IN_FLIGHT:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
            if start % (100 * BATCH) == 0:
                peak = max(peak, resident())
        await asyncio.gather(*under_way)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        peak = max(peak, resident())
    disk = size_of(place)
    began = time.perf_counter()
    checked = 0
    async with flintmq.connect(f"file://{place}") as mq:
        opened = time.perf_counter() - began
        stats = await mq.topic_stats(TOPIC)
        if compact:
            began = time.perf_counter()
            async with mq.reader(TOPIC, start="last_per_key") as reader:
                joined = time.perf_counter() - began
                while rows := await reader.read_batch(10_000, timeout=0):
                    for message in rows:
                        if message.key != "pinned":
                            key = int(str(message.key)[4:])
                            assert last[key] == message.offset, "the last of its key"
                            assert message.value == b"%08d" % message.offset + VALUE
                        checked += 1
            expected = 1 + sum(one >= 0 for one in last)
            assert checked == expected, f"{checked:,} keys of {expected:,}"
    return {
        "compact": compact,
        "updates": updates,
        "rate": round(updates / seconds),
        "cpu_us": round(1e6 * cpu / updates, 3),
        "peak_mib": peak >> 20,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "disk_mib": disk >> 20,
        "open_s": round(opened, 3),
        "first_offset": stats.first_offset,
        "next_offset": stats.next_offset,
        "state_keys": checked,
        **({"join_s": round(joined, 3)} if compact else {}),
    }


def main(updates: int = 10_000_000, keys: int = 100_000) -> int:
    found: list[dict[str, Any]] = []
    for compact in ("", "key"):
        with TemporaryDirectory() as place:
            command = [sys.executable, "-m", "benchmarks.compaction", "--one", place, compact]
            told = subprocess.run(
                [*command, str(updates), str(keys)], check=True, stdout=subprocess.PIPE, text=True
            )
            print(told.stdout.strip(), flush=True)
            found.append(json.loads(told.stdout))
    plain, compacted = found
    for what in ("cpu_us", "rate", "open_s"):
        print(f"{what}: {compacted[what] / plain[what]:.2f} of a plain topic")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        place, compact = Path(sys.argv[2]) / "data", sys.argv[3] or None
        print(json.dumps(asyncio.run(fill(place, compact, *map(int, sys.argv[4:])))))
    else:
        sys.exit(main(*map(int, sys.argv[1:])))
