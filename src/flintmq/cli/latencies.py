"""Latencies, counted in buckets: a million values need no more memory than a thousand.

Pure. A bucket keeps the top seven bits of a number of nanoseconds, so values are exact to one
percent. The maximum is kept exactly.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
BITS = 7


class Latencies:
    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.max_ns = 0

    def add(self, ns: int, count: int = 1) -> None:
        ns = max(0, ns)
        shift = max(0, ns.bit_length() - BITS)
        self._buckets[shift << BITS | ns >> shift] += count
        self.count += count
        if ns > self.max_ns:
            self.max_ns = ns

    def merge(self, other: Latencies) -> None:
        """Add the counts of another histogram."""
        self._buckets.update(other._buckets)
        self.count += other.count
        self.max_ns = max(self.max_ns, other.max_ns)

    def at(self, share: float) -> int:
        """The latency in nanoseconds that this share of values does not exceed."""
        wanted = share * self.count
        keys = sorted(self._buckets)
        for key, below in zip(keys, accumulate(self._buckets[key] for key in keys), strict=True):
            if below >= wanted:
                return min(self.max_ns, _middle(key))
        return self.max_ns

    def figures(self) -> dict[str, float]:
        """The usual percentiles and the maximum, in microseconds."""
        found = {name: self.at(share) / 1000 for name, share in PERCENTILES.items()}
        return {**found, "max": self.max_ns / 1000}

    def histogram(self) -> list[tuple[float, int]]:
        """(upper bound in microseconds, count) in steps of 1, 2, 5, 10, without gaps."""
        counts: Counter[int] = Counter()
        for key, count in self._buckets.items():
            counts[_step(_middle(key))] += count
        if not counts:
            return []
        return [(_bound(step) / 1000, counts[step]) for step in range(min(counts), max(counts) + 1)]


def _middle(key: int) -> int:
    shift, top = key >> BITS, key & (1 << BITS) - 1
    return (top << shift) + ((1 << shift) >> 1)


def _bound(step: int) -> int:
    return (1, 2, 5)[step % 3] * int(10 ** (step // 3))


def _step(ns: int) -> int:
    step = 0
    while _bound(step) < ns:
        step += 1
    return step
