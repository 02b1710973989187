"""The broker's values as the JSON API shows them. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ... import group_model, model
from ... import rows as messages
from ...client import dead_letters
from ...client.delivery import Delivery
from ...net.server.connection import ServerConnection
from . import models
from .shown import show


def key(found: Mapping[str, Any]) -> models.Key:
    """Field by field: what is added to keys is not shown before somebody has thought of it."""
    return models.Key(
        id=found["id"],
        name=found["name"],
        grants=found["grants"],
        made_at=_seconds(found["made_at_ms"]),
        expires_at=_seconds(found["expires_at_ms"]),
        last_used_at=_seconds(found["last_used_at_ms"]),
        note=found["note"],
    )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def stats(found: model.TopicStats) -> models.Stats:
    return show(models.Stats, found)


def partitions(found: model.TopicStats) -> list[models.Partition]:
    return [
        models.Partition(partition=str(number), stats=stats(part))
        for number, part in enumerate(found.partitions)
    ]


def group_page(found: group_model.GroupStats) -> models.GroupPage:
    return models.GroupPage(
        name=found.name,
        topic=found.topic,
        kind=found.kind,
        stats=show(models.GroupFigures, found),
        partitions=[
            models.GroupPartition(partition=str(number), stats=show(models.GroupFigures, part))
            for number, part in enumerate(found.partitions)
        ],
    )


def message(found: messages.Message, value_bytes: int) -> models.Message:
    return models.Message(**fields(found, value_bytes))


def delivered(found: Delivery, lease: str) -> models.Delivered:
    """Whole: whoever consumes it wants all of it."""
    own = fields(found, len(found.value))
    return models.Delivered(**own, lease=lease, delivery_count=found.delivery_count)


def fields(found: messages.Message, value_bytes: int) -> dict[str, Any]:
    value = found.value
    is_object = not isinstance(value, bytes | memoryview | bytearray)
    raw = b"" if is_object else bytes(value[:value_bytes])
    size = 0 if is_object else len(value)
    shown, encoding = _shown(raw, is_cut=size > value_bytes)
    key, key_encoding = (None, None) if found.key is None else _text(found.key)
    headers = {name: _text(one) for name, one in found.headers.items()}
    return dict(  # noqa: C408
        partition=str(found.partition),
        offset=str(found.offset or 0),
        timestamp=found.timestamp,
        key=key,
        key_encoding=key_encoding,
        headers=_of_kind(headers, "text"),
        binary_headers=_of_kind(headers, "base64"),
        priority=found.priority,
        content_type=found.content_type,
        expires_at=found.expires_at,
        deliver_at=found.deliver_at,
        value=shown,
        encoding="object" if is_object else encoding,
        size=size,
        truncated=size > value_bytes,
    )


def dead_letter(found: dead_letters.DeadLetter, value_bytes: int) -> models.DeadLetter:
    return show(models.DeadLetter, found, message=message(found.message, value_bytes))


def _of_kind(headers: Mapping[str, tuple[str, models.Encoding]], wanted: str) -> dict[str, str]:
    return {name: text for name, (text, encoding) in headers.items() if encoding == wanted}


def _text(value: str | bytes) -> tuple[str, models.Encoding]:
    return (value, "text") if isinstance(value, str) else _shown(value, is_cut=False)


def _shown(raw: bytes, *, is_cut: bool) -> tuple[str, models.Encoding]:
    """Bytes as text where they are UTF-8, else as base64. A character that was cut is left out."""
    for missing in range(4 if is_cut else 1):
        try:
            return raw[: len(raw) - missing].decode(), "text"
        except UnicodeDecodeError:
            continue
    return base64.b64encode(raw).decode(), "base64"


def connection(found: ServerConnection) -> models.Connection:
    session = found.session
    return models.Connection(
        id=str(found.number),
        peer=found.peer,
        client=session.client if session is not None else "",
        protocol="native",
        since=found.since_ms / 1000,
        bytes_received=found.bytes_received,
        bytes_sent=found.bytes_sent,
        streams=len(session.streams) if session is not None else 0,
        key=session.access.name if session is not None else "",
    )
