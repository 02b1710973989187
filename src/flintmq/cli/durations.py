"""Parses durations, times and sizes on the command line. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..config.kinds import Bytes, Seconds, UnfitValue
from ..model import Start
from .shared import ParamType


class Duration(ParamType):
    """`30`, `500ms`, `30s`, `5m`, `2h`, `7d`: seconds."""

    name = "duration"

    def convert(self, value: Any, param: object, ctx: object) -> float:
        try:
            return float(Seconds(0).from_value(value))
        except UnfitValue:
            self.fail(f"{value!r} is not a duration; use for example 500ms, 30s, 5m, 2h or 7d")


class Lifetime(ParamType):
    """`12h`, `30d`, `52w`: seconds. A number alone is refused: seconds are hardly ever meant."""

    name = "lifetime"

    def convert(self, value: Any, param: object, ctx: object) -> float:
        try:
            return Seconds(1, CENTURY_SECONDS).parse("" if value.isdecimal() else value)
        except UnfitValue:
            self.fail(f"{value!r} is not a time such as 90m, 12h, 30d or 52w")


CENTURY_SECONDS = 36_525 * 86_400


def duration_text(seconds: float) -> str:
    """The shortest form one would type: `1h`, `7d`, `90m`, `2.5s`."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= Seconds.suffixes[unit] and seconds % Seconds.suffixes[unit] == 0:
            return f"{seconds / Seconds.suffixes[unit]:.0f}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


_SIZES = {
    **{name.lower(): count for name, count in Bytes.suffixes.items()},
    **{name: Bytes.suffixes[f"{name.upper()}iB"] for name in "kmgt"},
    "": 1,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class Size(ParamType):
    """`1000`, `64KiB`, `10MB`, `2G`: bytes; a single letter is the power of two."""

    name = "size"

    def __init__(self, least: int = 1, most: int | None = None) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: object, ctx: object) -> int:
        found = _SIZE.fullmatch(str(value).strip().lower())
        if found is None or found[2] not in _SIZES:
            self.fail(f"{value!r} is not a size; use for example 1000, 64KiB, 10MB or 2G")
        size = round(float(found[1]) * _SIZES[found[2]])
        if size < self._least or (self._most is not None and size > self._most):
            to = "" if self._most is None else f" and at most {self._most:,}"
            self.fail(f"{value!r} is out of range: at least {self._least:,} bytes{to}")
        return size


def position_text(place: Start) -> str:
    """A position for people; a time is shown in local time, to the second."""
    if isinstance(place, datetime):
        return place.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return str(place)


class Moment(ParamType):
    """`2026-11-15T08:00`, with an offset or in local time; or seconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: object, ctx: object) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return moment(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time; use for example 2026-11-15T08:00, "
                "2026-11-15T08:00Z or 1794700000"
            )


@dataclass(frozen=True, slots=True)
class Last:
    """The newest N messages."""

    count: int


class Position(ParamType):
    """Where to start: earliest, latest, committed, an offset, a time, or `-5m` before now. If
    `counts`, `-3` means the last three messages."""

    name = "position"

    def __init__(self, *, counts: bool = False) -> None:
        self._counts = counts

    def convert(self, value: Any, param: object, ctx: object) -> Start | Last:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        if value in ("earliest", "latest", "committed"):
            return value  # type: ignore[return-value]
        if value.isdecimal():
            return int(value)
        if value.startswith("-") and value[1:].isdecimal():
            if self._counts and int(value):
                return Last(-int(value))
            self.fail(
                f"{value!r} has no unit; use -{value[1:]}s, -{value[1:]}m, -{value[1:]}h or -5d"
            )
        if value.startswith("-"):
            ago = Duration().convert(value[1:], param, ctx)
            return datetime.fromtimestamp(datetime.now(UTC).timestamp() - ago, UTC)
        try:
            return moment(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a position; use earliest, latest, committed, an offset, "
                "a time such as 2026-11-15T08:00, or -5m for five minutes ago"
            )


def moment(text: str) -> datetime:
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except ValueError:
        return datetime.fromisoformat(text).astimezone(UTC)
