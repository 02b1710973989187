"""Schedules over HTTP: what is asked and answered, and how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...client.client import Client
from ...client.schedule_verbs import ScheduleVerbs
from ...errors import InvalidRequest, ScheduleNotFound
from ...patterns import check_name
from ...schedule_model import EVERY_MIN, Schedule, ScheduleState, WhenMissed, state_of
from ...serde.codec import Codec
from .desk import ApiCall, Desk, Handler
from .models import Asked, Done
from .shown import Model


class CreateSchedule(Asked):
    """Either `cron` or `every`."""

    value: Any = ""
    """A str is published as it is, anything else as JSON."""
    cron: str | None = None
    every: Annotated[float, Meta(ge=EVERY_MIN)] | None = None
    """Seconds."""
    timezone: str = "UTC"
    missed: WhenMissed = "once"
    """What is done for times at which no broker ran."""
    key: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    priority: Annotated[int, Meta(ge=0, le=7)] = 0
    content_type: str | None = None
    replace: bool = False
    """Whether to change the schedule if there is one with other settings."""


class ScheduleList(Model):
    schedules: list[ScheduleState]


class PublishedBySchedule(Model):
    topic: str
    offset: str


def schedule_name(call: ApiCall) -> str:
    return check_name(call.path["schedule"], "schedule")


async def all_schedules(desk: Desk, call: ApiCall) -> ScheduleList:
    return ScheduleList(schedules=await _states(desk, None))


async def schedules_of_topic(desk: Desk, call: ApiCall) -> ScheduleList:
    await desk.broker.topic_info(call.path["topic"])  # raises if there is none
    return ScheduleList(schedules=await _states(desk, call.path["topic"]))


async def _states(desk: Desk, topic: str | None) -> list[ScheduleState]:
    return await _verbs(desk).schedules(topic)


async def schedule(desk: Desk, call: ApiCall) -> ScheduleState:
    return state_of(await _known(desk, call), desk.broker.clock.now_ms())


async def create_schedule(desk: Desk, call: ApiCall) -> ScheduleState:
    asked: CreateSchedule = call.body
    said = {
        name: value
        for name in CreateSchedule.__struct_fields__
        if name != "value" and (value := getattr(asked, name)) is not None
    }
    value = asked.value.encode() if isinstance(asked.value, str) else asked.value
    name, topic = schedule_name(call), call.path["topic"]
    verbs = _verbs(desk)
    try:
        elsewhere = (await verbs.schedule(name)).topic
    except ScheduleNotFound:
        elsewhere = topic
    if elsewhere != topic:
        raise InvalidRequest(f"schedule {name!r} belongs to topic {elsewhere!r}; delete it there")
    made = await verbs.create_schedule(name, topic, value, **said)
    return state_of(made, desk.broker.clock.now_ms())


def _doing(act: Callable[[ScheduleVerbs, str], Awaitable[object]]) -> Handler:
    async def done(desk: Desk, call: ApiCall) -> Done:
        await _known(desk, call)
        await act(_verbs(desk), schedule_name(call))
        return Done()

    done.__name__ = act.__name__
    return done


delete_schedule = _doing(ScheduleVerbs.delete_schedule)
pause_schedule = _doing(ScheduleVerbs.pause_schedule)
resume_schedule = _doing(ScheduleVerbs.resume_schedule)


async def run_schedule(desk: Desk, call: ApiCall) -> PublishedBySchedule:
    await _known(desk, call)
    receipt = await _verbs(desk).run_schedule(schedule_name(call))
    return PublishedBySchedule(topic=receipt.topic, offset=str(receipt.offset))


async def _known(desk: Desk, call: ApiCall) -> Schedule:
    """A schedule of the topic in the path, which is what the key was checked for."""
    found = await _verbs(desk).schedule(schedule_name(call))
    if found.topic != call.path["topic"]:
        raise ScheduleNotFound(found.name)
    return found


def _verbs(desk: Desk) -> ScheduleVerbs:
    client = Client(desk.broker, Codec(), auto_create=False, timeout=None)
    return ScheduleVerbs(desk.broker, client.publish)
