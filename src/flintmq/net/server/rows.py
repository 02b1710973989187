"""Publishes that come as rows: checked, and laid out as the batches that everything else knows."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, TypeGuard, cast

import msgspec

from ...batch import BatchBuilder, RecordBatch
from ...batch.builder import producer_column
from ...batch.few_rows import plain_batch
from ...broker_api import BrokerApi, Placed
from ...errors import InvalidRequest
from ...model import PRIORITY_MAX, SECONDS_MAX, Receipt
from ..wire.faults import undecodable
from ..wire.frames import Frame
from ..wire.operations import PublishRowsRequest, RowFields, RowsRequest

TIME_MAX = 1 << 62
DURATION_MAX = SECONDS_MAX * 1000
PRODUCER_BYTES_MAX = 1024
_SEQUENCES = 1 << 64
_decode = msgspec.msgpack.Decoder(PublishRowsRequest).decode

Begun = Receipt | Placed | Awaitable[Receipt] | None


class RowBatches:
    """Makes batches of the rows of one session, whose producer is nearly always the same."""

    __slots__ = ("_column", "_producer")

    def __init__(self) -> None:
        self._producer, self._column = "", b""

    def publishes(self, frame: Frame) -> list[RowsRequest]:
        """The publishes of a frame; what is wrong with it as a whole is raised."""
        try:
            wanted = _decode(frame.control)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise undecodable(PublishRowsRequest, error) from None
        if not wanted.publishes:
            raise InvalidRequest("there is no publish in the frame")
        if wanted.producer != self._producer:
            column = producer_column(wanted.producer)
            if not wanted.producer or len(column) > PRODUCER_BYTES_MAX + 8:
                raise InvalidRequest(f"a producer must have 1 to {PRODUCER_BYTES_MAX:,} bytes")
            self._producer, self._column = wanted.producer, column
        return wanted.publishes

    def begin(self, broker: BrokerApi, wanted: RowsRequest) -> Begun:
        """Publish the quick way what is nothing but values of one type; None where it has to be
        looked at as a batch."""
        rows, sequence = wanted.rows, wanted.sequence
        if not rows or not 0 <= sequence < _SEQUENCES - len(rows):
            return None  # it is looked at closely
        first = rows[0]
        content_type = None
        if type(first) is bytes:
            for row in rows:
                if type(row) is not bytes:
                    return None
            values = cast(list[bytes], rows)
        else:
            assert isinstance(first, RowFields)
            content_type = first.content_type or None
            values = []
            for row in rows:
                if not _is_typed_value(row, content_type):
                    return None
                values.append(row.value)
        return broker.publish_rows_nowait(
            wanted.topic, values, content_type, self._producer, sequence
        )

    def batch(self, wanted: RowsRequest) -> RecordBatch:
        rows, sequence = wanted.rows, wanted.sequence
        _check_sequences(rows, sequence)
        for row in rows:
            if type(row) is not bytes:
                break
        else:
            return plain_batch(cast(list[bytes], rows), self._producer, self._column, sequence)
        builder = BatchBuilder()
        for row in rows:
            if isinstance(row, bytes):
                builder.append(row)
            else:
                _append(builder, row)
        return builder.seal(producer=self._producer, base_sequence=sequence)


def _check_sequences(rows: list[bytes | RowFields], sequence: int) -> None:
    if not rows:
        raise InvalidRequest("a publish needs at least one row")
    if not 0 <= sequence <= _SEQUENCES - len(rows):
        raise InvalidRequest(f"a sequence must be from 0 to 2**64 - 1, not {sequence}")


def _is_typed_value(row: bytes | RowFields, content_type: str | None) -> TypeGuard[RowFields]:
    return isinstance(row, RowFields) and (
        row.content_type == content_type
        and row.key is None
        and not row.headers
        and not (row.priority or row.expiry or row.deliver_at)
    )


def _append(builder: BatchBuilder, row: RowFields) -> None:
    if not 0 <= row.priority <= PRIORITY_MAX:
        raise InvalidRequest(f"priority must be 0 to {PRIORITY_MAX} (7 is delivered first)")
    _check_text_or_bytes("a key", (row.key,) if row.key is not None else ())
    _check_text_or_bytes("the value of a header", row.headers.values() if row.headers else ())
    check_time(min(row.expiry, row.deliver_at), max(row.expiry, row.deliver_at), -DURATION_MAX)
    if _is_typed_value(row, row.content_type):
        builder.append_typed(row.value, row.content_type)
        return
    builder.append_row(
        row.value,
        key=row.key,
        headers=row.headers,
        priority=row.priority,
        expiry=row.expiry,
        deliver_at=row.deliver_at,
        content_type=row.content_type,
    )


def _check_text_or_bytes(what: str, items: Iterable[Any]) -> None:
    for item in items:
        if type(item) is not str and type(item) is not bytes:
            raise InvalidRequest(f"{what} must be a str or bytes, not {type(item).__name__}")


def check_time(first: int, last: int, lowest: int) -> None:
    """Times, and durations below 0, of a producer."""
    if first < lowest or last > TIME_MAX:
        raise InvalidRequest(
            f"a time must be milliseconds since 1970, a duration at most {SECONDS_MAX:,} seconds"
        )
