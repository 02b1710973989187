"""Schemathesis asks the API everything its document allows, and much that it does not.

Never a 500, and every answer is as the document says. Examples are the same every time.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import CheckContext
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.frontends.http.api import ROUTES, api_routes
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.openapi import document
from flintmq.frontends.http.server import HttpServer
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.serde.codec import Codec

pytestmark = pytest.mark.slow


@schemathesis.serializer("application/x-ndjson")
def as_line(context: Any, value: Any) -> bytes:
    """A body of one line."""
    return json.dumps(value).encode() + b"\n"


THERE = {"topic": ["orders", "rows", "rows/0", "a b"], "group": ["g", "reader"]}
"""What the broker has; half of what is asked for is about these."""


def seen_document() -> dict[str, Any]:
    """The document, with names that are there, of a broker that asks for no keys."""
    seen = copy.deepcopy(document(ROUTES, "1.2.3"))
    del seen["security"]
    for operations in seen["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if names := THERE.get(parameter["name"]):
                    parameter["schema"] = {"anyOf": [{"enum": names}, parameter["schema"]]}
    return seen


class ServerThread:
    """The API at a port of its own, with a broker in memory, in a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self.url = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _main(self) -> None:
        broker = Broker(decoder=Codec())
        mq = Client(broker, Codec(), auto_create=True, timeout=None)
        await furnish(mq)
        state = HttpState(broker, ApiKeyGate(), None, "1.2.3")
        server = HttpServer(
            state,
            HttpLimits(cpu_share=1.0, wait_seconds=0.01, stream_seconds=0.1),
            routes=api_routes(state),
        )
        host, port = await server.start("127.0.0.1", 0)
        self.url = f"http://{host}:{port}"
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stopping.wait()
        await server.close()
        await broker.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)


async def furnish(mq: Client) -> None:
    """Messages, groups, leases and dead letters to ask about."""
    await mq.create_topic("rows", partitions=2)
    for topic in ("orders", "rows", "a b"):
        await mq.publish_batch(topic, [b"x", b"\xff", b"y", "ü"], key="k", headers={"h": b"\xfe"})
        dead, *_ = await mq.poll(topic, "g", order="log")
        await dead.reject("no")
        async with mq.reader(topic, name="reader"):
            pass


@pytest.fixture
def served() -> Iterator[str]:
    server = ServerThread()
    yield server.url
    server.stop()


SCHEMA = schemathesis.openapi.from_dict(seen_document())
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
WAIT_FOR_OTHERS = ("request",)
"""Nobody replies here: that no reply came in time is what they are to say."""
TAKE_ANY_NAME = ("create_topic", "publish", "set_value", "request", "stream")
"""To Schemathesis "['true']" is a list, and no name; to these it is a name like any other. And with
a header `X-Flint-...`, whatever the body is, is the value."""


def _no_fault_but_silence(
    context: CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> bool | None:
    if response.status_code == 504 and response.json()["error"]["kind"] == "NoReply":
        return None
    return not_a_server_error(context, response, case)


def making_sure_of(operation: str) -> Any:
    """A test of one operation, under a name of its own: those that Schemathesis makes of one
    function are all called the same, and of tests of one name pytest-xdist runs one."""

    @SCHEMA.include(operation_id=operation).parametrize()
    @settings(
        max_examples=60,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def test(case: schemathesis.Case[Any], served: str) -> None:
        checks = list(CHECKS)
        if operation in WAIT_FOR_OTHERS:
            checks[0] = _no_fault_but_silence
        if operation not in TAKE_ANY_NAME:
            checks.append(negative_data_rejection)
        case.call_and_validate(base_url=served, checks=checks)

    return test


OPERATIONS = [
    operation["operationId"]
    for operations in seen_document()["paths"].values()
    for operation in operations.values()
]

for operation in OPERATIONS:
    globals()[f"test_whatever_is_asked_of_{operation}_is_answered_as_the_document_says"] = (
        making_sure_of(operation)
    )
