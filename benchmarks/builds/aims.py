"""What is wanted of the newest builds, and whether a run shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from .rows import IN_PROCESS

Take = Mapping[str, float]
Takes = Mapping[tuple[str, str], Sequence[Take]]
"""By row and column."""
NOISE = 1.10
"""Processor time of one build differs by so much from one run to the next."""


class Found:
    """Medians of a run."""

    def __init__(self, takes: Takes) -> None:
        self.takes = takes

    def figure(self, row: str, column: str, name: str) -> float | None:
        found = [take[name] for take in self.takes.get((row, column), []) if name in take]
        return median(found) if found else None

    def rate(self, row: str, column: str) -> float | None:
        """Messages per second; of a latency, what it leaves room for."""
        latency = self.figure(row, column, "p50")
        return self.figure(row, column, "msgs/s") if latency is None else 1e6 / latency

    def server(self, row: str, column: str) -> float | None:
        return self.figure(row, column, "server us")


Measure = Callable[[Found, str], float | None]


@dataclass(frozen=True, slots=True)
class Aim:
    """`measure` of a build has to be at least (or at most) this. Empty `build`: of each."""

    title: str
    measure: Measure
    bound: float
    at_most: bool = False
    build: str = ""

    def is_met(self, figure: float) -> bool:
        return figure <= self.bound if self.at_most else figure >= self.bound


def of(row: str, other: str) -> Measure:
    def measure(found: Found, build: str) -> float | None:
        ours, theirs = found.rate(row, build), found.rate(row, other)
        return None if ours is None or theirs is None else ours / theirs

    return measure


def rate(row: str) -> Measure:
    return lambda found, build: found.rate(row, build)


def server(row: str) -> Measure:
    return lambda found, build: found.server(row, build)


def times_plain(row: str) -> Measure:
    def measure(found: Found, build: str) -> float | None:
        ours, plain = found.server(row, build), found.server("drain-plain synced", build)
        return None if not ours or not plain else ours / plain

    return measure


AIMS: tuple[Aim, ...] = (
    Aim("lone durable publish, server µs", server("publish-1 synced"), 80, True, "new"),
    Aim("lone durable publish, server µs", server("publish-1 synced"), 50, True, "compiled"),
    Aim("one in flight synced, over Redis", of("publish-1 synced", "redis"), 0.85),
    Aim("one in flight cached, over Redis", of("publish-1 cached", "redis"), 0.6),
    Aim("64 in flight over 1,000 topics, msgs/s", rate("topics-1000 synced"), 20_000),
    Aim("64 in flight over 1,000 topics, over Redis", of("topics-1000 synced", "redis"), 1.0),
    Aim("64 in flight over 100 connections, msgs/s", rate("connections-100 synced"), 20_000),
    Aim("64 in flight over 100 connections, over Redis", of("connections-100 synced", "redis"), 1),
    Aim("idle delivery synced, over Redis", of("latency synced", "redis"), 0.8),
    Aim("idle delivery cached, over Redis", of("latency cached", "redis"), 0.8),
    Aim("idle delivery live, over Redis", of("latency-live synced", "redis"), 0.8),
    Aim("1,000 parked groups, deliveries/s", rate("parked synced"), 25_000),
    Aim("drain with priorities, times plain", times_plain("drain-priority synced"), 3, True),
    Aim("drain behind a filter, times plain", times_plain("drain-filter synced"), 3, True),
    Aim("in process, over tokio-memq", of(IN_PROCESS, "tokio-memq"), 1.0),
    Aim("Hermes port, sequential, over HermesMQ", of("hermes-sequential", "hermesmq"), 1.0),
    Aim("Hermes port, as Node's produceMany, over HermesMQ", of("hermes-many", "hermesmq"), 1.0),
    Aim("Hermes port, poll and ack each, over HermesMQ", of("hermes-poll", "hermesmq"), 1.0),
)


def verdicts(found: Found, builds: list[str]) -> Iterator[tuple[Aim, str, float, bool]]:
    """Aim, build, figure, whether it is met; of builds that aims are for."""
    for aim in AIMS:
        for build in [aim.build] if aim.build else builds:
            figure = aim.measure(found, build)
            if figure is not None and build in builds:
                yield aim, build, figure, aim.is_met(figure)


def slower(found: Found, rows: list[str], old: str, new: str) -> list[tuple[str, float, float]]:
    """Rows where the server of the new build needs more processor time, beyond noise."""
    worse: list[tuple[str, float, float]] = []
    for row in rows:
        before, after = found.server(row, old), found.server(row, new)
        if before and after and after > before * NOISE:
            worse.append((row, before, after))
    return worse
