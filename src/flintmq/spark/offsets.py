"""Positions of a query as Spark keeps them in its checkpoint, and as users write them. Pure.

    {"orders": {"id": "17", "next": {"0": 2300, "1": 1874}}}

`next` is the next offset to read, by partition. `id` is that of the topic: a topic created again
under the name has another id. Spark compares positions as text, so topics and partitions are
always in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidRequest

EARLIEST, LATEST = -2, -1
"""As in Kafka: the first offset, and the one after the last."""


@dataclass(frozen=True, slots=True)
class TopicPosition:
    id: int
    next: Mapping[int, int]


Positions = Mapping[str, TopicPosition]


def written(positions: Positions) -> dict[str, Any]:
    """As Spark keeps it. Equal positions give equal text."""
    return {
        topic: {
            "id": str(positions[topic].id),
            "next": {
                str(number): positions[topic].next[number]
                for number in sorted(positions[topic].next)
            },
        }
        for topic in sorted(positions)
    }


def read(offset: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """The positions in a checkpoint."""
    try:
        return {
            topic: TopicPosition(
                int(position["id"]),
                {int(number): int(at) for number, at in position["next"].items()},
            )
            for topic, position in offset.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"the checkpoint holds a position that this source did not write: {offset!r} "
            f"({type(error).__name__}: {error}); start with a new checkpoint"
        ) from None


def parse_offsets(text: str, option: str, *, earliest: bool = True) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition, as users write them; -2 is the earliest, -1 the latest."""
    example = '{"orders": {"0": 23, "1": -1}}'
    try:
        found = json.loads(text)
    except ValueError as error:
        words = "earliest, latest" if earliest else "latest"
        raise InvalidRequest(
            f"{option} must be {words}, or JSON such as {example}, not {text!r} ({error})"
        ) from None
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InvalidRequest(f"{option} must have offsets by topic and partition, as in {example}")
    offsets: dict[str, dict[int, int]] = {}
    for topic, by_partition in found.items():
        offsets[topic] = {}
        for number, at in by_partition.items():
            if not number.isdecimal() or type(at) is not int or at < EARLIEST:
                raise InvalidRequest(
                    f"{option}: {topic!r} has {number!r}: {at!r}; write it as in {example}"
                )
            if at == EARLIEST and not earliest:
                raise InvalidRequest(f"{option}: {topic!r} cannot end at -2 (earliest)")
            offsets[topic][int(number)] = at
    return offsets
