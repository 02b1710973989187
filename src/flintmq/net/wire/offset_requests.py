"""What readers ask for that keep their own positions: ranges of offsets, and where topics end."""

from __future__ import annotations

from typing import Any

from .control import Control


class FetchRequest(Control):
    topic: Any
    offset: int
    max_rows: int
    timeout: float | None = 0


class FetchRangeRequest(Control):
    """Read by offset in bulk, what is there now."""

    topic: Any
    offset: int
    end: int | None
    """Nothing from this offset on; None: what there is."""
    max_rows: int
    max_bytes: int
    """What the reply may carry; 0: about 1 MiB."""
    filter: str | None = None
    with_expired: bool = False
    topic_id: int | None = None
    """The id the topic is known by: another one is an error."""


class FetchRangesRequest(Control):
    """Small ranges of many topics, in one request."""

    topics: list[Any]
    offsets: list[int]
    ends: list[int]
    topic_ids: list[int | None]
    max_bytes: int
    """What the reply may carry; 0: about 1 MiB."""
    filter: str | None = None
    with_expired: bool = False


class ExtentsRequest(Control):
    """Where topics begin and end; and which offset a time is at."""

    topics: list[Any]
    at: Any = None


class ObjectsRequest(Control):
    """Which objects hold these offsets of a plain topic."""

    topic: Any
    start: int
    end: int


class WaitBeyondRequest(Control):
    offsets: dict[str, int]
    """By plain topic, what is known of it."""
    timeout: float | None = None
