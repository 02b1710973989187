"""The keys of a range of rows at once, for who goes by keys and not by values."""

from __future__ import annotations

from .columns import common_width, split, unpack_equal
from .format import ABSENT, KEY_KINDS, KEYS, RowSource
from .record_batch import RecordBatch


def keys_of(source: RowSource, start: int, stop: int) -> list[bytes | None]:
    """The key of each row as bytes; None where it has none."""
    if not source.columns & KEYS:
        return [None] * (stop - start)
    if not isinstance(source, RecordBatch):
        return [_as_bytes(source.key(row)) for row in range(start, stop)]
    raw, layout = source.payload()
    width = common_width(raw, layout.keys, source.row_count)
    found: list[bytes | None] = list(
        split(raw, layout.keys, start, stop)
        if width <= 0
        else unpack_equal(raw, layout.keys.data, width, start, stop)
    )
    if layout.key_kinds >= 0:
        kinds = bytes(raw[layout.key_kinds + start : layout.key_kinds + stop])
        if ABSENT in kinds:
            pairs = zip(found, kinds, strict=True)
            found = [None if kind == ABSENT else key for key, kind in pairs]
    return found


def all_have_keys(source: RowSource) -> bool:
    """Whether every row of a batch is known to have a key."""
    if not isinstance(source, RecordBatch):
        return False
    return source.columns & (KEYS | KEY_KINDS) == KEYS


def empty_rows(source: RowSource, start: int, stop: int) -> list[int]:
    """The rows whose value is empty."""
    if not isinstance(source, RecordBatch):
        return [row for row in range(start, stop) if source.value(row) == b""]
    raw, layout = source.payload()
    column = layout.values
    if common_width(raw, column, source.row_count) > 0:
        return []
    view = memoryview(raw)[column.offsets + 4 * start : column.offsets + 4 * (stop + 1)]
    ends = view.cast("i").tolist()
    if len(set(ends)) == len(ends):
        return []  # as mostly: no two of them end at the same place
    return [start + row for row in range(stop - start) if ends[row] == ends[row + 1]]


def _as_bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
