"""A record batch as Arrow arrays, over the batch's own memory.

Needs the `arrow` extra; pyarrow is imported when first used. Nothing is copied that the batch
holds as a column: offsets and data of values, keys, headers and content types, times, expiries
(but for durations) and priorities are the body itself (of a compressed batch, the payload it was
opened into). What the batch does not hold as a column (offsets, one time for all, which rows have
no key) is made here. The arrays keep the memory alive.

Every batch has every column, so that the tables of a topic always fit together:

    offset        int64                      null for a batch that no broker has stamped
    value         binary
    key           binary                     null where there is none; text is UTF-8
    headers       map<string, binary>        empty where there are none; text is UTF-8
    priority      uint8
    expires_at    timestamp[ms, UTC]         null for never; a ttl of the topic is not counted
    deliver_at    timestamp[ms, UTC]         null for at once; a ttl or delay that counts from an
                                             append that has not been is null as well
    content_type  dictionary<int32, string>  null where there is none
    timestamp     timestamp[ms, UTC]         when the broker took it in
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .batch import (
    CONTENT_TYPES,
    DELIVER_AT,
    EXPIRY,
    HEADERS,
    KEYS,
    PRIORITY,
    RELATIVE,
    TIMES,
    UNSTAMPED,
    BatchBuilder,
    RecordBatch,
    RowSource,
)
from .batch.arrow_checksums import pyarrow_modules
from .batch.columns import BinaryColumn
from .batch.format import ABSENT, TEXT, Buffer
from .errors import Corrupt

if TYPE_CHECKING:
    import pyarrow


def to_arrow(batch: RecordBatch) -> pyarrow.RecordBatch:
    """The rows of a batch as Arrow columns. Raises Corrupt where they do not hold together."""
    pa, _ = pyarrow_modules()
    try:
        view = ColumnView(batch)
        columns = [
            view.offsets(),
            view.values(),
            view.keys(),
            view.headers(),
            view.priorities(),
            view.control_times(EXPIRY),
            view.control_times(DELIVER_AT),
            view.content_types(),
            view.times(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema())
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise Corrupt(f"the columns of a record batch do not hold together: {error}") from error


def table_of(
    runs: Sequence[tuple[RowSource, int, int, Sequence[int] | None]],
) -> pyarrow.Table:
    """Ranges of rows, or the picked ones of them, as one table."""
    pa, _ = pyarrow_modules()
    parts = []
    for source, start, stop, picks in runs:
        if isinstance(source, BatchBuilder):
            # still open, or kept as single objects: laid out for the occasion
            part = to_arrow(source.seal())
        else:
            assert isinstance(source, RecordBatch)
            part = to_arrow(source)
        parts.append(part.slice(start, stop - start) if picks is None else part.take(list(picks)))
    return pa.Table.from_batches(parts, schema=arrow_schema())


@lru_cache(maxsize=1)
def arrow_schema() -> pyarrow.Schema:
    """The columns that `to_arrow` gives, the same for every batch."""
    pa, _ = pyarrow_modules()
    time = pa.timestamp("ms", tz="UTC")
    return pa.schema(
        [
            ("offset", pa.int64()),
            ("value", pa.binary()),
            ("key", pa.binary()),
            ("headers", pa.map_(pa.string(), pa.binary())),
            ("priority", pa.uint8()),
            ("expires_at", time),
            ("deliver_at", time),
            ("content_type", pa.dictionary(pa.int32(), pa.string())),
            ("timestamp", time),
        ]
    )


class ColumnView:
    """Arrow arrays over the memory of one batch.

    A batch may come from anywhere, and its checksum proves only that it arrived as it was sent.
    Arrow reads where offsets point without looking twice, so whatever holds offsets or indices is
    validated in full before anything else touches it.
    """

    def __init__(self, batch: RecordBatch) -> None:
        self._pa, self._compute = pyarrow_modules()
        raw, layout = batch.payload()
        self._batch, self._layout = batch, layout
        self._rows = batch.row_count
        self._payload = self._aligned(raw)
        self._body = self._payload if raw is batch.body else self._aligned(batch.body)

    def _aligned(self, memory: Buffer) -> Any:
        """`memory` as an Arrow buffer. Arrow wants multiples of 8; what is off is copied once."""
        buffer = self._pa.py_buffer(memory)
        if buffer.address % 8:
            buffer = self._pa.py_buffer(bytes(memory))
        return buffer

    # --- columns

    def offsets(self) -> Any:
        base = self._batch.base_offset
        if base == UNSTAMPED:
            return self._pa.nulls(self._rows, self._pa.int64())
        return self._made(self._pa.int64(), array("q", range(base, base + self._rows)))

    def values(self) -> Any:
        return self._binary(self._pa.binary(), self._layout.values, self._rows)

    def keys(self) -> Any:
        layout, rows = self._layout, self._rows
        if not self._batch.columns & KEYS:
            return self._pa.nulls(rows, self._pa.binary())
        valid = None
        if layout.key_kinds >= 0:
            valid = self._bitmap(self._kinds(layout.key_kinds, rows), ABSENT)
        return self._binary(self._pa.binary(), layout.keys, rows, valid)

    def headers(self) -> Any:
        pa, layout, rows = self._pa, self._layout, self._rows
        if self._batch.columns & HEADERS:
            entries = layout.header_count
            starts = self._fixed(pa.int32(), self._payload, layout.header_rows, rows + 1)
            names = self._binary(pa.string(), layout.header_names, entries)
            values = self._binary(pa.binary(), layout.header_values, entries)
            if layout.header_kinds >= 0:
                kinds = self._kinds(layout.header_kinds, entries)
                if entries and self._compute.min(kinds).as_py() == ABSENT:
                    raise Corrupt("a header in a record batch has a name and no value")
        else:
            starts = self._made(pa.int32(), bytes(4 * (rows + 1)))
            names, values = pa.array([], pa.string()), pa.array([], pa.binary())
        headers = pa.MapArray.from_arrays(starts, names, values)
        headers.validate(full=True)
        return headers

    def priorities(self) -> Any:
        kind = self._pa.uint8()
        if not self._batch.columns & PRIORITY:
            return self._made(kind, bytes(self._rows))
        return self._fixed(kind, self._body, 0, self._rows)

    def control_times(self, column: int) -> Any:
        pa, rows = self._pa, self._rows
        time = pa.timestamp("ms", tz="UTC")
        if not self._batch.columns & column:
            return pa.nulls(rows, time)
        at = self._batch.control_offset(column)
        entries = self._fixed(pa.int64(), self._body, at, rows)
        if self._batch.columns & RELATIVE:
            return self._counted(entries).cast(time)
        return self._fixed(time, self._body, at, rows, self._bitmap(entries, 0))

    def _counted(self, entries: Any) -> Any:
        """Times in place of durations, which count from the append; null while there was none."""
        pa, compute = self._pa, self._compute
        append_time = self._batch.append_time or None
        later = compute.subtract(pa.scalar(append_time, pa.int64()), entries)
        never = pa.scalar(None, pa.int64())
        times = compute.if_else(compute.less(entries, 0), later, entries)
        return compute.if_else(compute.equal(entries, 0), never, times)

    def content_types(self) -> Any:
        pa, layout, rows = self._pa, self._layout, self._rows
        if not self._batch.columns & CONTENT_TYPES:
            return pa.nulls(rows, pa.dictionary(pa.int32(), pa.string()))
        names = self._binary(pa.string(), layout.types, layout.type_count)
        if layout.type_rows < 0:
            entries = self._made(pa.int32(), bytes(4 * rows))
        else:
            entries = self._fixed(pa.int32(), self._payload, layout.type_rows, rows)
            valid = self._bitmap(entries, 0)
            entries = self._fixed(pa.int32(), self._payload, layout.type_rows, rows, valid)
        types = pa.DictionaryArray.from_arrays(entries, names)
        types.validate(full=True)
        return types

    def times(self) -> Any:
        time = self._pa.timestamp("ms", tz="UTC")
        if not self._batch.columns & TIMES:
            return self._made(time, array("q", [self._batch.append_time]) * self._rows)
        return self._fixed(time, self._payload, self._layout.times, self._rows)

    # --- arrays over memory

    def _binary(self, kind: Any, column: BinaryColumn, items: int, valid: Any = None) -> Any:
        found = self._pa.Array.from_buffers(
            kind,
            items,
            [
                valid,
                self._payload.slice(column.offsets, 4 * (items + 1)),
                self._payload.slice(column.data, column.size),
            ],
        )
        found.validate(full=True)
        return found

    def _fixed(self, kind: Any, memory: Any, at: int, items: int, valid: Any = None) -> Any:
        data = memory.slice(at, items * kind.bit_width // 8)
        return self._pa.Array.from_buffers(kind, items, [valid, data])

    def _made(self, kind: Any, data: bytes | array[int]) -> Any:
        buffer = self._pa.py_buffer(data)
        return self._pa.Array.from_buffers(kind, 8 * buffer.size // kind.bit_width, [None, buffer])

    def _kinds(self, at: int, items: int) -> Any:
        kinds = self._fixed(self._pa.uint8(), self._payload, at, items)
        if items and self._compute.max(kinds).as_py() > TEXT:
            raise Corrupt(f"an item of a record batch is of a kind beyond {TEXT}")
        return kinds

    def _bitmap(self, items: Any, absent: int) -> Any:
        """A bit for each item that is there: what Arrow calls validity."""
        return self._compute.not_equal(items, self._pa.scalar(absent, items.type)).buffers()[1]
