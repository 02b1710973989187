"""The figures of a group over all partitions of a topic. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from ..group_model import GroupStats

_SUMS = (
    "position", "lag", "ready", "in_flight", "delayed", "delivered", "redelivered", "settled",
    "leases_expired", "dead_lettered",
)  # fmt: skip


def merged_group_stats(parts: list[GroupStats], dead_letters: int, *, is_row: bool) -> GroupStats:
    """Sums over the partitions; members and those who wait are in each of them, and count once."""
    if not is_row:
        return msgspec.structs.replace(parts[0], dead_letters=dead_letters)
    drops: Counter[str] = Counter()
    for part in parts:
        drops.update(part.drops)
    ages = [part.oldest_age for part in parts if part.oldest_age is not None]
    sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMS}
    return msgspec.structs.replace(
        parts[0],
        **sums,
        members=max(part.members for part in parts),
        waiting=max(part.waiting for part in parts),
        paused=all(part.paused for part in parts),
        oldest_age=max(ages, default=None),
        dead_letters=dead_letters,
        drops=dict(drops),
        partitions=parts,
    )
