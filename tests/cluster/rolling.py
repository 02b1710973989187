"""A rolling restart of a cluster of real processes under load: what do its clients notice?

    python -m tests.cluster.rolling --nodes 5 --rounds 3

Nodes run under `flintmq cluster run`, which starts them again; `flintmq cluster restart-plan --run`
stops one after the other. Publishers and consumers have the default timeouts and do not try again:
each error is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import flintmq

from .test_processes import RunningCluster, running

STOP_ONE = """
import os, signal, sys
from pathlib import Path

supervisor, name = sys.argv[1:]
for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")
    if b"--node-name" in words and words[words.index(b"--node-name") + 1] == name.encode():
        os.kill(int(pid), signal.SIGTERM)
        sys.exit(0)
sys.exit(f"{name} does not run")
"""


class RollingLoad:
    """Publishes and consumes until told to end; keeps what was acknowledged, and each error."""

    def __init__(self, url: str, publishers: int = 4, consumers: int = 2) -> None:
        self.url = url
        self.stored: dict[int, int] = {}
        """Value by offset, of those with a receipt."""
        self.acked: set[int] = set()
        self.again = 0
        """Deliveries of what was acked already."""
        self.errors: list[str] = []
        self.longest = 0.0
        """Seconds that one publish took."""
        self._next = 0
        self._is_over = asyncio.Event()
        self._tasks = [
            *(asyncio.ensure_future(self._publish()) for _ in range(publishers)),
            *(asyncio.ensure_future(self._consume()) for _ in range(consumers)),
        ]

    async def _publish(self) -> None:
        async with flintmq.connect(self.url) as mq:
            while not self._is_over.is_set():
                value, self._next = self._next, self._next + 1
                began = time.monotonic()
                try:
                    receipt = await mq.publish("orders", value)
                except flintmq.FlintError as error:
                    self.errors.append(f"publish: {error!r}")
                    continue
                assert receipt.offset not in self.stored, "two receipts for one offset"
                self.stored[receipt.offset] = value
                self.longest = max(self.longest, time.monotonic() - began)

    async def _consume(self) -> None:
        async with flintmq.connect(self.url) as mq:
            while not (self._is_over.is_set() and len(self.acked) >= len(self.stored)):
                try:
                    deliveries = await mq.poll("orders", "workers", max=64, wait=0.5)
                    self.again += sum(one.offset in self.acked for one in deliveries)
                    if deliveries:
                        await mq.ack(deliveries)
                        self.acked.update(one.offset for one in deliveries)
                except flintmq.FlintError as error:
                    self.errors.append(f"consume: {error!r}")

    async def ends(self) -> None:
        """What was acknowledged is there, once, and every group has all of it."""
        self._is_over.set()
        await asyncio.wait_for(asyncio.gather(*self._tasks), 120)
        read: dict[int, Any] = {}
        async with (
            flintmq.connect(self.url) as mq,
            mq.reader("orders", start="earliest") as reader,
        ):
            while rows := await reader.read_batch(10_000, timeout=2):
                read.update((row.offset or 0, row.decode()) for row in rows)
        lost = {at for at, value in self.stored.items() if read.get(at) != value}
        assert not lost, f"{len(lost)} acknowledged messages are lost, the first at {min(lost)}"
        values = list(read.values())
        assert len(set(values)) == len(values), "a message is there twice"
        assert self.acked >= self.stored.keys(), "a group did not get everything"


async def restart_all(cluster: RunningCluster, directory: Path) -> None:
    """By the command that users have."""
    script = directory / "stop_one.py"
    script.write_text(STOP_ONE)
    hook = f"{sys.executable} {script} {cluster.process.pid} {{node}}"
    code, out = await cluster.command("cluster", "restart-plan", "--run", hook)
    assert code == 0, out


async def rounds(nodes: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        async with running(directory / "cluster", nodes) as cluster:
            load = RollingLoad(cluster.url)
            began = time.monotonic()
            for number in range(count):
                await restart_all(cluster, directory)
                print(f"round {number + 1}: {len(load.stored):,} stored", file=sys.stderr)
            await load.ends()
            return {
                "nodes": nodes,
                "restarts": nodes * count,
                "seconds": round(time.monotonic() - began, 1),
                "acknowledged": len(load.stored),
                "lost": 0,
                "acked_again": load.again,
                "errors": load.errors,
                "longest_publish_seconds": round(load.longest, 3),
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = asyncio.run(rounds(options.nodes, options.rounds))
    print(json.dumps(found))
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
