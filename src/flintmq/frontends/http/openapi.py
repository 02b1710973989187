"""The OpenAPI 3.1 document of the JSON API, made from its table of routes and models. Pure."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from . import models
from .console import models as console_models

if TYPE_CHECKING:
    from .api import ApiRoute

ERRORS = {
    400: "The request is invalid; the text says what is allowed.",
    401: "The key is missing or unknown.",
    403: "The key lacks the permission. The answer does not reveal whether the topic exists.",
    404: "The topic, group or connection does not exist.",
    409: "It already exists with other properties, or is not there any more.",
    413: "The request or the message is too large.",
    415: "A request that changes something needs the content type application/json.",
    421: "A broker without keys was addressed by a host name that is not allowed (http_hosts).",
    422: "A filter or a value failed on a message.",
    429: "The topic or a queue is full.",
    500: "The server failed.",
    501: "An extra package is not installed.",
    503: "The broker cannot do this now.",
    504: "The request took too long.",
}
OF_WRITES = (413, 415, 429, 501)
REF = "#/components/schemas/{name}"

PARAMETERS = {
    "topic": "A topic; one of its partitions as `orders%2F0`.",
    "group": "A group of the topic.",
    "schedule": "A schedule of the topic.",
    "connection": "The id of a connection.",
    "key": "The key of messages; a slash in it as `%2F`.",
    "address": "The `reply-to` of a request.",
    "key_id": "The id of a key.",
    "letter": "The id of a dead letter.",
    "setting": "A setting that clusters keep, such as auto_create.",
}


def document(routes: Iterable[ApiRoute], version: str, prefix: str = "/api/v1") -> dict[str, Any]:
    routes = list(routes)
    kinds = [models.Error]
    for route in routes:
        kinds += [route.response, route.query, route.headers]
        kinds += [route.body] if route.body is not None else []
        kinds += [*route.contents.values(), *route.responses]
    unique = list(dict.fromkeys(kinds))
    schemas, components = msgspec.json.schema_components(unique, ref_template=REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    for name, fields in _field_texts().items():
        for field, text in fields.items():
            if field in components.get(name, {}).get("properties", ()):
                components[name]["properties"][field].setdefault("description", text)
    queries = {kind for route in routes for kind in (route.query, route.headers)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        said = {
            "query": _resolved(schema_of[route.query], components),
            "header": _resolved(schema_of[route.headers], components),
        }
        paths.setdefault(prefix + route.path, {})[route.method.lower()] = _operation(
            route, said, schema_of
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FlintMQ",
            "version": version,
            "description": "Operations on a FlintMQ broker. Offsets, ids and partitions are "
            "strings; times are seconds.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                name: schema
                for name, schema in components.items()
                if name not in {kind.__name__ for kind in queries}
            },
            "responses": {
                str(status): {
                    "description": text,
                    "content": {"application/json": {"schema": schema_of[models.Error]}},
                }
                for status, text in ERRORS.items()
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(route: ApiRoute, said: dict[str, Any], schema_of: dict[Any, Any]) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PARAMETERS[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {
            "name": name,
            "in": place,
            "required": False,
            "schema": _without_null(schema),
            **({"description": schema["description"]} if "description" in schema else {}),
        }
        for place, fields in said.items()
        for name, schema in fields.get("properties", {}).items()
    ]
    errors = [status for status in ERRORS if status not in OF_WRITES or route.method != "GET"]
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "description": f"Needs {route.rule.text}.",
        "tags": [route.path.split("/")[1]],
        "parameters": parameters,
        "responses": {
            str(route.status): {
                "description": "Done.",
                "content": _content(route, schema_of),
            },
            **(WEB_SOCKET if route.media == EVENTS and "{topic}" in route.path else {}),
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in errors},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[route.body]}},
        }
    if route.contents:
        operation["requestBody"] = {
            "required": True,
            "content": {
                kind: {} if of is bytes else {"schema": schema_of[of]}
                for kind, of in route.contents.items()
            },
        }
    return operation


EVENTS = "text/event-stream"
WEB_SOCKET = {
    "101": {
        "description": "With `Upgrade: websocket`: a WebSocket whose texts are the data of the "
        'events. Of a group, the client sends `{"ack": lease}`, or nack, reject or extend.'
    }
}


def _content(route: ApiRoute, schema_of: dict[Any, Any]) -> dict[str, Any]:
    schema = _answer_schema(route, schema_of)
    if route.media != EVENTS:
        return {route.media: {"schema": schema}}
    # OpenAPI 3.1 has no schema for the events of a stream: their data is described apart.
    return {EVENTS: {"schema": {"type": "string"}, "x-event-data": schema}}


def _answer_schema(route: ApiRoute, schema_of: dict[Any, Any]) -> dict[str, Any]:
    schemas: list[dict[str, Any]] = [schema_of[kind] for kind in (route.response, *route.responses)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _field_texts() -> dict[str, dict[str, str]]:
    """What the models say of their fields: the string behind each."""
    found: dict[str, dict[str, str]] = {}
    for module in (models, console_models):
        for node in ast.parse(inspect.getsource(module)).body:
            if not isinstance(node, ast.ClassDef):
                continue
            kind = getattr(module, node.name)
            shown = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
            for field, behind in pairwise(node.body):
                match field, behind:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        found.setdefault(node.name, {})[shown[name]] = text
    return found


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = schema["$ref"].rpartition("/")[2]
    found: dict[str, Any] = components[name]
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what may be left out is left out."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
        return {**kinds[0], **rest}
    return schema
