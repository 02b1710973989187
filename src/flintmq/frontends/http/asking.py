"""Requests over HTTP: to ask and wait for the reply, and to reply."""

from __future__ import annotations

import msgspec
from starlette.requests import ClientDisconnect

from ...batch import BatchBuilder
from . import models, views
from .consuming import unless_gone
from .desk import ApiCall, Desk
from .outgoing import JSON
from .publishing import format_for, partition_of, read_row, traced


async def request(desk: Desk, call: ApiCall) -> models.Message:
    desk.check_taking()
    topic, seconds = call.path["topic"], min(call.query.timeout, desk.wait_seconds)
    row = traced(await read_row(call), call.headers)
    asked = desk.client.request(
        topic,
        row.value,
        timeout=seconds,
        key=row.key,
        headers=row.headers,
        priority=row.priority,
        ttl=row.ttl,
        delay=row.delay,
        partition=partition_of(row.once),
        content_type=row.content_type,
        format=format_for(desk, topic, row),
        auto_create=row.once.auto_create,
    )
    with call.patience.waiting(seconds):
        reply = await unless_gone(call.request, asked)
    if reply is None:
        raise ClientDisconnect
    return views.message(reply, models.VALUE_BYTES_MAX)


async def reply(desk: Desk, call: ApiCall) -> models.Replied:
    row = await read_row(call)
    value, content_type = row.value, row.content_type
    if row.is_json:
        value, content_type = msgspec.json.encode(value), content_type or JSON
    elif isinstance(value, str):
        value = value.encode()
    rows = BatchBuilder()
    rows.append_row(value, key=row.key, headers=row.headers, content_type=content_type)
    return models.Replied(waiting=await desk.broker.reply(call.path["address"], rows))
