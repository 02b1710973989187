"""The last events of a log, kept in memory for whoever looks into a running broker. Bounded."""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice

import msgspec

from .logs import TEXT_CHARACTERS_MAX, event_of, text_of

EVENTS_MAX = 1000
FIELDS_MAX = 16
FIELD_CHARACTERS_MAX = 256


class RecentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log: what `flintmq serve` writes to stderr."""

    number: int
    """Counts up from 1; those before the oldest are forgotten."""
    time: float
    """Seconds since 1970."""
    level: str
    logger: str
    event: str
    """Its name, as in docs/logging.md; empty for lines of other libraries."""
    message: str
    fields: dict[str, str]


class RecentEvents(logging.Handler):
    """Keeps the last lines that pass its level. Any thread may log."""

    def __init__(self, level: int = logging.INFO, events_max: int = EVENTS_MAX) -> None:
        super().__init__(level)
        self._kept: deque[RecentEvent] = deque(maxlen=events_max)
        self.last_number = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            name, fields = event_of(record)
            message = text_of(record)[:TEXT_CHARACTERS_MAX]
            shown = {
                str(field)[:FIELD_CHARACTERS_MAX]: _short(value)
                for field, value in islice(fields.items(), FIELDS_MAX)
                if value is not None
            }
        except Exception:  # a value that cannot be shown must not harm who logs it
            return
        self.last_number += 1
        self._kept.append(
            RecentEvent(
                number=self.last_number,
                time=record.created,
                level=record.levelname.lower(),
                logger=record.name,
                event=name,
                message=message,
                fields=shown,
            )
        )

    def after(self, number: int, limit: int) -> list[RecentEvent]:
        """The newest of those behind a number, at most so many, oldest first."""
        found = [one for one in list(self._kept) if one.number > number]
        return found[-limit:]


def _short(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"
    return str(value)[:FIELD_CHARACTERS_MAX]
