"""The reference of the HTTP API as a page of the site, from the document at `/openapi.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flintmq import __version__
from flintmq.frontends.http.api import ROUTES
from flintmq.frontends.http.openapi import EVENTS, document

START = """# HTTP reference

Every request of the HTTP API, made from the same table as `/openapi.json`.
[The HTTP API](../http-api.md) explains keys, publishing, consuming, streams and errors.

```sh
curl http://localhost:7601/openapi.json
```
"""


def http_page() -> str:
    made = document(ROUTES, __version__)
    parts = [START]
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            parts += of_operation(method.upper(), path, operation)
    parts.append("## Objects\n\nThe bodies of requests and responses.\n")
    for name, schema in sorted(made["components"]["schemas"].items()):
        parts.append(f"### {name} {{ #{name.lower()} }}\n")
        if "properties" in schema:
            needed = schema.get("required", [])
            parts.append(table(schema["properties"], needed if may_leave_out(schema) else None))
        elif "prefixItems" in schema:
            parts.append(
                "An array: " + ", ".join(kind(one) for one in schema["prefixItems"]) + ".\n"
            )
    return "\n".join(parts)


def may_leave_out(schema: dict[str, Any]) -> bool:
    return len(schema.get("required", ())) < len(schema["properties"])


def of_operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"## {method} {path.removeprefix('/api/v1')}\n"
    yield f"{operation['summary']} {operation['description']}\n"
    for place, title in (("query", ""), ("header", "Headers:\n\n")):
        found = {one["name"]: one for one in operation["parameters"] if one["in"] == place}
        if found:
            yield title + table(
                {name: {**one["schema"], **one} for name, one in found.items()}, None
            )
    if "requestBody" in operation:
        contents = operation["requestBody"]["content"].items()
        yield (
            "Body: "
            + "; ".join(
                f"{kind(one['schema'])} as `{media}`"
                if "schema" in one
                else "any other: the value itself"
                for media, one in contents
            )
            + "\n"
        )
    (answer,) = (one for status, one in operation["responses"].items() if status.startswith("2"))
    for media, one in answer["content"].items():
        schema = one["x-event-data"] if media == EVENTS else one["schema"]
        yield f"Response: {kind(schema)}{', as a stream of events' if media == EVENTS else ''}\n"


def table(fields: dict[str, dict[str, Any]], required: list[str] | None) -> str:
    """required: those that have to be said; None where that is no question."""
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for name, field in fields.items():
        default = ""
        if required is not None and name in required:
            default = "required"
        elif field.get("default") not in (None, [], {}):
            default = f"`{said(field['default'])}`"
        text = " ".join(field.get("description", "").split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {kind(field)} | {default} | {text} |")
    return "\n".join(rows) + "\n"


def said(value: object) -> str:
    """As it stands in JSON; words without quotes."""
    return value if isinstance(value, str) and value else json.dumps(value)


def kind(schema: dict[str, Any]) -> str:
    """A type in words, with a link to the object if it is one."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{said(one)}`" for one in schema["enum"])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {kind(schema['items'])}"
    if isinstance(more := schema.get("additionalProperties"), dict):
        return f"object of {kind(more)}"
    return str(schema.get("type", "any"))
