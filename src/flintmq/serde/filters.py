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

import ast
import keyword
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

import msgspec

from ..batch import (
    CONTENT_TYPES,
    HEADERS,
    KEYS,
    PRIORITY,
    TIMES,
    Key,
    RecordBatch,
    RowSource,
)
from ..batch.columns import split, text
from ..batch.format import BYTES, TEXT
from ..broker_api import OutOfTime
from ..errors import Corrupt, InvalidRequest
from ..rows import Origin

TEXT_LENGTH_MAX = 2_000
NODES_MAX = 200
DEPTH_MAX = 20
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""Whole numbers that a filter may name or reckon with: those of 64 bits, signed or not."""

COMPARED_ITEMS_MAX = 10_000
"""How many items of nested lists and maps one comparison looks at before it gives up as unlike."""

NAMES = (
    "topic", "partition", "offset", "key", "headers", "priority", "size", "content_type",
    "timestamp", "value",
)  # fmt: skip
FUNCTIONS = {"startswith": 2, "endswith": 2, "contains": 2, "lower": 1, "len": 1, "exists": 1}
"""The functions and how many things each is given."""

Decode = Callable[[RowSource, int], object]
"""The decoded value of a row. What it raises makes the value missing, but for OutOfTime."""


def compile_filter(text: str) -> CompiledFilter:
    """Check a filter expression and make it ready to run. Raises InvalidRequest that says where."""
    if not isinstance(text, str):
        raise InvalidRequest(f"a filter expression is a str, not {type(text).__name__}")
    text = text.strip()
    return CompiledFilter(text, _Grammar(text).read())


class CompiledFilter:
    """A filter expression that was checked. Equal to any other of the same text."""

    __slots__ = ("_columns", "_root", "_variants", "fields", "names", "text", "uses_value")

    def __init__(self, text: str, root: _Node) -> None:
        self.text = text
        self.names = frozenset(_names_in(root))
        """The names it uses. No other column is touched."""
        self.uses_value = "value" in self.names
        self.fields = _fields_in(root)
        """The fields of the value that it uses, where it uses nothing else of it: whoever decodes
        needs to give no others."""
        self._root = root
        self._columns = 0
        for name, column in _COLUMN_OF.items():
            if name in self.names:
                self._columns |= column
        self._variants: dict[int, _Variant] = {}

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
        if self._columns & _AT_ONCE & ~form and isinstance(source, RecordBatch):
            form |= _SEALED
        base = 0
        if "offset" in names:
            base = source.base_offset
            if base < 0:
                form |= _UNSTORED
        variant = self._variants.get(form)
        if variant is None:
            variant = self._variants[form] = _Variant(self._root, form)
        if variant.verdict is not None:
            return list(rows[:limit]) if variant.verdict else []
        load = _loader(source, decode) if self.uses_value else None
        topic, partition = origin.topic, origin.partition
        if variant.is_per_batch:
            speaks_for_all = variant.run(source, rows[:1], topic, partition, base, load, 1)
            return list(rows[:limit]) if speaks_for_all else []
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


# --- what an expression is made of, once it is checked


@dataclass(frozen=True, slots=True)
class _Const:
    value: Any


@dataclass(frozen=True, slots=True)
class _Name:
    name: str


@dataclass(frozen=True, slots=True)
class _Field:
    of: _Node
    step: str | int


@dataclass(frozen=True, slots=True)
class _Compare:
    left: _Node
    relation: str
    right: _Node


@dataclass(frozen=True, slots=True)
class _Bool:
    is_and: bool
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Not:
    of: _Node


@dataclass(frozen=True, slots=True)
class _Call:
    """A function, or an operator of arithmetic under its name in `_CALLED`."""

    function: str
    arguments: tuple[_Node, ...]


_Node = _Const | _Name | _Field | _Compare | _Bool | _Not | _Call


def _parts_of(node: _Node) -> tuple[_Node, ...]:
    match node:
        case _Field(of, _) | _Not(of):
            return (of,)
        case _Compare(left, _, right):
            return (left, right)
        case _Bool(_, parts) | _Call(_, parts):
            return parts
        case _:
            return ()


def _fields_in(root: _Node) -> tuple[str, ...] | None:
    """The fields of the value that are used; None if it is used in any other way, or not at all."""
    found: dict[str, None] = {}

    def look(node: _Node) -> bool:
        match node:
            case _Field(_Name("value"), str(step)):
                found[step] = None
                return True
            case _Name("value"):
                return False
        return all(look(part) for part in _parts_of(node))

    return tuple(found) if look(root) and found else None


def _names_in(node: _Node) -> Iterator[str]:
    """Every use of a name, so a name may come twice."""
    if isinstance(node, _Name):
        yield node.name
    for part in _parts_of(node):
        yield from _names_in(part)


# --- from text to nodes

_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder",
}  # fmt: skip
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_ALLOWED = (
    "allowed are comparison, and, or, not, in, is None, + - * / // %, constants, lists of "
    f"constants, the names {', '.join(NAMES)} and the functions {', '.join(FUNCTIONS)}"
)
_REFUSED: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda", ast.IfExp: "if ... else", ast.NamedExpr: "':='",
    ast.ListComp: "a comprehension", ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension", ast.GeneratorExp: "a comprehension", ast.Dict: "a dict",
    ast.JoinedStr: "an f-string", ast.Starred: "'*'", ast.Await: "await", ast.Yield: "yield",
    ast.YieldFrom: "yield", ast.Slice: "a slice", ast.Pow: "'**'", ast.MatMult: "'@'",
    ast.LShift: "'<<'", ast.RShift: "'>>'", ast.BitOr: "'|' (write 'or')",
    ast.BitAnd: "'&' (write 'and')", ast.BitXor: "'^'", ast.Invert: "'~' (write 'not')",
    ast.UAdd: "a plus sign before a thing",
}  # fmt: skip


class _Grammar:
    """Reads one text. Every node it does not know by name is refused."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes = 0

    def read(self) -> _Node:
        text = self._text
        if not text:
            raise InvalidRequest(
                'a filter expression is empty; write one like priority >= 5, or "True"'
            )
        if len(text) > TEXT_LENGTH_MAX:
            raise InvalidRequest(
                f"a filter expression has at most {TEXT_LENGTH_MAX:,} characters, not {len(text):,}"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self._error_at(
                1, error.start, "half a surrogate pair is not text", show=False
            ) from None
        if "\0" in text:
            raise self._error_at(1, text.index("\0"), "a filter holds no NUL character", show=False)
        try:
            with warnings.catch_warnings():
                # Odd escapes and numbers warn; whether that is an error is not the filter's affair.
                warnings.simplefilter("ignore")
                tree = ast.parse(text, mode="eval")
        except SyntaxError as error:
            raise self._syntax_error(error) from None
        except (RecursionError, MemoryError):
            raise InvalidRequest(self._too_deep()) from None
        except ValueError as error:
            raise InvalidRequest(f"the filter cannot be read: {error}") from None
        return self._node(tree.body, 1)

    def _node(self, node: ast.expr, depth: int) -> _Node:
        self._count(node)
        if depth > DEPTH_MAX:
            raise self._error(node, self._too_deep())
        below = depth + 1
        match node:
            case ast.Constant():
                return _Const(self._constant(node))
            case ast.Name(id):
                return self._name(node, id)
            case ast.Attribute(of, name):
                return self._field(node, of, name, below)
            case ast.Subscript(of, index):
                return self._field(node, of, self._index(index), below)
            case ast.List(items) | ast.Tuple(items) | ast.Set(items):
                return _Const(tuple(self._item(item) for item in items))
            case ast.BoolOp(op, parts):
                return _Bool(isinstance(op, ast.And), tuple(self._node(p, below) for p in parts))
            case ast.UnaryOp(ast.Not(), of):
                return _Not(self._node(of, below))
            case ast.UnaryOp(ast.USub(), ast.Constant() as of):
                self._count(of)
                return _Const(self._negative(of))
            case ast.UnaryOp(ast.USub(), of):
                return _Call("negative", (self._number(of, below),))
            case ast.UnaryOp(op) | ast.BinOp(_, op) if type(op) not in _ARITHMETIC:
                raise self._refusal(node, op)
            case ast.BinOp(left, op, right):
                sides = (self._number(left, below), self._number(right, below))
                return _Call(_ARITHMETIC[type(op)], sides)
            case ast.Compare():
                return self._comparison(node, below)
            case ast.Call():
                return self._call(node, below)
            case _:
                raise self._refusal(node, node)

    def _name(self, node: ast.expr, name: str) -> _Node:
        if name in NAMES:
            return _Name(name)
        if name in FUNCTIONS:
            raise self._error(node, f"{name!r} is a function; write {_usage(name)}")
        raise self._error(
            node, f"unknown name {name!r}; {_nearest(name, (*NAMES, *FUNCTIONS), NAMES)}"
        )

    def _field(self, node: ast.expr, of: ast.expr, step: str | int, depth: int) -> _Node:
        if isinstance(node, ast.Attribute) and isinstance(step, str) and step.startswith("__"):
            raise self._error(
                node, f'names like {step!r} are not reached by a dot; a key is value["{step}"]'
            )
        base = self._node(of, depth)
        match base:
            case _Name("headers"):
                if isinstance(step, int):
                    raise self._error(
                        node, 'headers are found by name: headers["x-id"], headers.region'
                    )
            case _Field(_Name("headers"), _):
                raise self._error(node, "a header is text or bytes and has no fields")
            case _Name("value") | _Field():
                pass
            case _Name(name):
                raise self._error(node, f"{name!r} has no fields; value and headers have them")
            case _:
                raise self._error(node, "only value and headers have fields")
        return _Field(base, step)

    def _index(self, index: ast.expr) -> str | int:
        self._count(index)
        found: Any = None
        if isinstance(index, ast.Constant):
            found = self._constant(index)
        elif isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
            self._count(index.operand)
            found = self._negative(index.operand)
        if type(found) is str or type(found) is int:
            return found
        raise self._error(
            index, 'an index is a text or a whole number: value["a"], value[0], value[-1]'
        )

    def _item(self, item: ast.expr) -> Any:
        self._count(item)
        if isinstance(item, ast.Constant):
            return self._constant(item)
        if isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub):
            self._count(item.operand)
            return self._negative(item.operand)
        raise self._error(item, "a list holds constants only")

    def _constant(self, node: ast.Constant) -> Any:
        found: Any = node.value
        kind = type(found)
        if kind not in (str, bytes, int, float, bool, type(None)):
            raise self._error(
                node,
                f"a constant is text, bytes, a number, True, False or None, not {kind.__name__}",
            )
        if kind is int and not INT_MIN <= found <= INT_MAX:
            raise self._error(node, "a whole number has at most 64 bits")
        if kind is float and not math.isfinite(found):
            raise self._error(node, "a float is finite")
        return found

    def _negative(self, node: ast.expr) -> int | float:
        found: Any = self._constant(node) if isinstance(node, ast.Constant) else None
        if type(found) not in (int, float) or -found < INT_MIN:
            raise self._error(node, "a minus sign stands before a number of 64 bits")
        negative: int | float = -found
        return negative

    def _number(self, node: ast.expr, depth: int) -> _Node:
        part = self._node(node, depth)
        if isinstance(part, _Const) and type(part.value) not in _NUMBERS:
            raise self._error(node, "arithmetic is on numbers")
        return part

    def _comparison(self, node: ast.Compare, depth: int) -> _Node:
        links: list[_Node] = []
        left, left_node = self._node(node.left, depth), node.left
        for number, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if number and any(isinstance(part, ast.Compare) for part in ast.walk(left_node)):
                # It stands in two links; nested, that would double at every level.
                raise self._error(
                    left_node, "a comparison within a chain of comparisons; write 'and'"
                )
            right = self._node(right_node, depth)
            links.append(self._link(left, _RELATIONS[type(op)], right, right_node))
            left, left_node = right, right_node
        return links[0] if len(links) == 1 else _Bool(True, tuple(links))

    def _link(self, left: _Node, relation: str, right: _Node, right_node: ast.expr) -> _Node:
        if relation in ("is", "is not"):
            if right != _Const(None):
                raise self._error(right_node, f"{relation!r} is for None; compare with == or !=")
        elif relation in ("==", "!="):
            if isinstance(left, _Const) and (left.value is None or not isinstance(right, _Const)):
                left, right = right, left
            if isinstance(right, _Const) and right.value is None:
                relation = "is" if relation == "==" else "is not"
        elif relation in ("in", "not in"):
            if isinstance(right, _Const) and type(right.value) not in (tuple, str, bytes):
                raise self._error(
                    right_node, f"{relation!r} looks into a list, a map, text or bytes"
                )
        elif isinstance(left, _Const) and not isinstance(right, _Const):
            left, relation, right = right, _MIRRORED[relation], left
        return _Compare(left, relation, right)

    def _call(self, node: ast.Call, depth: int) -> _Node:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in FUNCTIONS:
            raise self._error(function, f"there are no methods; write {_usage(function.attr)}")
        if not isinstance(function, ast.Name):
            raise self._error(node, f"only functions are called: {', '.join(FUNCTIONS)}")
        name = function.id
        if name not in FUNCTIONS:
            what = f"{name!r} is not a function" if name in NAMES else f"unknown function {name!r}"
            raise self._error(node, f"{what}; {_nearest(name, FUNCTIONS, FUNCTIONS)}")
        if node.keywords:
            raise self._error(node.keywords[0], f"no keyword arguments; write {_usage(name)}")
        if len(node.args) != FUNCTIONS[name]:
            raise self._error(
                node, f"{name} takes {FUNCTIONS[name]}, not {len(node.args)}: {_usage(name)}"
            )
        arguments = tuple(self._node(argument, depth) for argument in node.args)
        if name == "exists" and not isinstance(arguments[0], _Name | _Field):
            raise self._error(node.args[0], "exists is asked of a name or a field: exists(value.a)")
        if name == "contains":
            return self._link(arguments[1], "in", arguments[0], node.args[0])
        return _Call(name, arguments)

    def _count(self, node: ast.expr) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self._error(
                node, f"a filter has at most {NODES_MAX} names, constants and operations"
            )

    # --- errors

    def _lines(self) -> list[str]:
        return re.split(r"\r\n|\r|\n", self._text)  # as Python counts them; splitlines knows more

    def _too_deep(self) -> str:
        return f"a filter is nested at most {DEPTH_MAX} deep"

    def _refusal(self, node: ast.expr, culprit: ast.AST) -> InvalidRequest:
        what = _REFUSED.get(type(culprit), f"'{type(culprit).__name__}'")
        return self._error(node, f"{what} is not part of a filter; {_ALLOWED}")

    def _error(self, node: ast.expr | ast.keyword, what: str) -> InvalidRequest:
        line = self._lines()[node.lineno - 1]
        column = len(line.encode()[: node.col_offset].decode(errors="replace"))
        return self._error_at(node.lineno, column, what)

    def _syntax_error(self, error: SyntaxError) -> InvalidRequest:
        what = (error.msg or "invalid syntax").replace("'==' or ':=' instead of '='", "'=='")
        if word := _KEYWORD_FIELD.search(self._text):
            what = f'a field named like a word of Python is written ["{word[1]}"]'
        elif what == "invalid syntax" and re.search(r"[^=!<>]=[^=]", self._text):
            what += "; equal is written =="
        elif "&&" in self._text or "||" in self._text:
            what += "; write 'and', 'or', 'not'"
        return self._error_at(error.lineno or 1, max((error.offset or 1) - 1, 0), what)

    def _error_at(
        self, line_number: int, column: int, what: str, *, show: bool = True
    ) -> InvalidRequest:
        lines = self._lines()
        line = lines[min(line_number, len(lines)) - 1]
        where = (
            f"column {column + 1}"
            if len(lines) == 1
            else f"line {line_number}, column {column + 1}"
        )
        pointer = ""
        if show:
            first = max(0, column - _SHOWN_BEFORE)
            shown = "".join(c if c.isprintable() else " " for c in line[first : first + _SHOWN])
            pointer = f"\n    {shown}\n    {' ' * (min(column, len(line)) - first)}^"
        return InvalidRequest(f"filter, {where}: {what}{pointer}")


_SHOWN, _SHOWN_BEFORE = 76, 50  # characters of the line that an error shows, and before its caret
_KEYWORD_FIELD = re.compile(rf"\.\s*({'|'.join(keyword.kwlist)})\b")


def _usage(function: str) -> str:
    return f"{function}({', '.join('xy'[: FUNCTIONS[function]])})"


def _nearest(name: str, candidates: Iterable[str], known: Iterable[str]) -> str:
    import difflib

    if name in ("true", "false", "null", "none"):
        return f"did you mean {'None' if name == 'null' else name.capitalize()!r}?"
    near = difflib.get_close_matches(name[:40], candidates, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


# --- what the operations mean; none of them raises, whatever it is given


class _Missing:
    """What a message does not have. Equal to nothing, and false."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()

_KINDS: dict[type, str] = {
    int: "number", float: "number", bool: "number", str: "text", bytes: "bytes",
    type(None): "none", list: "list", tuple: "list", dict: "map",
}  # fmt: skip
_NUMBERS = frozenset((int, float, bool))
_SCALARS = frozenset((int, float, bool, str, bytes, type(None)))
_ORDERED = frozenset((int, float, bool, str, bytes))
_PLAIN = frozenset((*_KINDS, _Missing))


def _plain(thing: Any) -> Any:
    """`thing` as one of the plain types, if it is of a kind with one; its own methods never run."""
    kind = type(thing)
    if kind in _PLAIN:
        return thing
    if issubclass(kind, str):
        return str.__str__(thing)
    if issubclass(kind, int):
        return int.__int__(thing)
    if issubclass(kind, float):
        return float.__float__(thing)
    if issubclass(kind, bytes):
        return bytes.__getitem__(thing, slice(None))
    if issubclass(kind, list):
        return list.copy(thing)
    if issubclass(kind, tuple):
        return tuple.__getitem__(thing, slice(None))
    if issubclass(kind, dict):
        return dict.copy(thing)
    if kind is bytearray or kind is memoryview:
        try:
            return bytes(thing)
        except ValueError:  # a view that was released
            return MISSING
    return thing


def _truth(thing: Any) -> bool:
    if type(thing) not in _PLAIN:
        thing = _plain(thing)
        if type(thing) not in _PLAIN:
            return True  # an object that is there
    return bool(thing)


def _field(thing: Any, step: str | int) -> Any:
    kind: Any = type(thing)
    if kind is dict:
        return thing.get(step, MISSING)
    if kind in _PLAIN:
        return _at(thing, step) if kind is list or kind is tuple else MISSING
    if issubclass(kind, dict):
        return dict.get(thing, step, MISSING)
    if type(step) is str:
        getter = _declared_fields(kind).get(step)
        return MISSING if getter is None else getter(thing)
    return _at(_plain(thing), step) if issubclass(kind, list | tuple) else MISSING


def _at(items: Sequence[Any], index: str | int) -> Any:
    if type(index) is int and -len(items) <= index < len(items):
        return items[index]
    return MISSING


@lru_cache(maxsize=256)
def _declared_fields(kind: type) -> Mapping[str, Callable[[Any], Any]]:
    """How to get at what a type declares as its fields, past its properties and its methods."""
    names: list[str] = []
    if issubclass(kind, msgspec.Struct):
        names += kind.__struct_fields__
    elif is_dataclass(kind):
        names += (field.name for field in fields(kind))
    elif issubclass(kind, tuple):
        positions = getattr(kind, "_fields", ())
        return {
            name: _item_getter(position)
            for position, name in enumerate(positions)
            if not name.startswith("_")
        }
    else:
        names += (attribute.name for attribute in getattr(kind, "__attrs_attrs__", ()))
        names += getattr(kind, "__pydantic_fields__", ())
    return {name: _attribute_getter(kind, name) for name in names if not name.startswith("_")}


def _item_getter(position: int) -> Callable[[Any], Any]:
    return lambda thing: tuple.__getitem__(thing, position)


def _attribute_getter(kind: type, name: str) -> Callable[[Any], Any]:
    declared: Any = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if isinstance(declared, MemberDescriptorType):  # a slot
        in_slot = declared.__get__

        def get(thing: Any) -> Any:
            try:
                found = in_slot(thing, kind)
            except AttributeError:  # never set
                return MISSING
            return MISSING if found is msgspec.UNSET else found

        return get
    if hasattr(type(declared), "__set__"):  # a property has taken the field's place
        return lambda thing: MISSING

    def look_up(thing: Any) -> Any:
        try:
            return object.__getattribute__(thing, "__dict__").get(name, MISSING)
        except AttributeError:
            return MISSING

    return look_up


def _same(a: Any, b: Any) -> bool | None:
    """Whether two things are equal; None where they are unlike."""
    a, b = _plain(a), _plain(b)
    kind = _KINDS.get(type(a))
    if kind is None or kind != _KINDS.get(type(b)):
        return None
    if kind != "list" and kind != "map":
        return bool(a == b)
    # Without recursion and with a budget: things passed by reference can be deep, or in a circle.
    looked_at = 0
    pairs = [(a, b)]
    while pairs:
        a, b = pairs.pop()
        a, b = _plain(a), _plain(b)
        looked_at += 1
        if looked_at > COMPARED_ITEMS_MAX:
            return None
        kind = _KINDS.get(type(a))
        if kind is None or kind != _KINDS.get(type(b)):
            return False
        if kind == "list" or kind == "map":
            if len(a) != len(b) or len(a) > COMPARED_ITEMS_MAX:
                return False if len(a) != len(b) else None
            if kind == "list":
                pairs.extend(zip(a, b, strict=True))
            else:
                pairs.extend((item, b.get(name, MISSING)) for name, item in a.items())
        elif a != b:
            return False
    return True


def _equal(a: Any, b: Any) -> bool:
    return _same(a, b) is True


def _unequal(a: Any, b: Any) -> bool:
    return _same(a, b) is False


def _member(item: Any, among: Any) -> bool | None:
    """Whether `item` is in a list, a map's names, text or bytes; None where that is no question."""
    item, among = _plain(item), _plain(among)
    kind = type(among)
    if kind is list or kind is tuple:
        if item is MISSING:
            return None
        return any(_same(item, other) is True for other in among)
    if kind is dict:
        return item in among if type(item) in _SCALARS else None
    if kind is str or kind is bytes:
        return item in among if type(item) is kind else None
    return None


def _inside(item: Any, among: Any) -> bool:
    return _member(item, among) is True


def _outside(item: Any, among: Any) -> bool:
    return _member(item, among) is False


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def relation(a: Any, b: Any) -> bool:
        a, b = _plain(a), _plain(b)
        kind = type(a)
        return kind in _ORDERED and _KINDS[kind] == _KINDS.get(type(b)) and compare(a, b)

    return relation


def _is_none(a: Any, b: None) -> bool:
    return a is None


def _is_some(a: Any, b: None) -> bool:
    return a is not None and a is not MISSING


def _arithmetic(reckon: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def result(a: Any, b: Any) -> Any:
        if type(a) not in _NUMBERS or not INT_MIN <= a <= INT_MAX:
            a = _number(a)
        if type(b) not in _NUMBERS or not INT_MIN <= b <= INT_MAX:
            b = _number(b)
        if a is MISSING or b is MISSING:
            return MISSING
        try:
            found = reckon(a, b)
        except ArithmeticError:  # a division by zero, a float that overflows
            return MISSING
        return found if INT_MIN <= found <= INT_MAX else _number(found)

    return result


def _number(thing: Any) -> Any:
    """`thing` if it is a number of 64 bits, so that nothing ever grows."""
    thing = _plain(thing)
    kind = type(thing)
    if kind is float:
        return thing if math.isfinite(thing) else MISSING
    if kind is int:
        return thing if INT_MIN <= thing <= INT_MAX else MISSING
    return thing if kind is bool else MISSING


def _negative(thing: Any) -> Any:
    number = _number(thing)
    return MISSING if number is MISSING else _number(-number)


def _lower(thing: Any) -> Any:
    thing = _plain(thing)
    return thing.lower() if type(thing) is str or type(thing) is bytes else MISSING


def _length(thing: Any) -> Any:
    thing = _plain(thing)
    return len(thing) if type(thing) in _SIZED else MISSING


_SIZED = frozenset((str, bytes, list, tuple, dict))


def _startswith(thing: Any, start: Any) -> bool:
    thing, start = _plain(thing), _plain(start)
    kind = type(thing)
    return (kind is str or kind is bytes) and type(start) is kind and thing.startswith(start)


def _endswith(thing: Any, end: Any) -> bool:
    thing, end = _plain(thing), _plain(end)
    kind = type(thing)
    return (kind is str or kind is bytes) and type(end) is kind and thing.endswith(end)


def _exists(thing: Any) -> bool:
    return thing is not None and thing is not MISSING


_COMPARED: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "==": ("equal", _equal),
    "!=": ("unequal", _unequal),
    "<": ("less", _ordering(operator.lt)),
    "<=": ("at_most", _ordering(operator.le)),
    ">": ("more", _ordering(operator.gt)),
    ">=": ("at_least", _ordering(operator.ge)),
    "in": ("inside", _inside),
    "not in": ("outside", _outside),
    "is": ("is_none", _is_none),
    "is not": ("is_some", _is_some),
}
_CALLED: dict[str, Callable[..., Any]] = {
    "add": _arithmetic(operator.add),
    "subtract": _arithmetic(operator.sub),
    "multiply": _arithmetic(operator.mul),
    "divide": _arithmetic(operator.truediv),
    "floor_divide": _arithmetic(operator.floordiv),
    "remainder": _arithmetic(operator.mod),
    "negative": _negative,
    "lower": _lower,
    "len": _length,
    "startswith": _startswith,
    "endswith": _endswith,
    "exists": _exists,
}


# --- columns of a finished batch, read at once for many rows: a tenth of the cost of one by one

_ROWS_AT_ONCE_MIN = 8


def _range_at_once(rows: Sequence[int]) -> range | None:
    """The rows from the first to the last of `rows`, unless it is better to read one by one."""
    if len(rows) < _ROWS_AT_ONCE_MIN:
        return None
    between = range(min(rows), max(rows) + 1)
    return between if len(between) <= 4 * len(rows) else None


def _keys_at_once(source: RecordBatch, rows: Sequence[int]) -> Callable[[int], Key | None]:
    between = _range_at_once(rows)
    if between is None:
        return source.key
    raw, layout = source.payload()
    if layout.key_kinds >= 0:
        return source.key  # bytes, or no key here and there
    keys = split(raw, layout.keys, between.start, between.stop)
    return dict(zip(between, map(text, keys), strict=True)).__getitem__


def _header_at_once(
    source: RecordBatch, name: str, rows: Sequence[int]
) -> Callable[[int, object], object]:
    """One header of many rows: a function of a row and of what to give where it is missing."""
    between = _range_at_once(rows)
    if between is None:
        return lambda row, missing: source.headers(row).get(name, missing)
    raw, layout = source.payload()
    at = layout.header_rows + 4 * between.start
    ends = memoryview(raw)[at : at + 4 * (len(between) + 1)].cast("i").tolist()
    first, last = ends[0], ends[-1]
    if sorted(ends) != ends or first < 0 or last > layout.header_count:
        raise Corrupt("the rows of the headers of a record batch are out of order")
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


# --- from nodes to a function over rows

_COLUMN_OF = {
    "priority": PRIORITY,
    "key": KEYS,
    "headers": HEADERS,
    "content_type": CONTENT_TYPES,
    "timestamp": TIMES,
}
_WITHOUT_COLUMN: dict[str, Any] = {"priority": 0, "key": None, "headers": {}, "content_type": None}
"""What every row of a batch has that lacks the column. Without TIMES it is one time for all."""
_AT_ONCE = PRIORITY | KEYS | HEADERS

# Two more facts about a source, beside the columns it lacks.
_SEALED = 1 << 40  # its columns lie in a row each, and can be read at once
_UNSTORED = 1 << 41  # its rows have no offsets

_Run = Callable[
    [RowSource, Sequence[int], str, int, int, Callable[[int], object] | None, int], list[int]
]


class _Variant:
    """A filter made for sources of one form: what their missing columns decide is decided.

    `verdict` is the answer for every row, if that is known. `is_per_batch` says that one row of a
    source speaks for all. Otherwise `run` is a function made for the purpose.
    """

    __slots__ = ("code", "is_per_batch", "run", "verdict")

    def __init__(self, root: _Node, form: int) -> None:
        known = {name: v for name, v in _WITHOUT_COLUMN.items() if form & _COLUMN_OF[name]}
        if form & _UNSTORED:
            known["offset"] = None
        root = _fold(root, known, is_test=True)
        self.verdict: bool | None = None
        self.is_per_batch = False
        if isinstance(root, _Const):
            self.verdict = _truth(root.value)
            return
        shared = {"topic", "partition"} | ({"timestamp"} if form & TIMES else set())
        self.is_per_batch = shared.issuperset(_names_in(root))
        writer = _Writer(root, shared, is_sealed=bool(form & _SEALED))
        self.code = writer.function()
        self.run: _Run = writer.compiled(self.code)


def _fold(node: _Node, known: Mapping[str, Any], *, is_test: bool = False) -> _Node:
    """`node` with everything reckoned that is the same for all rows.

    In a test only the truth of the result counts.
    """
    match node:
        case _Name(name) if name in known:
            return _Const(known[name])
        case _Field(of, step):
            of = _fold(of, known)
            return _Const(_field(of.value, step)) if isinstance(of, _Const) else _Field(of, step)
        case _Compare(left, relation, right):
            left, right = _fold(left, known), _fold(right, known)
            if isinstance(left, _Const) and isinstance(right, _Const):
                return _Const(_COMPARED[relation][1](left.value, right.value))
            return _Compare(left, relation, right)
        case _Not(of):
            of = _fold(of, known, is_test=True)
            return _Const(not _truth(of.value)) if isinstance(of, _Const) else _Not(of)
        case _Call(function, arguments):
            folded = tuple(_fold(argument, known) for argument in arguments)
            if all(isinstance(argument, _Const) for argument in folded):
                constants = (a.value for a in folded if isinstance(a, _Const))
                return _Const(_CALLED[function](*constants))
            return _Call(function, folded)
        case _Bool(is_and, parts):
            return _fold_bool(is_and, parts, known, is_test)
        case _:
            return node


def _fold_bool(
    is_and: bool, parts: tuple[_Node, ...], known: Mapping[str, Any], is_test: bool
) -> _Node:
    kept: list[_Node] = []
    for number, part in enumerate(parts, 1):
        part = _fold(part, known, is_test=is_test)
        if isinstance(part, _Const):
            if _truth(part.value) != is_and:  # this side decides
                if is_test:
                    return _Const(not is_and)
                kept.append(part)
                break
            if number < len(parts) or (is_test and kept):
                continue
        kept.append(part)
    if is_test:  # the order of tests does not show, and decoding is what costs
        kept.sort(key=lambda part: "value" in _names_in(part))
    return kept[0] if len(kept) == 1 else _Bool(is_and, tuple(kept))


_HELPERS: dict[str, Any] = {
    "__builtins__": {},
    "MISSING": MISSING,
    "UNREAD": object(),
    "OutOfTime": OutOfTime,
    "NUMBERS": _NUMBERS,
    "PLAIN": _PLAIN,
    "type_of": type,
    "len_of": len,
    "keys_at_once": _keys_at_once,
    "header_at_once": _header_at_once,
    "MAP": dict,
    "LIST": list,
    "TEXT": str,
    "BYTES": bytes,
    "field": _field,
    "truth": _truth,
    **dict(_COMPARED.values()),
    **{f"call_{name}": function for name, function in _CALLED.items()},
}
_LOADS = {
    "offset": "base + row",
    "key": "key_at(row)",
    "headers": "headers_at(row)",
    "priority": "priority_at(row)",
    "size": "size_of(row, row + 1)",
    "content_type": "content_type_at(row)",
    "timestamp": "time_at(row) / 1000",
    "value": "load(row)",
}
_PREPARES = {
    "key": "key_at = source.key",
    "headers": "headers_at = source.headers",
    "priority": "priority_at = source.priority",
    "size": "size_of = source.size",
    "content_type": "content_type_at = source.content_type",
    "timestamp": "time_at = source.time",
}
_ALWAYS_NUMBERS = frozenset(("partition", "offset", "priority", "size", "timestamp"))


class _Writer:
    """Writes the function that goes through the rows, as Python text.

    Of what the user wrote, nothing gets into that text: names are the ten above, and constants,
    fields among them, are bound as c0, c1 ... beside it. It runs without builtins.

    A column is read at most once per row. `sure` are the names that were read whichever way the
    row went so far, `self._maybe` those that were read on some way. Where it `_is_certain` that
    every row comes by, keys and headers of a finished batch are read at once.
    """

    def __init__(self, root: _Node, shared: set[str], *, is_sealed: bool) -> None:
        self._root = root
        self._shared = shared
        self._loads = dict(_LOADS)
        self._prepares = dict(_PREPARES)
        if is_sealed:
            self._loads["priority"] = "priorities[row]"
            self._prepares["priority"] = f"priorities = source.control_column({PRIORITY})"
        self._is_sealed = is_sealed
        self._is_certain = True
        self._more_prepares: list[str] = []
        uses = list(_names_in(root))
        self._names = sorted(set(uses))
        self._used_twice = {name for name in uses if uses.count(name) > 1}
        self._maybe: set[str] = set()
        self._unread: set[str] = set()
        self._temporaries = 0
        self._constants: dict[str, Any] = {}

    def function(self) -> str:
        test = self._test(self._root, set())
        lines = ["def run(source, rows, topic, partition, base, load, left):"]
        for name in self._names:
            if name in self._shared:
                if name == "timestamp":
                    lines.append("    timestamp = source.time(rows[0]) / 1000")
            elif name in self._prepares:
                lines.append(f"    {self._prepares[name]}")
        lines += [f"    {line}" for line in self._more_prepares]
        lines += ["    picked = []", "    add = picked.append", "    try:"]
        lines += ["        for row in rows:"]
        lines += [f"            {name} = UNREAD" for name in sorted(self._unread)]
        lines += [
            f"            if {test}:",
            "                add(row)",
            "                left -= 1",
            "                if not left:",
            "                    break",
            "    except OutOfTime:",
            "        pass",
            "    return picked",
            "",
        ]
        return "\n".join(lines)

    def compiled(self, code: str) -> _Run:
        space = {**_HELPERS, **self._constants}
        exec(compile(code, "<filter>", "exec"), space)
        run: _Run = space["run"]
        return run

    def _test(self, node: _Node, sure: set[str]) -> str:
        """An expression that is true or false."""
        match node:
            case _Bool(is_and, parts):
                tests = [self._test(parts[0], sure)]
                inner = set(sure)
                was_certain, self._is_certain = self._is_certain, False
                tests += [self._test(part, inner) for part in parts[1:]]
                self._is_certain = was_certain
                return f"({(' and ' if is_and else ' or ').join(tests)})"
            case _Not(of):
                return f"(not {self._test(of, sure)})"
            case _Compare():
                return self._compare(node, sure)
            case _Call("startswith" | "endswith" | "exists"):
                return self._value(node, sure)
            case _:
                return f"truth({self._value(node, sure)})"

    def _value(self, node: _Node, sure: set[str]) -> str:
        match node:
            case _Const(constant):
                return self._constant(constant)
            case _Name(name):
                return self._read(name, sure)
            case _Field(of, step):
                key = self._constant(step)
                if of == _Name("headers") and self._is_certain and self._is_sealed:
                    column = f"column_{key}"
                    self._more_prepares.append(f"{column} = header_at_once(source, {key}, rows)")
                    return f"{column}(row, MISSING)"
                base = self._value(of, sure)
                if of == _Name("headers"):
                    return f"{base}.get({key}, MISSING)"
                thing = self._temporary()
                if isinstance(step, int):
                    least = self._constant(step + 1 if step >= 0 else -step)
                    return (
                        f"({thing}[{key}] if type_of({thing} := {base}) is LIST "
                        f"and len_of({thing}) >= {least} else field({thing}, {key}))"
                    )
                return (
                    f"({thing}.get({key}, MISSING) if type_of({thing} := {base}) is MAP "
                    f"else field({thing}, {key}))"
                )
            case _Bool(is_and, parts):
                return self._either(is_and, parts, sure)
            case _Call(function, arguments):
                given = [self._value(argument, sure) for argument in arguments]
                if (sign := _in_line(node)) is not None:
                    return f"({f' {sign} '.join(given)})"
                return f"call_{function}({', '.join(given)})"
            case _:
                return self._test(node, sure)

    def _either(self, is_and: bool, parts: tuple[_Node, ...], sure: set[str]) -> str:
        """`and` or `or` where its value is wanted: one of its sides."""
        first = self._value(parts[0], sure)
        if len(parts) == 1:
            return first
        was_certain, self._is_certain = self._is_certain, False
        rest = self._either(is_and, parts[1:], set(sure))
        self._is_certain = was_certain
        side = self._temporary()
        if is_and:
            return f"({rest} if truth({side} := {first}) else {side})"
        return f"({side} if truth({side} := {first}) else {rest})"

    def _compare(self, node: _Compare, sure: set[str]) -> str:
        left, relation, right = node.left, node.relation, node.right
        thing = self._value(left, sure)
        if relation == "is":
            return f"({thing} is None)"
        if relation == "is not":
            return f"is_some({thing}, None)"
        is_search = relation in ("in", "not in")
        numbers = _is_number(left) and _is_number(right) and not is_search
        if numbers or (_is_text(left) and _is_text(right)):
            return f"({thing} {relation} {self._value(right, sure)})"
        helper = _COMPARED[relation][0]
        if not isinstance(right, _Const):
            return f"{helper}({thing}, {self._value(right, sure)})"
        other = self._constant(right.value)
        if is_search:
            return self._membership(thing, relation, right.value, other, helper)
        kind = type(right.value)
        if kind not in _ORDERED:
            return f"{helper}({thing}, {other})"
        # The usual case in line; helpers are for things of no plain type, as in `object` topics.
        held = self._temporary()
        wanted = "in NUMBERS" if kind in _NUMBERS else "is TEXT" if kind is str else "is BYTES"
        return (
            f"(type_of({held} := {thing}) {wanted} and {held} {relation} {other} "
            f"or type_of({held}) not in PLAIN and {helper}({held}, {other}))"
        )

    def _membership(self, thing: str, relation: str, among: Any, other: str, helper: str) -> str:
        kinds = {_KINDS[type(item)] for item in among} if type(among) is tuple else set()
        if kinds != {"text"} and kinds != {"number"}:
            return f"{helper}({thing}, {other})"
        held, quick = self._temporary(), self._constant(frozenset(among))
        wanted = "in NUMBERS" if kinds == {"number"} else "is TEXT"
        return (
            f"({held} {relation} {quick} if type_of({held} := {thing}) {wanted} "
            f"else {helper}({held}, {other}))"
        )

    def _read(self, name: str, sure: set[str]) -> str:
        if name in self._shared or name in sure:
            return name
        load = self._loads[name]
        if name == "key" and self._is_certain and self._is_sealed:
            self._prepares["key"] = "key_at = keys_at_once(source, rows)"
        if name not in self._used_twice:
            return f"({load})"
        sure.add(name)
        if name in self._maybe:
            self._unread.add(name)
            return f"({name} if {name} is not UNREAD else ({name} := {load}))"
        self._maybe.add(name)
        return f"({name} := {load})"

    def _constant(self, constant: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = constant
        return name

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"


def _is_number(node: _Node) -> bool:
    if isinstance(node, _Const):
        return type(node.value) in _NUMBERS
    if isinstance(node, _Call):
        return _in_line(node) is not None
    return isinstance(node, _Name) and node.name in _ALWAYS_NUMBERS


def _in_line(node: _Call) -> str | None:
    """The sign of an arithmetic that cannot fail: of a column with a constant that is not large."""
    match node:
        case _Call(function, (_Name(name), _Const(constant))) if name in _ALWAYS_NUMBERS:
            if type(constant) in _NUMBERS and 1 <= abs(constant) <= 2**32:
                return _SIGNS.get(function)
    return None


_SIGNS = {"add": "+", "subtract": "-", "divide": "/", "floor_divide": "//", "remainder": "%"}


def _is_text(node: _Node) -> bool:
    if isinstance(node, _Const):
        return type(node.value) is str
    return node == _Name("topic")
