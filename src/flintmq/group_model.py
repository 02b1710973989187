"""The vocabulary of groups: their options and figures, what is in flight, dead letters.

Plain values without behaviour, shared by every way of running.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from .errors import InvalidRequest
from .model import PRIORITY_MAX, Start

Order = Literal["priority", "key", "log"]
ORDERS: tuple[Order, ...] = get_args(Order)
Kind = Literal["queue", "cursor"]

LEASE_SECONDS = 30.0
"""Default duration of a lease."""

LEASE_SECONDS_MAX = 12 * 3600.0
"""The longest lease per request; it may be extended."""

TAKE_MAX = 65_536
"""Maximum messages of one take or poll."""

PRIORITIES = PRIORITY_MAX + 1

Ranges = list[tuple[int, int]]
"""Offsets as ranges: each from its first up to before its second."""

Lease = tuple[int, Ranges]
"""Offsets that were granted under one token."""

# What a dead letter carries beside its own headers.
DEAD_TOPIC = "flint-dead-topic"
DEAD_PARTITION = "flint-dead-partition"
DEAD_OFFSET = "flint-dead-offset"
DEAD_GROUP = "flint-dead-group"
DEAD_REASON = "flint-dead-reason"
DEAD_TIME = "flint-dead-time"
DEAD_DELIVERIES = "flint-dead-deliveries"
DEAD_HEADERS = (
    DEAD_TOPIC, DEAD_PARTITION, DEAD_OFFSET, DEAD_GROUP, DEAD_REASON, DEAD_TIME, DEAD_DELIVERIES,
)  # fmt: skip


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group of a topic. `order`, `filter` and `start` are those of a queue; a cursor has none."""

    name: str
    topic: str
    kind: Kind
    order: Order | None = None
    filter: str | None = None
    start: str | None = None
    paused: bool = False


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """A group at one moment. Everything before `position` is settled.

    `lag` is what is not settled yet: `ready` to be handed out, `in_flight` under leases, and
    `delayed` until their time comes (published with a delay, or nacked with one). `oldest_age` is
    that of the oldest of them in seconds. `drops` counts messages that were never delivered, by
    reason: expired, filtered, retention, cancelled, reset. `dead_letters` are those that wait in
    the dead-letter topic. Over a partitioned topic, the figures are sums, and `partitions` has each
    one's own.
    """

    name: str
    topic: str
    kind: Kind
    position: int
    lag: int
    members: int
    paused: bool = False
    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    oldest_age: float | None = None
    delivered: int = 0
    redelivered: int = 0
    settled: int = 0
    leases_expired: int = 0
    dead_lettered: int = 0
    dead_letters: int = 0
    waiting: int = 0
    drops: dict[str, int] = {}
    partitions: list[GroupStats] = []


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is out under a lease."""

    topic: str
    partition: int
    offset: int
    holder: str
    token: int
    delivery_count: int
    age: float
    """Seconds since it was handed out."""
    expires_in: float
    """Seconds until the lease ends; below 0 where it has ended and nobody has asked since."""


def check_order(order: str) -> Order:
    for known in ORDERS:
        if order == known:
            return known
    raise InvalidRequest(f"order must be one of {', '.join(ORDERS)}, not {order!r}")


def start_text(start: Start) -> str:
    """Where a group begins, as text that can be kept and compared."""
    return start if isinstance(start, str) else str(start)
