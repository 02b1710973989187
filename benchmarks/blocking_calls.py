"""What a blocking call costs beside the async one, and beside asyncio's own way across threads.

    .venv/bin/python -m benchmarks.blocking_calls --rounds 7

Every round measures all ways one after the other; ratios are taken within a round, then their
median. `handed over` is `asyncio.run_coroutine_threadsafe(...).result()` on the same connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import flintmq
from flintmq.client.blocking import BlockingClient, connect_sync

VALUES = [b"x" * 100] * 1000
CALLS = 2000
BATCHES = 200
SENDS = 100_000


def timed(work: Callable[[int], object], count: int) -> float:
    """Microseconds for each of `count`."""
    started = time.perf_counter()
    work(count)
    return (time.perf_counter() - started) / count * 1e6


class Async:
    """The same work with the async client, on a loop that does nothing else."""

    def single(self, count: int) -> None:
        async def work(mq: flintmq.Client) -> None:
            for _ in range(count):
                await mq.publish("orders", VALUES[0])

        self._run(work)

    def batches(self, count: int) -> None:
        async def work(mq: flintmq.Client) -> None:
            async with mq.reader("orders") as reader:
                for _ in range(count):
                    await mq.publish_batch("orders", VALUES)
                    assert len((await reader.read_batch(1000)).values) == 1000

        self._run(work)

    def send(self, count: int) -> None:
        async def work(mq: flintmq.Client) -> None:
            async with mq.publisher("orders", linger=0.002) as publisher:
                for number in range(count):
                    publisher.send(VALUES[0])
                    if number % 1000 == 0:
                        await asyncio.sleep(0)

        self._run(work)

    def _run(self, work: Callable[[flintmq.Client], Any]) -> None:
        async def main() -> None:
            async with flintmq.connect("memory://") as mq:
                await work(mq)

        asyncio.run(main())


class Blocking:
    def __init__(self, mq: BlockingClient) -> None:
        self._mq = mq

    def single(self, count: int) -> None:
        for _ in range(count):
            self._mq.publish("orders", VALUES[0])

    def handed_over(self, count: int) -> None:
        loop, client = self._mq._thread.loop, self._mq._inner
        for _ in range(count):
            asyncio.run_coroutine_threadsafe(client.publish("orders", VALUES[0]), loop).result()

    def batches(self, count: int) -> None:
        with self._mq.reader("orders", start="latest") as reader:
            for _ in range(count):
                self._mq.publish_batch("orders", VALUES)
                assert len(reader.read_batch(1000).values) == 1000

    def send(self, count: int) -> None:
        with self._mq.publisher("orders", linger=0.002) as publisher:
            for _ in range(count):
                publisher.send(VALUES[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds: int = parser.parse_args().rounds
    ours = Async()
    figures: dict[str, list[float]] = {}
    for _ in range(rounds):
        with connect_sync("memory://") as mq:
            blocking = Blocking(mq)
            ways: list[tuple[str, Callable[[int], object], int]] = [
                ("publish, async", ours.single, CALLS),
                ("publish, blocking", blocking.single, CALLS),
                ("publish, handed over", blocking.handed_over, CALLS),
                ("1000 published and read, async", ours.batches, BATCHES),
                ("1000 published and read, blocking", blocking.batches, BATCHES),
                ("send, async", ours.send, SENDS),
                ("send, blocking", blocking.send, SENDS),
            ]
            for name, work, count in ways:
                figures.setdefault(name, []).append(timed(work, count))
    print(f"{'microseconds':<36} {'median':>9} {'min':>9} {'max':>9}")
    for name, each in figures.items():
        print(f"{name:<36} {statistics.median(each):>9.2f} {min(each):>9.2f} {max(each):>9.2f}")

    def ratio(one: str, other: str) -> float:
        pairs = zip(figures[one], figures[other], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 2)

    ratios = {
        "publish: blocking / handed over": ratio("publish, blocking", "publish, handed over"),
        "batches of 1000: blocking / async": ratio(
            "1000 published and read, blocking", "1000 published and read, async"
        ),
        "send: blocking / async": ratio("send, blocking", "send, async"),
    }
    for name, figure in ratios.items():
        print(f"{name:<36} {figure:>9.2f}")
    medians = {name: round(statistics.median(each), 2) for name, each in figures.items()}
    print(json.dumps({"scenario": "blocking_calls", "ratios": ratios, "medians_us": medians}))


if __name__ == "__main__":
    main()
