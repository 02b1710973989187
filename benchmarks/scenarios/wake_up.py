"""How long an idle reader takes to run again after a publish.

Each publish is made only once the reader is parked and the loop has slept: nothing is in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from statistics import median, quantiles
from time import perf_counter_ns

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import WrongResult, is_parked

IDLE_SECONDS = 0.0005


async def latencies(
    wait: Callable[[], Awaitable[object]], wake: Callable[[], Awaitable[object]], count: int
) -> list[float]:
    """Microseconds from just before `wake` until what `wait`s runs again, `count` times."""
    loop = asyncio.get_running_loop()
    woken_at = 0
    seen = loop.create_future()

    async def sleeper() -> None:
        nonlocal woken_at
        while True:
            await wait()
            woken_at = perf_counter_ns()
            seen.set_result(None)

    task = asyncio.create_task(sleeper())
    taken: list[float] = []
    for _ in range(count):
        await asyncio.sleep(IDLE_SECONDS)
        if not is_parked(task):
            raise WrongResult("the reader is not idle, or has failed")
        start = perf_counter_ns()
        await wake()
        await seen
        taken.append((woken_at - start) / 1000)
        seen = loop.create_future()
    task.cancel()
    await asyncio.wait([task])
    return taken


async def run(settings: Settings) -> Figures:
    async with flintmq.connect("memory://") as mq, mq.reader("idle") as reader:
        value = b"x" * 100
        return _figures("", await _warmed(reader.read, lambda: mq.publish("idle", value), settings))


async def bare(settings: Settings) -> Figures:
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    async def wait() -> None:
        nonlocal future
        await future
        future = loop.create_future()

    async def wake() -> None:
        future.set_result(None)

    return _figures("bare_", await _warmed(wait, wake, settings))


async def _warmed(
    wait: Callable[[], Awaitable[object]], wake: Callable[[], Awaitable[object]], settings: Settings
) -> list[float]:
    warm_up = settings.pick(100, 2)
    return (await latencies(wait, wake, warm_up + settings.pick(1_000, 20)))[warm_up:]


def _figures(prefix: str, taken: list[float]) -> Figures:
    return {f"{prefix}median": median(taken), f"{prefix}p99": quantiles(taken, n=100)[98]}


SCENARIO = Scenario(
    title="microseconds from publish until an idle reader runs again",
    columns=(
        Column("median", "median", "microseconds", with_range=True),
        Column("p99", "p99", "microseconds"),
        Column("bare_median", "bare median", "microseconds"),
        Column("bare_p99", "bare p99", "microseconds"),
        Column("x_bare", "x bare", "times", ratio_of=("median", "bare_median")),
    ),
    cases={"publish to read": Case(run, bare)},
    notes=(
        "The publish itself is in it. bare: set_result of a Future that a task awaits. Before each "
        "the reader is parked and the loop has slept.",
    ),
)
