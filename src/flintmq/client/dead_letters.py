"""Dead letters: messages that a group gave up on, as they were, with origin and reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..batch import BatchBuilder, HeaderValue
from ..batch.format import OBJECTS
from ..broker_api import BrokerApi
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
from ..rows import Message, Origin, Rows


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter of a group.

    `message` is the message as it was published, and `topic`, `partition` and `offset` are where it
    was. `time` is when it became a dead letter, in seconds since 1970, after `delivery_count`
    deliveries. `id` is its offset in the dead-letter topic, for `redrive`.
    """

    id: int
    message: Message
    topic: str
    partition: int
    offset: int
    group: str
    reason: str
    time: float
    delivery_count: int


def dead_letters(rows: Rows, broker: BrokerApi) -> list[DeadLetter]:
    return [_dead_letter(message, broker) for message in rows]


def _dead_letter(dead: Message, broker: BrokerApi) -> DeadLetter:
    headers = dead.headers
    said = {name: _text(headers.get(name, "")) for name in DEAD_HEADERS}
    topic, partition = said[DEAD_TOPIC], int(said[DEAD_PARTITION] or 0)
    offset = int(said[DEAD_OFFSET] or 0)
    assert dead.offset is not None, "dead letters are stored"
    source, row = dead._source, dead._row
    rows = BatchBuilder(offset, objects=bool(source.columns & OBJECTS))
    rows.append_row(
        dead.value,
        key=dead.key,
        headers={name: value for name, value in headers.items() if name not in DEAD_HEADERS},
        priority=dead.priority,
        expiry=source.expiry(row),
        deliver_at=source.deliver_at(row),
        content_type=dead.content_type,
    )
    rows.append_time = source.time(row)
    origin = Origin(topic, partition, dead._origin.decoder, broker.known_options(topic))
    return DeadLetter(
        id=dead.offset,
        message=Message(rows, 0, origin),
        topic=topic,
        partition=partition,
        offset=offset,
        group=said[DEAD_GROUP],
        reason=said[DEAD_REASON],
        time=int(said[DEAD_TIME] or 0) / 1000,
        delivery_count=int(said[DEAD_DELIVERIES] or 0),
    )


def _text(value: HeaderValue) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


Which = DeadLetter | int | Iterable[DeadLetter | int] | None
"""Dead letters: one or several, by themselves or by id; None for all."""


def dead_letter_ids(which: Any, filter: object, verb: str) -> list[int] | None:
    """The dead letters that a call names; None for all, or those that pass the filter."""
    if which is None:
        return None
    if filter is not None:
        raise InvalidRequest(f"{verb} takes `which` or `filter`, not both")
    if isinstance(which, DeadLetter | int) or not isinstance(which, Iterable):
        which = [which]
    ids: list[Any] = [one.id if isinstance(one, DeadLetter) else one for one in which]
    for one in ids:
        if type(one) is not int or one < 0:
            raise InvalidRequest(
                f"{verb} takes dead letters or their ids, a list of them, or None for all; "
                f"not {one!r}"
            )
    return ids
