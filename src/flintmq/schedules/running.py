"""All schedules of a broker, at the node that leads: published when they are due.

A time is published under the name of its schedule as producer and the time as sequence, so the
broker stores it once, whoever publishes it and how often. Then the definition says how far it is:
that is where the next one who leads goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from ..client.client import Client
from ..clock import Timer
from ..errors import DefinitionChanged, FlintError
from ..model import Definition
from ..observe.logs import event
from ..schedule_model import (
    KIND,
    Schedule,
    done_until,
    due_ticks,
    headers_of,
    schedule_of,
    tick_after,
)

_log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
"""At least so often it is looked whether something is due, in case the clock was set."""
AGAIN_SECONDS = 1.0
Place = tuple[str, str]


class KeptDefinitions(Protocol):
    """What is applied here of definitions."""

    on_change: list[Callable[[str], object]]

    def of(self, kind: str, topic: str | None = None) -> list[Definition]: ...


class ScheduleRunner:
    def __init__(
        self, mq: Client, definitions: KeptDefinitions, *, leads: Callable[[], bool]
    ) -> None:
        """`leads` says whether this node publishes."""
        self._mq, self._definitions, self._leads = mq, definitions, leads
        self._next: dict[Place, tuple[int, int | None]] = {}
        """When each is due next, of which version."""
        self._at_work: dict[Place, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        self._definitions.on_change.append(self._defined)
        self._task = asyncio.get_running_loop().create_task(self._keep_up())
        self.look_again()

    async def stop(self) -> None:
        if self._defined in self._definitions.on_change:
            self._definitions.on_change.remove(self._defined)
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._at_work.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None

    def look_again(self) -> None:
        """Who leads has changed, or what is defined, or something is due."""
        self._changed.set()

    def _defined(self, kind: str) -> None:
        if kind == KIND:
            self._changed.set()

    async def _keep_up(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._leads():
                self._look()

    def _look(self) -> None:
        """Begin with what is due, and find out when to look again."""
        now = self._mq.clock.now_ms()
        known = self._definitions.of(KIND)
        upcoming: list[int] = []
        for one in known:
            place = one.topic, one.name
            if place in self._at_work:
                continue  # it looks again by itself
            due = self._due(one)
            if due is None:
                continue
            if due <= now:
                task = asyncio.get_running_loop().create_task(self._publish_due(one))
                self._at_work[place] = task
                task.add_done_callback(lambda _, place=place: self._done(place))  # type: ignore[misc]
            else:
                upcoming.append(due)
        if len(self._next) > 2 * len(known) + 16:
            places = {(one.topic, one.name) for one in known}
            self._next = {place: due for place, due in self._next.items() if place in places}
        if upcoming:
            waits = min(LOOK_SECONDS, (min(upcoming) - now) / 1000)
            self._timer = self._mq.clock.call_later(waits, self.look_again)

    def _done(self, place: Place) -> None:
        self._at_work.pop(place, None)
        self.look_again()

    def _due(self, definition: Definition) -> int | None:
        place = definition.topic, definition.name
        known = self._next.get(place)
        if known is None or known[0] != definition.version:
            schedule = schedule_of(definition)
            due = None
            if schedule is not None and not schedule.paused:
                due = tick_after(schedule, done_until(schedule))
            known = self._next[place] = definition.version, due
        return known[1]

    async def _publish_due(self, definition: Definition) -> None:
        schedule = schedule_of(definition)
        assert schedule is not None
        try:
            last: int | None = None
            for tick in due_ticks(schedule, self._mq.clock.now_ms()):
                await self._publish(schedule, tick)
                last = tick
            if last is None:  # all of it was to be skipped
                last = self._mq.clock.now_ms()
            await self._mq._broker.define(
                KIND,
                definition.topic,
                definition.name,
                msgspec.json.encode(msgspec.structs.replace(schedule, last_ms=last)),
                definition.version,
            )
        except DefinitionChanged:
            pass  # look at what it is now
        except FlintError as error:
            event(
                _log,
                logging.WARNING,
                "schedule_failed",
                f"schedule {schedule.name!r} could not publish to {schedule.topic!r}: {error}; "
                f"trying again in {AGAIN_SECONDS:g} s",
                schedule=schedule.name,
                topic=schedule.topic,
            )
            again = asyncio.Event()
            self._mq.clock.call_later(AGAIN_SECONDS, again.set)
            await again.wait()

    async def _publish(self, schedule: Schedule, tick: int) -> None:
        await self._mq.publish(
            schedule.topic,
            schedule.value,
            key=schedule.key,
            headers=headers_of(schedule, tick),
            priority=schedule.priority,
            content_type=schedule.content_type,
            producer=f"schedule:{schedule.name}",
            sequence=tick,
        )
