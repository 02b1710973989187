"""The five workloads of tokio-memq's own `perf_runner`, with published and delivered rates apart.

As there, producers copy a payload for every message, everything is kept, every consumer gets every
message, and consumers receive one message at a time. Here they look at the value as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import flintmq

from ..scenario import Case, Column, Figures, Scenario, Settings
from ..tokio_memq_peer import build, measure
from ..workloads import KIB, MIB, bare_queues, flow, read_singly

TOPIC = "perf"


@dataclass(frozen=True, slots=True)
class Workload:
    producers: int
    consumers: int
    size: int
    count: int  # per producer
    batch: int
    retention_count: int

    async def run(self, settings: Settings) -> Figures:
        count = settings.pick(self.count, max(self.batch, self.count // 2000))
        payload = bytearray(self.size)
        async with flintmq.connect("memory://") as mq:
            await mq.create_topic(TOPIC, retention_count=self.retention_count, retention_bytes=None)
            readers = [await mq.reader(TOPIC) for _ in range(self.consumers)]
            total = count * self.producers
            took = await flow(
                [self._produce(mq, payload, count) for _ in range(self.producers)],
                [read_singly(reader, total, self.size) for reader in readers],
            )
            for reader in readers:
                await reader.close()
        return {
            "published": total / took.published,
            "delivered": total * self.consumers / took.delivered,
        }

    async def _produce(self, mq: flintmq.Client, payload: bytearray, count: int) -> None:
        if self.batch == 1:
            for _ in range(count):
                await mq.publish(TOPIC, bytes(payload))
        else:
            for _ in range(count // self.batch):
                await mq.publish_batch(TOPIC, list(map(bytes, repeat(payload, self.batch))))

    async def bare(self, settings: Settings) -> Figures:
        count = settings.pick(self.count, max(self.batch, self.count // 2000))
        payload = bytearray(self.size)
        took = await bare_queues(
            lambda: bytes(payload), count, producers=self.producers, consumers=self.consumers
        )
        return {"bare": count * self.producers * self.consumers / took.delivered}

    async def tokio_memq(self, settings: Settings) -> Figures:
        count = settings.pick(self.count, max(self.batch, self.count // 2000))
        return await measure(
            (self.producers, self.consumers, self.size, count, self.batch, self.retention_count)
        )


def case(workload: Workload) -> Case:
    payload_bytes = workload.size * workload.count * workload.producers
    return Case(
        workload.run,
        workload.bare,
        workload.tokio_memq,
        memory_bytes=payload_bytes * 5 // 4,
    )


SCENARIO = Scenario(
    title="tokio-memq's five perf_runner workloads",
    columns=(
        Column("published", "publ./s", "rate"),
        Column("delivered", "deliv./s", "rate", with_range=True),
        Column("bare", "bare/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("delivered", "bare")),
        Column("tokio_memq", "t-memq", "rate"),
        Column("x_tokio_memq", "x", "times", ratio_of=("delivered", "tokio_memq")),
    ),
    cases={
        "baseline 1P/1C 1 KiB": case(Workload(1, 1, KIB, 100_000, 1, 200_000)),
        "load 10P/10C 1 KiB": case(Workload(10, 10, KIB, 10_000, 1, 1_000_000)),
        "batching 100 1P/1C": case(Workload(1, 1, KIB, 200_000, 100, 2_000_000)),
        "stress 1P/1C 1 MiB": case(Workload(1, 1, MIB, 1_000, 1, 10_000)),
        "endurance 50 2P/2C": case(Workload(2, 2, KIB, 200_000, 50, 2_000_000)),
    },
    notes=(
        "publ./s: until the last publish returned. deliv./s: all deliveries, until the last one.",
        "bare: one asyncio.Queue per consumer with the same copies, all kept in a list.",
        "t-memq: deliveries/s of tokio-memq's crate (Rust, on every core) in the same run.",
        "x: deliv./s over t-memq, run by run. Both are empty where the crate is not built.",
    ),
    prepare=build,
)
