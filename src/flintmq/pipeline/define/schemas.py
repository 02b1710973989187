"""The columns of a declared schema, by its text alone: `id bigint, at timestamp`. Pure.

Spark has the last word; this finds what can be found without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...errors import InvalidRequest
from ...spark.columns import HEADERS, SCHEMA
from .definition import Source
from .problems import meant

TYPES = (
    "string", "bigint", "long", "int", "integer", "smallint", "short", "tinyint", "byte", "boolean",
    "double", "float", "real", "decimal", "dec", "numeric", "date", "timestamp", "timestamp_ntz",
    "timestamp_ltz", "time", "binary", "array", "map", "struct", "char", "varchar", "interval",
    "variant", "void",
)  # fmt: skip
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\W\d]\w*|\d\w*))\s*:?\s*(.*)", re.DOTALL)
_TYPE = re.compile(r"[A-Za-z_]\w*")


class DeclaredColumn(NamedTuple):
    name: str
    type: str
    """In lower case, without parameters: `array`, not `array<int>`."""


def columns_of(schema: str) -> list[DeclaredColumn]:
    """The columns of a schema. Raises InvalidRequest for what is not a column."""
    columns: list[DeclaredColumn] = []
    for part in _parts(schema):
        found = _NAME.fullmatch(part)
        if found is None:
            raise InvalidRequest(f"{part.strip()!r} is not a column: write a name and a type")
        name, rest = (found[1] or found[2] or "").replace("``", "`"), found[3].strip()
        kind = _TYPE.match(rest)
        if kind is None:
            raise InvalidRequest(f"the column {name} has no type: write for example {name} string")
        if kind[0].lower() not in TYPES:
            remedy = meant(kind[0], TYPES, "such as")
            raise InvalidRequest(f"the column {name} has the unknown type {kind[0]}; {remedy}")
        if any(name.lower() == one.name.lower() for one in columns):
            raise InvalidRequest(f"the column {name} is defined twice")
        columns.append(DeclaredColumn(name, kind[0].lower()))
    return columns


def columns_of_source(source: Source) -> dict[str, str] | None:
    """Its columns and types; None if only the data tells."""
    if source.files is not None and source.schema is None:
        return None
    texts = (own_columns(source), source.schema or "")
    return {name: kind for text in texts if text for name, kind in columns_of(text)}


def own_columns(source: Source) -> str:
    """The columns that its rows have beside its schema, written as a schema."""
    if source.files is not None:
        return "" if source.file_format == "parquet" else "_file string"
    options = {name.lower(): value.lower() for name, value in source.options.items()}
    whole = f"{SCHEMA}, {HEADERS}" if options.get("includeheaders") == "true" else SCHEMA
    if source.schema is None:
        return whole
    own = {part.split()[0]: part.strip() for part in _parts(whole)} | {"key": "key string"}
    return ", ".join(f"_{part}" for name, part in own.items() if name != "value")


def has(columns: Mapping[str, str], name: str) -> bool:
    """Whether there is such a column. Case does not matter; `a.b` is a field of a struct."""
    return name.split(".")[0].lower() in {one.lower() for one in columns}


def _parts(schema: str) -> Iterator[str]:
    """The parts between commas outside of brackets."""
    depth = begin = 0
    is_quoted = False
    for at, sign in enumerate(schema):
        if sign == "`":
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
            if depth < 0:
                raise InvalidRequest(f"a {sign} without an opening bracket, after {schema[:at]!r}")
        elif sign == "," and not depth:
            yield schema[begin:at]
            begin = at + 1
    if depth or is_quoted:
        raise InvalidRequest("a bracket or a quote is not closed")
    yield schema[begin:]
