"""Filter expressions: what they select, what they refuse, and that nothing else can happen."""

from __future__ import annotations

import ast
import operator
import pickle
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, RowSource
from flintmq.errors import InvalidRequest
from flintmq.rows import Message, Origin
from flintmq.serde.filters import CompiledFilter, code, compile_filter
from flintmq.serde.filters.grammar import DEPTH_MAX, FUNCTIONS, NAMES, NODES_MAX, TEXT_LENGTH_MAX

ORIGIN = Origin("orders.eu", 3)


def one_row(**options: Any) -> BatchBuilder:
    rows = BatchBuilder(base_offset=7)
    rows.append_row(b"", **options)
    return rows


def passes(text: str, value: object = None, **options: Any) -> bool:
    """Whether one message with this decoded value passes; the same open and sealed."""
    rows, compiled = one_row(**options), compile_filter(text)
    rows.append_time = 1_500
    answers = {
        compiled.matches(source, 0, ORIGIN, lambda source, row: value)
        for source in (rows, rows.seal())
    }
    assert len(answers) == 1
    return answers.pop()


def refusal(text: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        compile_filter(text)
    return str(caught.value)


# --- what it selects


def test_every_fact_of_a_message_has_a_name() -> None:
    assert passes('topic == "orders.eu" and partition == 3 and offset == 7')
    assert passes('key == "k" and headers.region == "eu"', key="k", headers={"region": "eu"})
    assert passes("priority == 5 and size == 0 and timestamp == 1.5", priority=5)
    assert passes('content_type == "application/json"', content_type="application/json")
    assert passes("value.amount > 100", {"amount": 101})


def test_fields_are_reached_by_dots_and_by_indexes() -> None:
    value = {"items": [{"price": 3}, {"price": 9}], "x-id": "a", "_id": 1}

    assert passes("value.items[0].price == 3 and value.items[-1].price == 9", value)
    assert passes('value["x-id"] == "a" and value._id == 1', value)
    assert passes('headers["x-id"] == b"\\x00"', headers={"x-id": b"\x00"})


@pytest.mark.parametrize(
    "text",
    [
        "1 < value.n < 10 and not value.n == 6",
        "value.n != 6 and value.n <= 5 and value.n >= 5",
        "10 > value.n and 5 == value.n",
        "value.n in [1, 5] and value.n not in (2, -5) and value.n in {5.0}",
        'value.s in ["abc", "x"] and "b" in value.s and "z" not in value.s',
        'contains(value.s, "bc") and contains(value.l, 2) and contains(value, "n")',
        '2 in value.l and 9 not in value.l and "n" in value',
        'startswith(value.s, "ab") and endswith(value.s, "bc") and startswith(value.b, b"\\x01")',
        'lower(value.u) == "abc" and len(value.s) == 3 and len(value.l) == 3 and len(headers) == 0',
        "value.n + 1 == 6 and value.n - 1 == 4 and value.n * 2 == 10 and value.n / 2 == 2.5",
        "value.n // 2 == 2 and value.n % 3 == 2 and -value.n == -5",
        "value.none is None and value.n is not None and value.none == None and value.n != None",
        "exists(value.n) and not exists(value.none) and not exists(value.gone) and not exists(key)",
        "value.yes and not value.no and value.l and value.s and value.yes == 1",
        "(value.gone or 3) + 1 == 4 and (value.n and value.s) == 'abc'",
        "value.l == [1, 2, 3] and value.l != (1, 2)",
        "key is None and content_type is None",
        "True",
    ],
)
def test_it_means_what_it_means_in_python(text: str) -> None:
    value = {
        "n": 5, "s": "abc", "u": "ABC", "b": b"\x01\x02", "l": [1, 2, 3],
        "none": None, "yes": True, "no": False,
    }  # fmt: skip

    assert passes(text, value)


@pytest.mark.parametrize("relation", ["==", "!=", "<", "<=", ">", ">=", "in", "not in"])
@pytest.mark.parametrize(
    "pair",
    [
        ("value.gone", "value.n"),
        ("value.s", "value.n"),
        ("value.n", "value.none"),
        ("value.l[9]", "3"),
    ],
)
def test_a_comparison_of_missing_or_unlike_things_is_false(
    relation: str, pair: tuple[str, str]
) -> None:
    left, right = pair
    if relation in ("in", "not in") and right == "3":
        right = "value.n"

    assert not passes(f"{left} {relation} {right}", {"n": 1, "s": "a", "none": None, "l": [1]})


def test_not_turns_around_what_it_stands_before_even_if_something_is_missing() -> None:
    assert passes("not value.x == 1", {})
    assert not passes("value.x != 1", {})
    assert not passes("value.x is None", {})
    assert passes("not exists(value.x)", {})


def test_what_cannot_be_reckoned_is_missing() -> None:
    value = {"n": 2**62, "zero": 0, "s": "a", "f": 1e308, "huge": 10**400}

    for thing in ("value.n * 16", "value.n / value.zero", "value.n % 0", "value.s + 1", "-value.s",
                  "value.f * 10", "value.huge + 1", "len(value.n)", "lower(value.n)"):  # fmt: skip
        assert not passes(f"{thing} == {thing}", value), thing
    assert passes("value.n * 2 == 9223372036854775808", value)


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "//", "%"])
@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_reckoned_with_on_either_side(name: str, sign: str) -> None:
    for source, decoded in sources([{"decoded": 3, "priority": 5, "key": "k"}], 5):
        for text in f"{name} {sign} 2 == 1", f"9 {sign} {name} > 1", f"{name} {sign} {name} >= 0":
            rows = range(source.row_count)
            assert compile_filter(text).pick(source, rows, ORIGIN, lambda *_: 3) == [
                row
                for row in rows
                if Reference(Message(source, row, ORIGIN), decoded[row]).holds(text)
            ]


def test_a_value_that_does_not_decode_is_missing() -> None:
    def broken(source: RowSource, row: int) -> object:
        raise RuntimeError("not JSON")

    assert not compile_filter("value.x == 1").matches(one_row(), 0, ORIGIN, broken)
    assert compile_filter("not exists(value)").matches(one_row(), 0, ORIGIN, broken)


def test_without_a_decoder_the_value_is_what_the_batch_holds() -> None:
    rows = BatchBuilder.of([b"abc", b"xyz"])

    assert compile_filter('startswith(value, b"a")').pick(rows, range(2), ORIGIN, None) == [0]


def test_a_message_that_was_never_stored_has_no_offset() -> None:
    rows = BatchBuilder.of([b""])

    assert compile_filter("offset is None").matches(rows, 0, ORIGIN, None)
    assert not compile_filter("offset >= 0").matches(rows, 0, ORIGIN, None)


def test_picks_keep_the_order_of_the_rows_asked_for() -> None:
    rows = BatchBuilder()
    for number in range(10):
        rows.append_row(b"", priority=number % 8)
    urgent = compile_filter("priority >= 5")

    for source in (rows, rows.seal()):
        assert urgent.pick(source, range(10), ORIGIN, None) == [5, 6, 7]
        assert urgent.pick(source, [7, 0, 5], ORIGIN, None) == [7, 5]
        assert urgent.pick(source, [], ORIGIN, None) == []


def test_filters_are_equal_by_their_text_and_travel_as_it() -> None:
    ours, theirs = compile_filter(" priority > 5 "), compile_filter("priority > 5")

    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert pickle.loads(pickle.dumps(ours)) == theirs
    assert ours != compile_filter("priority > 4")
    assert repr(ours) == "compile_filter('priority > 5')"
    assert compile_filter("key == value.a").names == {"key", "value"}
    assert (ours.uses_value, compile_filter("exists(value)").uses_value) == (False, True)


# --- what it touches


class Untouchable:
    """A source that gives out what it was told to, and fails on anything else."""

    def __init__(self, **allowed: Any) -> None:
        self.allowed = allowed

    def __getattr__(self, name: str) -> Any:
        return vars(self)["allowed"][name]


def pick(compiled: CompiledFilter, source: Any, decode: Any = None) -> list[int]:
    return compiled.pick(source, range(3), ORIGIN, decode)


def test_columns_that_are_not_named_are_not_touched() -> None:
    everything = one_row(key="k", headers={"a": "b"}, priority=1, content_type="text/plain").columns
    facts: dict[str, Any] = {
        "topic": {},
        "partition": {},
        "offset": {"base_offset": 0},
        "size": {"size": lambda start, stop: stop},
        "key": {"columns": everything, "key": str},
        "headers": {"columns": everything, "headers": lambda row: {}},
        "priority": {"columns": everything, "priority": int},
        "content_type": {"columns": everything, "content_type": str},
        "timestamp": {"columns": everything, "time": lambda row: row},
        "value": {"value": str},
    }
    assert set(facts) == set(NAMES)

    for name, allowed in facts.items():
        assert pick(compile_filter(f"exists({name})"), Untouchable(**allowed)) == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "priority >= 5 and value.amount > 100",
        "value.amount > 100 and priority >= 5",
        'headers.region == "eu" and size > 3',
        "exists(key) and value.amount > 100",
        "content_type == 'a' and (value.x or value.y)",
        "not (priority == 0 or value.x)",
    ],
)
def test_a_batch_without_the_column_is_decided_as_a_whole(text: str) -> None:
    assert pick(compile_filter(text), Untouchable(columns=0)) == []
    assert pick(compile_filter(f"not ({text})"), Untouchable(columns=0)) == [0, 1, 2]


def test_what_is_the_same_for_a_batch_is_asked_once() -> None:
    asked: list[int] = []

    def time(row: int) -> int:
        asked.append(row)
        return 5_000

    source = Untouchable(columns=0, time=time)

    assert pick(compile_filter('timestamp > 3 and topic == "orders.eu"'), source) == [0, 1, 2]
    assert pick(compile_filter("timestamp > 9"), source) == []
    assert asked == [0, 0]


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("value.a == 1 and value.b == 2 or value.c == 3 or 0 < value.d < 2", [0, 1, 2]),
        ("size == 0 and value.a == 1 or value.b == 2", [0, 1, 2]),
        ("size == 0 or value.a == 1", []),
        ("size > 0 and value.a == 1", []),
        ("value.a == 1 and offset == 1", [1]),
        ("value.a == 1 or offset == 1", [0, 2]),
        ("(offset == 1 and value.a == 1) or (offset == 1 and value.b == 1)", [1]),
        ("(value.a or value.b or 3) == 3 and (size > 1 and value.c or value.d or True)", [0, 1, 2]),
    ],
)
def test_a_value_is_decoded_once_and_only_where_the_expression_comes_to_it(
    text: str, decoded: list[int]
) -> None:
    rows = BatchBuilder.of([b"", b"", b""])
    rows.base_offset = 0
    seen: list[int] = []

    def decode(source: RowSource, row: int) -> object:
        seen.append(row)
        return {}

    pick(compile_filter(text), rows, decode)

    assert seen == decoded


# --- objects by reference


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 9


@dataclass
class Order:
    amount: int
    _secret: int = 1

    @property
    def danger(self) -> int:
        raise AssertionError("a property ran")

    @cached_property
    def lazy(self) -> int:
        raise AssertionError("a cached property ran")

    def method(self) -> int:
        raise AssertionError("a method ran")

    def __getattr__(self, name: str) -> int:
        raise AssertionError("__getattr__ ran")

    def __bool__(self) -> bool:
        raise AssertionError("__bool__ ran")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("__eq__ ran")


@dataclass(slots=True)
class SlottedOrder:
    amount: int


class StructOrder(msgspec.Struct):
    amount: int
    unset: int | msgspec.UnsetType = msgspec.UNSET


TupleOrder = namedtuple("TupleOrder", ["amount"])


@pytest.mark.parametrize("order", [Order, SlottedOrder, StructOrder, TupleOrder])
def test_declared_fields_of_objects_are_reached_and_nothing_else(
    order: Callable[[int], object],
) -> None:
    value = order(5)
    assert passes("value.amount == 5 and value and exists(value)", value)
    assert passes(
        "value.inner.amount == 5 and value.list[0].amount == 5", {"inner": value, "list": [value]}
    )
    for name in ("danger", "lazy", "method", "_secret", "count", "unset", "nothing"):
        assert not passes(f"exists(value.{name})", value), name
        assert not passes(f'exists(value["{name}"])', value), name
    for name in ("__class__", "__dict__", "__init__", "__struct_fields__"):
        assert not passes(f'exists(value["{name}"])', value), name


def test_pydantic_models_have_fields_too() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", amount=(int, ...))(amount=5)

    assert passes("value.amount == 5 and not exists(value.copy)", model)
    assert not passes("exists(value.model_fields_set)", model)


def test_objects_do_not_get_to_say_what_they_equal() -> None:
    value = {"a": Order(1), "b": Order(1), "l": [Order(1)]}

    for text in ("value.a == value.b", "value.a != 1", "value.a in value.l", "value.a < 3",
                 "value.l == value.l", "value.a == 'x'", "value.a + 1 == 2"):  # fmt: skip
        assert not passes(text, value), text


def test_things_that_derive_from_plain_ones_are_plain() -> None:
    class Loud(dict[str, int]):
        def __missing__(self, key: str) -> int:
            raise AssertionError("__missing__ ran")

    value: dict[str, Any] = {"c": Colour.RED, "s": Size.BIG, "d": Loud(a=1), "m": memoryview(b"xy")}

    assert passes('value.c == "red" and value.c in ["red"] and startswith(value.c, "r")', value)
    assert passes("value.s > 8 and value.s + 1 == 10 and value.s in [9]", value)
    assert passes('value.d.a == 1 and not exists(value.d.b) and "a" in value.d', value)
    assert passes('value.m == b"xy" and len(value.m) == 2', value)
    value["m"].release()
    assert not passes("value.m or value.m == value.m", value)


@pytest.mark.slow
def test_things_in_a_circle_or_of_great_depth_are_given_up_on() -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    ours += [ours, ours]
    theirs += [theirs, theirs]
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]

    assert not passes("value.a == value.b or value.a != value.b", {"a": ours, "b": theirs})
    assert passes("value.a == value.a", {"a": deep})


# --- what it refuses


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prioriy > 5", "unknown name 'prioriy'; did you mean 'priority'?"),
        ("starts_with(key, 'a')", "did you mean 'startswith'?"),
        ("value.a == true", "did you mean 'True'?"),
        ("value.a == null", "did you mean 'None'?"),
        ("key.startswith('a')", "write startswith(x, y)"),
        ("value.from == 1", 'written ["from"]'),
        ("priority = 5", "=="),
        ("key && topic", "'and'"),
        ("len == 3", "'len' is a function"),
        ("startswith(key)", "startswith takes 2, not 1"),
        ("key(1)", "'key' is not a function"),
        ("priority[0] == 1", "'priority' has no fields"),
        ("headers[0] == 'a'", "found by name"),
        ("headers.a.b == 1", "has no fields"),
        ("lower(key).a == 1", "only value and headers have fields"),
        ("value is True", "is for None"),
        ("key in 5", "looks into a list"),
        ("value.a == [key]", "constants only"),
        ("exists(1)", "a name or a field"),
        ("value.a + 'x' == 'y'", "arithmetic is on numbers"),
        ("value[1.5] == 1", "an index is"),
        ("1 < (2 < 3) < 4", "write 'and'"),
        ("-'a' == 1", "minus sign"),
        ("1e999 > size", "finite"),
        ("2j == size", "not complex"),
        ("18446744073709551616 > size", "64 bits"),
        ("-9223372036854775809 < size", "64 bits"),
        ("", "empty"),
    ],
)  # fmt: skip
def test_an_error_says_what_would_be_right(text: str, said: str) -> None:
    assert said in refusal(text)


def test_an_error_points_at_the_place() -> None:
    assert refusal('"é" == kei') == (
        "filter, column 8: unknown name 'kei'; did you mean 'key'?\n    \"é\" == kei\n           ^"
    )
    assert "line 2, column 1" in refusal("(key ==\nkex)")
    assert refusal("value.x >") == (
        "filter, column 10: the expression is incomplete\n    value.x >\n             ^"
    )
    assert "column 12: the expression is incomplete" in refusal("key and not")
    assert len(refusal("size > 0 and " * 60 + "kex").splitlines()[1]) < 90


ATTACKS = [
    "__class__", "value.__class__", "value.__init__", "value.a.__globals__", "__import__('os')",
    "().__class__.__bases__", "''.__class__.__mro__[1].__subclasses__()", "[].append(1)",
    "lambda: 1", "(lambda x: x)(1)", "[x for x in value]", "{x for x in value}", "{1: 2}",
    "(x for x in value)", "{x: x for x in value}", "(x := 1)", "(value := 1) == 1", "f'{key}'",
    "f'{value.__class__}'", "key if value else topic", "open('x')", "eval('1')", "exec('1')",
    "getattr(value, 'x')", "value()", "value.x()", "len(*value)", "len(**value)", "len(x=1)",
    "startswith(*value, key)", "value[0:1]", "value[key]", "value[value]", "value[...]", "...",
    "9**9**9", "'a' * 10**9", "'a' * 1000000000", "[0] * 10**9", "1 << 10**9", "~1", "key | topic",
    "+1", "value @ value", "await value", "yield", "(yield value)", "print('x')", "*value",
    "value,", "[*value]", "not", "and", "1 +", "\0", "size > 0\0", "'\0'", "\ud800",
    "'\udfff' == key", "(" * 900, "[" * 900, "not " * 450 + "1", "-" * 1_900 + "1",
    "value" + ".a" * 900, "value" + "[0]" * 600, "lower(" * 300 + "key" + ")" * 300,
    "1 + " * 450 + "1", "1 < " * 450 + "1", "size and " * 200 + "size", "9" * 1_900,
    "0x" + "f" * 1_900, "1e" + "9" * 1_900, "x" * 1_900, "import os", "import os; 1", "1; 2",
    "key == 1\nimport os", "del key", "key = 1", "class A: pass", "# nothing", "key \\", "'''",
    "size == 1 #" + " x" * 2_000, "True()", "None.x", "(1).real", "b'a'.hex()", "1 .real",
    "topic.format", "topic['format']", "headers.__class__", "value.a.b.__dict__", "run", "source",
    "MISSING", "UNREAD", "type_of(value)", "field(value, 'a')", "row", "load", "c0", "t1",
    "{'a', *value}", "[[1]]", "({},)", "exists(exists(value))", "lower", "len(len)", "import",
]  # fmt: skip


@pytest.mark.parametrize("text", ATTACKS, ids=range(len(ATTACKS)))
def test_nothing_else_of_python_is_part_of_it(text: str) -> None:
    refusal(text)


def test_texts_that_are_no_text_are_refused() -> None:
    for thing in (None, 1, b"True", lambda message: True):
        with pytest.raises(InvalidRequest, match="is a str"):
            compile_filter(thing)  # type: ignore[arg-type]


def test_size_and_depth_have_limits_that_are_named() -> None:
    assert compile_filter("size > 0" + " " * 3_000)
    assert f"{TEXT_LENGTH_MAX:,}" in refusal("'" + "a" * TEXT_LENGTH_MAX + "' == key")

    fitting = ", ".join(["1"] * (NODES_MAX - 3))
    assert compile_filter(f"size in [{fitting}]")
    assert str(NODES_MAX) in refusal(f"size in [{fitting}, 1]")

    assert compile_filter("not " * (DEPTH_MAX - 1) + "key")
    assert str(DEPTH_MAX) in refusal("not " * DEPTH_MAX + "key")


def test_what_the_user_wrote_never_becomes_part_of_code(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    compiled_by = code._CodeWriter.compiled

    def spy(writer: Any, code: str) -> Any:
        written.append(code)
        return compiled_by(writer, code)

    monkeypatch.setattr(code._CodeWriter, "compiled", spy)

    passes(
        'value.marker["marker"] == "marker" and value.x in ["marker"] and 777 < value.y < 777', {}
    )
    passes(
        'headers.marker == b"marker" or startswith(value.a.marker, "marker")', headers={"a": "b"}
    )

    assert len(written) == 3
    assert not any("marker" in code or "777" in code for code in written)


# --- against random texts, and against a reference

MISSING = object()
RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def kind_of(thing: Any) -> str:
    if isinstance(thing, int | float):
        return "number"
    return "list" if isinstance(thing, tuple) else type(thing).__name__


class Reference:
    """The same language, in the plainest way: a walk over Python's own tree for every message."""

    def __init__(self, message: Message, value: Any) -> None:
        self.message, self.value = message, value

    def holds(self, text: str) -> bool:
        return self.truth(self.eval(ast.parse(text.strip(), mode="eval").body))

    def truth(self, thing: Any) -> bool:
        return thing is not MISSING and bool(thing)

    def eval(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(constant):
                return constant
            case ast.Name(name):
                return self.value if name == "value" else getattr(self.message, name)
            case ast.Attribute(of, name):
                return self.step(self.eval(of), name)
            case ast.Subscript(of, index):
                return self.step(self.eval(of), self.eval(index))
            case ast.List(items) | ast.Tuple(items):
                return [self.eval(item) for item in items]
            case ast.BoolOp(op, parts):
                for part in parts:
                    found = self.eval(part)
                    if self.truth(found) is isinstance(op, ast.Or):
                        return found
                return found
            case ast.UnaryOp(ast.Not(), of):
                return not self.truth(self.eval(of))
            case ast.UnaryOp(_, of):
                found = self.eval(of)
                return self.number(-found) if kind_of(found) == "number" else MISSING
            case ast.BinOp(left, op, right):
                return self.reckon(OPERATORS[type(op)], self.eval(left), self.eval(right))
            case ast.Compare(left, ops, rights):
                things = [self.eval(thing) for thing in (left, *rights)]
                nodes = (left, *rights)
                return all(
                    self.compare(op, things[n], things[n + 1], nodes[n], nodes[n + 1])
                    for n, op in enumerate(ops)
                )
            case ast.Call(ast.Name(name), arguments):
                return self.call(name, [self.eval(argument) for argument in arguments])
        raise AssertionError(ast.dump(node))

    def step(self, of: Any, step: Any) -> Any:
        if isinstance(of, dict) and step in of:
            return of[step]
        if isinstance(of, list) and isinstance(step, int) and -len(of) <= step < len(of):
            return of[step]
        return MISSING

    def number(self, result: Any) -> Any:
        if isinstance(result, int):
            return result if -(2**63) <= result < 2**64 else MISSING
        return result if abs(result) < float("inf") else MISSING

    def reckon(self, op: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        if kind_of(a) != "number" or kind_of(b) != "number":
            return MISSING
        if self.number(a) is MISSING or self.number(b) is MISSING:
            return MISSING
        try:
            return self.number(op(a, b))
        except (ZeroDivisionError, OverflowError):
            return MISSING

    def compare(self, op: ast.cmpop, a: Any, b: Any, a_node: ast.expr, b_node: ast.expr) -> bool:
        if a is MISSING or b is MISSING:
            return False
        if isinstance(op, ast.Is | ast.IsNot):
            return (a is None) is isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            return self.member(a, b) is isinstance(op, ast.In)
        if isinstance(op, ast.Eq | ast.NotEq) and any(
            isinstance(node, ast.Constant) and node.value is None for node in (a_node, b_node)
        ):
            return (a is None and b is None) is isinstance(op, ast.Eq)
        if kind_of(a) != kind_of(b):
            return False
        if not isinstance(op, ast.Eq | ast.NotEq) and kind_of(a) not in ("number", "str", "bytes"):
            return False
        return RELATIONS[type(op)](a, b)

    def member(self, item: Any, among: Any) -> bool | None:
        if isinstance(among, list):
            return any(kind_of(item) == kind_of(other) and item == other for other in among)
        if isinstance(among, dict):
            return None if isinstance(item, dict | list) else item in among
        if isinstance(among, str | bytes) and type(item) is type(among):
            return item in among  # type: ignore[operator]
        return None

    def call(self, name: str, things: list[Any]) -> Any:
        first = things[0]
        if name == "exists":
            return first is not MISSING and first is not None
        if name == "len":
            return len(first) if isinstance(first, str | bytes | list | dict) else MISSING
        if name == "lower":
            return first.lower() if isinstance(first, str | bytes) else MISSING
        if name == "contains":
            return MISSING not in things and self.member(things[1], first) is True
        both = {type(thing) for thing in things}
        return both in ({str}, {bytes}) and getattr(first, name)(things[1])


TEXTS = ["", "a", "b", "ab", "eu", "É"]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10)
    | st.sampled_from([2**63, 0.5, -1.5, 1e300, 2.0])
    | st.sampled_from(TEXTS)
    | st.sampled_from([b"", b"a", b"eu"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)
rows_of_messages = st.lists(
    st.fixed_dictionaries(
        {"decoded": st.just(MISSING) | st.dictionaries(st.sampled_from("abc"), values) | values},
        optional={
            "key": st.sampled_from([*TEXTS, b"a"]),
            "headers": st.dictionaries(st.sampled_from("abc"), st.sampled_from([*TEXTS, b"a"])),
            "priority": st.integers(0, 7),
            "content_type": st.sampled_from(["a", "ab"]),
        },
    ),
    min_size=1,
    max_size=4,
)


def joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    strategies = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*strategies).map("".join)


constants = scalars.map(repr)
lists = st.lists(constants, max_size=3).map(lambda items: f"[{', '.join(items)}]")
steps = st.sampled_from([".a", ".b", ".c", '["a"]', "[0]", "[-1]"])
paths = joined("value", st.lists(steps, max_size=3).map("".join)) | st.sampled_from(
    ["headers.a", "headers.b", 'headers["c"]', *NAMES]
)
relations = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"])
signs = st.sampled_from([" + ", " - ", " * ", " / ", " // ", " % "])
numbers = st.integers(-9, 9) | st.sampled_from([0.5, 2.0, 2**32, 2**32 + 1, 2**63, True])
reckoned = joined("(", st.sampled_from(NAMES), signs, numbers.map(repr), ")") | joined(
    "(", numbers.map(repr), signs, st.sampled_from(NAMES), ")"
)


def bigger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    things = inner | paths | constants
    one = st.sampled_from(sorted(name for name, arity in FUNCTIONS.items() if arity == 1))
    two = st.sampled_from(sorted(name for name, arity in FUNCTIONS.items() if arity == 2))
    return st.one_of(
        joined("(", things, " ", relations, " ", things | lists, ")"),
        joined("(", paths, " ", relations, " ", constants | lists, ")"),
        joined("(", constants, " ", relations, " ", paths, " ", relations, " ", paths, ")"),
        joined("(", inner, st.sampled_from([" and ", " or "]), inner, ")"),
        joined("(", paths, st.sampled_from([" and ", " or "]), things, " or ", things, ")"),
        joined("(", things, signs, things, ")"),
        joined("(", reckoned, " ", relations, " ", reckoned | constants, ")"),
        joined("(not ", things, ")"),
        joined("(- ", paths, ")"),
        joined("(", paths, st.sampled_from([" is None", " is not None"]), ")"),
        joined(one, "(", things, ")"),
        joined(two, "(", things, ", ", things, ")"),
    )


expressions = st.recursive(paths | reckoned, bigger, max_leaves=8)


def sources(
    messages: list[dict[str, Any]], base_offset: int
) -> Iterator[tuple[RowSource, list[Any]]]:
    """The messages in batches of every form, each with the values its rows decode to."""
    rows, many, later = BatchBuilder(base_offset), BatchBuilder(base_offset), BatchBuilder()
    decoded = [message["decoded"] for message in messages]
    rows.append_time = 1_000
    for number, message in enumerate(messages):
        options = {name: fact for name, fact in message.items() if name != "decoded"}
        rows.append_row(b"x" * number, **options)
    for _ in range(8):
        many.extend(rows, 0, len(messages))
    later.extend(rows, 0, 1)
    rows.append_time = 2_000
    later.extend(rows, 0, len(messages))
    for builder, values in (rows, decoded), (many, decoded * 8), (later, [decoded[0], *decoded]):
        yield builder, values
        yield builder.seal(), values


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@example("(None != False)", [{"decoded": MISSING}], -1, 1)
@given(expressions, rows_of_messages, st.sampled_from([-1, 5]), st.integers(0, 5))
def test_it_selects_what_a_plain_walk_over_the_tree_selects(
    text: str, messages: list[dict[str, Any]], base_offset: int, limit: int
) -> None:
    try:
        compiled = compile_filter(text)
    except InvalidRequest:
        return
    for source, decoded in sources(messages, base_offset):

        def decode(source: RowSource, row: int, decoded: list[Any] = decoded) -> object:
            if decoded[row] is MISSING:
                raise ValueError("does not decode")
            return decoded[row]

        rows = range(source.row_count)
        expected = [
            row for row in rows if Reference(Message(source, row, ORIGIN), decoded[row]).holds(text)
        ]
        assert compiled.pick(source, rows, ORIGIN, decode) == expected
        assert compiled.pick(source, rows, ORIGIN, decode, limit) == expected[:limit]
        assert [row for row in rows if compiled.matches(source, row, ORIGIN, decode)] == expected


words = st.sampled_from(
    [*NAMES, *FUNCTIONS, *"()[]{}.,:;=<>!+-*/%@~^|&#\\\n\"'", "and", "or", "not", "in", "is", "if",
     "else", "lambda", "None", "1", "2.5", "1e9", "0x1", "'a'", "b'a'", "f'{", "}'", "**", "//",
     "==", "!=", ":=", "->", "...", "for", "await", "__class__", "x", " ", "\0", "\ud800", "é"]
)  # fmt: skip


few_texts = st.sampled_from(["", "a", "b", "ab", "ö"])
few_rows = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": few_texts | few_texts.map(str.encode),
            "headers": st.dictionaries(few_texts, few_texts | few_texts.map(str.encode)),
            "priority": st.integers(0, 7),
        },
    ),
    min_size=8,
    max_size=40,
)
column_tests = st.sampled_from(
    [
        "key == 'a'",
        "key in ('a', '')",
        "headers.a == 'b'",
        "headers.a in ('a', 'ö')",
        "headers[''] == ''",
        "priority >= 3",
        "priority != 2.0",
        "priority == True",
        "3 > priority",
        "exists(key)",
        "headers.b != 'a'",
    ]
)


@given(few_rows, st.lists(column_tests, min_size=1, max_size=3), st.data())
def test_columns_of_a_finished_batch_give_the_rows_that_one_by_one_pass(
    rows: list[dict[str, Any]], tests: list[str], data: st.DataObject
) -> None:
    builder = BatchBuilder(5)
    for row in rows:
        builder.append_row(b"x", **row)
    compiled = compile_filter(data.draw(st.sampled_from([" and ", " or "])).join(tests))
    every = range(len(rows))
    asked = data.draw(st.just(every) | st.permutations(every) | st.lists(st.sampled_from(every)))
    limit = data.draw(st.none() | st.integers(0, 9))

    expected = [row for row in asked if compiled.matches(builder, row, ORIGIN, None)][:limit]
    assert compiled.pick(builder.seal(), asked, ORIGIN, None, limit) == expected


@settings(max_examples=200, deadline=None)
@given(
    st.lists(words, max_size=30).map(" ".join)
    | st.lists(words, max_size=30).map("".join)
    | st.text()
)
def test_random_texts_are_filters_or_invalid_requests(text: str) -> None:
    try:
        compiled = compile_filter(text)
    except InvalidRequest:
        return
    for source in (one_row(key="k", headers={"a": "b"}, priority=3), one_row()):
        for value in (None, {"a": [1]}, "x"):
            decoded: list[object] = [value]
            answer = compiled.matches(source, 0, ORIGIN, lambda _, row: decoded[row])  # noqa: B023
            assert answer is True or answer is False
