"""What the pure state machine of a queue does in a second, beside a bare loop of the same shape.

    python -m benchmarks.queue_machine [--quick]

No broker, no messages, no disk: offsets are picked, leased, finished and settled by batches of 256,
as HermesMQ's own `q_drain` does with 20,000 at priorities i % 8 (its Rust: 175 to 232 thousand/s on
the machines we develop on). The bare loop does as little as can be called the same: slices of a
range and a dict of leases for plain ones, a heap and a dict for priorities, a dict of owners for
keys, a sorted list for delays. Both take turns, and the best of several rounds counts; nothing is
asserted about speed.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop
from random import Random
from time import perf_counter

from flintmq.group_model import Order
from flintmq.groups import DelayWheel, LaneIndex, Queue

BATCH = 256
ROWS = 1_000
PRIORITIES = bytes(number % 8 for number in range(ROWS))
NOW_MS = 1_700_000_000_000


def backlog(count: int, *, with_priorities: bool = False, order: Order = "priority") -> Queue:
    index = LaneIndex()
    queue = Queue(index, order=order, floor=0)
    for base in range(0, count, ROWS):
        index.add(base, ROWS, PRIORITIES if with_priorities else None)
    return queue


def thousand_keys(start: int, stop: int) -> list[int]:
    return [1 + offset * 7919 % 1_000 for offset in range(start, stop)]


def drain(queue: Queue, count: int, batch: int = BATCH) -> float:
    """Poll and acknowledge so many: seconds."""
    done = 0
    start = perf_counter()
    while done < count:
        ranges = queue.select(batch, max_deliveries=5, key_hashes=thousand_keys).ranges
        token = queue.grant(ranges, "anna", now=0.0, seconds=600.0)
        mine, _ = queue.finish(token, ranges)
        done += queue.apply_settle(mine)
    return perf_counter() - start


def bare_plain(count: int, batch: int = BATCH) -> float:
    leases: dict[int, tuple[int, int]] = {}
    floor = 0
    start = perf_counter()
    while floor < count:
        leases[floor] = (floor, min(count, floor + batch))
        floor = leases.pop(floor)[1]
    return perf_counter() - start


def bare_priorities(count: int) -> float:
    heap = [(-(offset % 8), offset) for offset in range(count)]
    heapify(heap)
    leases: dict[int, list[int]] = {}
    settled: set[int] = set()
    token = 0
    start = perf_counter()
    while heap:
        token += 1
        leases[token] = [heappop(heap)[1] for _ in range(min(BATCH, len(heap)))]
        settled.update(leases.pop(token))
    return perf_counter() - start


def bare_keys(count: int) -> float:
    keys = thousand_keys(0, count)
    owners: dict[int, int] = {}
    start = perf_counter()
    for offset in range(0, count, BATCH):
        for number, key in enumerate(keys[offset : offset + BATCH], offset):
            owners[key] = number
        for key in keys[offset : offset + BATCH]:
            owners.pop(key, None)
    return perf_counter() - start


def dues(count: int) -> list[tuple[int, int, int]]:
    """Within the next ten minutes, anywhen."""
    chance = Random(7)
    return [(NOW_MS + chance.randrange(600_000), offset, 0) for offset in range(count)]


def delayed(entries: list[tuple[int, int, int]]) -> float:
    """All of them in, then out as their time comes, every 100 ms: seconds."""
    wheel, came = DelayWheel(), 0
    start = perf_counter()
    wheel.add_many(entries)
    for now_ms in range(NOW_MS, NOW_MS + 600_100, 100):
        came += len(wheel.take_due(now_ms))
        wheel.next_due_ms()
    took = perf_counter() - start
    assert came == len(entries)
    return took


def bare_delayed(entries: list[tuple[int, int, int]]) -> float:
    start = perf_counter()
    waiting = sorted(entries, reverse=True)
    for now_ms in range(NOW_MS, NOW_MS + 600_100, 100):
        while waiting and waiting[-1][0] <= now_ms:
            waiting.pop()
    return perf_counter() - start


@dataclass(frozen=True, slots=True)
class Line:
    """A workload: how many messages, how long they take, and how long the bare loop takes."""

    name: str
    count: int
    run: Callable[[], float]
    bare: Callable[[], float]


def lines(*, quick: bool) -> list[Line]:
    few, many, million = (2_000, 100_000, 10_000) if quick else (20_000, 10_000_000, 1_000_000)
    deep = backlog(many)
    deep_ones = backlog(many)
    entries = dues(million)
    # A part of the deep backlog for each round: there is enough for all of them.
    part = few // 4 if quick else few
    singles = few // 20
    return [
        Line(
            f"plain, {few:,}",
            few,
            lambda: drain(backlog(few), few),
            lambda: bare_plain(few),
        ),
        Line(
            f"priorities i % 8, {few:,}",
            few,
            lambda: drain(backlog(few, with_priorities=True), few),
            lambda: bare_priorities(few),
        ),
        Line(
            f"1,000 keys in order, {few:,}",
            few,
            lambda: drain(backlog(few, order="key"), few),
            lambda: bare_keys(few),
        ),
        Line(f"plain, of {many:,}", part, lambda: drain(deep, part), lambda: bare_plain(part)),
        Line(
            f"plain, one by one, of {few:,}",
            singles,
            lambda: drain(backlog(few), singles, 1),
            lambda: bare_plain(singles, 1),
        ),
        Line(
            f"plain, one by one, of {many:,}",
            singles,
            lambda: drain(deep_ones, singles, 1),
            lambda: bare_plain(singles, 1),
        ),
        Line(
            f"delayed, {million:,}",
            million,
            lambda: delayed(entries),
            lambda: bare_delayed(entries),
        ),
    ]


def measure(line: Line, rounds: int) -> dict[str, float | int | str]:
    """Messages in a second, ours and the bare loop's, in the best of some rounds each."""
    ours = bare = float("inf")
    for _ in range(rounds):
        gc.collect()
        ours = min(ours, line.run())
        bare = min(bare, line.bare())
    return {
        "workload": line.name,
        "per_second": round(line.count / ours),
        "bare_per_second": round(line.count / bare),
        "x_bare": round(bare / ours, 3),
    }


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    results = []
    print(f"{f'messages/s, by {BATCH} unless one by one':<40} {'queue':>12} {'bare':>14}  x bare")
    for line in lines(quick=quick):
        rounds = 2 if quick else 3 if line.name.startswith("delayed") else 20
        result = measure(line, rounds)
        results.append(result)
        print(
            f"{result['workload']:<40} {result['per_second']:>12,} {result['bare_per_second']:>14,}"
            f"  {result['x_bare']:>6}"
        )
    print(json.dumps({"scenario": "queue_machine", "batch": BATCH, "lines": results}))


if __name__ == "__main__":
    main()
