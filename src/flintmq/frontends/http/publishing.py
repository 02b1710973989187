"""`POST .../messages`: one message or many, as JSON, raw bodies or CloudEvents.

Many are published in batches while the request is still arriving; nobody holds it whole. Where a
batch ends depends on its messages alone, so a request that is repeated is cut alike, and what was
stored the first time is found by producer and sequence.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from ...batch import key_hash
from ...client.sending import partitions_of
from ...errors import FlintError, InvalidRequest
from ...model import Receipt
from . import models
from .answers import Partly
from .body import BODY, RequestBody
from .desk import ApiCall, Desk, Walk
from .faults import HttpRefusal
from .json_stream import Elements, JsonCutter, Lines
from .outgoing import (
    CLOUD_EVENT,
    CLOUD_EVENTS,
    JSON,
    NDJSON,
    PRODUCER,
    SEQUENCE,
    TRACE,
    Once,
    PublishedRow,
    is_raw,
    of_cloud_event,
    of_envelope,
    of_raw,
    whole_number,
)
from .shown import show

BATCH_ROWS = 1000
BATCH_BYTES = 256 * 1024
"""A batch of a request for many is complete with so many messages, or bytes."""

BY_REQUEST = "http-idempotency-key"
"""The producer of what came with an Idempotency-Key; the key makes the sequence."""


class RequestIdentity(NamedTuple):
    """How a repeated request is known: the producer, and the sequence of its first message."""

    producer: str
    sequence: int


async def publish(desk: Desk, call: ApiCall) -> models.Receipt | models.Receipts:
    desk.check_taking()
    headers = call.headers
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    body: RequestBody = call.request.scope[BODY]
    if not is_raw(content_type, headers):
        if content_type in NDJSON:
            return await _publish_many(desk, call, body, Lines(body.limit), of_envelope)
        if content_type == CLOUD_EVENTS:
            return await _publish_many(desk, call, body, Elements(body.limit), of_cloud_event)
        begun = await body.begin()
        if content_type == JSON and begun.lstrip()[:1] == b"[":
            return await _publish_many(desk, call, body, Elements(body.limit), of_envelope, begun)
        return await publish_row(desk, call, await read_row(call, begun))
    return await publish_row(desk, call, await read_row(call))


async def read_row(call: ApiCall, begun: bytes = b"") -> PublishedRow:
    """The one message of a request: an envelope, a CloudEvent, or the body as it is."""
    headers = call.headers
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    body: RequestBody = call.request.scope[BODY]
    whole = begun + await body.rest()
    if is_raw(content_type, headers):
        return of_raw(whole, headers)
    return of_cloud_event(whole) if content_type == CLOUD_EVENT else of_envelope(whole or b"{}")


def traced(row: PublishedRow, headers: dict[str, str]) -> PublishedRow:
    """With the trace of the request, unless the message has one of its own."""
    trace = {name: headers[name] for name in TRACE if name in headers}
    if not trace or TRACE[0] in (row.headers or {}):
        return row
    return row._replace(headers={**trace, **(row.headers or {})})


def identity_of(headers: dict[str, str], key_id: str) -> RequestIdentity | None:
    """What makes it safe to repeat the request, if anything does."""
    key = headers.get("idempotency-key")
    producer, sequence = headers.get(PRODUCER), headers.get(SEQUENCE)
    if key is None:
        if producer is None and sequence is None:
            return None
        if producer is None or sequence is None:
            raise InvalidRequest("X-Flint-Producer and X-Flint-Sequence belong together")
        return RequestIdentity(producer, whole_number(sequence, "X-Flint-Sequence"))
    if producer is not None or sequence is not None:
        raise InvalidRequest("pass Idempotency-Key, or X-Flint-Producer and X-Flint-Sequence")
    if not key:
        raise InvalidRequest("the Idempotency-Key is empty")
    # Other clients may use the same words: their keys tell them apart. 63 bits, so that there is
    # room for the sequences of a batch behind it.
    digest = hashlib.blake2b(f"{key_id}\0{key}".encode(), digest_size=8).digest()
    return RequestIdentity(BY_REQUEST, int.from_bytes(digest, "big") >> 1)


async def publish_row(desk: Desk, call: ApiCall, row: PublishedRow) -> models.Receipt:
    desk.check_taking()
    row = traced(row, call.headers)
    once = row.once
    identity = identity_of(call.headers, call.access.key)
    said = _once(desk, call.path["topic"], once)
    if identity is not None:
        _check_no_other(row, identity)
        said["producer"], said["sequence"] = identity
        if once.partition is None:
            said["partition"] = _partition(desk, call.path["topic"], row.key, identity)
    elif once.producer is not None or row.sequence is not None:
        said["producer"], said["sequence"] = once.producer, row.sequence
    receipt = await desk.client.publish(
        call.path["topic"],
        row.value,
        key=row.key,
        headers=row.headers,
        priority=row.priority,
        ttl=row.ttl,
        delay=row.delay,
        content_type=row.content_type,
        format=format_for(desk, call.path["topic"], row),
        **said,
    )
    return show(models.Receipt, receipt)


def _once(desk: Desk, topic: str, once: Once) -> dict[str, Any]:
    return {
        "partition": partition_of(once),
        "qos": once.qos,
        "auto_create": once.auto_create,
        "timeout": once.timeout,
    }


def partition_of(once: Once) -> int | None:
    return None if once.partition is None else whole_number(once.partition, "partition")


def format_for(desk: Desk, topic: str, row: PublishedRow) -> str | None:
    known = desk.broker.known_options(topic)
    has_own = known is not None and known.format is not None
    return "json" if row.is_json and not has_own else None


def _partition(
    desk: Desk, topic: str, key: str | bytes | None, identity: RequestIdentity
) -> int | None:
    """Where a message goes that may be repeated: to the same partition each time."""
    count = partitions_of(topic, desk.broker.known_options(topic))
    if count is None:
        return None
    return (identity.sequence if key is None else key_hash(key)) % count


def _check_no_other(row: PublishedRow, identity: RequestIdentity) -> None:
    said = (row.once.producer, row.sequence)
    if said not in ((None, None), (identity.producer, identity.sequence)):
        raise InvalidRequest(
            "producer and sequence are given twice: by headers of the request and by a message"
        )


# --- many


async def _publish_many(
    desk: Desk,
    call: ApiCall,
    body: RequestBody,
    cutter: JsonCutter,
    read: Callable[[bytes], PublishedRow],
    begun: bytes = b"",
) -> models.Receipts:
    body.lift()
    headers = call.headers
    many = ManyPublish(desk, call, identity_of(headers, call.access.key))
    walk = Walk()

    def read_next(text: bytes) -> PublishedRow:
        try:
            return traced(read(text), headers)
        except InvalidRequest as error:
            raise InvalidRequest(f"message {many.count + 1} of the request: {error}") from None

    try:
        async for piece in _pieces(begun, body):
            for text in cutter.feed(piece):
                if await many.add(read_next(text), len(text)):
                    body.made_progress()
                await walk.step()
        for text in cutter.end():
            await many.add(read_next(text), len(text))
        await many.flush()
        if not many.count:
            raise InvalidRequest("the request has no messages")
    except (FlintError, HttpRefusal) as error:
        done = [*many.receipts, *getattr(error, "receipts", ())]
        if not done:
            raise
        raise Partly(error, receipts=[show(models.Receipt, one) for one in _joined(done)]) from None
    receipts = _joined(many.receipts)
    return models.Receipts(
        count=sum(one.count for one in receipts),
        receipts=[show(models.Receipt, one) for one in receipts],
    )


async def _pieces(begun: bytes, body: RequestBody) -> AsyncIterator[bytes]:
    if begun:
        yield begun
    async for piece in body.pieces():
        yield piece


class ManyPublish:
    """Gathers messages, and publishes them a batch at a time."""

    def __init__(self, desk: Desk, call: ApiCall, identity: RequestIdentity | None) -> None:
        self._desk, self._call, self._topic = desk, call, call.path["topic"]
        self._identity = identity
        self._sequences: dict[int | None, int] = {}
        """By partition: how many messages of the request went there."""
        self._rows: list[PublishedRow] = []
        self._bytes = 0
        self.count = 0
        self.receipts: list[Receipt] = []

    async def add(self, row: PublishedRow, size: int) -> bool:
        """Whether a batch was published."""
        if self._identity is not None and (row.once.producer or row.sequence) is not None:
            raise InvalidRequest(
                "producer and sequence are given twice: by headers of the request and by a message"
            )
        flushes = bool(self._rows) and not self._joins(row)
        if flushes:
            await self.flush()
        self._rows.append(row)
        self.count += 1
        self._bytes += size
        return flushes

    def _joins(self, row: PublishedRow) -> bool:
        last = self._rows[-1]
        if len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES or row.once != last.once:
            return False
        if last.sequence is None or row.sequence is None:
            return last.sequence is row.sequence
        return row.sequence == last.sequence + 1

    async def flush(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        if not rows:
            return
        self._call.patience.renew(rows[0].once.timeout)
        if self._identity is None:
            said: dict[str, Any] = {}
            if rows[0].once.producer is not None or rows[0].sequence is not None:
                said = {"producer": rows[0].once.producer, "sequence": rows[0].sequence}
            await self._publish(rows, said)
            return
        by_partition: dict[int | None, list[PublishedRow]] = {}
        for row in rows:
            partition = None
            if row.once.partition is None:
                partition = _partition(self._desk, self._topic, row.key, self._identity)
            by_partition.setdefault(partition, []).append(row)
        for partition, of_it in by_partition.items():
            before = self._sequences.get(partition, 0)
            self._sequences[partition] = before + len(of_it)
            said = dict(self._identity._asdict(), sequence=self._identity.sequence + before)
            if partition is not None:
                said["partition"] = partition
            await self._publish(of_it, said)

    async def _publish(self, rows: list[PublishedRow], said: dict[str, Any]) -> None:
        receipt = await self._desk.client.publish_batch(
            self._topic,
            [row.value for row in rows],
            key=[row.key for row in rows],
            headers=[row.headers for row in rows],
            priority=[row.priority for row in rows],
            ttl=[row.ttl for row in rows],
            delay=[row.delay for row in rows],
            content_type=[row.content_type for row in rows],
            format=[format_for(self._desk, self._topic, row) for row in rows],
            **{**_once(self._desk, self._topic, rows[0].once), **said},
        )
        self.receipts += receipt.parts or [receipt]


def _joined(receipts: list[Receipt]) -> list[Receipt]:
    """Receipts that follow on one another, as one."""
    joined: list[Receipt] = []
    last_of: dict[int, int] = {}
    for one in receipts:
        at = last_of.get(one.partition)
        if at is not None and _follows(joined[at], one):
            joined[at] = msgspec.structs.replace(joined[at], count=joined[at].count + one.count)
        else:
            last_of[one.partition] = len(joined)
            joined.append(one)
    return joined


def _follows(first: Receipt, second: Receipt) -> bool:
    return (
        first.offset is not None
        and first.offset + first.count == second.offset
        and (first.duplicate, first.durability) == (second.duplicate, second.durability)
        and not first.dropped
        and not second.dropped
    )
