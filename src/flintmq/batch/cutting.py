"""Part of a batch as a batch of its own, cut column by column: no row is ever put together."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import sub

from ..errors import Corrupt, InvalidRequest
from .builder import BatchBuilder
from .columns import (
    EQUAL_ROWS_MAX,
    BinaryColumn,
    Layout,
    binary_parts,
    equal_offsets,
    out_of_order,
)
from .compression import compress_payload
from .format import (
    COMPRESSION_NAMES,
    CONTENT_TYPES,
    DELIVER_AT,
    EXPIRY,
    HEADERS,
    I32,
    KEY_HASH,
    KEYS,
    PRIORITY,
    PRODUCER,
    RELATIVE,
    TIMES,
    TYPES_VARY,
    UNSTAMPED,
    Buffer,
    RowSource,
    control_size,
    control_width,
    padded,
)
from .record_batch import RecordBatch

_FEW = 8
_SPARSE = 256
"""So few rows, or so far from one another, are looked at one by one."""


def slice_batch(batch: RecordBatch, start: int, stop: int) -> RecordBatch:
    """A batch of the rows `start` to `stop`, with the offsets and sequences they have here.

    When they expire and are due stays the same.
    """
    if not 0 <= start < stop <= batch.row_count:
        raise InvalidRequest(f"slice {start}:{stop} of a batch of {batch.row_count} rows")
    if stop - start == batch.row_count:
        return batch
    return _cut(batch, start, stop, _Slice(start, stop))


def thin_batch(source: RowSource, rows: Sequence[int]) -> RecordBatch:
    """A batch from the first of these rows to the last, ascending, with the offsets they have here.
    Rows between them have nothing in them: they are only there so that the others have their place.
    """
    if isinstance(source, RecordBatch):
        return _cut(source, rows[0], rows[-1] + 1, _Thinning(rows))
    base = source.base_offset
    builder = BatchBuilder(UNSTAMPED if base == UNSTAMPED else base + rows[0])
    following = rows[0]
    for row in rows:
        for between in range(following, row):
            builder.append_at(b"", source.time(between))
        builder.extend(source, row, row + 1)
        following = row + 1
    return builder.seal()


def size_of_rows(source: RowSource, rows: Sequence[int]) -> int:
    """The bytes that some rows count for; as `source.size` has it for a range."""
    if not isinstance(source, RecordBatch) or source.compression or len(rows) < _FEW:
        return sum([source.size(row, row + 1) for row in rows])
    first, behind = min(rows), max(rows) + 1
    if behind - first > _SPARSE * len(rows):
        return sum([source.size(row, row + 1) for row in rows])
    raw, layout = source.payload()
    stops: Sequence[int] = [row + 1 for row in rows]
    size = _size_between(raw, layout.values, rows, stops)
    if source.columns & KEYS:
        size += _size_between(raw, layout.keys, rows, stops)
    if source.columns & HEADERS:
        ends = _header_ends(raw, layout, first, behind)
        starts = [ends[row - first] for row in rows]
        stops = [ends[stop - first] for stop in stops]
        size += _size_between(raw, layout.header_names, starts, stops)
        size += _size_between(raw, layout.header_values, starts, stops)
    return size


def _size_between(
    raw: Buffer, column: BinaryColumn, starts: Sequence[int], stops: Sequence[int]
) -> int:
    low, high = min(starts), max(stops)
    _, _, width = _span(raw, column, low, high)
    if width >= 0:
        return width * (sum(stops) - sum(starts))
    ends = _i32s(raw, column.offsets, low, high)
    return sum([ends[stop - low] for stop in stops]) - sum([ends[start - low] for start in starts])


def _cut(batch: RecordBatch, start: int, stop: int, cut: _Slice | _Thinning) -> RecordBatch:
    columns = batch.columns
    control: list[Buffer] = []
    for column in (PRIORITY, EXPIRY, DELIVER_AT, KEY_HASH):
        if columns & column:
            width = control_width(column)
            part = bytes(batch.control_column(column)[width * start : width * stop])
            if column == KEY_HASH or part.strip(b"\0"):
                _add(control, part)
            else:
                columns &= ~column  # none of these rows uses it
    if not columns & (EXPIRY | DELIVER_AT):
        columns &= ~RELATIVE
    if columns & PRODUCER:
        at = control_size(batch.columns, batch.row_count)
        control.append(batch.body[at : batch.control_length])
    payload, times = _payload(batch, start, stop, cut)
    append_time = batch.append_time
    if times:
        (append_time,) = memoryview(times[:8]).cast("q")
        if times == times[:8] * (stop - start):
            columns &= ~TIMES
        else:
            payload.append(times)
    control_length = sum(map(len, control))
    if not batch.compression:
        body = b"".join((*control, *payload))
        raw_length = payload_length = len(body) - control_length
    else:
        raw = b"".join(payload)
        stored = compress_payload(COMPRESSION_NAMES[batch.compression], raw)
        raw_length, payload_length = len(raw), len(stored)
        body = b"".join((*control, stored, bytes(-payload_length & 7)))
    base = batch.base_offset
    return RecordBatch(
        columns=columns,
        row_count=stop - start,
        body=body,
        control_length=control_length,
        payload_length=payload_length,
        raw_length=raw_length,
        compression=batch.compression,
        base_sequence=(batch.base_sequence + start) % 2**64,
        base_offset=base if base == UNSTAMPED else base + start,
        append_time=append_time,
    )


def _payload(
    batch: RecordBatch, start: int, stop: int, cut: _Slice | _Thinning
) -> tuple[list[Buffer], bytes]:
    """The columns of the payload but the times, and these, if each row has one."""
    raw, layout = batch.payload()
    columns = batch.columns
    parts: list[Buffer] = []
    cut.binary(raw, layout.values, parts)
    if columns & KEYS:
        cut.binary(raw, layout.keys, parts)
        if layout.key_kinds >= 0:
            _add(parts, raw[layout.key_kinds + start : layout.key_kinds + stop])
    if columns & HEADERS:
        entries = cut.entries(_header_ends(raw, layout, start, stop), parts)
        entries.binary(raw, layout.header_names, parts)
        entries.binary(raw, layout.header_values, parts)
        if layout.header_kinds >= 0:
            _add(parts, entries.kinds(raw, layout.header_kinds))
    if columns & CONTENT_TYPES:
        types = layout.types
        size = 8 + padded(4 * (layout.type_count + 1)) + padded(types.size)
        parts.append(raw[types.offsets - 8 : types.offsets - 8 + size])
        if columns & TYPES_VARY:
            _add(parts, raw[layout.type_rows + 4 * start : layout.type_rows + 4 * stop])
    if not columns & TIMES:
        return parts, b""
    return parts, bytes(raw[layout.times + 8 * start : layout.times + 8 * stop])


class _Slice:
    """Takes the items of a column from `start` to `stop`."""

    __slots__ = ("_start", "_stop")

    def __init__(self, start: int, stop: int) -> None:
        self._start, self._stop = start, stop

    def binary(self, raw: Buffer, column: BinaryColumn, parts: list[Buffer]) -> None:
        start, stop = self._start, self._stop
        first, last, width = _span(raw, column, start, stop)
        if width >= 0:
            parts.append(equal_offsets(stop - start, width))
        else:
            _add(parts, _counted_from(_i32s(raw, column.offsets, start, stop), first))
        _add(parts, raw[column.data + first : column.data + last])

    def entries(self, ends: list[int], parts: list[Buffer]) -> _Slice:
        """The entries of these rows, of which there are `ends` before each; adds their column."""
        _add(parts, _counted_from(ends, ends[0]))
        return _Slice(ends[0], ends[-1])

    def kinds(self, raw: Buffer, at: int) -> Buffer:
        return raw[at + self._start : at + self._stop]


class _Thinning:
    """Takes some items of a column; between them, others are there with nothing in them."""

    __slots__ = ("_places", "_rows")

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows = rows
        # How many offsets in a row are the same: those of the empty ones, and of the one behind.
        self._places = [1, *map(sub, rows[1:], rows), 1]

    def binary(self, raw: Buffer, column: BinaryColumn, parts: list[Buffer]) -> None:
        items = _items(raw, column, self._rows)
        self._spread(list(map(len, items)), parts)
        parts += items
        parts.append(bytes(-sum(map(len, items)) & 7))

    def _spread(self, lengths: list[int], parts: list[Buffer]) -> None:
        ends = accumulate(lengths, initial=0)
        offsets = array("i", chain.from_iterable(map(repeat, ends, self._places)))
        _add(parts, offsets.tobytes())

    def entries(self, ends: list[int], parts: list[Buffer]) -> _Few:
        base = self._rows[0]
        starts = [ends[row - base] for row in self._rows]
        stops = [ends[row - base + 1] for row in self._rows]
        self._spread(list(map(sub, stops, starts)), parts)
        return _Few(list(chain.from_iterable(map(range, starts, stops))))


class _Few:
    """Takes some items of a column, and leaves no room between them."""

    __slots__ = ("_items",)

    def __init__(self, items: list[int]) -> None:
        self._items = items

    def binary(self, raw: Buffer, column: BinaryColumn, parts: list[Buffer]) -> None:
        parts += binary_parts(_items(raw, column, self._items))

    def kinds(self, raw: Buffer, at: int) -> Buffer:
        return bytes([raw[at + item] for item in self._items])


def _items(raw: Buffer, column: BinaryColumn, items: Sequence[int]) -> list[Buffer]:
    if not items:
        return []
    start, data = items[0], column.data
    first, _, width = _span(raw, column, start, items[-1] + 1)
    if width >= 0:
        data += first - start * width
        places = [data + item * width for item in items]
        return [raw[place : place + width] for place in places]
    ends = [data + end for end in _i32s(raw, column.offsets, start, items[-1] + 1)]
    return [raw[ends[item - start] : ends[item - start + 1]] for item in items]


def _span(raw: Buffer, column: BinaryColumn, start: int, stop: int) -> tuple[int, int, int]:
    """Where the data of a range of items begins and ends, and the length they share, or -1; checks
    that none reaches into another."""
    at, count = column.offsets + 4 * start, stop - start
    (first,) = I32.unpack_from(raw, at)
    (last,) = I32.unpack_from(raw, at + 4 * count)
    if not 0 <= first <= last <= column.size:
        raise out_of_order()
    if 0 < count <= EQUAL_ROWS_MAX:
        width, rest = divmod(last - first, count)
        if not rest:
            found = int.from_bytes(raw[at : at + 4 * (count + 1)], "little")
            if found == first * _ones(count + 1) + _equal(count, width):
                return first, last, width
    offsets = _i32s(raw, column.offsets, start, stop)
    if sorted(offsets) != offsets:
        raise out_of_order()
    return first, last, -1


def _i32s(raw: Buffer, at: int, start: int, stop: int) -> list[int]:
    """The offsets of a range of items, and that behind the last."""
    return memoryview(raw)[at + 4 * start : at + 4 * (stop + 1)].cast("i").tolist()


def _counted_from(offsets: list[int], first: int) -> bytes:
    return array("i", [offset - first for offset in offsets] if first else offsets).tobytes()


def _header_ends(raw: Buffer, layout: Layout, start: int, stop: int) -> list[int]:
    """How many headers there are before each of a range of rows, and behind the last."""
    ends = _i32s(raw, layout.header_rows, start, stop)
    if sorted(ends) != ends or ends[0] < 0 or ends[-1] > layout.header_count:
        raise Corrupt("the rows of the headers of a record batch are out of order")
    return ends


@lru_cache(maxsize=64)
def _ones(count: int) -> int:
    """So many times 1, as 32 bits each."""
    return int.from_bytes(b"\1\0\0\0" * count, "little")


@lru_cache(maxsize=64)
def _equal(count: int, width: int) -> int:
    return int.from_bytes(equal_offsets(count, width), "little")


def _add(parts: list[Buffer], part: Buffer) -> None:
    parts.append(part)
    if len(part) & 7:
        parts.append(bytes(-len(part) & 7))
