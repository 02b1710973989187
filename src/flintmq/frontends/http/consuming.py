"""Consuming over HTTP: poll, settle, extend; and reading by offset, by time or backwards."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType
from starlette.requests import ClientDisconnect, Request

from ...broker_api import Fetch, MemberApi, ReaderOpening
from ...client.delivery import Deliveries
from ...client.membership import JoinOptions, checked_filter
from ...client.polling import Asked
from ...errors import InvalidRequest, LeaseLost
from ...group_model import Lease
from ...model import Start
from ...net.server.streams import cut
from ...patterns import check_name
from ...rows import Message, Rows, Run
from . import models, views
from .answers import Partly
from .connection import HttpConnection
from .desk import ApiCall, Desk, Walk
from .outgoing import whole_number
from .seats import LeaseName, LeasesGone, Settle

T = TypeVar("T")

MESSAGES_BYTES_MAX = 1024 * 1024
"""How many bytes of messages one answer shows at most, or one message."""
LOOK_SECONDS = 1.0
"""How long one request may look for messages that pass a filter."""
BACK_ROWS = (256, 16_384)
"""How many messages are looked through at a time, backwards; at first, and at most."""


# --- groups


async def poll(desk: Desk, call: ApiCall) -> models.Polled:
    desk.check_taking()
    body: models.Poll = call.body
    wait = min(body.wait, desk.wait_seconds)
    asked = Asked(
        call.path["topic"],
        group_of(call),
        body.max,
        body.lease,
        wait,
        body.ack == "auto",
        JoinOptions(body.order, checked_filter(body.filter), body.start, body.auto_create),
    )
    if wait:
        with call.patience.waiting(wait):
            found = await unless_gone(call.request, desk.seats.poll(asked))
    else:
        found = await desk.seats.poll(asked)
    if found is None or _has_left(call.request):
        # Whoever asked is gone: others get it, and it does not count as delivered.
        if found is not None:
            await desk.seats.put_back(asked.topic, asked.group, found)
        raise ClientDisconnect
    return models.Polled(messages=await _handed_out(desk, asked, found))


async def _handed_out(desk: Desk, asked: Asked, found: Deliveries) -> list[models.Delivered]:
    """As much as fits into an answer; the rest is given back."""
    fitting = found
    if not asked.auto:  # what is settled already has to go out
        head, rest, _ = cut(found.runs, asked.max_rows, MESSAGES_BYTES_MAX)
        fitting = Deliveries(head)
        if rest:
            await desk.seats.put_back(asked.topic, asked.group, Deliveries(rest))
    shown: list[models.Delivered] = []
    walk = Walk()
    for message in fitting:
        lease = "" if asked.auto else str(LeaseName.of(message))
        shown.append(views.delivered(message, lease))
        await walk.step()
    return shown


async def ack(desk: Desk, call: ApiCall) -> models.Count:
    async def tell(member: MemberApi, leases: list[Lease]) -> None:
        await member.ack(leases)

    return await _settle(desk, call, tell)


async def nack(desk: Desk, call: ApiCall) -> models.Count:
    async def tell(member: MemberApi, leases: list[Lease]) -> None:
        await member.nack(leases, call.body.delay)

    return await _settle(desk, call, tell)


async def reject(desk: Desk, call: ApiCall) -> models.Count:
    async def tell(member: MemberApi, leases: list[Lease]) -> None:
        await member.reject(leases, call.body.reason)

    return await _settle(desk, call, tell)


async def extend(desk: Desk, call: ApiCall) -> models.Count:
    async def tell(member: MemberApi, leases: list[Lease]) -> None:
        await member.extend(leases, call.body.lease)

    return await _settle(desk, call, tell, call.body.lease)


async def _settle(desk: Desk, call: ApiCall, how: Settle, lease: float = 0.0) -> models.Count:
    names = [LeaseName.parse(text) for text in call.body.leases]
    try:
        await desk.seats.settle(call.path["topic"], group_of(call), names, how, lease)
    except LeasesGone as error:
        lost = LeaseLost(error.topic, error.group, error.offsets)
        raise Partly(lost, lost=[str(name) for name in error.names]) from None
    return models.Count(count=len(set(names)))


def group_of(call: ApiCall) -> str:
    return check_name(call.path["group"], "group")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """What comes of it; None where the client goes away meanwhile: then it is cancelled."""
    loop = asyncio.get_running_loop()
    doing, leaving = loop.create_task(work), loop.create_task(_leaves(request))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        return None
    finally:
        leaving.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait((doing,))


async def _leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _has_left(request: Request) -> bool:
    connection = request.scope.get("flintmq.connection")
    return isinstance(connection, HttpConnection) and connection.transport.is_closing()


# --- reading


async def messages(desk: Desk, call: ApiCall) -> models.Messages:
    query: models.MessagesQuery = call.query
    if query.offset is not None and query.time is not UNSET:
        raise InvalidRequest("pass `offset` or `time`, not both")
    if query.order == "desc":
        return await _backwards(desk, call, query)
    start: Start = 0 if query.offset is None else whole_number(query.offset, "offset")
    if not isinstance(query.time, UnsetType):
        start = moment(query.time)
    filter = checked_filter(query.filter)
    reader = await desk.broker.open_reader(
        ReaderOpening(call.path["topic"], start=start, filter=filter, auto_create=False)
    )
    try:
        await reader.look()
        runs = list(reader.take(query.limit).runs)
        give_up_at = perf_counter() + LOOK_SECONDS
        while filter is not None and reader.is_ready() and perf_counter() < give_up_at:
            left = query.limit - sum(run.row_count for run in runs)
            if not left:
                break
            await asyncio.sleep(0)
            runs += reader.take(left).runs
        after = await reader.position()
    finally:
        await reader.close()
    runs, rest, _ = cut(runs, query.limit, MESSAGES_BYTES_MAX)
    if rest:
        after = rest[0].source.base_offset + rest[0].rows()[0]
    return models.Messages(messages=await shown(runs, query.value_bytes), next_offset=str(after))


def moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(f"time must be seconds since 1970, not {seconds!r}") from None


async def _backwards(desk: Desk, call: ApiCall, query: models.MessagesQuery) -> models.Messages:
    if query.time is not UNSET:
        raise InvalidRequest("`time` cannot be read from backwards; use `offset`, or order=asc")
    extents = await desk.broker.extents(call.path["topic"], None)
    if len(extents) != 1:
        raise InvalidRequest(
            f"each partition has its own offsets; read one of them, such as {extents[0].topic}"
        )
    extent, filter = extents[0], checked_filter(query.filter)
    end = extent.next_offset
    if query.offset is not None:
        end = min(end, whole_number(query.offset, "offset"))
    found: list[Message] = []
    size = 0
    rows = query.limit if filter is None else BACK_ROWS[0]
    give_up_at = perf_counter() + LOOK_SECONDS
    while end > extent.first_offset and len(found) < query.limit and perf_counter() < give_up_at:
        begin = max(extent.first_offset, end - rows)
        part = await _between(desk, extent.topic, begin, end, query)
        for message in reversed(part):
            size += len(message.value)
            if len(found) == query.limit or (found and size > MESSAGES_BYTES_MAX):
                return _seen(found, found[-1].offset or 0, query)
            found.append(message)
        end, rows = begin, min(rows * 2, BACK_ROWS[1])
    return _seen(found, end, query)


def _seen(
    found: Sequence[Message], next_offset: int, query: models.MessagesQuery
) -> models.Messages:
    return models.Messages(
        messages=[views.message(one, query.value_bytes) for one in found],
        next_offset=str(next_offset),
    )


async def _between(
    desk: Desk, topic: str, begin: int, end: int, query: models.MessagesQuery
) -> list[Message]:
    """The messages of a range that pass, in the order of the log."""
    found: list[Message] = []
    filter = checked_filter(query.filter)
    while begin < end:
        part = await desk.broker.fetch(Fetch(topic, begin, end, filter=filter))
        found += part.rows
        if part.position <= begin:
            break
        begin = part.position
        await asyncio.sleep(0)
    return found


async def shown(runs: Sequence[Run], value_bytes: int) -> list[models.Message]:
    found: list[models.Message] = []
    walk = Walk()
    for one in Rows(runs):
        found.append(views.message(one, value_bytes))
        await walk.step()
    return found
