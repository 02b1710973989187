"""The vocabulary: topic options, receipts, stats, and the checks of arguments.

Plain values without behaviour. Times in the API are seconds or timedelta; inside, milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import msgspec

from .errors import InvalidRequest
from .patterns import check_name

Overflow = Literal["drop_oldest", "drop_new", "block", "reject"]
Storage = Literal["memory", "durable"]
Compact = Literal["key"]
Durability = Literal[
    "none", "memory", "written", "synced", "replicated", "replicated-written", "queued"
]
Start = Literal["earliest", "latest", "committed", "last_per_key"] | int | datetime
Seconds = float | timedelta

MEMORY_RETENTION_BYTES = 256 * 1024 * 1024
PRIORITY_MAX = 7
RATE_MIN, RATE_MAX = 0.001, 1e9
REPLY_TO = "reply-to"
"""The header of a request that has the address its reply goes to."""
SECONDS_MAX = 10**10
"""About three hundred years: a larger time is a mistake."""


TEXT_IN_JSON = ("id", "offset", "partition", "position", "first_offset", "next_offset")
"""Fields that are strings in JSON: many readers hold its numbers as floats, where 64 bits do not
fit."""


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic keeps and what it does when it is full. None means no limit.

    Times are in seconds. A topic is full at `retention_count` or `retention_bytes`.
    """

    retention_count: int | None = None
    retention_bytes: int | None = MEMORY_RETENTION_BYTES
    retention_age: float | None = None
    ttl: float | None = None
    max_message_bytes: int | None = None
    rate_limit: float | None = None
    """Maximum messages per second delivered to all groups together; at least 0.001."""
    rate_burst: int | None = None
    """How many may be delivered at once after a pause."""
    max_deliveries: int | None = 5
    dead_letter_topic: str | None = None
    keep_until_settled: bool = False
    overflow: Overflow = "drop_oldest"
    storage: Storage = "memory"
    partitions: int | None = None
    format: str | None = None
    compression: str | None = None
    pre_hooks: tuple[str, ...] | None = None
    post_hooks: tuple[str, ...] | None = None
    magic_header: str | None = None
    schema: str | None = None
    compact: Compact | None = None
    """`key`: only the newest message of each key is kept."""
    tier: str | None = None
    """A URL: sealed segments are copied to object storage there."""
    local_retention_bytes: int | None = None
    """With `tier`: what is in object storage leaves the disk of the broker beyond this."""
    local_retention_age: float | None = None

    def concern_clients(self) -> bool:
        """Whether a client must know them before it publishes, for values or routing."""
        return self.partitions is not None or any(
            getattr(self, name) is not None for name in VALUE_OPTIONS
        )


class TopicKeywords(TypedDict, total=False):
    """The same options as keyword arguments of `create_topic` and `configure_topic`."""

    retention_count: int | None
    retention_bytes: int | None
    retention_age: Seconds | None
    ttl: Seconds | None
    max_message_bytes: int | None
    rate_limit: float | None
    rate_burst: int | None
    max_deliveries: int | None
    dead_letter_topic: str | None
    keep_until_settled: bool
    overflow: Overflow
    storage: Storage
    partitions: int | None
    format: str | None
    compression: str | None
    pre_hooks: Sequence[str] | None
    post_hooks: Sequence[str] | None
    magic_header: str | None
    schema: Any
    compact: Compact | None
    tier: str | None
    local_retention_bytes: int | None
    local_retention_age: Seconds | None


VALUE_OPTIONS = ("format", "compression", "pre_hooks", "post_hooks", "magic_header", "schema")
OBJECT_RETENTION_COUNT = 100_000
"""Default limit of an `object` topic: objects have no size to count."""

OPTION_NAMES = TopicOptions.__struct_fields__


def changed_options(options: TopicOptions, changes: dict[str, Any]) -> TopicOptions:
    """`options` with `changes` applied, each checked; unknown names are errors."""
    checked = {name: _checked_option(name, value) for name, value in changes.items()}
    return msgspec.structs.replace(options, **checked)


def _checked_option(name: str, value: Any) -> Any:
    if name not in OPTION_NAMES:
        raise InvalidRequest(f"unknown topic option {name!r}; known: {', '.join(OPTION_NAMES)}")
    if name in ("overflow", "storage"):
        allowed = get_args(Overflow if name == "overflow" else Storage)
        if value not in allowed:
            raise InvalidRequest(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        return value
    if name == "keep_until_settled":
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name} must be True or False, not {value!r}")
        return value
    if value is None:
        return None
    if name == "compact":
        if value not in get_args(Compact):
            raise InvalidRequest(f"compact must be 'key', or None; not {value!r}")
        return value
    if name == "rate_limit":
        return _checked_rate(value)
    if name == "dead_letter_topic":
        return check_name(value)
    if name in VALUE_OPTIONS:
        return _checked_value_option(name, value)
    if name == "tier":
        return _checked_tier(value)
    if name in ("retention_age", "ttl", "local_retention_age"):
        checked = seconds(value, name, positive=True)
        if checked > SECONDS_MAX:
            raise InvalidRequest(
                f"{name} must be at most {SECONDS_MAX:,} seconds, or None for no limit"
            )
        return checked
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
        raise InvalidRequest(
            f"{name} must be a whole number of at least 1 (and below 2**63), or None; not {value!r}"
        )
    return value


def _checked_tier(value: Any) -> str:
    if not isinstance(value, str) or "://" not in value:
        raise InvalidRequest(f"tier must be a URL such as 's3://bucket/prefix', not {value!r}")
    return value.rstrip("/")


def _checked_rate(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (RATE_MIN <= value <= RATE_MAX)
    ):
        raise InvalidRequest(
            f"rate_limit must be a number of messages per second from {RATE_MIN} to "
            f"{RATE_MAX:,.0f}, or None for no limit; not {value!r}"
        )
    return float(value)


def _checked_value_option(name: str, value: Any) -> Any:
    if name.endswith("_hooks"):
        return hook_names(value, name)
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a str, not {value!r}")
    return value


def hook_names(value: Any, name: str) -> tuple[str, ...]:
    """Names of hooks as a tuple: a list or tuple of str."""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise InvalidRequest(f"{name} must be a list of hook names, not {value!r}")


def seconds(value: Seconds, name: str, *, positive: bool = False) -> float:
    """A duration in seconds, checked."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(f"{name} must be a number of seconds or a timedelta, not {value!r}")
    if value < 0 or (positive and value == 0):
        least = "more than 0" if positive else "0 or more"
        raise InvalidRequest(f"{name} must be {least} seconds, not {value!r}")
    return float(value)


def timeout_seconds(value: Seconds | None) -> float | None:
    return None if value is None else seconds(value, "timeout")


def check_priority(priority: int) -> int:
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise InvalidRequest(
            f"priority must be 0 to {PRIORITY_MAX} (7 is delivered first), not {priority!r}"
        )
    return priority


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What publish returns: where the messages were stored, and how durably.

    A batch has its first offset and its count. `offset` is None where nothing was stored: at QoS 0,
    or when every message was dropped by `overflow="drop_new"` (`dropped` says how many were), or
    where it is `queued` in the outbox of this device, to be sent.
    """

    topic: str
    offset: int | None
    count: int = 1
    partition: int = 0
    dropped: int = 0
    duplicate: bool = False
    durability: Durability = "memory"
    parts: tuple[Receipt, ...] = ()
    """Of a batch to a partitioned topic: a receipt for each partition it went to."""


if TYPE_CHECKING:

    class StoredReceipt(Receipt, frozen=True):
        """The receipt of a single publish: a `Receipt`, whose offset is a number.

        It is None in two cases that a program knows of: at QoS 0, and where a full topic with
        `overflow="drop_new"` dropped the message (`dropped` is 1).
        """

        offset: int

else:
    StoredReceipt = Receipt


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic and its options. An id is never reused, even if the name is."""

    name: str
    id: int
    options: TopicOptions


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a plain topic, or one partition of a topic, begins and ends at one moment."""

    topic: str
    """The plain topic: of a partition, with its number."""
    partition: int
    id: int
    """Of a topic made anew under the name it is another. Over a network, a topic in memory has
    another one once its broker was restarted: its offsets begin at 0 again."""
    first_offset: int
    next_offset: int
    byte_count: int
    at: int
    """The offset that was asked for, where a time or a word was given; else `first_offset`."""
    far_end: int = 0
    """What lies before this offset may be read in object storage."""


class FarObjects(msgspec.Struct, frozen=True, array_like=True):
    """What of a plain topic is in object storage, and how to read it there."""

    id: int
    first_offset: int
    """What lies before it was dropped."""
    objects: list[tuple[str, int, int]]
    """The URL of each, its first offset, and the one behind its last."""
    ttl_ms: int | None
    gone: list[tuple[int, int]]
    """Offsets that nobody is to get."""


class Missed(msgspec.Struct, frozen=True):
    """A gap for a reader: retention deleted `count` messages before they were read."""

    topic: str
    first: int
    next: int
    count: int


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """A small named value that belongs to a topic and is kept with it: a webhook, for example."""

    kind: str
    topic: str
    name: str
    value: bytes
    version: int
    """Another one after each change, and never the same again."""


class OutboxStats(msgspec.Struct, frozen=True, kw_only=True):
    """The outbox of a connection at one moment."""

    messages: int
    """How many wait to be sent."""
    bytes: int
    bytes_max: int
    sent: int
    """How many the broker has taken since this connection was opened."""
    refused: int
    """How many it will never take, for example because they are too large: they are laid aside."""
    is_connected: bool
    last_error: str | None
    """What sending waits for, if it has failed."""


class TopicStats(msgspec.Struct, frozen=True, kw_only=True):
    """A topic at one moment.

    `lag` and `missed` are by reader name; a reader without a name is listed as `*1`, `*2` ... while
    it is open. `drops` counts messages by reason: count, bytes, age (retention), expired (their own
    or the topic's ttl), overflow (`drop_new`), read (passed by every reader of a bounded topic),
    feed (live queues that were full), damaged (delayed ones that live queues did not get, because
    they cannot be read). `waits` counts publishes that had to wait, by who made them:
    topic or feed. `filters` counts matched and rejected by name, of those with a filter. `rates`
    are per second over the last ten seconds. Of a partitioned topic, the figures are sums, and
    `partitions` has each one's own.
    """

    name: str
    id: int
    message_count: int
    byte_count: int
    first_offset: int
    next_offset: int
    subscribers: int
    lag: dict[str, int]
    missed: dict[str, int]
    drops: dict[str, int]
    waits: dict[str, int]
    filters: dict[str, dict[str, int]]
    publishers_waiting: int
    published: int
    delivered: int
    rates: dict[str, float]
    partitions: list[TopicStats] = []
    damaged: int = 0
    """Messages known to be damaged on disk; reading them raises Corrupt."""
    damaged_ranges: list[tuple[int, int]] = []
    """Their offsets, from the first to before the last. Of a partitioned topic, see `partitions`.
    """
