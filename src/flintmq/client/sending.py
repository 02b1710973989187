"""Sending rows off: to a plain topic as they are, to a partitioned one piece by piece."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from ..batch import BatchBuilder, RecordBatch, slice_batch
from ..broker_api import BrokerApi
from ..clock import Clock
from ..errors import FlintError, InvalidRequest, MessageTooLarge, TopicNotFound
from ..model import Receipt, TopicOptions
from .in_time import in_time
from .routing import Route, Router, partition_name

Rows = BatchBuilder | RecordBatch


PRODUCER_BYTES_MAX = 1024
NO_TIME_SECONDS = 0.001


class Identity(NamedTuple):
    """What tells a publish from every other: who sends it, and the number of its first message."""

    producer: str
    sequence: int


class Sender:
    """Publishes for one connection; keeps its round robin."""

    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker
        self._router = Router()

    async def _check_sizes(self, topic: str, rows: BatchBuilder) -> None:
        """The broker does not open what is compressed: the largest message is looked for here."""
        try:
            limit = (await self._broker.topic_info(topic)).options.max_message_bytes
        except TopicNotFound:
            return
        if limit is not None:
            for row in range(rows.row_count):
                size = rows.size(row, row + 1)
                if size > limit:
                    raise MessageTooLarge(
                        f"message {row} for topic {topic!r}", size, limit, "max_message_bytes"
                    )

    def routed(
        self, topic: str, rows: BatchBuilder, options: TopicOptions | None, route: Route | None
    ) -> Sequence[tuple[str, BatchBuilder]]:
        """The plain topics that rows go to, and which of them; decided before anything is sent."""
        partitions = partitions_of(topic, options)
        if partitions is None:
            if route is not None:
                raise InvalidRequest(f"partition={route!r}: topic {topic!r} has no partitions")
            return ((topic, rows),)
        parts = self._router.spread(topic, rows, partitions, route)
        return [(partition_name(topic, number), part) for number, part in parts.items()]

    async def publish(
        self,
        topic: str,
        rows: BatchBuilder,
        options: TopicOptions | None,
        route: Route | None,
        *,
        qos: int,
        timeout: float | None,
        auto_create: bool,
        batch_compression: str = "none",
        identity: Identity | None = None,
    ) -> Receipt:
        """Publish rows; of a partitioned topic the receipt has a part for each partition.

        Parts are acknowledged each on its own; an error carries the receipts of those that were.
        `timeout` is for all of them together. They share the wait for the disk.
        """
        begun: list[Receipt | Awaitable[Receipt]] = []
        clock = self._broker.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        routed = self.routed(topic, rows, options, route)
        if identity is not None and len(routed) > 1:
            raise InvalidRequest(
                "a batch with a producer and sequence must go to one partition: pass "
                "partition=..., or publish the messages of each key separately"
            )
        for name, part in routed:
            if batch_compression != "none":
                await in_time(clock, timeout or None, self._check_sizes(name, part))
            batch = sealed(part, batch_compression, identity)
            left = time_left(clock, timeout, deadline)
            try:
                receipt = self._broker.publish_nowait(
                    name, batch, qos=qos, auto_create=auto_create, timeout=left
                )
                if receipt is None:
                    receipt = await self._broker.publish(
                        name, batch, qos=qos, auto_create=auto_create, timeout=left
                    )
            except FlintError as error:
                error.receipts, _ = await _outcomes(begun)
                raise
            begun.append(receipt)
        receipts, failed = await _outcomes(begun)
        if failed is not None:
            failed.receipts = receipts
            raise failed
        if partitions_of(topic, options) is None:
            return receipts[0]
        return _together(topic, receipts)


def publish_identity(producer: str | None, sequence: int | None, qos: int) -> Identity | None:
    """Producer and sequence of a call, checked."""
    if producer is None and sequence is None:
        return None
    if (
        not isinstance(producer, str)
        or not 0 < len(producer.encode(errors="replace")) <= PRODUCER_BYTES_MAX
        or any("\ud800" <= character <= "\udfff" for character in producer)
    ):
        raise InvalidRequest(
            f"producer must be a str of 1 to {PRODUCER_BYTES_MAX:,} bytes of UTF-8, "
            f"together with a sequence; not {str(producer)[:60]!r}"
        )
    if type(sequence) is not int or not 0 <= sequence < 2**64:
        raise InvalidRequest(
            f"sequence must be a whole number from 0 to 2**64 - 1, not {sequence!r}"
        )
    if qos == 0:
        raise InvalidRequest("producer and sequence need stored messages: use qos=1")
    return Identity(producer, sequence)


def time_left(clock: Clock, timeout: float | None, deadline: float | None) -> float | None:
    """What is left for the next part of a publish. 0 would mean that it was never to wait."""
    if not timeout or deadline is None:
        return timeout
    return max(NO_TIME_SECONDS, deadline - clock.monotonic())


async def _outcomes(
    begun: Sequence[Receipt | Awaitable[Receipt]],
) -> tuple[list[Receipt], FlintError | None]:
    """The receipts of what was published, and the first error if something was not."""
    receipts: list[Receipt] = []
    failed: FlintError | None = None
    for receipt in begun:
        try:
            receipts.append(receipt if isinstance(receipt, Receipt) else await receipt)
        except FlintError as error:
            failed = failed or error
    return receipts, failed


def partitions_of(topic: str, options: TopicOptions | None) -> int | None:
    """How many partitions a name stands for; None if it is a plain topic, or one of a row."""
    return None if options is None or "/" in topic else options.partitions


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """The same messages in two batches."""
    middle, count = rows.row_count // 2, rows.row_count
    if isinstance(rows, RecordBatch):
        return slice_batch(rows, 0, middle), slice_batch(rows, middle, count)
    first, second = rows.empty_like(), rows.empty_like()
    first.extend(rows, 0, middle)
    second.extend(rows, middle, count)
    return first, second


def sealed(rows: Rows, batch_compression: str, identity: Identity | None = None) -> Rows:
    """The rows, or where their batch is to be compressed or told from others, the batch."""
    if isinstance(rows, RecordBatch) or (batch_compression == "none" and identity is None):
        return rows
    producer, sequence = identity or (None, 0)
    return rows.seal(compression=batch_compression, producer=producer, base_sequence=sequence)


def _together(topic: str, receipts: list[Receipt]) -> Receipt:
    first = receipts[0]
    is_one = len(receipts) == 1
    return Receipt(
        topic,
        first.offset if is_one else None,
        sum(receipt.count for receipt in receipts),
        first.partition if is_one else 0,
        sum(receipt.dropped for receipt in receipts),
        durability=first.durability,
        parts=tuple(receipts),
    )
