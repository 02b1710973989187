"""Whether all values of one JSON Schema are valid by another, as far as their keywords tell.

A property that a schema does not name is taken as not there, also where it would allow it: else no
property could ever be added. What cannot be compared (`oneOf`, `pattern` ...) has to stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InvalidRequest

LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
SAME = (
    "pattern", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "multipleOf", "uniqueItems",
    "patternProperties", "propertyNames", "contains", "prefixItems", "dependentRequired", "format",
)  # fmt: skip
DEEP = 40
Keywords = Mapping[str, Any]


def json_problems(reader: Any, writer: Any) -> list[str]:
    """Why `reader` refuses some of what is valid by `writer`."""
    return list(_JsonComparison(reader, writer).problems(reader, writer, "", 0))


def parsed_json_schema(parsed: Any) -> None:
    if not isinstance(parsed, dict | bool):
        raise InvalidRequest("a JSON Schema is an object, or true or false")


class _JsonComparison:
    def __init__(self, ours: Any, theirs: Any) -> None:
        self._ours, self._theirs = ours, theirs

    def problems(self, reader: Any, writer: Any, at: str, depth: int) -> Iterator[str]:
        reader, writer = _resolved(reader, self._ours), _resolved(writer, self._theirs)
        if reader in (True, {}) or writer is False or depth > DEEP:
            return
        if reader is False:
            yield f"{_said(at)} is not allowed any more"
            return
        writer = {} if writer is True else writer
        yield from self._types(reader, writer, at)
        for name in (*LEAST, *MOST):
            yield from _bound(name, reader, writer, at)
        for name in SAME:
            if name in reader and reader[name] != writer.get(name):
                yield f"{_said(at)}: {name} has changed"
        missing = set(reader.get("required", ())) - set(writer.get("required", ()))
        yield from (f"{_said(_below(at, one))} is required, and was not" for one in sorted(missing))
        ours, theirs = reader.get("properties", {}), writer.get("properties", {})
        for name in sorted(ours.keys() & theirs.keys()):
            yield from self.problems(ours[name], theirs[name], _below(at, name), depth + 1)
        rest = reader.get("additionalProperties", True)
        for name in sorted(theirs.keys() - ours.keys()):
            yield from self.problems(rest, theirs[name], _below(at, name), depth + 1)
        if "items" in reader:
            inner = writer.get("items", True)
            yield from self.problems(reader["items"], inner, f"{at}[]", depth + 1)

    def _types(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], at: str
    ) -> Iterator[str]:
        ours, theirs = _types_of(reader), _types_of(writer)
        if ours is not None:
            if theirs is None:
                yield f"{_said(at)} had no type, and must be {' or '.join(sorted(ours))}"
            elif more := sorted(
                one for one in theirs if one not in ours and not _is_number(one, ours)
            ):
                must = " or ".join(sorted(ours))
                yield f"{_said(at)} could be {' or '.join(more)}, and must be {must}"
        allowed, written = _values_of(reader), _values_of(writer)
        if allowed is not None:
            if written is None:
                yield f"{_said(at)} could be any value, and must be one of {allowed}"
            elif gone := [one for one in written if one not in allowed]:
                yield f"{_said(at)} could be one of {gone}, which is not allowed any more"


def _bound(
    name: str, reader: Mapping[str, Any], writer: Mapping[str, Any], at: str
) -> Iterator[str]:
    if name not in reader:
        return
    ours, theirs = reader[name], writer.get(name)
    is_wider = theirs is not None and (ours <= theirs if name in LEAST else ours >= theirs)
    if not is_wider:
        yield f"{_said(at)}: {name} is {ours}, and was {'not set' if theirs is None else theirs}"


def _types_of(schema: Mapping[str, Any]) -> set[str] | None:
    said = schema.get("type")
    return None if said is None else {said} if isinstance(said, str) else set(said)


def _values_of(schema: Mapping[str, Any]) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _is_number(one: str, ours: set[str]) -> bool:
    return one == "integer" and "number" in ours


def _resolved(schema: Any, root: Any) -> Any:
    for _ in range(DEEP):
        if not isinstance(schema, Mapping) or not isinstance(reference := schema.get("$ref"), str):
            return schema
        if not reference.startswith("#"):
            raise InvalidRequest(f"the reference {reference!r} is not within the schema")
        schema = root
        for part in reference.lstrip("#/").split("/") if reference != "#" else ():
            try:
                schema = schema[part.replace("~1", "/").replace("~0", "~")]
            except (KeyError, TypeError):
                raise InvalidRequest(f"the reference {reference!r} leads nowhere") from None
    raise InvalidRequest("a reference of the schema refers to itself")


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _said(at: str) -> str:
    return f"property {at!r}" if at else "the value"
