"""Eight threads publish and eight read through the blocking API: is anything lost, does it hang?

    .venv/bin/python -m benchmarks.blocking_threads --seconds 60

Publishers take turns of all ways to publish (one by one, in batches, `send`). Four readers share a
name and split the messages; four read everything, each for itself, and look at the order. The topic
is bounded and blocks, so that both sides wait for each other all the time. The exit code is 1 if a
message was lost, came twice or out of order, or if a thread did not end.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flintmq.client.blocking import BlockingClient, BlockingReader, connect_sync

TOPIC = "orders"
BATCH = 100
ROOM = 20_000
PUBLISHERS = 8
SHARING, ALONE = 4, 4


@dataclass
class Tally:
    """What one reader got: how many of each publisher, and the sum of their numbers."""

    counts: list[int] = field(default_factory=lambda: [0] * PUBLISHERS)
    sums: list[int] = field(default_factory=lambda: [0] * PUBLISHERS)
    out_of_order: int = 0

    def add(self, value: bytes, *, in_order: bool) -> None:
        publisher, number = map(int, value.split())
        if in_order and number != self.counts[publisher]:
            self.out_of_order += 1
        self.counts[publisher] += 1
        self.sums[publisher] += number


@dataclass
class Outcome:
    published: list[int]
    delivered: int
    seconds: float
    faults: list[str]


class Run:
    """Publishers go on until they have published `enough`, readers until they have it all."""

    def __init__(self, mq: BlockingClient, enough: Callable[[int], bool]) -> None:
        self._mq = mq
        self._enough = enough
        self._published = [0] * PUBLISHERS
        self._all_published = threading.Event()
        self._errors: list[str] = []
        self._shared = [Tally() for _ in range(SHARING)]
        self._alone = [Tally() for _ in range(ALONE)]

    def run(self) -> Outcome:
        mq = self._mq
        mq.create_topic(TOPIC, retention_count=ROOM, overflow="block")
        # Open before anybody publishes: a blocking topic forgets what every reader has passed.
        shared = [mq.reader(TOPIC, name="workers").open() for _ in self._shared]
        alone = [mq.reader(TOPIC).open() for _ in self._alone]
        ways = [self._one_by_one, self._in_batches, self._by_send, self._in_batches]
        publishers = [
            self._thread(lambda index=index: ways[index % len(ways)](index))  # type: ignore[misc]
            for index in range(PUBLISHERS)
        ]
        readers = [
            self._thread(lambda reader=reader, tally=tally: self._read(reader, tally, False))  # type: ignore[misc]
            for reader, tally in zip(shared, self._shared, strict=True)
        ] + [
            self._thread(lambda reader=reader, tally=tally: self._read(reader, tally, True))  # type: ignore[misc]
            for reader, tally in zip(alone, self._alone, strict=True)
        ]
        started = time.perf_counter()
        for thread in publishers + readers:
            thread.start()
        for thread in publishers:
            thread.join()
        self._all_published.set()
        for thread in readers:
            thread.join()
        seconds = time.perf_counter() - started
        delivered = sum(sum(tally.counts) for tally in self._shared + self._alone)
        return Outcome(self._published, delivered, seconds, self._faults())

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self._errors.append(f"{type(error).__name__}: {error}")

        return threading.Thread(target=guarded)

    # --- publishing

    def _one_by_one(self, index: int) -> None:
        while not self._enough(self._published[index]):
            self._mq.publish(TOPIC, b"%d %d" % (index, self._published[index]))
            self._published[index] += 1

    def _in_batches(self, index: int) -> None:
        while not self._enough(number := self._published[index]):
            values = [b"%d %d" % (index, number + row) for row in range(BATCH)]
            self._mq.publish_batch(TOPIC, values)
            self._published[index] += BATCH

    def _by_send(self, index: int) -> None:
        with self._mq.publisher(TOPIC) as publisher:
            while not self._enough(self._published[index]):
                for _ in range(BATCH):
                    publisher.send(b"%d %d" % (index, self._published[index]))
                    self._published[index] += 1
                publisher.flush()

    # --- reading

    def _read(self, reader: BlockingReader, tally: Tally, in_order: bool) -> None:
        with reader:
            while True:
                rows = reader.read_batch(BATCH, timeout=0.1)
                if not rows and self._all_published.is_set() and not reader.lag():
                    if reader.name is not None:
                        reader.commit()  # else the others get what this one had
                    return
                for value in rows.values:
                    tally.add(value, in_order=in_order)

    # --- the verdict

    def _faults(self) -> list[str]:
        faults = list(self._errors)
        groups = [("the four that share a name", self._shared)]
        groups += [(f"reader {number}", [tally]) for number, tally in enumerate(self._alone)]
        for who, tallies in groups:
            for index, published in enumerate(self._published):
                count = sum(tally.counts[index] for tally in tallies)
                numbers = sum(tally.sums[index] for tally in tallies)
                if count != published or numbers != published * (published - 1) // 2:
                    faults.append(f"{who} got {count:,} of {published:,} of publisher {index}")
        out_of_order = sum(tally.out_of_order for tally in self._alone)
        if out_of_order:
            faults.append(f"{out_of_order:,} messages out of order")
        return faults


def run_messages(each: int) -> Outcome:
    """Every publisher publishes at least so many messages."""
    with connect_sync("memory://", timeout=None) as mq:
        return Run(mq, lambda number: number >= each).run()


def run_seconds(seconds: float) -> Outcome:
    until = time.monotonic() + seconds
    with connect_sync("memory://", timeout=None) as mq:
        return Run(mq, lambda _: time.monotonic() >= until).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds: float = parser.parse_args().seconds
    # A deadlock ends the program, and shows where everybody stands.
    faulthandler.dump_traceback_later(seconds + 60, exit=True)
    outcome = run_seconds(seconds)
    faulthandler.cancel_dump_traceback_later()
    left = [thread.name for thread in threading.enumerate() if thread.name != "MainThread"]
    faults = outcome.faults + [f"thread {name} is left" for name in left]
    published = sum(outcome.published)
    print(f"{'seconds':>10} {'published':>14} {'delivered':>14} {'delivered/s':>12}  faults")
    print(
        f"{outcome.seconds:>10.1f} {published:>14,} {outcome.delivered:>14,} "
        f"{outcome.delivered / outcome.seconds:>12,.0f}  {'; '.join(faults) or 'none'}"
    )
    print(
        json.dumps(
            {
                "scenario": "blocking_threads",
                "seconds": round(outcome.seconds, 1),
                "published": published,
                "delivered": outcome.delivered,
                "faults": faults,
            }
        )
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
