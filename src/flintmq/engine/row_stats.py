"""The stats of a partitioned topic and of its groups, put together from the partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ..group_model import GroupStats
from ..model import TopicStats

Number = TypeVar("Number", int, float)

_GROUP_SUMS = (
    "position", "lag", "ready", "in_flight", "delayed", "delivered", "redelivered", "settled",
    "leases_expired", "dead_lettered",
)  # fmt: skip
_TOPIC_SUMS = (
    "message_count", "byte_count", "first_offset", "next_offset", "publishers_waiting", "published",
    "delivered", "damaged",
)  # fmt: skip
_TOPIC_SUMS_BY_KEY = ("lag", "missed", "drops", "waits", "rates")


def merged_stats(name: str, parts: list[TopicStats]) -> TopicStats:
    """Sums over the partitions, offsets included; each one's own figures are in `partitions`. Live
    feeds listen to all of them, and count once."""
    filters: dict[str, dict[str, int]] = {}
    for part in parts:
        for label, counts in part.filters.items():
            is_live = label.startswith("live ")
            filters[label] = counts if is_live else _by_key([filters.get(label, {}), counts])
    return msgspec.structs.replace(
        parts[0],
        name=name,
        **_sums(parts, _TOPIC_SUMS),
        **{field: _by_key(getattr(one, field) for one in parts) for field in _TOPIC_SUMS_BY_KEY},
        subscribers=max(part.subscribers for part in parts),
        filters=filters,
        damaged_ranges=[],
        partitions=parts,
    )


def merged_group_stats(parts: list[GroupStats]) -> GroupStats:
    """Sums over the partitions; members and those who wait are in each of them, and count once."""
    ages = [part.oldest_age for part in parts if part.oldest_age is not None]
    return msgspec.structs.replace(
        parts[0],
        **_sums(parts, _GROUP_SUMS),
        members=max(part.members for part in parts),
        waiting=max(part.waiting for part in parts),
        paused=all(part.paused for part in parts),
        oldest_age=max(ages, default=None),
        drops=_by_key(part.drops for part in parts),
        partitions=parts,
    )


def _sums(parts: Sequence[object], names: Iterable[str]) -> dict[str, int]:
    return {name: sum(getattr(part, name) for part in parts) for name in names}


def _by_key(counts: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    total: dict[str, Number] = {}
    for part in counts:
        for key, count in part.items():
            total[key] = total.get(key, 0) + count
    return total
