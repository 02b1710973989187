"""Filter expressions: which messages a reader, a feed or a group wants.

    headers.region == "eu" and priority >= 5 and value.amount > 100

Pure, and nothing of Python is reachable: the text is read with Python's own grammar, but only the
few nodes below become a filter, and everything else is an InvalidRequest that points at it.

    expression   or, and, not, ( ), a comparison, or a thing alone (true as Python has it)
    comparison   == != < <= > >= (chained too), in, not in, is None, is not None
    thing        a name, a field, a constant, [constants], arithmetic, a function
    name         topic partition offset key headers priority size content_type timestamp value
    field        value.a.b, value["a"], value.items[0], headers.region, headers["x-id"]
    constant     text, bytes, whole numbers of 64 bits, floats, True, False, None
    arithmetic   + - * / // % and unary minus, on numbers only
    function     startswith(x, y) endswith(x, y) contains(x, y) lower(x) len(x) exists(x)

What a message does not have is *missing*: a field that is not there, an index behind the end, the
value where it cannot be decoded, the result of a division by zero or beyond 64 bits. A comparison
with something missing in it is false, and so is one of unlike things (`"7" > 5`), with `!=` and
`not in` as with any other. Numbers are alike (True is 1), so are lists and tuples; order is among
numbers, text, or bytes only. A thing alone is false when it is missing. `not` turns what it stands
before around, so `not value.x == 1` is true where there is no x, while `value.x != 1` is false.

A message without a key has the key None (so with content type, and the offset of one never stored);
`exists(x)` says that x is there and is not None. `and` and `or` give one of their sides as in
Python: `(value.retries or 0) < 3`. A field of an object is one it declares (dataclass, msgspec
Struct, attrs, pydantic, named tuple): never a property, a method, or a name that begins with `_`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...batch import RecordBatch, RowSource
from ...broker_api import OutOfTime
from ...errors import InvalidRequest
from ...rows import Origin
from .code import Variant
from .columns import AT_ONCE, COLUMN_OF, SEALED, UNSTORED
from .grammar import FilterGrammar, Node, fields_in, names_in
from .meaning import MISSING

Decode = Callable[[RowSource, int], object]
"""The decoded value of a row. What it raises makes the value missing, but for OutOfTime."""


def compile_filter(text: str) -> CompiledFilter:
    """Check a filter expression and make it ready to run. Raises InvalidRequest that says where."""
    if not isinstance(text, str):
        raise InvalidRequest(f"a filter expression is a str, not {type(text).__name__}")
    text = text.strip()
    return CompiledFilter(text, FilterGrammar(text).read())


class CompiledFilter:
    """A filter expression that was checked. Equal to any other of the same text."""

    __slots__ = ("_columns", "_root", "_variants", "fields", "names", "text", "uses_value")

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.names = frozenset(names_in(root))
        """The names it uses. No other column is touched."""
        self.uses_value = "value" in self.names
        self.fields = fields_in(root)
        """The fields of the value that it uses, where it uses nothing else of it: whoever decodes
        needs to give no others."""
        self._root = root
        self._columns = 0
        for name, column in COLUMN_OF.items():
            if name in self.names:
                self._columns |= column
        self._variants: dict[int, Variant] = {}

    def matches(self, source: RowSource, row: int, origin: Origin, decode: Decode | None) -> bool:
        """Whether one row passes. To ask about many rows of a source, use `pick`."""
        return bool(self.pick(source, (row,), origin, decode))

    def pick(
        self,
        source: RowSource,
        rows: Sequence[int],
        origin: Origin,
        decode: Decode | None,
        limit: int | None = None,
    ) -> list[int]:
        """Those of `rows` that pass, in their order; at most the first `limit` of them.

        `decode` is called at most once per row, and only where the expression comes to the value;
        without it the value is what the source holds. Damage in a column that is named is Corrupt.
        Where `decode` raises OutOfTime, the rows before that one are answered for.
        """
        if not rows or limit == 0:
            return []
        form = self._columns and self._columns & ~source.columns
        names = self.names
        if self._columns & AT_ONCE & ~form and isinstance(source, RecordBatch):
            form |= SEALED
        base = 0
        if "offset" in names:
            base = source.base_offset
            if base < 0:
                form |= UNSTORED
        variant = self._variants.get(form)
        if variant is None:
            variant = self._variants[form] = Variant(self._root, form)
        if variant.verdict is not None:
            return list(rows[:limit]) if variant.verdict else []
        load = _loader(source, decode) if self.uses_value else None
        topic, partition = origin.topic, origin.partition
        if variant.is_per_batch:
            speaks_for_all = variant.run(source, rows[:1], topic, partition, base, load, 1)
            return list(rows[:limit]) if speaks_for_all else []
        if variant.narrowing is not None and isinstance(source, RecordBatch):
            rows, is_answer = variant.narrowing.of(source, rows)
            if is_answer:
                return list(rows[:limit])
        left = -1 if limit is None else limit
        return variant.run(source, rows, topic, partition, base, load, left)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledFilter) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_filter, (self.text,)

    def __repr__(self) -> str:
        return f"compile_filter({self.text!r})"


def _loader(source: RowSource, decode: Decode | None) -> Callable[[int], object]:
    if decode is None:
        return source.value

    def load(row: int) -> object:
        try:
            return decode(source, row)
        except OutOfTime:
            raise
        except Exception:
            return MISSING

    return load
