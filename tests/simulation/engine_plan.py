"""What one seed decides for the engine before anything happens: sizes, speeds, clients, faults."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from flintmq.group_model import Order

FAULTS = (
    "split",
    "one_way",
    "forsake",
    "crash",
    "crash_leader",
    "crash_all",
    "kill",
    "cut_power_in_a_write",
    "transfer",
    "transfer",
    "slow_disk",
    "full_disk",
    "failing_disk",
    "held_up",
)


@dataclass(frozen=True, slots=True)
class EnginePlan:
    seconds: float
    delay: tuple[float, float]
    sync_seconds: tuple[float, float]
    loss: float
    repeat: float
    fault_every: float
    rest_seconds: float
    topics: tuple[str, ...]
    publishers: int
    plain_publishers: int
    """How many of them publish without a name."""
    consumers: int
    stagers: int
    order: Order
    value_bytes: int
    """How long values are at least: some make a frame of the journal longer than a sector."""
    checkpoint_bytes: int
    file_bytes: int
    keep_bytes: int
    """How much of the log is kept for nodes that were away; who needs more gets a checkpoint."""
    away_seconds: tuple[float, ...]
    """For how long a node stays down, one of these."""
    lease_reads: bool
    reclaim_seconds: float
    faults: tuple[str, ...]


def draw_engine_plan(random: Random) -> EnginePlan:
    """Every draw is made in a fixed order."""
    return EnginePlan(
        seconds=random.uniform(4.0, 12.0),
        delay=(0.0005, random.choice((0.002, 0.01, 0.04))),
        sync_seconds=(0.001, random.choice((0.003, 0.01, 0.03))),
        loss=random.choice((0.0, 0.0, 0.02, 0.1)),
        repeat=random.choice((0.0, 0.02, 0.1)),
        fault_every=random.choice((0.4, 0.8, 1.5, 2.5)),
        rest_seconds=random.choice((0.1, 0.2, 0.5)),
        topics=("a", "b")[: random.choice((1, 2))],
        publishers=random.choice((1, 2, 3)),
        plain_publishers=random.choice((0, 1)),
        consumers=random.choice((0, 1, 2, 3)),
        stagers=random.choice((0, 1, 1)),
        order=random.choice(("priority", "priority", "key")),
        value_bytes=random.choice((0, 0, 0, 700)),
        checkpoint_bytes=random.choice((1_000, 3_000, 20_000, 1 << 20)),
        file_bytes=random.choice((4096, 1 << 16)),
        keep_bytes=random.choice((200, 2_000, 1 << 20)),
        away_seconds=random.choice(((0.05, 0.5), (0.05, 0.5, 2.0, 4.0), (0.5, 8.0))),
        lease_reads=random.random() < 0.8,
        reclaim_seconds=random.choice((0.5, 2.0, 5.0)),
        # Each seed leaves some faults out: rare combinations need room to unfold.
        faults=tuple(name for name in FAULTS if random.random() < 0.65) or ("crash",),
    )
