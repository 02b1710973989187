"""The OpenAPI document: complete, well formed, and kept to by what is served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from flintmq import errors
from flintmq.errors import FlintError
from flintmq.frontends.http.api import ROUTES
from flintmq.frontends.http.faults import STATUS, status_of
from flintmq.frontends.http.openapi import ERRORS, document
from flintmq.net.server.publishing import Draining

from .conftest import Caller

DOCUMENT = document(ROUTES, "1.2.3")


async def test_the_document_is_open_to_all(call: Caller) -> None:
    response = await call("GET", "/openapi.json", key=None)
    assert response.status_code == 200
    assert response.json() == DOCUMENT


def test_it_has_every_route_and_no_other() -> None:
    there = {
        (method.upper(), path)
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
    }
    assert there == {(route.method, f"/api/v1{route.path}") for route in ROUTES}
    ids = [one["operationId"] for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids)) == len(ROUTES)


def test_everything_it_refers_to_is_in_it() -> None:
    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            for name, value in part.items():
                if name == "$ref":
                    yield value
                else:
                    yield from references(value)
        elif isinstance(part, list):
            for value in part:
                yield from references(value)

    used = set(references(DOCUMENT))
    for reference in used:
        found: Any = DOCUMENT
        for word in reference.removeprefix("#/").split("/"):
            found = found[word]
    named = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert named <= used


def test_every_schema_in_it_is_one() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        ), name


def test_what_headers_may_say_is_in_it() -> None:
    def headers(path: str, method: str) -> set[str]:
        parameters = DOCUMENT["paths"][f"/api/v1/topics/{{topic}}/{path}"][method]["parameters"]
        return {one["name"].lower() for one in parameters if one["in"] == "header"}

    assert {"idempotency-key", "x-flint-key", "x-flint-ttl"} <= headers("messages", "post")
    assert headers("stream", "get") == {"last-event-id"}


@pytest.mark.slow
def test_it_is_an_openapi_document() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path))
            assert {"200", "400", "401", "403", "500"} <= set(operation["responses"])
    schemathesis.openapi.from_dict(DOCUMENT).validate()


# --- errors


def every_error() -> list[type[FlintError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, FlintError)
    ] + [Draining]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_of_its_own_that_is_documented(kind: type[FlintError]) -> None:
    assert kind in STATUS, f"give {kind.__name__} a line in STATUS"
    assert STATUS[kind] in ERRORS


def test_an_error_that_is_not_in_the_table_has_the_status_of_its_kind() -> None:
    class TooBlue(errors.InvalidRequest):
        pass

    assert status_of(TooBlue("no")) == 400
