"""The verbs of schedules: defining, listing, pausing and removing them.

A schedule is a definition that is kept with its topic. The node of the broker that leads publishes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Unpack

import msgspec

from ..broker_api import BrokerApi
from ..errors import DefinitionChanged, InvalidRequest, ScheduleNotFound
from ..model import Definition, StoredReceipt, seconds
from ..patterns import check_name
from ..schedule_model import (
    KIND,
    SCHEDULE,
    Schedule,
    ScheduleKeywords,
    ScheduleState,
    checked_schedule,
    same_times,
    schedule_of,
    state_of,
)
from ..serde.formats import JSON
from .keywords import check_keywords

OURS = {"since_ms": 0, "last_ms": None, "paused": False}


class ScheduleVerbs:
    """The part of a client that deals with schedules."""

    def __init__(self, broker: BrokerApi, publish: Callable[..., Awaitable[StoredReceipt]]) -> None:
        self._broker, self._publish = broker, publish

    async def create_schedule(
        self,
        name: str,
        topic: str,
        value: Any = b"",
        *,
        replace: bool = False,
        **said: Unpack[ScheduleKeywords],
    ) -> Schedule:
        """Make the broker publish a message on a schedule.

        `cron` has five fields (`*/5 8-18 * * mon-fri`), in `timezone` (UTC); `every` is an interval
        in seconds. Each run is published once, in a cluster too. `missed` says what to do about
        times when no broker was running: `skip` them, publish `once` (the default), or `all`. The
        value is bytes, or anything that JSON can encode. `key`, `headers` and `priority` are those
        of the message. With `replace=True` an existing schedule is changed; otherwise different
        settings are an error.

        The schedule is stored with the topic. It needs a broker that runs as `flintmq serve`, or an
        App in the process of the broker.
        """
        check_keywords("create_schedule", said, ScheduleKeywords)
        options: dict[str, Any] = {**said}
        if options.get("every") is not None:
            options["every"] = seconds(options["every"], "every", positive=True)
        if not isinstance(value, bytes):
            value = JSON.encode(value)
            options.setdefault("content_type", "application/json")
        now = self._broker.clock.now_ms()
        try:
            made = msgspec.convert(
                {"name": name, "topic": topic, "since_ms": now, "value": b"", **options}, Schedule
            )
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"create_schedule: {error}") from None
        wanted = checked_schedule(msgspec.structs.replace(made, value=value))
        while True:
            found = await self._found(name)
            try:
                return await self._make(wanted, found, replace)
            except DefinitionChanged:
                continue  # somebody else was faster: look again

    async def _make(self, wanted: Schedule, found: Definition | None, replace: bool) -> Schedule:
        if found is None:
            await self._define(wanted, 0)
            return wanted
        known = _decoded(found)
        if msgspec.structs.replace(known, **OURS) == msgspec.structs.replace(wanted, **OURS):
            return known
        if not replace:
            raise InvalidRequest(
                f"there is a schedule {wanted.name!r} with other settings ({known.when}, topic "
                f"{known.topic!r}); pass replace=True to change it"
            )
        if known.topic != wanted.topic:
            await self._broker.define(KIND, known.topic, known.name, None, found.version)
            await self._define(wanted, 0)
            return wanted
        kept = {"paused": known.paused}
        if same_times(known, wanted):
            kept |= {"since_ms": known.since_ms, "last_ms": known.last_ms}  # type: ignore[dict-item]
        wanted = msgspec.structs.replace(wanted, **kept)
        await self._define(wanted, found.version)
        return wanted

    async def schedules(self, topic: str | None = None) -> list[ScheduleState]:
        """List the schedules of a topic, or all, with their next times."""
        now = self._broker.clock.now_ms()
        known = map(schedule_of, await self._broker.definitions(KIND, topic))
        return [state_of(one, now) for one in known if one is not None]

    async def schedule(self, name: str) -> Schedule:
        """Return the definition of a schedule."""
        return _decoded(await self._known(name))

    async def pause_schedule(self, name: str) -> None:
        """Pause a schedule: it publishes nothing until resumed."""
        await self._change(name, paused=True)

    async def resume_schedule(self, name: str) -> None:
        """Resume a schedule, from now on: times during the pause are skipped."""
        await self._change(name, paused=False)

    async def run_schedule(self, name: str) -> StoredReceipt:
        """Publish the message of a schedule now, in addition to its scheduled times."""
        schedule = await self.schedule(name)
        return await self._publish(
            schedule.topic,
            schedule.value,
            key=schedule.key,
            headers={**schedule.headers, SCHEDULE: name},
            priority=schedule.priority,
            content_type=schedule.content_type,
        )

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. The topic and its messages stay."""
        found = await self._known(name)
        await self._broker.define(KIND, found.topic, name, None)

    async def _change(self, name: str, *, paused: bool) -> None:
        while True:
            found = await self._known(name)
            known = _decoded(found)
            if known.paused == paused:
                return None
            changed = msgspec.structs.replace(known, paused=paused)
            if not paused:
                now = self._broker.clock.now_ms()
                changed = msgspec.structs.replace(changed, since_ms=now, last_ms=None)
            try:
                return await self._define(changed, found.version)
            except DefinitionChanged:
                continue

    async def _define(self, schedule: Schedule, version: int) -> None:
        value = msgspec.json.encode(schedule)
        await self._broker.define(KIND, schedule.topic, schedule.name, value, version)

    async def _known(self, name: str) -> Definition:
        found = await self._found(check_name(name, "schedule"))
        if found is None:
            raise ScheduleNotFound(name)
        return found

    async def _found(self, name: str) -> Definition | None:
        found = await self._broker.definitions(KIND, None, name)
        return found[0] if found else None


def _decoded(definition: Definition) -> Schedule:
    found = schedule_of(definition)
    if found is None:
        raise InvalidRequest(f"the schedule {definition.name!r} was defined by a newer FlintMQ")
    return found
