"""Columns of byte strings: finding them in a payload, taking them apart, laying them out."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct

from ..errors import Corrupt, MessageTooLarge
from .format import (
    ABSENT,
    BYTES,
    COLUMN_BYTES_MAX,
    CONTENT_TYPES,
    HEADER_KINDS,
    HEADERS,
    I32,
    I32_PAIR,
    KEY_KINDS,
    KEYS,
    TEXT,
    TIMES,
    TYPES_VARY,
    Buffer,
    HeaderValue,
    pad,
    padded,
)


class BinaryColumn:
    """Where a column of byte strings lies: its offsets, its data, and how long the data is.

    The first offset is 0 and the last is `size`. Those between are checked when they are used.
    """

    __slots__ = ("data", "offsets", "size")

    def __init__(self, offsets: int, data: int, size: int) -> None:
        self.offsets, self.data, self.size = offsets, data, size


class Layout:
    """Where the columns of one payload lie."""

    __slots__ = (
        "header_count",
        "header_kinds",
        "header_names",
        "header_rows",
        "header_values",
        "key_kinds",
        "keys",
        "times",
        "type_count",
        "type_rows",
        "types",
        "values",
    )

    def __init__(self, values: BinaryColumn) -> None:
        self.values = values
        self.keys = self.header_names = self.header_values = self.types = values
        self.key_kinds = self.header_rows = self.header_count = self.header_kinds = -1
        self.type_count = self.type_rows = self.times = -1


def walk(raw: Buffer, base: int, length: int, rows: int, columns: int) -> Layout:
    """Find every column of a payload, and check that together they fill it exactly."""
    walker = _Walker(raw, base, base + length)
    layout = Layout(walker.binary(rows))
    if columns & KEYS:
        layout.keys = walker.binary(rows)
        if columns & KEY_KINDS:
            layout.key_kinds = walker.fixed(rows)
    if columns & HEADERS:
        layout.header_rows = walker.fixed(4 * (rows + 1))
        entries = layout.header_count = walker.i32(layout.header_rows + 4 * rows)
        layout.header_names = walker.binary(entries)
        layout.header_values = walker.binary(entries)
        if columns & HEADER_KINDS:
            layout.header_kinds = walker.fixed(entries)
    if columns & CONTENT_TYPES:
        layout.type_count = walker.i32(walker.fixed(8))
        layout.types = walker.binary(layout.type_count)
        if columns & TYPES_VARY:
            layout.type_rows = walker.fixed(4 * rows)
            if layout.type_count == 0 or walker.i32(layout.types.offsets + 4):
                raise Corrupt("the content types of a record batch do not begin with none")
        elif layout.type_count != 1:
            raise Corrupt(f"one content type for all rows, and {layout.type_count:,} are there")
    if columns & TIMES:
        layout.times = walker.fixed(8 * rows)
    if walker.position != base + length:
        raise Corrupt(f"a payload of {length:,} bytes holds columns of {walker.position - base:,}")
    return layout


class _Walker:
    def __init__(self, raw: Buffer, position: int, end: int) -> None:
        self.raw, self.position, self.end = raw, position, end

    def fixed(self, size: int) -> int:
        """Step over `size` bytes and their padding; where they began."""
        at = self.position
        if size < 0 or at + padded(size) > self.end:
            raise Corrupt("a column of a record batch reaches beyond its payload")
        self.position = at + padded(size)
        return at

    def i32(self, at: int) -> int:
        value = int(I32.unpack_from(self.raw, at)[0])
        if value < 0:
            raise Corrupt("a record batch holds a negative length")
        return value

    def binary(self, items: int) -> BinaryColumn:
        # As `fixed` and `i32` have it: a message has half a dozen of these, so all is said here.
        raw, offsets = self.raw, self.position
        data = offsets + ((4 * (items + 1) + 7) & ~7)
        if data > self.end:
            raise Corrupt("a column of a record batch reaches beyond its payload")
        (first,) = I32.unpack_from(raw, offsets)
        (size,) = I32.unpack_from(raw, offsets + 4 * items)
        if first:
            raise Corrupt("the offsets of a column of a record batch do not begin with 0")
        if size < 0:
            raise Corrupt("a record batch holds a negative length")
        end = data + ((size + 7) & ~7)
        if end > self.end:
            raise Corrupt("a column of a record batch reaches beyond its payload")
        self.position = end
        return BinaryColumn(offsets, data, size)


WIDTH_UNKNOWN, WIDTH_VARIES = -1, -2


def common_width(raw: Buffer, column: BinaryColumn, rows: int) -> int:
    """The length that all values share, or WIDTH_VARIES. One comparison of bytes, no loop."""
    (width,) = I32.unpack_from(raw, column.offsets + 4)
    if width * rows != column.size or rows > EQUAL_ROWS_MAX:
        return WIDTH_VARIES
    expected = equal_offsets(rows, width)
    found = bytes(raw[column.offsets : column.offsets + len(expected)])
    return width if found == expected else WIDTH_VARIES


EQUAL_ROWS_MAX = 4096  # what one format string is made for; longer runs take the general way


@lru_cache(maxsize=256)
def equal_offsets(rows: int, width: int) -> bytes:
    offsets = (
        array("i", range(0, rows * width + 1, width)) if width else array("i", [0] * (rows + 1))
    )
    return pad(offsets.tobytes())


@lru_cache(maxsize=64)
def _equal_values(rows: int, width: int) -> Struct:
    return Struct(f"{width}s" * rows)


def unpack_equal(raw: Buffer, data: int, width: int, start: int, stop: int) -> tuple[bytes, ...]:
    return _equal_values(stop - start, width).unpack_from(raw, data + start * width)


def split(raw: Buffer, column: BinaryColumn, start: int, stop: int) -> list[bytes]:
    view = memoryview(raw)[column.offsets + 4 * start : column.offsets + 4 * (stop + 1)]
    offsets = view.cast("i").tolist()
    base, end = offsets[0], offsets[-1]
    # Sorting what is sorted is one pass in C; a loop here would cost more than the slices do.
    if base < 0 or end > column.size or sorted(offsets) != offsets:
        raise out_of_order()
    # One copy of the whole run, then slices of it: cheaper than a copy out of the view for each.
    data = bytes(raw[column.data + base : column.data + end])
    if base:
        return [data[a - base : b - base] for a, b in pairwise(offsets)]
    return [data[a:b] for a, b in pairwise(offsets)]


def item_at(raw: Buffer, column: BinaryColumn, row: int) -> bytes:
    first, last = I32_PAIR.unpack_from(raw, column.offsets + 4 * row)
    if not 0 <= first <= last <= column.size:
        raise out_of_order()
    return bytes(raw[column.data + first : column.data + last])


def span(raw: Buffer, column: BinaryColumn, start: int, stop: int) -> int:
    (first,) = I32.unpack_from(raw, column.offsets + 4 * start)
    (last,) = I32.unpack_from(raw, column.offsets + 4 * stop)
    if not 0 <= first <= last <= column.size:
        raise out_of_order()
    return int(last - first)


def out_of_order() -> Corrupt:
    return Corrupt("the offsets of a column of a record batch are out of order")


def text(item: bytes | memoryview) -> str:
    try:
        return str(item, "utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"text in a record batch is not UTF-8: {error.reason}") from error


def text_or_bytes(raw: Buffer, column: BinaryColumn, kinds: int, row: int) -> str | bytes | None:
    kind = raw[kinds + row] if kinds >= 0 else TEXT
    if kind == ABSENT:
        return None
    item = item_at(raw, column, row)
    if kind == BYTES:
        return item
    if kind != TEXT:
        raise Corrupt(f"an item of a record batch is of kind {kind}; {TEXT} is the last known")
    return text(item)


def binary_parts(items: Sequence[Buffer]) -> list[Buffer]:
    """Offsets, the items themselves, padding: ready to be joined with one copy."""
    lengths = list(map(len, items))
    total = sum(lengths)
    if total > COLUMN_BYTES_MAX:
        raise MessageTooLarge("a column of the batch", total, COLUMN_BYTES_MAX, "the format")
    count = len(items)
    if count and count <= EQUAL_ROWS_MAX and lengths.count(lengths[0]) == count:
        offsets = equal_offsets(count, lengths[0])
    else:
        offsets = pad(array("i", accumulate(lengths, initial=0)).tobytes())
    return [offsets, *items, bytes(-total & 7)]


def text_or_bytes_parts(items: Sequence[str | bytes | None], parts: list[Buffer]) -> bool:
    """Add a column of text or bytes to `parts`; True if it needed kinds."""
    encoded = [item.encode() if isinstance(item, str) else item or b"" for item in items]
    parts.extend(binary_parts(encoded))
    kinds = bytes(
        TEXT if isinstance(item, str) else ABSENT if item is None else BYTES for item in items
    )
    if kinds.count(TEXT) == len(kinds):
        return False
    parts.append(pad(kinds))
    return True


def utf8_length(item: str | bytes) -> int:
    return len(item.encode()) if isinstance(item, str) else len(item)


def headers_length(headers: Mapping[str, HeaderValue]) -> int:
    return sum(utf8_length(name) + utf8_length(value) for name, value in headers.items())
