"""From the text of a filter to nodes: what may be written, and what is said where it may not."""

from __future__ import annotations

import ast
import keyword
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ...errors import InvalidRequest
from .meaning import INT_MAX, INT_MIN, NUMBERS

TEXT_LENGTH_MAX = 2_000
NODES_MAX = 200
DEPTH_MAX = 20
NAMES = (
    "topic", "partition", "offset", "key", "headers", "priority", "size", "content_type",
    "timestamp", "value",
)  # fmt: skip
FUNCTIONS = {"startswith": 2, "endswith": 2, "contains": 2, "lower": 1, "len": 1, "exists": 1}
"""The functions and how many things each is given."""


# --- what an expression is made of, once it is checked


class ConstNode(msgspec.Struct, frozen=True):
    value: Any


class NameNode(msgspec.Struct, frozen=True):
    name: str


class FieldNode(msgspec.Struct, frozen=True):
    of: Node
    step: str | int


class CompareNode(msgspec.Struct, frozen=True):
    left: Node
    relation: str
    right: Node


class BoolNode(msgspec.Struct, frozen=True):
    is_and: bool
    parts: tuple[Node, ...]


class NotNode(msgspec.Struct, frozen=True):
    of: Node


class CallNode(msgspec.Struct, frozen=True):
    """A function, or an operator of arithmetic under its name in `CALLED`."""

    function: str
    arguments: tuple[Node, ...]


Node = ConstNode | NameNode | FieldNode | CompareNode | BoolNode | NotNode | CallNode


def _parts_of(node: Node) -> tuple[Node, ...]:
    match node:
        case FieldNode(of, _) | NotNode(of):
            return (of,)
        case CompareNode(left, _, right):
            return (left, right)
        case BoolNode(_, parts) | CallNode(_, parts):
            return parts
        case _:
            return ()


def fields_in(root: Node) -> tuple[str, ...] | None:
    """The fields of the value that are used; None if it is used in any other way, or not at all."""
    found: dict[str, None] = {}

    def look(node: Node) -> bool:
        match node:
            case FieldNode(NameNode("value"), str(step)):
                found[step] = None
                return True
            case NameNode("value"):
                return False
        return all(look(part) for part in _parts_of(node))

    return tuple(found) if look(root) and found else None


def names_in(node: Node) -> Iterator[str]:
    """Every use of a name, so a name may come twice."""
    if isinstance(node, NameNode):
        yield node.name
    for part in _parts_of(node):
        yield from names_in(part)


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


class FilterGrammar:
    """Reads one text. Every node it does not know by name is refused."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes = 0

    def read(self) -> Node:
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

    def _node(self, node: ast.expr, depth: int) -> Node:
        self._count(node)
        if depth > DEPTH_MAX:
            raise self._error(node, self._too_deep())
        below = depth + 1
        match node:
            case ast.Constant():
                return ConstNode(self._constant(node))
            case ast.Name(id):
                return self._name(node, id)
            case ast.Attribute(of, name):
                return self._field(node, of, name, below)
            case ast.Subscript(of, index):
                return self._field(node, of, self._index(index), below)
            case ast.List(items) | ast.Tuple(items) | ast.Set(items):
                what = "a list holds constants only"
                return ConstNode(tuple(self._literal(item, what) for item in items))
            case ast.BoolOp(op, parts):
                return BoolNode(isinstance(op, ast.And), tuple(self._node(p, below) for p in parts))
            case ast.UnaryOp(ast.Not(), of):
                return NotNode(self._node(of, below))
            case ast.UnaryOp(ast.USub(), ast.Constant() as of):
                self._count(of)
                return ConstNode(self._negative(of))
            case ast.UnaryOp(ast.USub(), of):
                return CallNode("negative", (self._number(of, below),))
            case ast.UnaryOp(op) | ast.BinOp(_, op) if type(op) not in _ARITHMETIC:
                raise self._refusal(node, op)
            case ast.BinOp(left, op, right):
                sides = (self._number(left, below), self._number(right, below))
                return CallNode(_ARITHMETIC[type(op)], sides)
            case ast.Compare():
                return self._comparison(node, below)
            case ast.Call():
                return self._call(node, below)
            case _:
                raise self._refusal(node, node)

    def _name(self, node: ast.expr, name: str) -> Node:
        if name in NAMES:
            return NameNode(name)
        if name in FUNCTIONS:
            raise self._error(node, f"{name!r} is a function; write {_usage(name)}")
        raise self._error(
            node, f"unknown name {name!r}; {_nearest(name, (*NAMES, *FUNCTIONS), NAMES)}"
        )

    def _field(self, node: ast.expr, of: ast.expr, step: str | int, depth: int) -> Node:
        if isinstance(node, ast.Attribute) and isinstance(step, str) and step.startswith("__"):
            raise self._error(
                node, f'names like {step!r} are not reached by a dot; a key is value["{step}"]'
            )
        base = self._node(of, depth)
        match base:
            case NameNode("headers"):
                if isinstance(step, int):
                    raise self._error(
                        node, 'headers are found by name: headers["x-id"], headers.region'
                    )
            case FieldNode(NameNode("headers"), _):
                raise self._error(node, "a header is text or bytes and has no fields")
            case NameNode("value") | FieldNode():
                pass
            case NameNode(name):
                raise self._error(node, f"{name!r} has no fields; value and headers have them")
            case _:
                raise self._error(node, "only value and headers have fields")
        return FieldNode(base, step)

    def _index(self, index: ast.expr) -> str | int:
        what = 'an index is a text or a whole number: value["a"], value[0], value[-1]'
        found = self._literal(index, what)
        if type(found) is str or type(found) is int:
            return found
        raise self._error(index, what)

    def _literal(self, node: ast.expr, otherwise: str) -> Any:
        """A constant, or a number behind a minus sign; `otherwise` is the error for the rest."""
        self._count(node)
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.UnaryOp(ast.USub(), of):
                self._count(of)
                return self._negative(of)
            case _:
                raise self._error(node, otherwise)

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

    def _number(self, node: ast.expr, depth: int) -> Node:
        part = self._node(node, depth)
        if isinstance(part, ConstNode) and type(part.value) not in NUMBERS:
            raise self._error(node, "arithmetic is on numbers")
        return part

    def _comparison(self, node: ast.Compare, depth: int) -> Node:
        links: list[Node] = []
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
        return links[0] if len(links) == 1 else BoolNode(True, tuple(links))

    def _link(self, left: Node, relation: str, right: Node, right_node: ast.expr) -> Node:
        if relation in ("is", "is not"):
            if right != ConstNode(None):
                raise self._error(right_node, f"{relation!r} is for None; compare with == or !=")
        elif relation in ("==", "!="):
            if isinstance(left, ConstNode) and (
                left.value is None or not isinstance(right, ConstNode)
            ):
                left, right = right, left
            if isinstance(right, ConstNode) and right.value is None:
                relation = "is" if relation == "==" else "is not"
        elif relation in ("in", "not in"):
            if isinstance(right, ConstNode) and type(right.value) not in (tuple, str, bytes):
                raise self._error(
                    right_node, f"{relation!r} looks into a list, a map, text or bytes"
                )
        elif isinstance(left, ConstNode) and not isinstance(right, ConstNode):
            left, relation, right = right, _MIRRORED[relation], left
        return CompareNode(left, relation, right)

    def _call(self, node: ast.Call, depth: int) -> Node:
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
        if name == "exists" and not isinstance(arguments[0], NameNode | FieldNode):
            raise self._error(node.args[0], "exists is asked of a name or a field: exists(value.a)")
        if name == "contains":
            return self._link(arguments[1], "in", arguments[0], node.args[0])
        return CallNode(name, arguments)

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
        if not error.offset:  # Python ran out of text
            lines = self._lines()
            return self._error_at(len(lines), len(lines[-1]), "the expression is incomplete")
        what = error.msg.replace("'==' or ':=' instead of '='", "'=='")
        if word := _KEYWORD_FIELD.search(self._text):
            what = f'a field named like a word of Python is written ["{word[1]}"]'
        elif what == "invalid syntax" and re.search(r"[^=!<>]=[^=]", self._text):
            what += "; equal is written =="
        elif "&&" in self._text or "||" in self._text:
            what += "; write 'and', 'or', 'not'"
        return self._error_at(error.lineno or 1, error.offset - 1, what)

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
