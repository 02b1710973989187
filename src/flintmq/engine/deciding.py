"""May it be done, and how? Decided by what is applied, by the view, and by nothing else.

A decision is a value or a refusal, which is raised. Who leads asks, and proposes what comes of it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ..batch import BatchBuilder, RecordBatch
from ..errors import InvalidRequest, MessageTooLarge, TopicFull
from ..model import MEMORY_RETENTION_BYTES, TopicOptions, changed_options
from .state.topic import TopicState
from .view import TopicView

PARTITIONS_MAX = 1024

Rows = BatchBuilder | RecordBatch


# --- room in a topic


def check_sizes(topic: TopicState, rows: Rows) -> None:
    limit = topic.options.max_message_bytes
    if limit is None or (isinstance(rows, RecordBatch) and rows.compression):
        return  # of a compressed payload, which is not opened here, the client has checked it
    for row in range(rows.row_count):
        size = rows.size(row, row + 1)
        if size > limit:
            raise MessageTooLarge(
                f"message {row} for topic {topic.name!r}", size, limit, "max_message_bytes"
            )


def fitting(topic: TopicState, view: TopicView[Any], rows: Rows) -> int:
    """How many of the rows there is room for."""
    count = rows.row_count
    stored, stored_bytes = view.occupied()
    room = min(count, max(0, topic.count_max - stored))
    bytes_room = topic.bytes_max - stored_bytes
    if rows.size(0, count) <= bytes_room:
        return room
    return max(0, bisect_right(range(room + 1), bytes_room, key=lambda n: rows.size(0, n)) - 1)


def has_room(topic: TopicState, view: TopicView[Any], count: int, size: int) -> bool:
    stored, stored_bytes = view.occupied()
    return stored + count <= topic.count_max and stored_bytes + size <= topic.bytes_max


def refuse_what_never_fits(topic: TopicState, view: TopicView[Any], rows: Rows) -> None:
    count, size = rows.row_count, rows.size(0, rows.row_count)
    if count > topic.count_max:
        raise TopicFull(
            topic.name,
            limit_of(topic, view, count),
            f"a batch of {count:,} messages can never fit; split it",
            never_fits=True,
        )
    if size > topic.bytes_max and count > 1:
        raise TopicFull(
            topic.name,
            f"retention_bytes={topic.bytes_max}",
            f"a batch of {size:,} bytes can never fit; split it",
            never_fits=True,
        )
    refuse_too_large(topic, size)


def refuse_too_large(topic: TopicState, size: int) -> None:
    """A message that would push itself out."""
    if size > topic.bytes_max:
        raise MessageTooLarge(
            f"a message for {topic.name!r}", size, topic.bytes_max, "retention_bytes"
        )


def limit_of(topic: TopicState, view: TopicView[Any], count: int) -> str:
    """The limit that keeps `count` more messages out."""
    options = topic.options
    if view.occupied()[0] + count > topic.count_max:
        return f"retention_count={options.retention_count}"
    return f"retention_bytes={options.retention_bytes}"


# --- options of topics


def options_with(
    defaults: TopicOptions, options: TopicOptions, changes: dict[str, Any]
) -> TopicOptions:
    """What a topic has with these changes; `defaults` are the broker's."""
    wanted = _checked(defaults, options, changes)
    if defaults.storage == "memory":
        return wanted
    if wanted.format == "object" and wanted.storage != "memory":
        if "storage" in changes:
            raise InvalidRequest("format='object' passes references: it has storage='memory'")
        changes = {**changes, "storage": "memory"}
        wanted = _checked(defaults, options, changes)
    became_memory = wanted.storage == "memory" and options.storage != "memory"
    if became_memory and "retention_bytes" not in changes:
        changes = {**changes, "retention_bytes": MEMORY_RETENTION_BYTES}
        wanted = _checked(defaults, options, changes)
    return wanted


def _checked(
    defaults: TopicOptions, options: TopicOptions, changes: dict[str, Any]
) -> TopicOptions:
    wanted = changed_options(options, changes)
    if wanted.storage != "memory" and defaults.storage == "memory":
        raise InvalidRequest("storage='durable' needs a durable broker; this one is memory://")
    if wanted.partitions is not None and wanted.partitions > PARTITIONS_MAX:
        raise InvalidRequest(f"a topic has at most {PARTITIONS_MAX:,} partitions")
    if wanted.compact is not None:
        _check_compact(wanted)
    if wanted.tier is not None:
        _check_tier(wanted)
    return wanted


def _check_tier(wanted: TopicOptions) -> None:
    if wanted.storage == "memory":
        raise InvalidRequest("tier is for topics with storage='durable': segments are uploaded")
    if wanted.compact is not None:
        raise InvalidRequest(
            "tier and compact='key' exclude each other: what is in object storage never changes"
        )


def _check_compact(wanted: TopicOptions) -> None:
    """What is dropped by keys is not dropped by numbers. A topic in memory has its default limit,
    which counts what is left."""
    if wanted.retention_count is not None:
        raise InvalidRequest("compact='key' keeps the last message of each key: no retention_count")
    if wanted.retention_bytes is not None and wanted.storage != "memory":
        raise InvalidRequest("compact='key' keeps the last message of each key: no retention_bytes")
    if wanted.overflow != "drop_oldest" or wanted.keep_until_settled:
        raise InvalidRequest(
            "compact='key' works with overflow='drop_oldest', without keep_until_settled: "
            "messages that a queue group has not settled are kept anyway"
        )


def check_change(name: str, ours: TopicOptions, wanted: TopicOptions) -> None:
    """Whether a topic may change so."""
    check_dead_letters(name, wanted)
    if (ours.format == "object") != (wanted.format == "object"):
        raise InvalidRequest("format='object' cannot be set or removed once the topic exists")
    if wanted.storage != ours.storage:
        raise InvalidRequest(f"topic {name!r} was made with storage={ours.storage!r}; it stays so")
    if wanted.partitions == ours.partitions:
        return
    if ours.partitions is None:
        raise InvalidRequest(f"topic {name!r} was made without partitions; it stays so")
    if wanted.partitions is None or wanted.partitions < ours.partitions:
        raise InvalidRequest(
            f"topic {name!r} has {ours.partitions} partitions; they can be added, not removed"
        )


def check_dead_letters(name: str, options: TopicOptions) -> None:
    if options.dead_letter_topic == name:
        raise InvalidRequest(
            f"dead_letter_topic={name!r}: its dead letters would return to it again and again; "
            "name another topic"
        )
