"""Publishes on their way: joined while they can be, numbered, and sent again if need be.

What is published in one turn of the event loop to one topic becomes one batch. Every batch that is
stored carries this connection's producer id and a sequence, so that one which is sent again, even
to a broker that was restarted meanwhile, is there once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from ...batch import CONTENT_TYPES, OBJECTS, PRODUCER, BatchBuilder, RecordBatch
from ...batch.builder import producer_column
from ...broker_api import Batch
from ...errors import (
    Closed,
    Disconnected,
    FlintError,
    InvalidRequest,
    MalformedFrame,
    MessageTooLarge,
    OutcomeUnknown,
    QueueFull,
)
from ...model import Durability, Receipt
from ..wire.frames import HEADER_BYTES, Frame
from ..wire.operations import CancelPieceRequest, Fault, Op, PublishRequest, encode
from ..wire.values import receipt_of
from .link import BrokerDraining, Link, SessionLost, again, error_in, error_said

JOIN_ROWS_MAX = 64
"""Publishes of fewer rows than this share a batch with others of the same turn."""

LOT_ROWS_MAX = 1000
LOT_BYTES_MAX = 256 * 1024
ROWS_MAX = 90_000
"""What may be under way: a topic knows the last 100,000 sequences of a producer, and what is sent
again has to be among them."""

CONTROL_BYTES = 1024
"""What a frame has at most beside its batch, but for the name of the topic."""

FEW_ROWS = 8
FEW_BYTES = 4096
"""A publish of no more than this goes out as rows, where the broker knows them."""


class PendingReceipt(asyncio.Future[Receipt]):
    """The receipt to come. Cancelled while the publish waits in line, it is taken back."""

    lot: OutgoingBatch
    piece: int

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self.lot.cancel(self.piece)
        return True


class OutgoingBatch:
    """What is published to one topic in one turn, and everybody who waits for its receipt."""

    __slots__ = (
        "auto_create",
        "batch",
        "counts",
        "deadline",
        "futures",
        "id",
        "is_ours",
        "is_parked",
        "number",
        "qos",
        "rows",
        "send_buffer",
        "sequence",
        "size",
        "timeout",
        "topic",
        "was_sent",
    )  # fmt: skip

    def __init__(
        self,
        send_buffer: SendBuffer,
        topic: str,
        qos: int,
        auto_create: bool,
        timeout: float | None,
        rows: Batch,
    ) -> None:
        self.send_buffer = send_buffer
        self.topic, self.qos, self.auto_create, self.timeout = topic, qos, auto_create, timeout
        self.rows = rows
        self.batch: RecordBatch | None = None
        """The rows as a batch, once it was needed."""
        self.counts: list[int] = []
        self.futures: list[PendingReceipt] = []
        self.id = self.number = self.size = self.sequence = 0
        self.is_parked = False
        self.is_ours = True
        self.was_sent = 0
        # With no time to wait for room, the answer may still take as long as any other.
        self.deadline = None if timeout is None else send_buffer.link.deadline(timeout or None)

    def add(self, count: int) -> PendingReceipt:
        future = PendingReceipt(loop=self.send_buffer.loop)
        future.lot, future.piece = self, len(self.futures)
        self.counts.append(count)
        self.futures.append(future)
        return future

    def asks_for(self, auto_create: bool, timeout: float | None) -> bool:
        """Whether it was begun with this, and more may be added."""
        return self.auto_create == auto_create and self.timeout == timeout

    def cancel(self, piece: int) -> None:
        if self.id:
            self.send_buffer.cancel(self, piece if len(self.futures) > 1 else None)

    # --- the link's side

    def answer(self, frame: Frame) -> None:
        if frame.op == Op.ERROR:
            self.fail(error_in(frame))
            return
        outcomes = msgspec.msgpack.decode(frame.control)
        self.send_buffer.is_answered(self)
        futures = self.futures
        if len(outcomes) == 1:
            self._share(receipt_of(outcomes[0]))
            return
        if len(outcomes) != len(futures):
            raise MalformedFrame(f"{len(outcomes)} outcomes of {len(futures)} publishes")
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome[-1], dict):
                future.set_exception(error_said(Fault(*outcome)))
            else:
                future.set_result(self._own(receipt_of(outcome)))

    def stored(self, offset: int, durability: Durability) -> None:
        self.send_buffer.is_answered(self)
        topic, _, partition = self.topic.partition("/")
        number = int(partition) if partition else 0
        for future, count in zip(self.futures, self.counts, strict=True):
            if not future.done():
                future.set_result(Receipt(topic, offset, count, number, 0, False, durability))
            offset += count

    def _share(self, receipt: Receipt) -> None:
        receipt = self._own(receipt)
        if len(self.futures) == 1:
            if not self.futures[0].done():
                self.futures[0].set_result(receipt)
            return
        offset = receipt.offset
        r = receipt
        for future, count in zip(self.futures, self.counts, strict=True):
            if not future.done():
                future.set_result(
                    Receipt(r.topic, offset, count, r.partition, 0, r.duplicate, r.durability)
                )
            if offset is not None:
                offset += count

    def _own(self, receipt: Receipt) -> Receipt:
        if receipt.duplicate and self.is_ours and self.was_sent > 1:
            # That it was sent twice is our affair: it was published once.
            return msgspec.structs.replace(receipt, duplicate=False)
        return receipt

    def expire(self, error: Exception) -> bool:
        """No caller waits any longer. Its place in the books stays until the broker has answered:
        what is sent to one that says nothing is bounded."""
        self._tell(error)
        return True

    def fail(self, error: Exception) -> None:
        nobody_waits = all(future.done() for future in self.futures)
        if isinstance(error, BrokerDraining) and not nobody_waits:
            self.send_buffer.hold(self)
            return
        if isinstance(error, SessionLost) and self.qos and not nobody_waits:
            self.send_buffer.again.append(self)
            return
        if isinstance(error, SessionLost):
            error = OutcomeUnknown("the connection was lost; QoS 0 is sent at most once")
        self.send_buffer.is_answered(self)
        self._tell(error)

    def _tell(self, error: Exception) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # raised where it is awaited, and not logged otherwise


class SendBuffer:
    def __init__(
        self,
        link: Link,
        producer: str,
        *,
        is_careful: Callable[[str], bool],
        bytes_max: int,
        blocks: bool,
    ) -> None:
        self.link, self.loop = link, link.loop
        self.again: list[OutgoingBatch] = []
        """Lots that have to be sent again once there is a session."""
        self._producer, self._clock = producer, link.clock
        self._is_careful = is_careful
        self._bytes_max = self._wanted_bytes_max = bytes_max
        self._blocks = blocks
        self._open: dict[str, OutgoingBatch] = {}
        self._sequences: dict[str, int] = {}
        self._flushing = False
        self._was_lone = False
        """What went out last was alone in its turn, with nothing under way. If that is so again,
        the next one will be alone, too: it is sent at once, which saves a turn of the loop."""
        self._lots = 0
        self._bytes = self._rows = 0
        self._room: list[asyncio.Future[None]] = []

    # --- publishing

    def bound(self, bytes_max: int) -> None:
        """Have no more under way than the server takes."""
        self._bytes_max = min(self._wanted_bytes_max, bytes_max)

    def is_full(self, count: int = 1) -> bool:
        """Whether `count` rows more have to wait. However many they are, they may go alone."""
        rows = self._rows
        return self._bytes >= self._bytes_max or (rows > 0 and rows + count > ROWS_MAX)

    def publish_value(
        self, topic: str, value: bytes, auto_create: bool, timeout: float | None
    ) -> PendingReceipt:
        """One plain value to a topic where publishes may be joined."""
        is_lone = self._was_lone and not self._rows and not self._open
        lot = self._lot(topic, auto_create, timeout, is_lone)
        rows = lot.rows
        assert isinstance(rows, BatchBuilder)
        rows.append(value)
        receipt = lot.add(1)
        if is_lone:
            self.link.write_now(self.flush)
        elif rows.row_count >= LOT_ROWS_MAX or rows.byte_count >= LOT_BYTES_MAX:
            self._send_open(topic)
        return receipt

    def publish(
        self, topic: str, rows: Batch, qos: int, auto_create: bool, timeout: float | None
    ) -> PendingReceipt:
        """Put rows on their way; their place behind earlier ones to the topic is decided."""
        if type(topic) is not str:
            raise InvalidRequest(f"a topic name must be a str, not {topic!r}")
        if rows.columns & OBJECTS:
            raise InvalidRequest(
                "objects are passed by reference and cannot be sent over a network"
            )
        count = rows.row_count
        if (
            isinstance(rows, BatchBuilder)
            and qos == 1
            and count < JOIN_ROWS_MAX
            and rows.byte_count < LOT_BYTES_MAX // 4
            and not self._is_careful(topic)
        ):
            is_lone = self._was_lone and not self._rows and not self._open
            lot = self._lot(topic, auto_create, timeout, is_lone)
            joined = lot.rows
            assert isinstance(joined, BatchBuilder)
            joined.extend_at(rows, 0)
            receipt = lot.add(count)
            if is_lone:
                self.link.write_now(self.flush)
            elif joined.row_count >= LOT_ROWS_MAX or joined.byte_count >= LOT_BYTES_MAX:
                self._send_open(topic)
            return receipt
        self._send_open(topic)
        lot = OutgoingBatch(self, topic, qos, auto_create, timeout, rows)
        receipt = lot.add(count)
        self._send(lot)
        return receipt

    def _lot(
        self, topic: str, auto_create: bool, timeout: float | None, is_lone: bool
    ) -> OutgoingBatch:
        """The open lot of a topic; another one if who publishes now wants it otherwise."""
        found = self._open.get(topic)
        if found is not None:
            if found.asks_for(auto_create, timeout):
                return found
            self._send_open(topic)
        lot = self._open[topic] = OutgoingBatch(
            self, topic, 1, auto_create, timeout, BatchBuilder()
        )
        if not is_lone and not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._end_of_turn)
        return lot

    def _end_of_turn(self) -> None:
        self._flushing = False
        self._was_lone = False
        if not self._rows and len(self._open) == 1:
            [lot] = self._open.values()
            self._was_lone = len(lot.futures) == 1
        self.link.write_now(self.flush)

    def flush(self) -> None:
        """Send everything that is open: what is asked next must come behind it."""
        opened, self._open = self._open, {}
        self._send_lots(opened.values())

    def _send_open(self, topic: str) -> None:
        found = self._open.pop(topic, None)
        if found is not None:
            self._send_lots((found,))

    def _send_lots(self, lots: Iterable[OutgoingBatch]) -> None:
        """What is small goes out as rows, all of it in one frame; the rest as batches."""
        takes_rows = self.link.takes_rows
        together: list[OutgoingBatch] = []
        size = 0
        for lot in lots:
            rows = lot.rows
            assert isinstance(rows, BatchBuilder)
            if takes_rows and rows.row_count <= FEW_ROWS and rows.byte_count <= FEW_BYTES:
                together.append(lot)
                size += rows.byte_count
                if size < LOT_BYTES_MAX:
                    continue
                self._send_rows(together)
                together, size = [], 0
            else:
                self._send_or_fail(lot)
        if together:
            self._send_rows(together)

    def _send_or_fail(self, lot: OutgoingBatch) -> None:
        try:
            self._send(lot)
        except FlintError as error:
            lot.fail(error)

    def _send_rows(self, lots: list[OutgoingBatch]) -> None:
        sequences = self._sequences
        publishes: list[Any] = []
        for lot in lots:
            topic, rows = lot.topic, lot.rows
            assert isinstance(rows, BatchBuilder)
            sequence = lot.sequence = sequences.get(topic, 0)
            lot.size = rows.byte_count + len(topic)
            fields = values_of(rows) if not rows.columns else row_fields(rows)
            counts = lot.counts if len(lot.counts) > 1 else None
            publishes.append((topic, sequence, fields, lot.auto_create, lot.timeout, counts))
        try:
            control = encode((self._producer, publishes))
        except (TypeError, ValueError, OverflowError):  # the name of a topic may be no text at all
            control = b""
        if not control or len(control) + CONTROL_BYTES > self.link.frame_bytes_max:
            for lot in lots:
                self._send_or_fail(lot)
            return
        for lot in lots:
            count = lot.rows.row_count
            sequences[lot.topic] = lot.sequence + count
            lot.was_sent += 1
            self._is_under_way(lot, lot.size, count)
        id = self.link.send_together(Op.PUBLISH_ROWS, control, lots)
        for lot in lots:
            lot.id = id
            id += 1

    def _send(self, lot: OutgoingBatch) -> None:
        lot.sequence = self._sequences.get(lot.topic, 0)
        batch = lot.batch = self._sealed(lot)
        size = batch.byte_length + len(lot.topic.encode(errors="replace"))
        self._check_size(lot.topic, batch, size)
        if lot.is_ours and lot.qos:
            self._sequences[lot.topic] = lot.sequence + batch.row_count
        self._is_under_way(lot, size, batch.row_count)
        self._transmit(lot)

    def _sealed(self, lot: OutgoingBatch) -> RecordBatch:
        rows = lot.rows
        if isinstance(rows, BatchBuilder):
            if lot.qos:
                return rows.seal(producer=self._producer, base_sequence=lot.sequence)
            return rows.seal()
        if lot.qos and not rows.columns & PRODUCER:
            return with_producer(rows, self._producer, lot.sequence)
        lot.is_ours = False
        return rows

    def _is_under_way(self, lot: OutgoingBatch, size: int, count: int) -> None:
        lot.size = size
        self._lots += 1
        lot.number = self._lots
        self._bytes += size
        self._rows += count

    def _check_size(self, topic: str, batch: RecordBatch, size: int) -> None:
        limit = self.link.frame_bytes_max
        if size + HEADER_BYTES + CONTROL_BYTES > limit:
            what = f"a batch of {batch.row_count:,} for {topic!r}"
            raise MessageTooLarge(what, size, limit, "frame_bytes")

    def _transmit(self, lot: OutgoingBatch) -> None:
        assert lot.batch is not None
        lot.batch = self.link.fitted(lot.batch, self._clock.now_ms())  # once: then it has none left
        counts = lot.counts if len(lot.counts) > 1 else None
        control = PublishRequest(lot.topic, lot.qos, lot.auto_create, lot.timeout, counts)
        lot.was_sent += 1
        lot.id = self.link.send(
            Op.PUBLISH, _encoded(control), (lot.batch.header(), lot.batch.body), lot
        )

    def send_again(self) -> None:
        """The session is new: what is not acknowledged goes out once more, in its order."""
        held, self.again = self.again, []
        for lot in sorted(held, key=lambda lot: lot.number):
            if lot.batch is None:  # it was rows
                lot.batch = self._sealed(lot)
            try:
                self._check_size(lot.topic, lot.batch, lot.size)  # this one may take less
            except MessageTooLarge as error:
                lot.fail(error)
            else:
                self._transmit(lot)

    def hold(self, lot: OutgoingBatch) -> None:
        """The broker is about to stop: keep it for the next, as long as its time allows."""
        self.again.append(lot)
        if lot.deadline is None:
            lot.deadline = self.link.deadline()
        if lot.deadline is not None:
            left = lot.deadline - self.link.clock.monotonic()
            self.link.clock.call_later(left, lambda: self._give_up(lot))

    def _give_up(self, lot: OutgoingBatch) -> None:
        if lot in self.again:
            self.again.remove(lot)
            lot.fail(Disconnected(self.link.name, "the broker has stopped"))

    def cancel(self, lot: OutgoingBatch, piece: int | None) -> None:
        if lot in self.again:
            return
        self.link.send_control(Op.CANCEL, CancelPieceRequest(piece), lot.id)

    # --- room

    def is_answered(self, lot: OutgoingBatch) -> None:
        lot.id = 0
        if lot.number:
            lot.number = 0
            self._bytes -= lot.size
            self._rows -= lot.rows.row_count
        if self._room and not self.is_full():
            waiting, self._room = self._room, []
            for future in waiting:
                _settle(future)

    async def wait_room(self, count: int, deadline: float | None) -> None:
        """Wait until `count` rows more may be sent off, or say that they may not."""
        clock = self.link.clock
        while self.is_full(count):
            left = None if deadline is None else deadline - clock.monotonic()
            if not self._blocks or (left is not None and left <= 0):
                raise QueueFull(
                    "the send buffer of this connection",
                    self._bytes_max if self._bytes >= self._bytes_max else ROWS_MAX,
                    "wait for receipts, or connect with on_full='block'"
                    if not self._blocks
                    else "the broker has not acknowledged what was sent before",
                )
            future: asyncio.Future[None] = self.link.loop.create_future()
            self._room.append(future)
            timer = None if left is None else clock.call_later(left, partial(_settle, future))
            try:
                await future
            finally:
                if timer is not None:
                    timer.cancel()

    def fail(self, error: FlintError) -> None:
        """What is held for a new session has none to wait for."""
        held, self.again = self.again, []
        for lot in held:
            lot.fail(again(error))

    def close(self) -> None:
        self.flush()
        held, self.again = self.again, []
        for lot in held:
            lot.fail(Closed("the connection"))


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _encoded(control: PublishRequest) -> bytes:
    try:
        return encode(control)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"this cannot be sent: {error}") from None


def values_of(rows: BatchBuilder) -> Sequence[bytes]:
    return rows.values(0, rows.row_count)


def row_fields(rows: BatchBuilder) -> list[bytes | tuple[Any, ...]]:
    """The rows as PUBLISH_ROWS has them."""
    fields: list[bytes | tuple[Any, ...]] = []
    has_more = rows.columns & ~CONTENT_TYPES
    for row, value in enumerate(values_of(rows)):
        content_type = rows.content_type(row)
        if has_more:
            fields.append(
                (
                    value,
                    content_type,
                    rows.key(row),
                    rows.headers(row) or None,
                    rows.priority(row),
                    rows.expiry(row),
                    rows.deliver_at(row),
                )
            )
        else:
            fields.append(value if content_type is None else (value, content_type))
    return fields


def with_producer(batch: RecordBatch, producer: str, sequence: int) -> RecordBatch:
    """The same rows with a producer and a sequence; the payload stays as it is."""
    column = producer_column(producer)
    at = batch.control_length
    return RecordBatch(
        columns=batch.columns | PRODUCER,
        row_count=batch.row_count,
        body=b"".join((batch.body[:at], column, batch.body[at:])),
        control_length=at + len(column),
        payload_length=batch.payload_length,
        raw_length=batch.raw_length,
        compression=batch.compression,
        base_sequence=sequence,
    )
