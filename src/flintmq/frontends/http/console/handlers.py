"""What the routes of the console do, beside those that everybody uses."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from ....access import TopicGrant
from ....config.topic_options import TOPIC_OPTIONS
from ....errors import InvalidRequest
from ....storage.key_file import make_key
from ..consuming import group_of
from ..desk import ApiCall, Desk, Walk
from ..faults import HttpRefusal
from ..handlers import place_of
from ..models import Count, Done
from ..outgoing import whole_number
from . import models

# --- who asks, and what there is


async def me(desk: Desk, call: ApiCall) -> models.Me:
    state, access = desk.state, call.access
    return models.Me(
        name=access.name,
        key=access.key,
        grants={grant.pattern: sorted(grant.permissions) for grant in access.grants},
        asks_for_keys=state.gate.is_closed,
        can_change_keys=state.gate.ring is not None,
        is_cluster=state.cluster is not None,
        version=state.version,
    )


async def samples(desk: Desk, call: ApiCall) -> models.Samples:
    newest = await desk.sampler.fresh()
    kept = list(desk.sampler.samples)
    if not kept or kept[-1] is not newest:
        kept.append(newest)
    return models.Samples(samples=kept, last_event=desk.sampler.last_event())


async def figures(desk: Desk, call: ApiCall) -> models.Figures:
    sample = await desk.sampler.fresh()
    sampler, access = desk.sampler, call.access
    topics, groups = sampler.topics, sampler.groups
    if not access.is_operator():
        walk = Walk()
        seen: set[str] = set()
        for topic in topics:
            await walk.step()
            if access.sees(topic.name):
                seen.add(topic.name)
        topics = [one for one in topics if one.name in seen]
        groups = [one for one in groups if one.topic in seen and call.access.may_look(one.topic)]
    return models.Figures(at=sample.at, topics=topics, groups=groups)


async def events(desk: Desk, call: ApiCall) -> models.Events:
    log = desk.state.events
    after = 0 if call.query.after is None else whole_number(call.query.after, "after")
    return models.Events(events=[] if log is None else log.after(after, call.query.limit))


async def settings(desk: Desk, call: ApiCall) -> models.Settings:
    return models.Settings(
        settings=[
            models.SettingShown(
                name=setting.name,
                value=value,
                source=source,
                meaning=setting.help,
                group=setting.group,
                reload=setting.reload,
            )
            for setting, value, source in desk.state.settings()
        ]
    )


async def topic_options(desk: Desk, call: ApiCall) -> models.TopicOptionList:
    defaults = desk.state.topic_defaults()
    return models.TopicOptionList(
        options=[
            models.TopicOption(
                name=one.name,
                kind=one.kind,
                meaning=one.meaning,
                choices=list(one.choices),
                default=getattr(defaults, one.name),
                is_final=one.is_final,
            )
            for one in TOPIC_OPTIONS
        ]
    )


# --- keys


async def create_key(desk: Desk, call: ApiCall) -> models.CreatedKey:
    ring = desk.state.gate.ring
    if ring is None:
        raise InvalidRequest('this broker does not check keys (auth = "off")')
    asked: models.CreateKey = call.body
    now_ms = time.time_ns() // 1_000_000
    key, text = make_key(
        asked.name,
        [TopicGrant.of(pattern, may) for pattern, may in asked.grants.items()],
        now_ms=now_ms,
        expires_at_ms=None if asked.expires is None else now_ms + round(asked.expires * 1000),
        note=asked.note,
    )
    is_first = not desk.state.gate.is_closed
    await asyncio.to_thread(ring.file.add, key)
    desk.state.gate.refresh(at_once=True)
    return models.CreatedKey(id=key.id, name=key.name, key=text, is_first=is_first)


async def remove_key(desk: Desk, call: ApiCall) -> Done:
    ring = desk.state.gate.ring
    id = call.path["key_id"]
    if ring is None or all(key.id != id for key, _ in ring.entries()):
        raise HttpRefusal(404, "NotFound", f"there is no key with the id {id!r}; GET /keys lists")
    await asyncio.to_thread(ring.file.remove, id)
    desk.state.gate.refresh(at_once=True)
    return Done()


# --- groups


async def preview_reset(desk: Desk, call: ApiCall) -> models.ResetPreview:
    topic, group = call.path["topic"], group_of(call)
    place = place_of(call.body)
    stats = await desk.broker.group_stats(topic, group)
    parts = stats.partitions or [stats]
    extents = await desk.broker.extents(topic, None if isinstance(place, Mapping) else place)
    if isinstance(place, int) and len(extents) > 1:
        raise InvalidRequest("each partition has its own offsets: pass `offsets`")
    moves: list[models.PartitionMove] = []
    again = skipped = 0
    for number, (extent, part) in enumerate(zip(extents, parts, strict=False)):
        wanted = extent.at
        if isinstance(place, int):
            wanted = place
        elif isinstance(place, Mapping):
            if number not in place:
                continue
            wanted = place[number]
        to = min(max(wanted, extent.first_offset), extent.next_offset)
        after = extent.next_offset - to
        left = min(part.lag, max(0, to - part.position))
        skipped += left
        again += max(0, after - (part.lag - left))
        moves.append(
            models.PartitionMove(
                partition=str(number),
                position=str(part.position),
                to=str(to),
                lag=part.lag,
                lag_after=after,
            )
        )
    return models.ResetPreview(
        again=again, skipped=skipped, in_flight=stats.in_flight, partitions=moves
    )


async def redrive_edited(desk: Desk, call: ApiCall) -> Count:
    topic, group = call.path["topic"], group_of(call)
    id = whole_number(call.path["letter"], "the id of a dead letter")
    asked: models.EditedLetter = call.body
    changes: dict[str, Any] = {}
    if (asked.text is None) == (asked.base64 is None):
        raise InvalidRequest("an edited dead letter needs one of `text` and `base64`")
    if asked.text is not None:
        changes["value"] = asked.text.encode()
    elif asked.base64 is not None:
        try:
            changes["value"] = base64.b64decode(asked.base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"base64: {error}") from None
    for name in ("key", "headers", "content_type"):
        if (given := getattr(asked, name)) is not msgspec.UNSET:
            changes[name] = given
    count = await desk.broker.redrive_edited(topic, group, id, changes)
    if not count:
        raise HttpRefusal(
            409,
            "DeadLetterGone",
            f"dead letter {id} no longer exists: someone else has redriven or discarded it, "
            "and nothing of yours was put back",
        )
    return Count(count=count)
