"""Filters that Spark pushes down, as far as they say which messages to fetch. Pure.

They narrow what is fetched. Spark applies all of them again itself, so results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

_MILLISECOND = timedelta(milliseconds=1)


@dataclass
class Narrowing:
    """The part of the topics to fetch. None is no bound; `end` and `until` are exclusive."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    first: int | None = None
    end: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def wants(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrowing(filters: Iterable[Any]) -> Narrowing:
    """What all filters together leave."""
    found = Narrowing()
    for one in filters:
        attribute = getattr(one, "attribute", None)
        if isinstance(attribute, tuple) and len(attribute) == 1:
            _narrow(found, attribute[0], type(one).__name__, getattr(one, "value", None))
    return found


def _narrow(found: Narrowing, name: str, kind: str, value: Any) -> None:
    if name in ("topic", "partition") and kind in ("EqualTo", "In"):
        wanted = {value} if kind == "EqualTo" else set(value)
        if name == "topic":
            found.topics = wanted if found.topics is None else found.topics & wanted
        else:
            found.partitions = wanted if found.partitions is None else found.partitions & wanted
    is_least = kind in ("EqualTo", "GreaterThanOrEqual", "GreaterThan")
    is_most = kind in ("EqualTo", "LessThanOrEqual", "LessThan")
    if name == "offset" and isinstance(value, int):
        if is_least:
            found.first = max(found.first or 0, value + (kind == "GreaterThan"))
        if is_most:
            end = value + (kind != "LessThan")
            found.end = end if found.end is None else min(found.end, end)
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        # Times are whole milliseconds and never go back; one millisecond more than needed is read.
        if is_least:
            found.since = max(found.since or value - _MILLISECOND, value - _MILLISECOND)
        if is_most:
            found.until = min(found.until or value + _MILLISECOND, value + _MILLISECOND)
