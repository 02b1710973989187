"""What each route of the JSON API does. One function each, and no more than a page of work at once.

Whatever may be long is cut into steps, and others have their turn between them.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from ...client.dead_letters import dead_letters as as_dead_letters
from ...errors import InvalidRequest, TopicNotFound
from ...model import Start
from ...net.server.streams import cut
from ...patterns import check_pattern
from ...rows import Rows
from ...serde.filters import compile_filter
from . import models, views
from .consuming import MESSAGES_BYTES_MAX, group_of, moment, shown
from .desk import ApiCall, Desk, Walk
from .faults import HttpRefusal
from .outgoing import whole_number
from .shown import show

# --- the broker


async def overview(desk: Desk, call: ApiCall) -> models.Overview:
    return models.Overview(
        version=desk.state.version,
        uptime_seconds=desk.state.uptime(),
        ready=desk.state.is_ready(),
        totals=await desk.totals(),
    )


async def config(desk: Desk, call: ApiCall) -> models.Config:
    return models.Config(settings=dict(desk.state.config))


async def keys(desk: Desk, call: ApiCall) -> models.Keys:
    found = desk.state.keys()
    return models.Keys(keys=[views.key(one) for one in found])


async def connections(desk: Desk, call: ApiCall) -> models.Connections:
    after, limit = int(call.query.after or 0), call.query.limit
    native = desk.state.native
    open_ones = [] if native is None else [one for one in native.connections if one.number > after]
    page = heapq.nsmallest(limit + 1, open_ones, key=lambda one: one.number)
    shown = [views.connection(one) for one in page[:limit]]
    return models.Connections(connections=shown, after=shown[-1].id if len(page) > limit else None)


async def close_connection(desk: Desk, call: ApiCall) -> models.Done:
    native = desk.state.native
    number = whole_number(call.path["connection"], "a connection")
    for one in native.connections if native is not None else ():
        if one.number == number:
            one.close()
            return models.Done()
    raise HttpRefusal(404, "NotFound", f"connection {number} does not exist")


# --- topics


async def topics(desk: Desk, call: ApiCall) -> models.Topics:
    query = call.query
    check_pattern(query.pattern)
    names, more = await desk.list_topics(call.access, query.pattern, query.after, query.limit)
    listed: list[models.ListedTopic] = []
    walk = Walk()
    for name in names:
        stats = None
        if query.stats:
            try:
                stats = views.stats(await desk.broker.topic_stats(name))
            except TopicNotFound:
                continue  # deleted meanwhile
            await walk.step()
        listed.append(models.ListedTopic(name=name, stats=stats))
    return models.Topics(topics=listed, after=names[-1] if more else None)


async def topic(desk: Desk, call: ApiCall) -> models.TopicPage:
    name = call.path["topic"]
    info = await desk.broker.topic_info(name)
    found = await desk.broker.topic_stats(name)
    groups = await desk.broker.groups(name)
    return show(
        models.TopicPage,
        info,
        stats=views.stats(found),
        partitions=views.partitions(found),
        groups=[show(models.Group, one) for one in groups],
    )


async def create_topic(desk: Desk, call: ApiCall) -> models.Topic:
    info = await desk.client.create_topic(call.path["topic"], **_options(call))
    return show(models.Topic, info)


async def configure_topic(desk: Desk, call: ApiCall) -> models.Topic:
    return show(
        models.Topic, await desk.client.configure_topic(call.path["topic"], **_options(call))
    )


def _options(call: ApiCall) -> dict[str, Any]:
    options = {
        name: value
        for name in call.body.__struct_fields__
        if (value := getattr(call.body, name)) is not msgspec.UNSET
    }
    if options.get("dead_letter_topic") is not None:
        # Dead letters are published on behalf of whoever sends them there.
        call.access.require("publish", options["dead_letter_topic"])
    if options.get("format") == "object":
        raise InvalidRequest(
            "format='object' passes references: such topics exist inside one process only"
        )
    return options


async def delete_topic(desk: Desk, call: ApiCall) -> models.Done:
    await desk.client.delete_topic(call.path["topic"])
    return models.Done()


async def purge_topic(desk: Desk, call: ApiCall) -> models.Purged:
    before = call.body.before
    count = await desk.broker.purge_topic(
        call.path["topic"], None if before is None else whole_number(before, "before")
    )
    return models.Purged(purged=count)


# --- groups


async def groups(desk: Desk, call: ApiCall) -> models.Groups:
    found = await desk.broker.groups(call.path["topic"])
    return models.Groups(groups=[show(models.Group, one) for one in found])


async def group(desk: Desk, call: ApiCall) -> models.GroupPage:
    return views.group_page(await desk.broker.group_stats(call.path["topic"], group_of(call)))


async def delete_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.client.delete_group(call.path["topic"], group_of(call))
    return models.Done()


async def pause_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.broker.pause_group(call.path["topic"], group_of(call), True)
    return models.Done()


async def resume_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.broker.pause_group(call.path["topic"], group_of(call), False)
    return models.Done()


async def reset_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.broker.reset_group(call.path["topic"], group_of(call), place_of(call.body))
    return models.Done()


def place_of(body: models.Reset) -> Start | Mapping[int, int]:
    given = [body.to, body.offset, body.time, body.offsets]
    if sum(one is not None for one in given) != 1:
        raise InvalidRequest("pass one of `to`, `offset`, `time` and `offsets`")
    if body.to is not None:
        return body.to
    if body.offset is not None:
        return whole_number(body.offset, "offset")
    if body.time is not None:
        return moment(body.time)
    assert body.offsets is not None
    return {
        whole_number(partition, "a partition"): whole_number(offset, "an offset")
        for partition, offset in body.offsets.items()
    }


async def next_messages(desk: Desk, call: ApiCall) -> models.Peeked:
    rows = await desk.broker.peek(call.path["topic"], group_of(call), call.query.limit)
    runs, _, _ = cut(rows.runs, call.query.limit, MESSAGES_BYTES_MAX)
    return models.Peeked(messages=await shown(runs, call.query.value_bytes))


async def in_flight(desk: Desk, call: ApiCall) -> models.AllInFlight:
    limit = call.query.limit
    found = await desk.broker.in_flight(call.path["topic"], group_of(call), limit + 1)
    return models.AllInFlight(
        in_flight=[show(models.InFlight, one) for one in found[:limit]], more=len(found) > limit
    )


async def dead_letters(desk: Desk, call: ApiCall) -> models.DeadLetters:
    query = call.query
    first = 0 if query.after is None else whole_number(query.after, "after") + 1
    if query.time is not UNSET:
        first = max(first, await _letter_at(desk, call.path["topic"], group_of(call), query.time))
    limit = query.limit
    rows = await desk.broker.dead_letters(call.path["topic"], group_of(call), limit + 1, first)
    runs, rest, _ = cut(rows.runs, limit, MESSAGES_BYTES_MAX)
    shown: list[models.DeadLetter] = []
    walk = Walk()
    for run in runs:
        for one in as_dead_letters(Rows([run]), desk.broker):
            shown.append(views.dead_letter(one, query.value_bytes))
        await walk.step()
    return models.DeadLetters(dead_letters=shown, after=shown[-1].id if rest else None)


async def _letter_at(desk: Desk, topic: str, group: str, time: float) -> int:
    """The id of the first dead letter from a time on, or one before it that is not of the group."""
    rows = await desk.broker.dead_letters(topic, group, 1)
    for run in rows.runs:  # it knows the topic that they lie in
        (extent,) = await desk.broker.extents(run.origin.topic, moment(time))
        return extent.at
    return 0


async def redrive(desk: Desk, call: ApiCall) -> models.Count:
    ids, filter = _which(call.body)
    count = await desk.broker.redrive(call.path["topic"], group_of(call), ids, filter)
    return models.Count(count=count)


async def discard(desk: Desk, call: ApiCall) -> models.Count:
    ids, filter = _which(call.body)
    count = await desk.broker.discard(call.path["topic"], group_of(call), ids, filter)
    return models.Count(count=count)


def _which(body: models.Which) -> tuple[list[int] | None, Any]:
    given = (body.ids is not None, body.filter is not None, body.all)
    if sum(given) != 1 and given != (True, True, False):
        raise InvalidRequest("pass one of `ids`, `filter` and `all`, or `ids` with a `filter`")
    ids = None if body.ids is None else [whole_number(one, "an id") for one in body.ids]
    return ids, None if body.filter is None else compile_filter(body.filter)
