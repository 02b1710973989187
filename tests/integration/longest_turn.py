"""How long one turn of a real broker's event loop takes while clients do what is heavy.

    python -m tests.integration.longest_turn [--messages 10000000] [--megabytes 100] [--only NAME]

One client does it, another publishes all the while. Printed for each: the turns there were, the
longest of them as the broker's own watchdog measured it, the longest a publish took, and what held
the loop for more than 20 ms; at the end the watchdog's histogram of the whole run, what was
published beforehand included. Bounded: it ends by itself, in a few minutes by default.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import flintmq
from flintmq.broker_api import Fetch
from tests.integration import crowds
from tests.integration.served import Served

DOCUMENT_BYTES = 80_000
BOMBS = 20
BOMB_BYTES = 60 << 20
PAUSE_SECONDS = 0.002
PAGE_SECONDS = 1.05
"""How long the broker keeps its page of metrics, and a little."""
BATCH = 20_000
STEP_SECONDS_MAX = 300
FSYNC = "interval:50"

BUCKET = re.compile(r'flintmq_loop_turn_seconds_bucket\{le="([^"]+)"\} (\d+)')
CPU_BUCKET = re.compile(r'flintmq_loop_turn_cpu_seconds_bucket\{le="([^"]+)"\} (\d+)')
OVERRUN = re.compile(r'flintmq_loop_overruns_total\{what="([^"]+)"\} (\d+)')
LONGEST = re.compile(r"^flintmq_loop_longest_turn_seconds (\S+)", re.MULTILINE)

Step = Callable[[], Awaitable[object]]


class Figures(NamedTuple):
    buckets: dict[float, int]
    cpu_buckets: dict[float, int]
    overruns: dict[str, int]
    longest: float


def figures_in(page: str) -> Figures:
    return Figures(
        {float(bound): int(count) for bound, count in BUCKET.findall(page)},
        {float(bound): int(count) for bound, count in CPU_BUCKET.findall(page)},
        {what: int(count) for what, count in OVERRUN.findall(page)},
        float(LONGEST.findall(page)[0]),
    )


class Row(NamedTuple):
    name: str
    seconds: float
    turns: int
    longest: str
    cpu: str
    publish: float
    publishes: int
    overruns: dict[str, int]
    after: Figures
    said: str
    """What the step has to tell."""


def most(before: dict[float, int], after: dict[float, int]) -> tuple[int, str]:
    """How many turns there were, and the bound that all of them kept."""
    counts = {bound: count - before[bound] for bound, count in after.items()}
    count = counts[float("inf")]
    within = min(bound for bound, below in counts.items() if below == count)
    return count, f"under {within * 1000:g} ms"


def row(
    name: str, seconds: float, before: Figures, after: Figures, waits: list[float], said: object
) -> Row:
    turns, longest = most(before.buckets, after.buckets)
    if after.longest > before.longest:
        longest = f"{after.longest * 1000:.1f} ms"
    _, cpu = most(before.cpu_buckets, after.cpu_buckets)
    overruns = {
        what: count - before.overruns.get(what, 0)
        for what, count in after.overruns.items()
        if count > before.overruns.get(what, 0)
    }
    return Row(
        *(name, seconds, turns, longest, cpu, max(waits, default=0.0), len(waits), overruns, after),
        said if isinstance(said, str) else "",
    )


def document(number: int) -> bytes:
    """JSON of 80 KB: a list of small maps, as honest messages are."""
    items: list[dict[str, object]] = []
    size = 0
    while size < DOCUMENT_BYTES - 200:
        items.append({"id": len(items), "text": f"item {len(items)}", "price": size * 0.5})
        size += len(json.dumps(items[-1])) + 2
    return json.dumps({"a": str(number % 100), "items": items}).encode()


class Broker:
    def __init__(self, url: str, http: str, scratch: Path, data: Path) -> None:
        self.url, self.http, self.scratch, self.data = url, http, scratch, data
        self._read_at = 0.0

    async def figures(self) -> Figures:
        def read() -> str:
            with urllib.request.urlopen(f"{self.http}/metrics", timeout=60) as answer:
                return str(answer.read().decode())

        await asyncio.sleep(self._read_at + PAGE_SECONDS - time.monotonic())
        page = await asyncio.to_thread(read)
        self._read_at = time.monotonic()
        return figures_in(page)

    async def measured(self, name: str, step: Step, before: Figures) -> Row:
        """Do a step while another client publishes."""
        waits: list[float] = []
        is_over = asyncio.Event()

        async def publish() -> None:
            async with flintmq.connect(self.url) as mq:
                while not is_over.is_set():
                    began = time.perf_counter()
                    await mq.publish("pulse", b"beat")
                    waits.append(time.perf_counter() - began)
                    await asyncio.sleep(PAUSE_SECONDS)

        publishing = asyncio.create_task(publish())
        began = time.perf_counter()
        try:
            said = await asyncio.wait_for(step(), STEP_SECONDS_MAX)
            await asyncio.sleep(0.5)  # what it leaves to be done afterwards counts too
        finally:
            is_over.set()
            await publishing
        seconds = time.perf_counter() - began
        return row(name, seconds, before, await self.figures(), waits, said)

    async def fill(self, topic: str, count: int, value: Callable[[int], bytes], batch: int) -> None:
        async with flintmq.connect(self.url) as mq:
            await mq.create_topic(topic, retention_bytes=None)
            for start in range(0, count, batch):
                values = [value(n) for n in range(start, min(count, start + batch))]
                await mq.publish_batch(topic, values)

    async def fill_documents(self, topic: str, count: int) -> None:
        values = [document(number) for number in range(100)]
        async with flintmq.connect(self.url) as mq:
            await mq.create_topic(topic, retention_bytes=None)
            for start in range(0, count, 50):
                batch = [values[n % 100] for n in range(start, min(count, start + 50))]
                await mq.publish_batch(topic, batch, content_type="application/json")

    async def fill_bombs(self, topic: str) -> None:
        bomb = gzip.compress(b'{"a": "' + b"x" * BOMB_BYTES + b'"}', 9)
        async with flintmq.connect(self.url) as mq:
            await mq.create_topic(topic)
            for _ in range(BOMBS):
                await mq.publish(topic, bomb, content_type="application/json; encoding=gzip")

    async def read(self, topic: str, text: str) -> int:
        found = 0
        async with flintmq.connect(self.url) as mq, mq.reader(topic, filter=text) as reader:
            while rows := await reader.read_batch(timeout=0):
                found += len(rows)
        return found

    async def poll(self, topic: str, text: str) -> int:
        found = 0
        async with flintmq.connect(self.url) as mq:
            while got := await mq.poll(topic, "g", filter=text):
                for delivery in got:
                    await delivery.ack()
                found += len(got)
        return found

    async def fill_cold(self, topic: str, count: int) -> None:
        """Messages of 1 KB that are in segments, and neither in the broker's memory nor in that of
        the system."""
        await self.fill(topic, count, lambda number: b"%1000d" % number, 1000)
        await asyncio.sleep(3)  # what is in the journal alone is read from there
        for path in (self.data / "segments").iterdir():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    async def drain(self, topic: str) -> None:
        """A reader, a group and fetches, all from the beginning."""

        async def read() -> None:
            async with flintmq.connect(self.url) as mq, mq.reader(topic) as reader:
                while await reader.read_batch(timeout=0):
                    pass

        async def poll() -> None:
            async with flintmq.connect(self.url) as mq:
                while got := await mq.poll(topic, "drain", max=1000):
                    await got.ack()

        async def fetch() -> None:
            async with flintmq.connect(self.url) as mq:
                position, end = 0, 1
                while position < end:
                    got = await mq._broker.fetch(
                        Fetch(
                            *(topic, position),
                            end=None,
                            max_rows=10_000,
                            max_bytes=4 << 20,
                            filter=None,
                            with_expired=False,
                        )
                    )
                    position, end = got.position, got.next_offset

        await asyncio.gather(read(), poll(), fetch())

    async def listen(self, topic: str, text: str, count: int) -> None:
        async with flintmq.connect(self.url) as mq, mq.live(topic, filter=text):
            await self.fill_documents(topic, count)

    async def back_up(self) -> None:
        async with flintmq.connect(self.url) as mq:
            await mq.backup(self.scratch / "copy")

    async def delete(self, topic: str) -> None:
        async with flintmq.connect(self.url) as mq:
            await mq.delete_topic(topic)

    async def purge(self, topic: str) -> None:
        async with flintmq.connect(self.url) as mq:
            await mq.purge_topic(topic)


def steps(broker: Broker, messages: int, megabytes: int) -> list[tuple[str, Step | None, Step]]:
    """What each needs beforehand, and what is measured."""
    count = megabytes * 1_000_000 // DOCUMENT_BYTES
    wanted, small = 'value.a == "1"', b"small message"
    url, many, some = broker.url, max(10, messages // 10_000), messages // 250
    filtered, wait = messages * 2 // 5, 3.0 if messages > 100_000 else 0.5
    return [
        ("nothing else", None, lambda: asyncio.sleep(2)),
        ("one publish after the other", None, lambda: crowds.publish_alone(url, some)),
        (
            f"64 publishes under way over {many:,} topics",
            None,
            lambda: crowds.publish_to_topics(url, many, some),
        ),
        (
            f"64 publishes under way over {2 * many:,} connections",
            None,
            lambda: crowds.publish_over_connections(url, 2 * many, some),
        ),
        (
            f"{many:,} groups wait for each message",
            None,
            lambda: crowds.deliver_to_groups(url, many, 20),
        ),
        (
            f"a queue of {messages // 20:,} messages of eight priorities is drained",
            lambda: crowds.fill_with_priorities(url, messages // 20),
            lambda: crowds.drain_by_priority(url),
        ),
        (
            f"a queue with a filter that passes none of {filtered:,}",
            lambda: crowds.fill_with_headers(url, filtered),
            lambda: crowds.wait_for_nobody(url, wait),
        ),
        (
            f"a filter reads {BOMBS} messages that unpack to {BOMB_BYTES >> 20} MiB",
            lambda: broker.fill_bombs("bombs"),
            lambda: broker.read("bombs", wanted),
        ),
        (
            f"a filter reads {megabytes} MB of JSON",
            lambda: broker.fill_documents("documents", count),
            lambda: broker.read("documents", wanted),
        ),
        (
            f"a queue with a filter reads {megabytes} MB",
            None,
            lambda: broker.poll("documents", wanted),
        ),
        (
            f"a live feed with a filter, {megabytes} MB published",
            None,
            lambda: broker.listen("heard", wanted, count),
        ),
        (
            f"{megabytes} MB are read from a cold disk",
            lambda: broker.fill_cold("cold", megabytes * 1000),
            lambda: broker.drain("cold"),
        ),
        ("a backup", None, broker.back_up),
        (
            f"a topic of {messages:,} messages is purged",
            lambda: broker.fill("purged", messages, lambda _: small, BATCH),
            lambda: broker.purge("purged"),
        ),
        (
            f"a topic of {messages:,} messages is deleted",
            lambda: broker.fill("deleted", messages, lambda _: small, BATCH),
            lambda: broker.delete("deleted"),
        ),
    ]


def shown(row: Row) -> str:
    lines = [
        f"{row.name:58} {row.seconds:7.1f} s {row.turns:8,} turns   longest {row.longest:14} "
        f"of the processor {row.cpu:14} "
        f"publish at most {row.publish * 1000:7.1f} ms of {row.publishes:,}"
    ]
    lines += [f"    over 20 ms, {count} times: {what}" for what, count in row.overruns.items()]
    lines += [f"    {row.said}"] * bool(row.said)
    return "\n".join(lines)


def histogram(found: Figures) -> str:
    """How many turns were at most so long, and took so much of the processor."""
    lines = [f"{'turns of the whole run':24} {'by the clock':>14} {'on the processor':>18}"]
    before = cpu_before = 0
    for bound, below in found.buckets.items():
        cpu_below = found.cpu_buckets[bound]
        name = "longer" if bound == float("inf") else f"up to {bound * 1000:g} ms"
        lines.append(f"{name:24} {below - before:14,} {cpu_below - cpu_before:18,}")
        before, cpu_before = below, cpu_below
    return "\n".join(lines)


async def run(messages: int, megabytes: int, only: str, fsync: str = FSYNC) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        backups = Path(scratch) / "backups"
        backups.mkdir()
        served = Served(
            Path(scratch) / "data",
            *("--http", "127.0.0.1:0", "--backup-dir", str(backups), "--fsync", fsync),
        )
        await served.start()
        try:
            broker = Broker(served.url, served.http, backups, Path(scratch) / "data")
            last = await broker.figures()
            for name, prepare, step in steps(broker, messages, megabytes):
                if only in name:
                    if prepare is not None:
                        await prepare()
                        last = await broker.figures()
                    rows.append(await broker.measured(name, step, last))
                    last = rows[-1].after
                    print(shown(rows[-1]), flush=True)
            print(histogram(last), flush=True)
        finally:
            served.process.terminate()
            await served.process.communicate()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--only", default="", help="Steps whose name has this in it.")
    parser.add_argument("--fsync", default=FSYNC, help="Of the broker: always, interval:50, ...")
    wanted = parser.parse_args()
    asyncio.run(run(wanted.messages, wanted.megabytes, wanted.only, wanted.fsync))


if __name__ == "__main__":
    main()
