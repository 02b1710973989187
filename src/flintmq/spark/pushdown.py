"""Filters that Spark lets a source see, as far as they concern where messages lie. Pure.

They narrow what is fetched; Spark still applies all of them itself, so nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

_MILLISECOND = timedelta(milliseconds=1)


@dataclass
class Narrowing:
    """What is left of a topic: None is no bound. Ends are behind the last."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    first: int | None = None
    end: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    used: list[Any] = field(default_factory=list)

    def wants(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrowing(filters: Iterable[Any]) -> Narrowing:
    """What all of these together leave."""
    found = Narrowing()
    for one in filters:
        attribute = getattr(one, "attribute", None)
        if isinstance(attribute, tuple) and len(attribute) == 1:
            kind, name, value = type(one).__name__, attribute[0], getattr(one, "value", None)
            if _narrow(found, name, kind, value):
                found.used.append(one)
    return found


def _narrow(found: Narrowing, name: str, kind: str, value: Any) -> bool:
    if name in ("topic", "partition"):
        if kind not in ("EqualTo", "In"):
            return False
        wanted = {value} if kind == "EqualTo" else set(value)
        if name == "topic":
            found.topics = wanted if found.topics is None else found.topics & wanted
        else:
            found.partitions = wanted if found.partitions is None else found.partitions & wanted
        return True
    is_least = kind in ("EqualTo", "GreaterThanOrEqual", "GreaterThan")
    is_most = kind in ("EqualTo", "LessThanOrEqual", "LessThan")
    if name == "offset" and isinstance(value, int):
        if is_least:
            found.first = max(found.first or 0, value + (kind == "GreaterThan"))
        if is_most:
            end = value + (kind != "LessThan")
            found.end = end if found.end is None else min(found.end, end)
        return is_least or is_most
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        # Times are whole milliseconds and never go back; a millisecond more is fetched than needed.
        if is_least:
            found.since = max(found.since or value - _MILLISECOND, value - _MILLISECOND)
        if is_most:
            found.until = min(found.until or value + _MILLISECOND, value + _MILLISECOND)
        return is_least or is_most
    return False
