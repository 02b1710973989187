"""What each route of the JSON API does. One function each, and no more than a page of work at once.

Whatever may be long is cut into steps, and others have their turn between them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from ...access import Access
from ...broker_api import ReaderOpening
from ...client.client import Client
from ...client.dead_letters import dead_letters as as_dead_letters
from ...errors import InvalidRequest, TopicNotFound
from ...model import Start, TopicOptions
from ...net.server.publishing import Draining
from ...net.server.streams import cut
from ...patterns import check_name, check_pattern, matches
from ...rows import Rows, Run
from ...serde.codec import Codec
from ...serde.filters import compile_filter
from . import models, views
from .faults import HttpRefusal
from .shown import show
from .state import HttpState

PAGE = 256
"""How many names are taken from the list of topics at a time: it may change meanwhile."""
STEP_SECONDS = 0.0005
"""How long a walk goes on before others have their turn."""
MESSAGES_BYTES_MAX = 1024 * 1024
"""How many bytes of messages one answer shows at most, or one message."""
TOTALS_SECONDS = 1.0
"""How old totals may be: asking for them is a walk over all topics."""


class ApiCall(NamedTuple):
    """A request that may be carried out."""

    access: Access
    path: Mapping[str, str]
    query: Any
    body: Any


class Walk:
    """Something long, in steps."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def step(self) -> None:
        """Let others have their turn, if it is time."""
        if perf_counter() - self._began >= STEP_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()


class Desk:
    """What the handlers share: the broker, and what they remember of it."""

    def __init__(self, state: HttpState) -> None:
        self.state = state
        self.broker = state.broker
        self.client = Client(state.broker, Codec(), auto_create=True, timeout=None)
        self._names: list[str] | None = None
        self._listing = False
        self._totals: tuple[float, models.Totals] | None = None
        self._adding: asyncio.Task[models.Totals] | None = None

    async def names(self) -> list[str]:
        """The names of all topics, sorted; kept as they come and go."""
        if self._names is None:
            if not self._listing:
                self._listing = True
                self.broker.on_topic_changed(self._topic_changed)
            found = await self.broker.topics(">")
            if self._names is None:
                self._names = found
        return self._names

    def _topic_changed(self, name: str, options: TopicOptions | None) -> None:
        names = self._names
        if names is None:
            return
        place = bisect_left(names, name)
        is_known = place < len(names) and names[place] == name
        if options is None and is_known:
            del names[place]
        elif options is not None and not is_known:
            insort(names, name)

    async def totals(self) -> models.Totals:
        """Sums over all topics. Whoever asks at the same time shares the walk."""
        now = self.broker.clock.monotonic()
        if self._totals is not None and now - self._totals[0] < TOTALS_SECONDS:
            return self._totals[1]
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_up())
            # Whoever asked may have left: then nobody has to hear that it failed.
            self._adding.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._adding)

    async def _add_up(self) -> models.Totals:
        try:
            messages = size = published = delivered = count = 0
            last, walk = "", Walk()
            while page := self._page(await self.names(), last):
                for name in page:
                    await walk.step()
                    try:
                        stats = await self.broker.topic_stats(name)
                    except TopicNotFound:
                        continue  # deleted meanwhile
                    count += 1
                    messages += stats.message_count
                    size += stats.byte_count
                    published += stats.published
                    delivered += stats.delivered
                last = page[-1]
            native = self.state.native
            totals = models.Totals(
                topics=count,
                messages=messages,
                bytes=size,
                published=published,
                delivered=delivered,
                connections=len(native.connections) if native is not None else 0,
            )
            self._totals = (self.broker.clock.monotonic(), totals)
            return totals
        finally:
            self._adding = None

    def _page(self, names: list[str], after: str) -> list[str]:
        place = bisect_right(names, after)
        return names[place : place + PAGE]

    async def list_topics(
        self, access: Access, pattern: str, after: str, limit: int
    ) -> tuple[list[str], bool]:
        """Up to `limit` names behind one that match and may be seen, and whether there are more."""
        found: list[str] = []
        walk = Walk()
        while page := self._page(await self.names(), after):
            for name in page:
                await walk.step()
                if matches(pattern, name) and access.sees(name):
                    if len(found) == limit:
                        return found, True
                    found.append(name)
            after = page[-1]
        return found, False

    def check_taking(self) -> None:
        native = self.state.native
        if native is not None and native.is_draining:
            raise Draining("the broker is stopping")


Handler = Callable[[Desk, ApiCall], Awaitable[Any]]


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
    number = _number(call.path["connection"], "a connection")
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
        call.path["topic"], None if before is None else _number(before, "before")
    )
    return models.Purged(purged=count)


# --- messages


async def messages(desk: Desk, call: ApiCall) -> models.Messages:
    query = call.query
    offset = _number(query.offset, "offset")
    reader = await desk.broker.open_reader(
        ReaderOpening(call.path["topic"], name=None, start=offset, filter=None, auto_create=False)
    )
    try:
        await reader.look()
        rows = reader.take(query.limit)
        after = await reader.position()
    finally:
        await reader.close()
    runs, rest, _ = cut(rows.runs, query.limit, MESSAGES_BYTES_MAX)
    if rest:
        after = rest[0].source.base_offset + rest[0].rows()[0]
    return models.Messages(messages=await _shown(runs, query.value_bytes), next_offset=str(after))


async def _shown(runs: Sequence[Run], value_bytes: int) -> list[models.Message]:
    shown: list[models.Message] = []
    walk = Walk()
    for one in Rows(runs):
        shown.append(views.message(one, value_bytes))
        await walk.step()
    return shown


async def publish(desk: Desk, call: ApiCall) -> models.Receipt:
    desk.check_taking()
    body: models.Publish = call.body
    name = call.path["topic"]
    value, format = await _value(desk, name, body)
    receipt = await desk.client.publish(
        name,
        value,
        key=body.key,
        headers=body.headers or None,
        priority=body.priority,
        ttl=body.ttl,
        delay=body.delay,
        content_type=body.content_type,
        format=format,
        partition=None if body.partition is None else _number(body.partition, "partition"),
        producer=body.producer,
        sequence=None if body.sequence is None else _number(body.sequence, "sequence"),
        qos=body.qos,
        auto_create=body.auto_create,
        timeout=body.timeout,
    )
    return show(models.Receipt, receipt)


async def _value(desk: Desk, topic: str, body: models.Publish) -> tuple[Any, str | None]:
    given = [body.text is not None, body.base64 is not None, body.json is not msgspec.UNSET]
    if sum(given) != 1:
        raise InvalidRequest("a message needs exactly one value: `text`, `base64` or `json`")
    if body.text is not None:
        return body.text, None
    if body.base64 is not None:
        try:
            return base64.b64decode(body.base64, validate=True), None
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"base64: {error}") from None
    known = desk.broker.known_options(topic)
    return body.json, (None if known is not None and known.format is not None else "json")


# --- groups


async def groups(desk: Desk, call: ApiCall) -> models.Groups:
    found = await desk.broker.groups(call.path["topic"])
    return models.Groups(groups=[show(models.Group, one) for one in found])


async def group(desk: Desk, call: ApiCall) -> models.GroupPage:
    return views.group_page(await desk.broker.group_stats(call.path["topic"], _group(call)))


async def delete_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.client.delete_group(call.path["topic"], _group(call))
    return models.Done()


async def pause_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.broker.pause_group(call.path["topic"], _group(call), True)
    return models.Done()


async def resume_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.broker.pause_group(call.path["topic"], _group(call), False)
    return models.Done()


async def reset_group(desk: Desk, call: ApiCall) -> models.Done:
    await desk.broker.reset_group(call.path["topic"], _group(call), _place(call.body))
    return models.Done()


def _place(body: models.Reset) -> Start | Mapping[int, int]:
    given = [body.to, body.offset, body.time, body.offsets]
    if sum(one is not None for one in given) != 1:
        raise InvalidRequest("pass one of `to`, `offset`, `time` and `offsets`")
    if body.to is not None:
        return body.to
    if body.offset is not None:
        return _number(body.offset, "offset")
    if body.time is not None:
        try:
            return datetime.fromtimestamp(body.time, UTC)
        except (ValueError, OverflowError, OSError):
            raise InvalidRequest(f"time must be seconds since 1970, not {body.time!r}") from None
    assert body.offsets is not None
    return {
        _number(partition, "a partition"): _number(offset, "an offset")
        for partition, offset in body.offsets.items()
    }


async def next_messages(desk: Desk, call: ApiCall) -> models.Peeked:
    rows = await desk.broker.peek(call.path["topic"], _group(call), call.query.limit)
    runs, _, _ = cut(rows.runs, call.query.limit, MESSAGES_BYTES_MAX)
    return models.Peeked(messages=await _shown(runs, call.query.value_bytes))


async def in_flight(desk: Desk, call: ApiCall) -> models.AllInFlight:
    limit = call.query.limit
    found = await desk.broker.in_flight(call.path["topic"], _group(call), limit + 1)
    return models.AllInFlight(
        in_flight=[show(models.InFlight, one) for one in found[:limit]], more=len(found) > limit
    )


async def dead_letters(desk: Desk, call: ApiCall) -> models.DeadLetters:
    query = call.query
    first = 0 if query.after is None else _number(query.after, "after") + 1
    limit = query.limit
    rows = await desk.broker.dead_letters(call.path["topic"], _group(call), limit + 1, first)
    runs, rest, _ = cut(rows.runs, limit, MESSAGES_BYTES_MAX)
    shown: list[models.DeadLetter] = []
    walk = Walk()
    for run in runs:
        for one in as_dead_letters(Rows([run]), desk.broker):
            shown.append(views.dead_letter(one, query.value_bytes))
        await walk.step()
    return models.DeadLetters(dead_letters=shown, after=shown[-1].id if rest else None)


async def redrive(desk: Desk, call: ApiCall) -> models.Count:
    ids, filter = _which(call.body)
    count = await desk.broker.redrive(call.path["topic"], _group(call), ids, filter)
    return models.Count(count=count)


async def discard(desk: Desk, call: ApiCall) -> models.Count:
    ids, filter = _which(call.body)
    count = await desk.broker.discard(call.path["topic"], _group(call), ids, filter)
    return models.Count(count=count)


def _which(body: models.Which) -> tuple[list[int] | None, Any]:
    if sum((body.ids is not None, body.filter is not None, body.all)) != 1:
        raise InvalidRequest("pass one of `ids`, `filter` and `all`")
    ids = None if body.ids is None else [_number(one, "an id") for one in body.ids]
    return ids, None if body.filter is None else compile_filter(body.filter)


def _group(call: ApiCall) -> str:
    return check_name(call.path["group"], "group")


def _number(text: str, what: str) -> int:
    if not text.isascii() or not text.isdecimal() or (number := int(text[:20])) >= 2**63:
        raise InvalidRequest(f"{what} must be a whole number below 2**63, not {text[:40]!r}")
    return number
