"""A thousand groups on one topic: what publishing costs beside them, and polling over all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import MIB, WrongResult
from .memory import resident_bytes
from .queue_drain import PUBLISHED, SIZE, TOPIC

GROUPS = 1_000
CALLS = 2_000
BATCH = 100


async def _microseconds(call: Callable[[], Awaitable[object]], count: int) -> float:
    took: list[float] = []
    for _ in range(count):
        start = perf_counter()
        await call()
        took.append(perf_counter() - start)
    return median(took) * 1e6


async def run(settings: Settings) -> Figures:
    groups = [f"group-{number}" for number in range(settings.pick(GROUPS, 20))]
    calls = settings.pick(CALLS, 50)
    values = [b"%0*d" % (SIZE, number) for number in range(PUBLISHED)]
    async with flintmq.connect("memory://") as mq:
        await mq.create_topic(TOPIC, retention_bytes=None)
        await mq.create_topic("alone", retention_bytes=None)
        before = resident_bytes()
        for group in groups:
            await mq.poll(TOPIC, group)
        grown = resident_bytes() - before
        figures = {"kib": grown / 1024 / len(groups)}
        for topic, name in (("alone", "alone"), (TOPIC, "beside")):
            figures[name] = await _microseconds(lambda t=topic: mq.publish(t, values[0]), calls)  # type: ignore[misc]
            figures[f"{name}_batch"] = await _microseconds(
                lambda t=topic: mq.publish_batch(t, values[:BATCH]),  # type: ignore[misc]
                calls // 10,
            )
        expected = (await mq.topic_stats(TOPIC)).message_count
        settled = total = 0
        start = perf_counter()
        for group in groups:
            while messages := await mq.poll(TOPIC, group, max=PUBLISHED):
                for value in messages.values:
                    total += len(value)
                await messages.ack()
                settled += len(messages)
        took = perf_counter() - start
        if settled != expected * len(groups) or total != settled * SIZE:
            raise WrongResult(f"{settled:,} settled")
        figures["polled"] = settled / took
        figures["backlog"] = (resident_bytes() - before) / MIB
    return figures


async def bare(settings: Settings) -> Figures:
    """A list of values, and a position and a dict of leases for each group."""
    groups = {f"group-{number}": 0 for number in range(settings.pick(GROUPS, 20))}
    leases: dict[str, dict[int, tuple[int, float]]] = {group: {} for group in groups}
    backlog = [b"%0*d" % (SIZE, n) for n in range(PUBLISHED)] * settings.pick(22, 2)
    settled = total = 0
    start = perf_counter()
    for group in groups:
        while messages := backlog[groups[group] : groups[group] + PUBLISHED]:
            leases[group][groups[group]] = (len(messages), start + 30.0)
            for value in messages:
                total += len(value)
            del leases[group][groups[group]]
            groups[group] += len(messages)
            settled += len(messages)
    return {"bare": settled / (perf_counter() - start)}


SCENARIO = Scenario(
    title="1,000 groups on one topic, in memory",
    columns=(
        Column("alone", "alone us", "microseconds"),
        Column("beside", "beside us", "microseconds"),
        Column("alone_batch", "100s", "microseconds"),
        Column("beside_batch", "beside", "microseconds"),
        Column("polled", "polled/s", "rate"),
        Column("bare", "bare/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("polled", "bare")),
        Column("kib", "KiB each", "times"),
    ),
    every_loop=False,
    cases={"1,000 groups": Case(run, bare)},
    notes=(
        "alone, beside: a publish to a topic without groups, and to this one; then a batch of 100. "
        "Groups that have polled once and wait for nothing. polled: each of them takes everything, "
        "by polls of 1,000, and acks it. bare: a list, and a position and a dict for each group.",
    ),
)
