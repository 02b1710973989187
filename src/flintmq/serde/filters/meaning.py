"""What the operations of a filter mean. None of them raises, whatever it is given."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

import msgspec

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""Whole numbers that a filter may name or reckon with: those of 64 bits, signed or not."""

COMPARED_ITEMS_MAX = 10_000
"""How many items of nested lists and maps one comparison looks at before it gives up as unlike."""


class _Missing:
    """What a message does not have. Equal to nothing, and false."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()

KINDS: dict[type, str] = {
    int: "number", float: "number", bool: "number", str: "text", bytes: "bytes",
    type(None): "none", list: "list", tuple: "list", dict: "map",
}  # fmt: skip
NUMBERS = frozenset((int, float, bool))
_SCALARS = frozenset((int, float, bool, str, bytes, type(None)))
ORDERED = frozenset((int, float, bool, str, bytes))
PLAIN = frozenset((*KINDS, _Missing))


_AS_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, lambda thing: bytes.__getitem__(thing, slice(None))),
    (list, list.copy),
    (tuple, lambda thing: tuple.__getitem__(thing, slice(None))),
    (dict, dict.copy),
)


def _plain(thing: Any) -> Any:
    """`thing` as one of the plain types, if it is of a kind with one; its own methods never run."""
    kind = type(thing)
    if kind in PLAIN:
        return thing
    for base, plain in _AS_PLAIN:
        if issubclass(kind, base):
            return plain(thing)
    if kind is bytearray or kind is memoryview:
        try:
            return bytes(thing)
        except ValueError:  # a view that was released
            return MISSING
    return thing


def truth(thing: Any) -> bool:
    if type(thing) not in PLAIN:
        thing = _plain(thing)
        if type(thing) not in PLAIN:
            return True  # an object that is there
    return bool(thing)


def field(thing: Any, step: str | int) -> Any:
    kind: Any = type(thing)
    if kind is dict:
        return thing.get(step, MISSING)
    if kind in PLAIN:
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
    kind = KINDS.get(type(a))
    if kind is None or kind != KINDS.get(type(b)):
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
        kind = KINDS.get(type(a))
        if kind is None or kind != KINDS.get(type(b)):
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


def _says(relation: Callable[[Any, Any], bool | None], answer: bool) -> Callable[[Any, Any], bool]:
    """Whether a relation answers so; unlike things, of which it answers nothing, do not pass."""
    return lambda a, b: relation(a, b) is answer


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def relation(a: Any, b: Any) -> bool:
        a, b = _plain(a), _plain(b)
        kind = type(a)
        return kind in ORDERED and KINDS[kind] == KINDS.get(type(b)) and compare(a, b)

    return relation


def _arithmetic(reckon: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def result(a: Any, b: Any) -> Any:
        if type(a) not in NUMBERS or not INT_MIN <= a <= INT_MAX:
            a = _number(a)
        if type(b) not in NUMBERS or not INT_MIN <= b <= INT_MAX:
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


def _by_method(name: str) -> Callable[[Any, Any], bool]:
    """A question that text and bytes answer about a part of their own kind."""
    methods: dict[type, Any] = {kind: getattr(kind, name) for kind in (str, bytes)}

    def answer(thing: Any, part: Any) -> bool:
        thing, part = _plain(thing), _plain(part)
        kind = type(thing)
        return kind in methods and type(part) is kind and methods[kind](thing, part)

    return answer


def _exists(thing: Any, none: None = None) -> bool:
    return thing is not None and thing is not MISSING


COMPARED: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "==": ("equal", _says(_same, True)),
    "!=": ("unequal", _says(_same, False)),
    "<": ("less", _ordering(operator.lt)),
    "<=": ("at_most", _ordering(operator.le)),
    ">": ("more", _ordering(operator.gt)),
    ">=": ("at_least", _ordering(operator.ge)),
    "in": ("inside", _says(_member, True)),
    "not in": ("outside", _says(_member, False)),
    "is": ("is_none", lambda a, none: a is None),
    "is not": ("is_some", _exists),
}
CALLED: dict[str, Callable[..., Any]] = {
    "add": _arithmetic(operator.add),
    "subtract": _arithmetic(operator.sub),
    "multiply": _arithmetic(operator.mul),
    "divide": _arithmetic(operator.truediv),
    "floor_divide": _arithmetic(operator.floordiv),
    "remainder": _arithmetic(operator.mod),
    "negative": _negative,
    "lower": _lower,
    "len": _length,
    "startswith": _by_method("startswith"),
    "endswith": _by_method("endswith"),
    "exists": _exists,
}
