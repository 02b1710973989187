"""Cron expressions: which minutes they name, in a time zone, also where clocks change. Pure.

    minute hour day-of-month month day-of-week      */5 8-18 * * mon-fri
    @hourly @daily @midnight @weekly @monthly @yearly @annually

A field is `*`, a number, a name (jan, mon), a range `a-b`, each with a step `/n`, or several with
commas between them. Sunday is 0 or 7. Where both days are said, a day that is either one counts, as
cron does it.

Where clocks go forward, an hour of the day is left out; where they go back, one comes twice. An
expression that names hours comes once a day all the same: at the first of two, and where its time
is left out, as much later as the clocks were moved. One whose hours are `*` (or `*/n`) goes by what
clocks show: left out with the hour, twice with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .errors import InvalidRequest

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, DAYS),
)
DAYS_AHEAD = 366 * 9
"""The 29th of February may be eight years away."""
FOLD_HOURS = 3
"""So much later, by the clock, nothing comes earlier any more."""


class Cron(NamedTuple):
    """A cron expression, taken apart."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    by_clock: bool
    """Whether it goes by what clocks show, an hour that comes twice included."""
    any_day: bool
    any_weekday: bool

    def has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return of_month and of_week
        return of_month or of_week


def cron_of(text: str) -> Cron:
    """Raises InvalidRequest, which names the field."""
    if not isinstance(text, str):
        raise InvalidRequest(f"a cron expression is a str such as '*/5 * * * *', not {text!r}")
    parts = SHORTHANDS.get(text.strip().lower(), text).split()
    if len(parts) != len(FIELDS):
        raise InvalidRequest(
            f"cron expression {text!r} has {len(parts)} fields, not 5: minute, hour, day of the "
            "month, month, day of the week, as in '*/5 8-18 * * mon-fri'"
        )
    minutes, hours, days, months, weekdays = (
        _field(text, part, *field) for part, field in zip(parts, FIELDS, strict=True)
    )
    return Cron(
        text,
        minutes,
        hours,
        days,
        months,
        frozenset(one % 7 for one in weekdays),
        parts[1].startswith("*"),
        parts[2].startswith("*"),
        parts[4].startswith("*"),
    )


def _field(
    text: str, part: str, name: str, least: int, most: int, names: tuple[str, ...]
) -> frozenset[int]:
    def wrong(why: str) -> InvalidRequest:
        return InvalidRequest(f"cron expression {text!r}: {name} {part!r}: {why}")

    def number(word: str) -> int:
        if word.lower() in names:
            return names.index(word.lower()) + least
        if not (word.isascii() and word.isdigit() and len(word) < 4):
            raise wrong(f"{word!r} is no number" + (f" or name ({', '.join(names)})" * bool(names)))
        if not least <= int(word) <= most:
            raise wrong(f"{word} is not from {least} to {most}")
        return int(word)

    found: set[int] = set()
    for item in part.split(","):
        span, slash, step_text = item.partition("/")
        step = 1
        if slash:
            if not (step_text.isascii() and step_text.isdigit()) or not 0 < int(step_text) < 1000:
                raise wrong(f"the step {step_text!r} is no number above 0")
            step = int(step_text)
        if span == "*":
            first, last = least, most
        elif "-" in span:
            first, last = map(number, span.split("-", 1))
            if first > last:
                raise wrong(f"{span!r} ends before it begins")
        else:
            first = number(span)
            last = most if slash else first
        found.update(range(first, last + 1, step))
    return frozenset(found)


def zone_of(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidRequest(
            f"there is no time zone {name!r} on this machine; use a name such as Europe/Berlin or "
            "UTC (where the system has no zones, `pip install tzdata`)"
        ) from None


def next_tick(cron: Cron, zone: tzinfo, after_ms: int) -> int | None:
    """The first time after that one, in milliseconds since 1970; None where there is none."""
    after = datetime.fromtimestamp(after_ms / 1000, UTC)
    earliest: datetime | None = None
    hours_left = FOLD_HOURS
    for moments in _hours(cron, zone, after):
        later = [one for one in moments if one > after]
        if later:
            earliest = min([*later, *([earliest] if earliest else [])])
        if earliest is not None:
            hours_left -= 1
            if hours_left < 0:
                break
    return None if earliest is None else round(earliest.timestamp() * 1000)


def _hours(cron: Cron, zone: tzinfo, after: datetime) -> Iterator[list[datetime]]:
    """The moments of each hour that has some or may be the last to look at, by the clock."""
    here = (after - timedelta(hours=FOLD_HOURS)).astimezone(zone)
    begin_hour = here.hour
    day = here.date()
    for _ in range(DAYS_AHEAD):
        if cron.has(day):
            for hour in range(begin_hour, 24):
                yield _moments(cron, zone, day, hour) if hour in cron.hours else []
        else:
            yield from ([] for _ in range(FOLD_HOURS))
        begin_hour = 0
        if day == date.max:
            return
        day += timedelta(days=1)


def _moments(cron: Cron, zone: tzinfo, day: date, hour: int) -> list[datetime]:
    found = []
    for minute in cron.minutes:
        first = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        moment = first.astimezone(UTC)
        if not cron.by_clock:
            found.append(moment)
            continue
        second = first.replace(fold=1).astimezone(UTC)
        for one in {moment, second}:
            back = one.astimezone(zone)
            if (back.hour, back.minute) == (hour, minute):  # else the clocks leave it out
                found.append(one)
    return found
