"""The OpenAPI document: complete, well formed, and kept to by what is served."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.applications import Starlette

from flintmq import errors
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.errors import FlintError
from flintmq.serde.codec import Codec
from flintmq.servers.gate import OpenGate
from flintmq.servers.http.api import ROUTES, api_routes
from flintmq.servers.http.faults import STATUS, status_of
from flintmq.servers.http.openapi import ERRORS, document
from flintmq.servers.http.state import HttpState
from flintmq.servers.publishing import Draining

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


def test_the_document_about_the_api_names_every_route() -> None:
    text = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text()
    for route in ROUTES:
        assert f"| `{route.method} {route.path}` |" in text, f"{route.method} {route.path}"
        line = next(one for one in text.splitlines() if f"`{route.method} {route.path}`" in one)
        assert route.rule.text.partition(";")[0] in line, line


# --- Schemathesis


class ServerThread:
    """The API at a port of its own, with a broker in memory, in a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self.url = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        assert self._ready.wait(20)

    async def _main(self) -> None:
        broker = Broker(decoder=Codec())
        await _furnish(broker)
        state = HttpState(broker, OpenGate(), None, "1.2.3")
        app = Starlette(routes=api_routes(state))
        config = uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await serving
        await broker.close()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)


async def _furnish(broker: Broker) -> None:
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    await mq.create_topic("rows", partitions=2)
    for topic in ("0", "orders", "a"):
        await mq.publish_batch(topic, [b"x", b"\xff", b"y"])
        dead, _, _ = await mq.poll(topic, "0", order="log")
        await dead.reject("no")


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    server = ServerThread()
    yield server.url
    server.stop()


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.slow
@SCHEMA.parametrize()
@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_whatever_the_document_allows_is_answered_as_it_says(
    case: schemathesis.Case[Any], served: str
) -> None:
    case.call_and_validate(base_url=served, checks=CHECKS)
