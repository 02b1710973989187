"""Whether one Avro schema reads what another has written, by the rules of Avro's specification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import InvalidRequest

PROMOTED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
NAMED = ("record", "error", "enum", "fixed")


def avro_problems(reader: Any, writer: Any) -> list[str]:
    """Why `reader` does not read all that `writer` writes."""
    theirs, ours = _AvroNames(writer), _AvroNames(reader)
    return list(_AvroComparison(ours, theirs).problems(reader, writer, ""))


class _AvroNames:
    """The named types of a schema."""

    def __init__(self, schema: Any) -> None:
        self._found: dict[str, Any] = {}
        self._take(schema, "")

    def _take(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for one in schema:
                self._take(one, namespace)
        elif isinstance(schema, dict):
            if schema.get("type") in NAMED:
                namespace = schema.get("namespace", namespace)
                name = str(schema.get("name", ""))
                self._found[_short(name)] = schema
            for key in ("items", "values", "type"):
                if not isinstance(schema.get(key), str):
                    self._take(schema.get(key), namespace)
            for field in schema.get("fields", ()):
                self._take(field.get("type"), namespace)

    def resolved(self, schema: Any) -> Any:
        """A schema by its name, or in its short form, as a mapping or list."""
        if isinstance(schema, dict) and not isinstance(schema.get("type"), str):
            return self.resolved(schema.get("type"))
        if isinstance(schema, str):
            return self._found.get(_short(schema), {"type": schema})
        if isinstance(schema, dict) and schema["type"] not in NAMED:
            return self._found.get(_short(schema["type"]), schema)
        return schema


class _AvroComparison:
    def __init__(self, ours: _AvroNames, theirs: _AvroNames) -> None:
        self._ours, self._theirs = ours, theirs
        self._seen: set[tuple[str, str]] = set()

    def problems(self, reader: Any, writer: Any, at: str) -> Iterator[str]:
        reader, writer = self._ours.resolved(reader), self._theirs.resolved(writer)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.problems(reader, branch, at)
            return
        if isinstance(reader, list):
            if all(list(self.problems(branch, writer, at)) for branch in reader):
                yield f"{_place(at)}: {_named(writer)} is none of {', '.join(map(_named, reader))}"
            return
        ours, theirs = reader["type"], writer["type"]
        if ours != theirs:
            if ours not in PROMOTED.get(theirs, ()):
                yield f"{_place(at)}: {_named(writer)} cannot be read as {_named(reader)}"
        elif ours in ("record", "error"):
            yield from self._records(reader, writer, at)
        elif ours == "enum":
            missing = [one for one in writer["symbols"] if one not in reader["symbols"]]
            if missing and "default" not in reader:
                yield f"{_place(at)}: the symbols {', '.join(missing)} are missing"
        elif ours == "fixed" and reader["size"] != writer["size"]:
            yield f"{_place(at)}: fixed({writer['size']}) cannot be read as fixed({reader['size']})"
        elif ours in ("array", "map"):
            key = "items" if ours == "array" else "values"
            yield from self.problems(reader[key], writer[key], f"{at}[]")

    def _records(self, reader: Any, writer: Any, at: str) -> Iterator[str]:
        pair = (reader["name"], writer["name"])
        if pair in self._seen:
            return
        self._seen.add(pair)
        theirs = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            name = f"{at}.{field['name']}".lstrip(".")
            names = [field["name"], *field.get("aliases", ())]
            written = next((theirs[one] for one in names if one in theirs), None)
            if written is not None:
                yield from self.problems(field["type"], written["type"], name)
            elif "default" not in field:
                yield f"field {name!r} is not written, and has no default"


def parsed_avro(text: str, parsed: Any) -> None:
    """Raises InvalidRequest for what is not an Avro schema."""
    from ..formats import AvroFormat

    AvroFormat(text)
    if not isinstance(parsed, dict | list | str):
        raise InvalidRequest("an Avro schema is an object, a list or a name")


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _named(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name", schema.get("type")))
    return "a union" if isinstance(schema, list) else str(schema)


def _place(at: str) -> str:
    return f"field {at!r}" if at else "the value"
