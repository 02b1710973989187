"""Times as Spark writes them, `1 hour 30 minutes`, as seconds. Pure."""

from __future__ import annotations

import re

_UNIT = r"(?:microsecond|millisecond|second|minute|hour|day|week)s?"
DURATION = re.compile(rf"(?:interval\s+)?\d+\s+{_UNIT}(?:\s+\d+\s+{_UNIT})*", re.IGNORECASE)
_PART = re.compile(rf"(\d+)\s+({_UNIT})", re.IGNORECASE)
_SECONDS = {
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0,
    "day": 86_400.0, "week": 604_800.0,
}  # fmt: skip


def seconds_of(text: str) -> float | None:
    """None if it is not such a time."""
    if not DURATION.fullmatch(text.strip()):
        return None
    return sum(
        int(count) * _SECONDS[unit.lower().removesuffix("s")] for count, unit in _PART.findall(text)
    )
