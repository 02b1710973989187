"""Cron expressions: which minutes they name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq import InvalidRequest
from flintmq.cron import Cron, cron_of, next_tick

BERLIN = ZoneInfo("Europe/Berlin")
UTC = UTC


def ticks(text: str, after: str, count: int, zone: str = "UTC") -> list[str]:
    """The next ones, as clocks there show them, with the difference to UTC."""
    there = ZoneInfo(zone)
    moment = datetime.fromisoformat(after).replace(tzinfo=there)
    ms, found = round(moment.timestamp() * 1000), []
    for _ in range(count):
        tick = next_tick(cron_of(text), there, ms)
        assert tick is not None
        ms = tick
        found.append(datetime.fromtimestamp(ms / 1000, there).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", ["2026-01-01T00:01", "2026-01-01T00:02"]),
        ("*/20 * * * *", ["2026-01-01T00:20", "2026-01-01T00:40", "2026-01-01T01:00"]),
        ("5 4 * * *", ["2026-01-01T04:05", "2026-01-02T04:05"]),
        ("0 8-10/2 * * *", ["2026-01-01T08:00", "2026-01-01T10:00", "2026-01-02T08:00"]),
        ("0 0 * * mon,WED", ["2026-01-05T00:00", "2026-01-07T00:00"]),
        ("0 0 * * 7", ["2026-01-04T00:00"]),
        ("0 0 13 * fri", ["2026-01-02T00:00", "2026-01-09T00:00", "2026-01-13T00:00"]),
        ("0 0 31 * *", ["2026-01-31T00:00", "2026-03-31T00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("@yearly", ["2027-01-01T00:00"]),
        ("@hourly", ["2026-01-01T01:00"]),
        ("30/10 12 * jun *", ["2026-06-01T12:30", "2026-06-01T12:40", "2026-06-01T12:50"]),
    ],
)
def test_an_expression_names_these_times(text: str, expected: list[str]) -> None:
    found = ticks(text, "2026-01-01T00:00", len(expected))

    assert [one[:16] for one in found] == expected


def test_a_time_that_clocks_leave_out_comes_as_much_later_once() -> None:
    assert ticks("30 2 * * *", "2026-03-28T12:00", 2, "Europe/Berlin") == [
        "2026-03-29T03:30+02:00",
        "2026-03-30T02:30+02:00",
    ]


def test_a_time_that_clocks_show_twice_comes_at_the_first() -> None:
    assert ticks("30 2 * * *", "2026-10-24T12:00", 2, "Europe/Berlin") == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_every_half_hour_stays_every_half_hour_where_clocks_change() -> None:
    assert ticks("*/30 * * * *", "2026-10-25T01:30", 5, "Europe/Berlin") == [
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:00+01:00",
    ]
    assert ticks("*/30 * * * *", "2026-03-29T01:30", 2, "Europe/Berlin") == [
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:30+02:00",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * * *", "has 4 fields, not 5"),
        ("60 * * * *", r"minute '60': 60 is not from 0 to 59"),
        ("* * * * mo", r"day of the week 'mo': 'mo' is no number or name"),
        ("*/0 * * * *", "the step '0' is no number above 0"),
        ("5-1 * * * *", "'5-1' ends before it begins"),
        ("* * 0 * *", "day of the month '0'"),
        ("a,b * * * *", "'a' is no number"),
        ("1,, * * * *", "'' is no number"),
        ("-1 * * * *", "'' is no number"),
        ("² * * * *", "is no number"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_field(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        cron_of(text)


def test_a_day_that_never_comes_has_no_next() -> None:
    assert next_tick(cron_of("0 0 30 2 *"), UTC, 0) is None


fields = st.tuples(
    *(
        st.one_of(
            st.just("*"),
            st.integers(low, high).map(str),
            st.lists(st.integers(low, high), min_size=1, max_size=4).map(
                lambda some: ",".join(map(str, some))
            ),
            st.integers(1, high).map(lambda step: f"*/{step}"),
        )
        for low, high in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
    )
).map(" ".join)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1)).map(
    lambda one: one.replace(tzinfo=UTC, microsecond=0)
)
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
)


def shows(cron: Cron, moment: datetime) -> bool:
    return moment.minute in cron.minutes and moment.hour in cron.hours and cron.has(moment.date())


@given(fields, moments, zones)
def test_the_next_time_is_later_and_fits_by_the_clock(
    text: str, after: datetime, zone: str
) -> None:
    cron, there = cron_of(text), ZoneInfo(zone)
    after_ms = round(after.timestamp() * 1000)

    tick = next_tick(cron, there, after_ms)

    if tick is None:
        return
    assert tick > after_ms
    moment = datetime.fromtimestamp(tick / 1000, there)
    if cron.by_clock:
        assert shows(cron, moment)
    else:  # or the clocks left it out
        shifts = (0, 30, 60)
        assert any(shows(cron, moment - timedelta(minutes=one)) for one in shifts)


@given(fields, moments, zones, st.integers(1, 3 * 24 * 60))
def test_nothing_between_two_times_is_left_out(
    text: str, after: datetime, zone: str, minutes: int
) -> None:
    """What lies before the next one has the same next one."""
    cron, there = cron_of(text), ZoneInfo(zone)
    after_ms = round(after.timestamp() * 1000)
    tick = next_tick(cron, there, after_ms)
    between = after_ms + minutes * 60_000

    if tick is not None and between < tick:
        assert next_tick(cron, there, between) == tick
