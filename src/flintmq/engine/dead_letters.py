"""Dead letters: what a message looks like beside its topic, and how it goes back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..batch import OBJECTS, BatchBuilder, RowSource
from ..errors import InvalidRequest
from ..group_model import (
    DEAD_DELIVERIES,
    DEAD_GROUP,
    DEAD_HEADERS,
    DEAD_OFFSET,
    DEAD_PARTITION,
    DEAD_REASON,
    DEAD_TIME,
    DEAD_TOPIC,
)
from ..rows import Message, Origin
from .leading.burying import Dead

REDRIVE = "flint.redrive"
"""The group of a dead-letter topic that knows which of them went back."""

REASON_BYTES_MAX = 4096


def dead_letter_name(topic: str, group: str) -> str:
    """Where the dead letters of a group go unless the topic says otherwise."""
    return f"dead.{topic}.{group}"


def dead_rows(
    found: Sequence[tuple[RowSource, int, Dead]], origin: Origin, group: str, now_ms: int
) -> BatchBuilder:
    """The messages as they are, with headers that say where they come from and why."""
    builder = _builder_like(source for source, _, _ in found)
    for source, row, dead in found:
        message = Message(source, row, origin)
        builder.append_row(
            message.value,
            key=message.key,
            headers={
                **message.headers,
                DEAD_TOPIC: origin.topic,
                DEAD_PARTITION: str(origin.partition),
                DEAD_OFFSET: str(dead.offset),
                DEAD_GROUP: group,
                DEAD_REASON: _reason(dead.reason),
                DEAD_TIME: str(now_ms),
                DEAD_DELIVERIES: str(dead.deliveries),
            },
            priority=message.priority,
            content_type=message.content_type,
        )
    return builder


def living_rows(letters: Sequence[Message], edit: Mapping[str, Any] | None = None) -> BatchBuilder:
    """The same the other way round; with `edit`, all of them with that content in place of
    theirs."""
    builder = _builder_like(letter._source for letter in letters)
    for letter in letters:
        headers = {
            name: value for name, value in letter.headers.items() if name not in DEAD_HEADERS
        }
        said: dict[str, Any] = {
            "value": letter.value,
            "key": letter.key,
            "headers": headers,
            "content_type": letter.content_type,
            **(edit or {}),
        }
        builder.append_row(
            said["value"],
            key=said["key"],
            headers=said["headers"] or None,
            priority=letter.priority,
            content_type=said["content_type"],
        )
    return builder


def checked_edit(changes: Mapping[str, Any]) -> dict[str, Any]:
    """What may be changed of a dead letter before it goes back."""
    for name, value in changes.items():
        match name, value:
            case ("value", bytes()) | ("key" | "content_type", None | str()) | ("key", bytes()):
                continue
            case "headers", Mapping() if all(
                isinstance(key, str) and key not in DEAD_HEADERS and isinstance(one, str | bytes)
                for key, one in value.items()
            ):
                continue
        raise InvalidRequest(
            "of a dead letter, value (bytes), key, headers and content_type can be changed; not "
            f"{name}={value!r:.80}"
        )
    return dict(changes)


def is_of(letter: Message, topic: str, group: str) -> bool:
    headers = letter.headers
    return headers.get(DEAD_TOPIC) == topic and headers.get(DEAD_GROUP) == group


def partition_of(letter: Message) -> int:
    return int(letter.headers.get(DEAD_PARTITION, "0"))


def _reason(reason: str) -> str:
    return reason.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")


def _builder_like(sources: Iterable[RowSource]) -> BatchBuilder:
    return BatchBuilder(objects=any(source.columns & OBJECTS for source in sources))
