"""From nodes to a function over rows, written as Python text and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...batch import (
    PRIORITY,
    TIMES,
    RowSource,
)
from ...broker_api import OutOfTime
from .columns import COLUMN_OF, SEALED, UNSTORED, WITHOUT_COLUMN, header_at_once, keys_at_once
from .grammar import (
    BoolNode,
    CallNode,
    CompareNode,
    ConstNode,
    FieldNode,
    NameNode,
    Node,
    NotNode,
    names_in,
)
from .meaning import CALLED, COMPARED, KINDS, MISSING, NUMBERS, ORDERED, PLAIN, field, truth
from .narrowing import ColumnNarrowing

_Run = Callable[
    [RowSource, Sequence[int], str, int, int, Callable[[int], object] | None, int], list[int]
]


class Variant:
    """A filter made for sources of one form: what their missing columns decide is decided.

    `verdict` is the answer for every row, if that is known. `is_per_batch` says that one row of a
    source speaks for all. Otherwise `run` is a function made for the purpose, and `narrowing` says
    which rows it need not be asked about.
    """

    __slots__ = ("code", "is_per_batch", "narrowing", "run", "verdict")

    def __init__(self, root: Node, form: int) -> None:
        known = {name: v for name, v in WITHOUT_COLUMN.items() if form & COLUMN_OF[name]}
        if form & UNSTORED:
            known["offset"] = None
        root = _fold(root, known, is_test=True)
        self.verdict: bool | None = None
        self.is_per_batch = False
        self.narrowing: ColumnNarrowing | None = None
        if isinstance(root, ConstNode):
            self.verdict = truth(root.value)
            return
        shared = {"topic", "partition"} | ({"timestamp"} if form & TIMES else set())
        self.is_per_batch = shared.issuperset(names_in(root))
        if form & SEALED:
            self.narrowing = ColumnNarrowing(root) or None
        writer = _CodeWriter(root, shared, is_sealed=bool(form & SEALED))
        self.code = writer.function()
        self.run: _Run = writer.compiled(self.code)


def _fold(node: Node, known: Mapping[str, Any], *, is_test: bool = False) -> Node:
    """`node` with everything reckoned that is the same for all rows.

    In a test only the truth of the result counts.
    """
    match node:
        case NameNode(name) if name in known:
            return ConstNode(known[name])
        case FieldNode(of, step):
            of = _fold(of, known)
            return (
                ConstNode(field(of.value, step))
                if isinstance(of, ConstNode)
                else FieldNode(of, step)
            )
        case CompareNode(left, relation, right):
            left, right = _fold(left, known), _fold(right, known)
            if isinstance(left, ConstNode) and isinstance(right, ConstNode):
                return ConstNode(COMPARED[relation][1](left.value, right.value))
            return CompareNode(left, relation, right)
        case NotNode(of):
            of = _fold(of, known, is_test=True)
            return ConstNode(not truth(of.value)) if isinstance(of, ConstNode) else NotNode(of)
        case CallNode(function, arguments):
            folded = tuple(_fold(argument, known) for argument in arguments)
            if all(isinstance(argument, ConstNode) for argument in folded):
                constants = (a.value for a in folded if isinstance(a, ConstNode))
                return ConstNode(CALLED[function](*constants))
            return CallNode(function, folded)
        case BoolNode(is_and, parts):
            return _fold_bool(is_and, parts, known, is_test)
        case _:
            return node


def _fold_bool(
    is_and: bool, parts: tuple[Node, ...], known: Mapping[str, Any], is_test: bool
) -> Node:
    kept: list[Node] = []
    for number, part in enumerate(parts, 1):
        part = _fold(part, known, is_test=is_test)
        if isinstance(part, ConstNode):
            if truth(part.value) != is_and:  # this side decides
                if is_test:
                    return ConstNode(not is_and)
                kept.append(part)
                break
            if number < len(parts) or (is_test and kept):
                continue
        kept.append(part)
    if is_test:  # the order of tests does not show, and decoding is what costs
        kept.sort(key=lambda part: "value" in names_in(part))
    return kept[0] if len(kept) == 1 else BoolNode(is_and, tuple(kept))


_HELPERS: dict[str, Any] = {
    "__builtins__": {},
    "MISSING": MISSING,
    "UNREAD": object(),
    "OutOfTime": OutOfTime,
    "NUMBERS": NUMBERS,
    "PLAIN": PLAIN,
    "type_of": type,
    "len_of": len,
    "keys_at_once": keys_at_once,
    "header_at_once": header_at_once,
    "MAP": dict,
    "LIST": list,
    "TEXT": str,
    "BYTES": bytes,
    "field": field,
    "truth": truth,
    **dict(COMPARED.values()),
    **{f"call_{name}": function for name, function in CALLED.items()},
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


class _CodeWriter:
    """Writes the function that goes through the rows, as Python text.

    Of what the user wrote, nothing gets into that text: names are the ten above, and constants,
    fields among them, are bound as c0, c1 ... beside it. It runs without builtins.

    A column is read at most once per row. `sure` are the names that were read whichever way the
    row went so far, `self._maybe` those that were read on some way. Where it `_is_certain` that
    every row comes by, keys and headers of a finished batch are read at once.
    """

    def __init__(self, root: Node, shared: set[str], *, is_sealed: bool) -> None:
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
        uses = list(names_in(root))
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

    def _test(self, node: Node, sure: set[str]) -> str:
        """An expression that is true or false."""
        match node:
            case BoolNode(is_and, parts):
                tests = [self._test(parts[0], sure)]
                inner = set(sure)
                was_certain, self._is_certain = self._is_certain, False
                tests += [self._test(part, inner) for part in parts[1:]]
                self._is_certain = was_certain
                return f"({(' and ' if is_and else ' or ').join(tests)})"
            case NotNode(of):
                return f"(not {self._test(of, sure)})"
            case CompareNode():
                return self._compare(node, sure)
            case CallNode("startswith" | "endswith" | "exists"):
                return self._value(node, sure)
            case _:
                return f"truth({self._value(node, sure)})"

    def _value(self, node: Node, sure: set[str]) -> str:
        match node:
            case ConstNode(constant):
                return self._constant(constant)
            case NameNode(name):
                return self._read(name, sure)
            case FieldNode(of, step):
                key = self._constant(step)
                if of == NameNode("headers") and self._is_certain and self._is_sealed:
                    column = f"column_{key}"
                    self._more_prepares.append(f"{column} = header_at_once(source, {key}, rows)")
                    return f"{column}(row, MISSING)"
                base = self._value(of, sure)
                if of == NameNode("headers"):
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
            case BoolNode(is_and, parts):
                return self._either(is_and, parts, sure)
            case CallNode(function, arguments):
                given = [self._value(argument, sure) for argument in arguments]
                if (sign := _in_line(node)) is not None:
                    return f"({f' {sign} '.join(given)})"
                return f"call_{function}({', '.join(given)})"
            case _:
                return self._test(node, sure)

    def _either(self, is_and: bool, parts: tuple[Node, ...], sure: set[str]) -> str:
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

    def _compare(self, node: CompareNode, sure: set[str]) -> str:
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
        helper = COMPARED[relation][0]
        if not isinstance(right, ConstNode):
            return f"{helper}({thing}, {self._value(right, sure)})"
        other = self._constant(right.value)
        if is_search:
            return self._membership(thing, relation, right.value, other, helper)
        kind = type(right.value)
        if kind not in ORDERED:
            return f"{helper}({thing}, {other})"
        # The usual case in line; helpers are for things of no plain type, as in `object` topics.
        held = self._temporary()
        wanted = "in NUMBERS" if kind in NUMBERS else "is TEXT" if kind is str else "is BYTES"
        return (
            f"(type_of({held} := {thing}) {wanted} and {held} {relation} {other} "
            f"or type_of({held}) not in PLAIN and {helper}({held}, {other}))"
        )

    def _membership(self, thing: str, relation: str, among: Any, other: str, helper: str) -> str:
        kinds = {KINDS[type(item)] for item in among} if type(among) is tuple else set()
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


def _is_number(node: Node) -> bool:
    if isinstance(node, ConstNode):
        return type(node.value) in NUMBERS
    if isinstance(node, CallNode):
        return _in_line(node) is not None
    return isinstance(node, NameNode) and node.name in _ALWAYS_NUMBERS


def _in_line(node: CallNode) -> str | None:
    """The sign of an arithmetic that cannot fail: of a column with a constant that is not large."""
    match node:
        case CallNode(function, (NameNode(name), ConstNode(constant))) if name in _ALWAYS_NUMBERS:
            if type(constant) in NUMBERS and 1 <= abs(constant) <= 2**32:
                return _SIGNS.get(function)
    return None


_SIGNS = {"add": "+", "subtract": "-", "divide": "/", "floor_divide": "//", "remainder": "%"}


def _is_text(node: Node) -> bool:
    if isinstance(node, ConstNode):
        return type(node.value) is str
    return node == NameNode("topic")
