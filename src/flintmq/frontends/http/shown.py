"""Structs of the JSON API, made from the values they show. Pure.

Offsets, ids and partitions become strings: a reader of JSON may hold numbers as floats, and 64 bits
do not fit there. Everything else is as the value has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta

from ...model import TEXT_IN_JSON

Number = Annotated[str, Meta(pattern="^[0-9]{1,19}$", description="a whole number below 2**63")]


class Model(msgspec.Struct, kw_only=True):
    """The root of what is given."""


M = TypeVar("M", bound=Model)


def shows(
    value: type[msgspec.Struct],
    *,
    first: Collection[str] = (),
    without: Collection[str] = (),
    optional: Collection[str] = (),
) -> Callable[[type[M]], type[M]]:
    """Make a model of a value's fields, in their order, those of `first` before the others.

    What the decorated class declares itself counts before the value's; what the value does not have
    comes last. Every field is always there in an answer; a reader is told so, but of `optional`
    ones, which came later than the model.
    """

    def derive(declared: type[M]) -> type[M]:
        kinds, own = get_type_hints(value), get_type_hints(declared, include_extras=True)
        given = {field.name: field for field in msgspec.structs.fields(value)}
        names = [*first, *(one for one in given if one not in first and one not in without)]
        fields: list[Any] = []
        for name in dict.fromkeys([*names, *own]):
            kind = own[name] if name in own else _in_json(name, kinds[name])
            fields.append((name, kind, _default(given[name])) if name in optional else (name, kind))
        made: Any = msgspec.defstruct(
            declared.__name__,
            fields,
            bases=(Model,),
            module=declared.__module__,
            namespace={"__doc__": declared.__doc__},
            kw_only=True,
        )
        derived: type[M] = made
        return derived

    return derive


def _in_json(name: str, kind: Any) -> Any:
    number: Any = Number
    if name not in TEXT_IN_JSON:
        return kind
    return number if kind is int else number | None


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is NODEFAULT:
        return field.default
    return msgspec.field(default_factory=field.default_factory)


def show(model: type[M], value: Any, **others: Any) -> M:
    """A value as its model; `others` are fields it does not have."""
    for name in model.__struct_fields__:
        if name not in others:
            found = getattr(value, name)
            others[name] = str(found) if name in TEXT_IN_JSON and found is not None else found
    return model(**others)
