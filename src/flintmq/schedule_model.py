"""The vocabulary of schedules: what the broker publishes again and again, and when.

Plain values, shared by the client, the network and the part of the broker that publishes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, TypedDict, get_args

import msgspec

from .cron import cron_of, next_tick, zone_of
from .errors import InvalidRequest
from .model import Definition, Seconds, check_priority, seconds
from .patterns import check_name

KIND = "schedule"
"""Of their definitions."""
SCHEDULE = "schedule"
SCHEDULED = "scheduled-ms"
"""The headers of what a schedule published: its name, and the time it was due."""
TASK_ID = "task-id"
EVERY_MIN = 0.1
LATE_MS = 60_000
"""What is published no later than this was not missed: the broker was restarted, for example."""

WhenMissed = Literal["skip", "once", "all"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that the broker publishes at times named by a cron expression, or every so often.

    Each has its headers `schedule` and `scheduled-ms`, the time it was due in milliseconds since
    1970.
    """

    name: str
    topic: str
    value: bytes = b""
    content_type: str | None = None
    headers: dict[str, str] = {}
    key: str | None = None
    priority: int = 0
    cron: str | None = None
    every: float | None = None
    """Seconds. It counts from 1970 on: every 30 seconds is at :00 and :30."""
    timezone: str = "UTC"
    """Of the cron expression."""
    missed: WhenMissed = "once"
    """What is done for the times at which no broker ran: nothing, once, or all of them."""
    paused: bool = False
    since_ms: int = 0
    """When it was made, or changed to other times: what was before that was not missed."""
    last_ms: int | None = None
    """The last time that is done with."""

    @property
    def when(self) -> str:
        """For people."""
        if self.cron is not None:
            return f"{self.cron} {self.timezone}"
        return f"every {self.every:g} s"


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and when it is due."""

    name: str
    topic: str
    when: str
    missed: WhenMissed
    paused: bool
    last_ms: int | None
    next_ms: int | None


class ScheduleKeywords(TypedDict, total=False):
    """What `create_schedule` takes beside name, topic and value."""

    cron: str | None
    every: Seconds | None
    timezone: str
    missed: WhenMissed
    key: str | None
    headers: dict[str, str]
    priority: int
    content_type: str | None


_cron = lru_cache(1024)(cron_of)


def tick_after(schedule: Schedule, after_ms: int) -> int | None:
    """The first time it is due after that one."""
    if schedule.cron is not None:
        return next_tick(_cron(schedule.cron), zone_of(schedule.timezone), after_ms)
    assert schedule.every is not None
    step = round(schedule.every * 1000)
    return (after_ms // step + 1) * step


def done_until(schedule: Schedule) -> int:
    """The time up to which nothing is to be done any more."""
    return schedule.since_ms if schedule.last_ms is None else schedule.last_ms


def due_ticks(schedule: Schedule, now_ms: int) -> Iterator[int]:
    """The times that are due now, the earliest first, by what it says of those it missed."""
    after = done_until(schedule)
    if schedule.missed != "all":
        after = _without_missed(schedule, after, now_ms)
    while (tick := tick_after(schedule, after)) is not None and tick <= now_ms:
        yield tick
        after = tick


def _without_missed(schedule: Schedule, after: int, now_ms: int) -> int:
    """Where to begin, if what was missed is not all done."""
    begin = now_ms - LATE_MS
    if begin <= after:
        return after
    if schedule.missed == "skip":
        return begin - 1
    latest = latest_tick(schedule, after, now_ms)
    return after if latest is None else latest - 1


def latest_tick(schedule: Schedule, after_ms: int, until_ms: int) -> int | None:
    """The last time it was due in between; None where it was not."""
    first = tick_after(schedule, after_ms)
    if first is None or first > until_ms:
        return None
    low, high = first, until_ms + 1  # of the times after `low` is one in between, or it is the last
    while high - low > 1:
        found = tick_after(schedule, low)
        if found is None or found > until_ms:
            return low
        low = found
        middle = (low + high) // 2
        found = tick_after(schedule, middle)
        if found is not None and found <= until_ms:
            low = found
        else:
            high = middle
    return low


def schedule_of(definition: Definition) -> Schedule | None:
    """None where a newer version has defined it in a way that is not known here."""
    try:
        return msgspec.json.decode(definition.value, type=Schedule)
    except msgspec.DecodeError:
        return None


def state_of(schedule: Schedule, now_ms: int) -> ScheduleState:
    later = max(now_ms, done_until(schedule))
    return ScheduleState(
        name=schedule.name,
        topic=schedule.topic,
        when=schedule.when,
        missed=schedule.missed,
        paused=schedule.paused,
        last_ms=schedule.last_ms,
        next_ms=None if schedule.paused else tick_after(schedule, later),
    )


def headers_of(schedule: Schedule, tick_ms: int) -> dict[str, str]:
    """The headers of one message. The same time has the same id as a task."""
    return {
        TASK_ID: f"{schedule.name}@{tick_ms}",
        **schedule.headers,
        SCHEDULE: schedule.name,
        SCHEDULED: str(tick_ms),
    }


def checked_schedule(schedule: Schedule) -> Schedule:
    """Raises InvalidRequest, which says what is wrong."""
    check_name(schedule.name, "schedule")
    check_name(schedule.topic)
    check_priority(schedule.priority)
    if (schedule.cron is None) == (schedule.every is None):
        raise InvalidRequest(
            f"schedule {schedule.name!r} takes either cron= (an expression such as '*/5 * * * *') "
            "or every= (seconds)"
        )
    if schedule.missed not in get_args(WhenMissed):
        raise InvalidRequest(
            f"missed must be one of {', '.join(get_args(WhenMissed))}, not {schedule.missed!r}"
        )
    if schedule.every is not None and seconds(schedule.every, "every") < EVERY_MIN:
        raise InvalidRequest(
            f"every must be at least {EVERY_MIN:g} seconds, not {schedule.every!r}"
        )
    if schedule.every is not None and schedule.timezone != "UTC":
        raise InvalidRequest(
            f"timezone= goes with cron=, and every={schedule.every:g} is the same in all zones: "
            "leave out the zone"
        )
    if schedule.cron is not None:
        zone_of(schedule.timezone)
        if tick_after(schedule, schedule.since_ms) is None:
            raise InvalidRequest(f"cron expression {schedule.cron!r} names a day that never comes")
    return schedule


def same_times(one: Schedule, other: Schedule) -> bool:
    return (one.cron, one.every, one.timezone) == (other.cron, other.every, other.timezone)
