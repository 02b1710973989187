"""What one seed decides before anything happens: sizes, speeds, limits, how rough it gets."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

MS = 1000  # virtual time is counted in microseconds


@dataclass(frozen=True, slots=True)
class Plan:
    """Every draw is made in a fixed order, so that a seed means the same for ever."""

    node_count: int
    safety_us: int
    tick_us: int
    delay_us: tuple[int, int]
    sync_us: tuple[int, int]
    loss: float
    duplication: float
    straggle: float  # a message that takes many times longer, and so overtakes nothing
    fault_every_us: int
    clients: int
    readers: int  # clients that only read, from one leader: where it answers by a lease
    keys: int
    goes_through_codec: bool
    apply_delay_us: int
    compact_every_us: int  # 0: only as a fault
    settings: dict[str, Any]
    faults: tuple[str, ...]


FAULTS = (
    "split",
    "one_way",
    "partial",
    "isolate_leader",
    "crash",
    "crash_leader",
    "crash_all",
    "pause",
    "slow_disk",
    "rough_network",
    "transfer",
    "compact",
    "change_membership",
    "change_membership",
    "change_jointly",
    "change_jointly",
)


def draw_plan(random: Random, node_count: int | None = None) -> Plan:
    nodes = random.choice((1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7))
    slow = random.random() < 0.2
    mild = random.random() < 0.15
    lease_reads = random.random() < 0.15
    check_quorum = lease_reads or random.random() < 0.9
    # Each seed leaves some faults out: rare combinations need room to unfold.
    faults = tuple(fault for fault in FAULTS if random.random() < 0.7) or ("crash",)
    return Plan(
        node_count=node_count or nodes,
        safety_us=random.randrange(4_000, 14_000) * MS,
        tick_us=50 * MS,
        delay_us=(1 * MS, random.choice((3, 10, 40)) * MS),
        sync_us=(1 * MS, random.choice((2, 10, 30)) * MS * (5 if slow else 1)),
        loss=0.0 if mild else random.choice((0.0, 0.01, 0.05, 0.15)),
        duplication=0.0 if mild else random.choice((0.0, 0.02, 0.1)),
        straggle=random.choice((0.0, 0.01, 0.1)),
        fault_every_us=random.choice((200, 500, 1000)) * MS,
        clients=random.choice((1, 2, 3, 4)),
        readers=1 if lease_reads else 0,
        keys=random.choice((1, 2, 3)),
        goes_through_codec=random.random() < 0.1,
        apply_delay_us=random.choice((0, 0, 20, 300)) * MS,
        compact_every_us=random.choice((0, 0, 200, 1000, 3000)) * MS,
        settings={
            "pre_vote": random.random() < 0.85,
            "check_quorum": check_quorum,
            "lease_reads": lease_reads,
            "forward_proposals": random.random() < 0.5,
            "membership_needs_live_quorum": random.random() < 0.7,
            "heartbeat_ticks": random.choice((1, 2, 3)),
            "message_bytes_max": random.choice((1, 100, 1000, 1 << 20)),
            "inflight_messages_max": random.choice((1, 2, 4, 64)),
            "inflight_bytes_max": random.choice((1 << 20, 1 << 24)),
            "uncommitted_bytes_max": random.choice((200, 2000, 1 << 20)),
            "apply_bytes_max": random.choice((1, 60, 1 << 20)),
            "trailing_entries": random.choice((0, 2, 20)),
        },
        faults=faults,
    )
