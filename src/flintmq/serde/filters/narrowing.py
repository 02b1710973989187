"""Which rows of a finished batch a filter has to look at: the others are told apart by a column.

A comparison of a key, a header or the priority with a constant that every row has to fulfil is held
against the bytes of the column, all rows at once. Where the whole filter is that comparison, its
rows are the answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any

from ...batch import PRIORITY, RecordBatch
from ...batch.columns import BinaryColumn, Layout, item_at, split
from ...batch.format import TEXT, Buffer
from .columns import header_ends, range_at_once
from .grammar import BoolNode, CompareNode, ConstNode, FieldNode, NameNode, Node
from .meaning import COMPARED, NUMBERS

Find = Callable[[RecordBatch, range], list[int]]
"""Those rows of a range for which a comparison is true."""


class ColumnNarrowing:
    """Made for one filter over finished batches that have the columns it names."""

    __slots__ = ("_finds", "_is_all")

    def __init__(self, root: Node) -> None:
        parts = root.parts if isinstance(root, BoolNode) and root.is_and else (root,)
        finds = map(_find_for, parts)
        self._finds = [find for find in finds if find is not None]
        self._is_all = len(self._finds) == len(parts)

    def __bool__(self) -> bool:
        return bool(self._finds)

    def of(self, batch: RecordBatch, rows: Sequence[int]) -> tuple[Sequence[int], bool]:
        """Those of the rows that may pass, in their order; and whether these do."""
        for find in self._finds:
            between = range_at_once(rows)
            if between is None:
                return rows, not rows
            found = find(batch, between)
            if len(between) == len(rows) and isinstance(rows, range):
                rows = found
            else:
                known = set(found)
                rows = [row for row in rows if row in known]
        return rows, self._is_all or not rows


def _find_for(node: Node) -> Find | None:
    match node:
        case CompareNode(NameNode("priority"), relation, ConstNode(constant)):
            return _find_priority(relation, constant)
        case CompareNode(NameNode("key"), relation, ConstNode(constant)):
            if wanted := _texts(relation, constant):
                return partial(_find_keys, wanted)
        case CompareNode(FieldNode(NameNode("headers"), str(name)), relation, ConstNode(constant)):
            if wanted := _texts(relation, constant):
                return partial(_find_headers, name.encode(errors="surrogatepass"), wanted)
    return None


def _texts(relation: str, constant: Any) -> frozenset[bytes] | None:
    """What the column has to have, where that is one of some texts."""
    among = (constant,) if relation == "==" else constant if relation == "in" else ()
    if type(among) is not tuple or not among or not all(type(one) is str for one in among):
        return None
    return frozenset(one.encode(errors="surrogatepass") for one in among)


def _find_priority(relation: str, constant: Any) -> Find | None:
    if type(constant) not in NUMBERS or relation not in ("==", "!=", "<", "<=", ">", ">="):
        return None
    is_so = COMPARED[relation][1]
    table = bytes(is_so(priority, constant) for priority in range(256))

    def find(batch: RecordBatch, rows: range) -> list[int]:
        column = bytes(batch.control_column(PRIORITY)[rows.start : rows.stop])
        return list(compress(rows, column.translate(table)))

    return find


def _find_keys(wanted: frozenset[bytes], batch: RecordBatch, rows: range) -> list[int]:
    raw, layout = batch.payload()
    found = [rows.start + at for at in _equal(raw, layout.keys, rows.start, rows.stop, wanted)]
    kinds = layout.key_kinds
    return found if kinds < 0 else [row for row in found if raw[kinds + row] == TEXT]


def _find_headers(
    name: bytes, wanted: frozenset[bytes], batch: RecordBatch, rows: range
) -> list[int]:
    raw, layout = batch.payload()
    ends = header_ends(raw, layout, rows)
    first, last = ends[0], ends[-1]
    entries = _equal(raw, layout.header_values, first, last, wanted)
    if not entries:
        return []
    each, rest = divmod(last - first, len(rows))
    is_even = not rest and ends == list(range(first, last + 1, each))
    found: dict[int, None] = {}
    for entry in entries:
        if _is_called(raw, layout, first + entry, name):
            place = entry // each if is_even else bisect_right(ends, first + entry) - 1
            found[rows.start + place] = None
    return list(found)


def _is_called(raw: Buffer, layout: Layout, entry: int, name: bytes) -> bool:
    if layout.header_kinds >= 0 and raw[layout.header_kinds + entry] != TEXT:
        return False
    return item_at(raw, layout.header_names, entry) == name


def _equal(
    raw: Buffer, column: BinaryColumn, first: int, last: int, wanted: frozenset[bytes]
) -> list[int]:
    """Which of the items from `first` to `last` are one of these, counted from the first."""
    items = split(raw, column, first, last)
    if wanted.isdisjoint(items):
        return []
    return [at for at, item in enumerate(items) if item in wanted]
