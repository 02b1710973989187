"""Compares the rows that a flow wrote with those that a test expects. Pure.

The order of rows does not matter. What an expected row does not name is not compared, unless
another row of its list names it. Numbers may differ by rounding, and times by the way they are
written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

Row = Mapping[str, Any]
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is missing, one that was not expected, or one in place of another."""

    expected: Row | None
    found: Row | None


def differences(expected: Sequence[Row], found: Sequence[Row]) -> list[Difference]:
    """What is different. Rows that resemble each other are told together."""
    names = list(dict.fromkeys(name for row in expected for name in row))
    wanted: list[Row] = [{name: row.get(name) for name in names} for row in expected]
    left: list[Row] = [
        {name: row.get(name) for name in names} if names else dict(row) for row in found
    ]
    missing: list[Row] = []
    for row in wanted:
        at = next((at for at, other in enumerate(left) if same(row, other)), None)
        if at is None:
            missing.append(row)
        else:
            del left[at]
    different = []
    for row in missing:
        near = max(left, key=lambda other: _resemblance(row, other), default=None)
        if near is None or not _resemblance(row, near):
            different.append(Difference(row, None))
        else:
            left.remove(near)
            different.append(Difference(row, near))
    return different + [Difference(None, row) for row in left]


def same(expected: Any, found: Any) -> bool:
    """Whether a found value is the expected one."""
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping) and all(
            same(value, found.get(name)) for name, value in expected.items()
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(found, list)
            and len(expected) == len(found)
            and all(map(same, expected, found))
        )
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=ROUNDING, abs_tol=ROUNDING)
    if isinstance(expected, float) and isinstance(found, str):  # JSON has no nan and inf
        return str(expected).lower() in (found.lower(), found.lower().removesuffix("inity"))
    if isinstance(expected, str | date) and isinstance(found, str):
        return str(expected) == found or _is_same_time(expected, found)
    return bool(expected == found)


def _is_same_time(expected: str | date, found: str) -> bool:
    wanted, there = _time(expected), _time(found)
    return wanted is not None and wanted == there


def _time(value: str | date) -> datetime | None:
    """A time; in UTC, if it does not say where."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _resemblance(one: Row, other: Row) -> int:
    return sum(name in other and same(value, other[name]) for name, value in one.items())
