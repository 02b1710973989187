"""A compacted topic as a table over HTTP: its last values by page or by key; setting, deleting.

Pages go through the partitions one after the other. The cursor says where: `PARTITION-OFFSET-END`,
with the end of the state as of when the partition was begun; what was set since is on no page.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import NamedTuple

from ...batch import BatchBuilder, key_hash
from ...broker_api import Filter, ReaderOpening
from ...client.membership import checked_filter
from ...client.routing import partition_name
from ...client.sending import partitions_of
from ...errors import InvalidRequest
from ...rows import Message, Rows
from . import models, views
from .consuming import LOOK_SECONDS, MESSAGES_BYTES_MAX
from .desk import ApiCall, Desk, Walk
from .faults import HttpRefusal
from .outgoing import whole_number
from .publishing import publish_row, read_row
from .shown import show


class TableCursor(NamedTuple):
    partition: int = 0
    offset: int = 0
    end: int = 0
    """0: as of when it is looked at."""

    @classmethod
    def parse(cls, text: str | None) -> TableCursor:
        if text is None:
            return cls()
        parts = text.split("-")
        if len(parts) != 3:
            raise InvalidRequest(f"after must be one that a page returned, not {text[:40]!r}")
        return cls(*(whole_number(part, "after") for part in parts))

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}-{self.end}"


async def table(desk: Desk, call: ApiCall) -> models.TablePage:
    query: models.TableQuery = call.query
    filter = checked_filter(query.filter)
    names = _plain_topics(desk, call.path["topic"])
    at = TableCursor.parse(query.after)
    found: list[models.Message] = []
    size, walk = 0, Walk()
    give_up_at = perf_counter() + LOOK_SECONDS
    while at.partition < len(names):
        left = query.limit - len(found)
        if not left or perf_counter() > give_up_at:
            return models.TablePage(messages=found, after=str(at))
        messages, at = await _read(desk, names[at.partition], at, filter, left, give_up_at)
        for message in messages:
            size += len(message.value)
            if found and size > MESSAGES_BYTES_MAX:
                after = at._replace(offset=message.offset or 0)
                return models.TablePage(messages=found, after=str(after))
            found.append(views.message(message, query.value_bytes))
            await walk.step()
        if at.offset >= at.end:
            at = TableCursor(at.partition + 1)
    return models.TablePage(messages=found, after=None)


async def table_value(desk: Desk, call: ApiCall) -> models.Message:
    topic, key = call.path["topic"], call.path["key"]
    names = _plain_topics(desk, topic)
    filter = checked_filter(f"key == {key!r}")
    name, at = names[key_hash(key) % len(names)], TableCursor()
    while True:
        messages, at = await _read(desk, name, at, filter, 1, perf_counter() + LOOK_SECONDS)
        if messages:
            return views.message(messages[0], models.VALUE_BYTES_MAX)
        if at.offset >= at.end:
            raise HttpRefusal(404, "KeyNotFound", f"topic {topic!r} has no value for key {key!r}")


async def set_value(desk: Desk, call: ApiCall) -> models.Receipt:
    key = call.path["key"]
    row = await read_row(call)
    if row.key not in (None, key):
        raise InvalidRequest(f"the key is {key!r} by the path and {row.key!r} by the message")
    if row.value in (b"", "") and not row.is_json:
        raise InvalidRequest("an empty value would delete the key: use DELETE")
    await _check_is_table(desk, call.path["topic"])
    return await publish_row(desk, call, row._replace(key=key))


async def delete_value(desk: Desk, call: ApiCall) -> models.Receipt:
    desk.check_taking()
    topic = call.path["topic"]
    await _check_is_table(desk, topic)
    tombstone = BatchBuilder()  # as it is, whatever format the topic has
    tombstone.append_row(b"", key=call.path["key"])
    receipt = await desk.client.publish_batch(topic, tombstone, auto_create=False)
    return show(models.Receipt, receipt.parts[0] if receipt.parts else receipt)


async def _check_is_table(desk: Desk, topic: str) -> None:
    if (await desk.broker.topic_info(topic)).options.compact != "key":
        raise InvalidRequest(
            f'topic {topic!r} keeps every message: PATCH it with {{"compact": "key"}} first'
        )


def _plain_topics(desk: Desk, topic: str) -> list[str]:
    count = partitions_of(topic, desk.broker.known_options(topic))
    return [topic] if count is None else [partition_name(topic, n) for n in range(count)]


async def _read(
    desk: Desk,
    name: str,
    at: TableCursor,
    filter: Filter | None,
    count: int,
    give_up_at: float,
) -> tuple[list[Message], TableCursor]:
    """Up to so many messages of the state of a plain topic, and where that goes on."""
    number = int(name.partition("/")[2] or 0)
    reader = await desk.broker.open_reader(
        ReaderOpening(
            name,
            start="last_per_key",
            filter=filter,
            auto_create=False,
            resume={number: (at.offset, at.end)} if at.end else {},
        )
    )
    found: list[Message] = []
    try:
        end = reader.state_ends[number]
        offset = await reader.position()
        while offset < end and len(found) < count and perf_counter() < give_up_at:
            rows = Rows(reader.take(count - len(found), waits=False).runs)
            found += [one for one in rows if one.offset is not None and one.offset < end]
            offset = await reader.position()
            if not rows:
                await asyncio.sleep(0)
                if offset < end and not reader.at_hand():
                    await reader.wait(LOOK_SECONDS)
    finally:
        await reader.close()
    return found, TableCursor(at.partition, min(offset, end), end)
