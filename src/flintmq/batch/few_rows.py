"""A batch of a few plain values, laid out at once: what is published one by one needs no more."""

from __future__ import annotations

from .columns import binary_parts
from .format import I32_PAIR, PRODUCER
from .record_batch import RecordBatch

_ZEROS = tuple(bytes(count) for count in range(8))


def plain_batch(
    values: list[bytes], producer: str | None = None, column: bytes = b"", sequence: int = 0
) -> RecordBatch:
    """The batch that a builder would seal from the values and the producer, whose column is
    `column`, if there is one."""
    count = len(values)
    if count == 1:
        size = len(values[0])
        body = b"".join((column, I32_PAIR.pack(0, size), values[0], _ZEROS[-size & 7]))
    else:
        size = sum(map(len, values))
        body = b"".join((column, *binary_parts(values)))
    length = len(body) - len(column)
    return RecordBatch(
        columns=0 if producer is None else PRODUCER,
        row_count=count,
        body=body,
        control_length=len(column),
        payload_length=length,
        raw_length=length,
        base_sequence=sequence,
        producer=producer,
        size=size,
    )
