"""A poll of one message and its ack: on ten messages, and on ten million."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from .queue_drain import GROUP, LARGE, PUBLISHED, SIZE, TOPIC

CALLS = 5_000


@dataclass(frozen=True, slots=True)
class Workload:
    backlog: int
    priorities: bool = False

    async def run(self, settings: Settings) -> Figures:
        count = min(self.backlog, settings.pick(self.backlog, 1_000))
        calls = settings.pick(CALLS, 50)
        values = [b"%0*d" % (SIZE, number) for number in range(PUBLISHED)]
        async with flintmq.connect("memory://") as mq:
            await mq.create_topic(TOPIC, retention_bytes=None)
            for start in range(0, count, PUBLISHED):
                some = values[: count - start]
                priority = [number % 8 for number in range(len(some))] if self.priorities else 0
                await mq.publish_batch(TOPIC, some, priority=priority)
            await mq.poll(TOPIC, GROUP, max=1, lease=3600)  # the first one reads the columns
            took: list[float] = []
            for number in range(calls):
                start_at = perf_counter()
                (message,) = await mq.poll(TOPIC, GROUP, max=1)
                await mq.ack(message)
                took.append(perf_counter() - start_at)
                # One comes for each that goes, so that there are as many all the time.
                await mq.publish(TOPIC, values[0], priority=number % 8 if self.priorities else 0)
        return {"median": median(took) * 1e6, "p99": quantiles(took, n=100)[98] * 1e6}

    async def bare(self, settings: Settings) -> Figures:
        """A deque and a dict."""
        backlog = deque([b"%0*d" % (SIZE, 1)] * min(self.backlog, settings.pick(LARGE, 1_000)))
        leases: dict[int, tuple[bytes, float]] = {}
        took: list[float] = []
        for number in range(settings.pick(CALLS, 50)):
            start = perf_counter()
            leases[number] = (backlog.popleft(), start + 30.0)
            value, _ = leases.pop(number)
            took.append(perf_counter() - start)
            backlog.append(value)
        return {"bare": median(took) * 1e6}


SCENARIO = Scenario(
    every_loop=False,
    title="poll(max=1) and ack, in memory: microseconds for the two together",
    columns=(
        Column("median", "median", "microseconds", with_range=True),
        Column("p99", "99 %", "microseconds"),
        Column("bare", "bare", "microseconds"),
    ),
    cases={
        "ten, plain": Case(Workload(10).run, Workload(10).bare),
        "ten million, plain": Case(Workload(LARGE).run, Workload(LARGE).bare),
        "ten, i % 8": Case(Workload(10, True).run, Workload(10).bare),
        "ten million, i % 8": Case(Workload(LARGE, True).run, Workload(LARGE).bare),
    },
    notes=("bare: a deque and a dict of leases.",),
)
