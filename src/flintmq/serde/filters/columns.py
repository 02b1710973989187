"""Columns of a finished batch, read at once for many rows: a tenth of the cost of one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...batch import (
    CONTENT_TYPES,
    HEADERS,
    KEYS,
    PRIORITY,
    TIMES,
    Key,
    RecordBatch,
)
from ...batch.columns import Layout, split, text
from ...batch.format import BYTES, TEXT, Buffer
from ...errors import Corrupt

_ROWS_AT_ONCE_MIN = 8


def range_at_once(rows: Sequence[int]) -> range | None:
    """The rows from the first to the last of `rows`, unless it is better to read one by one."""
    if len(rows) < _ROWS_AT_ONCE_MIN:
        return None
    between = range(min(rows), max(rows) + 1)
    return between if len(between) <= 4 * len(rows) else None


def keys_at_once(source: RecordBatch, rows: Sequence[int]) -> Callable[[int], Key | None]:
    between = range_at_once(rows)
    if between is None:
        return source.key
    raw, layout = source.payload()
    if layout.key_kinds >= 0:
        return source.key  # bytes, or no key here and there
    keys = split(raw, layout.keys, between.start, between.stop)
    return dict(zip(between, map(text, keys), strict=True)).__getitem__


def header_ends(raw: Buffer, layout: Layout, rows: range) -> list[int]:
    """Where the headers of the first row begin, and where those of each row end."""
    at = layout.header_rows + 4 * rows.start
    ends = memoryview(raw)[at : at + 4 * (len(rows) + 1)].cast("i").tolist()
    if sorted(ends) != ends or ends[0] < 0 or ends[-1] > layout.header_count:
        raise Corrupt("the rows of the headers of a record batch are out of order")
    return ends


def header_at_once(
    source: RecordBatch, name: str, rows: Sequence[int]
) -> Callable[[int, object], object]:
    """One header of many rows: a function of a row and of what to give where it is missing."""
    between = range_at_once(rows)
    if between is None:
        return lambda row, missing: source.headers(row).get(name, missing)
    raw, layout = source.payload()
    ends = header_ends(raw, layout, between)
    first, last = ends[0], ends[-1]
    found: dict[int, object] = {}
    names = split(raw, layout.header_names, first, last)
    wanted = name.encode(errors="surrogatepass")
    if wanted not in names:
        return found.get
    values = split(raw, layout.header_values, first, last)
    kinds = layout.header_kinds
    entry = 0
    for row, end in zip(between, ends[1:], strict=True):
        while entry < end - first:
            if names[entry] == wanted:
                kind = TEXT if kinds < 0 else raw[kinds + first + entry]
                if kind != TEXT and kind != BYTES:
                    raise Corrupt("a header in a record batch has a name and no value")
                found[row] = text(values[entry]) if kind == TEXT else values[entry]
            entry += 1
    return found.get


COLUMN_OF = {
    "priority": PRIORITY,
    "key": KEYS,
    "headers": HEADERS,
    "content_type": CONTENT_TYPES,
    "timestamp": TIMES,
}
WITHOUT_COLUMN: dict[str, Any] = {"priority": 0, "key": None, "headers": {}, "content_type": None}
"""What every row of a batch has that lacks the column. Without TIMES it is one time for all."""
AT_ONCE = PRIORITY | KEYS | HEADERS

# Two more facts about a source, beside the columns it lacks.
SEALED = 1 << 40  # its columns lie in a row each, and can be read at once
UNSTORED = 1 << 41  # its rows have no offsets
