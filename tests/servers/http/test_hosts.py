"""Without keys and TLS, a page of the web that has its name point at us is not answered."""

from __future__ import annotations

import httpx
import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.http.api import api_routes
from flintmq.frontends.http.health import health_routes
from flintmq.frontends.http.hosts import is_ours
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.pages import Pages
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate

from .conftest import ADMIN, KeyGate


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7601", "10.0.0.7", "[::1]:7601", "[fe80::1]", "localhost", "LOCALHOST:7601",
        "flintmq:7601", "flint.localhost", "flint.local.", "flint.svc", "flint.svc.cluster.local",
        "broker.example", "Broker.Example.:80",
    ],
)  # fmt: skip
def test_names_that_nobody_on_the_web_can_own_are_ours(host: str) -> None:
    assert is_ours(host, {"broker.example"})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:7601", "127.0.0.1.evil.example", "localhost.evil.example",
        "127.0.0.1.nip.io", "broker.example.evil.net", "", ":80", "[evil.example]", "evil.example,"
    ],
)  # fmt: skip
def test_other_names_are_not(host: str) -> None:
    assert not is_ours(host, {"broker.example"})


async def ask(state: HttpState, path: str, host: str, key: str | None = None) -> httpx.Response:
    pages = Pages(state, [*api_routes(state), *health_routes(state)], HttpLimits())
    headers = {"host": host} | ({} if key is None else {"authorization": f"Bearer {key}"})
    transport = httpx.ASGITransport(app=pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize("path", ["/api/v1/topics", "/openapi.json", "/metrics"])
async def test_a_strange_name_is_refused_where_no_key_is_asked_for(
    broker: Broker, path: str
) -> None:
    state = HttpState(broker, ApiKeyGate(), None, "1", hosts=())

    answer = await ask(state, path, "evil.example")

    assert answer.status_code == 421
    assert answer.json()["error"]["kind"] == "UnknownHost"
    assert "http_hosts" in answer.text


async def test_health_is_told_by_any_name(broker: Broker) -> None:
    state = HttpState(broker, ApiKeyGate(), None, "1", hosts=())

    for path in ("/health", "/ready"):
        assert (await ask(state, path, "probe.example")).status_code == 200


async def test_a_name_that_is_ours_is_answered(broker: Broker) -> None:
    state = HttpState(broker, ApiKeyGate(), None, "1", hosts={"mq.example"})

    assert (await ask(state, "/api/v1/topics", "mq.example:7601")).status_code == 200


async def test_with_keys_any_name_goes(broker: Broker) -> None:
    state = HttpState(broker, KeyGate(), None, "1", hosts=())

    assert (await ask(state, "/api/v1/topics", "evil.example")).status_code == 401
    assert (await ask(state, "/api/v1/topics", "mq.example", ADMIN)).status_code == 200


async def test_with_tls_any_name_goes_as_the_certificate_sees_to_it(broker: Broker) -> None:
    state = HttpState(broker, ApiKeyGate(), None, "1", hosts=None)

    assert (await ask(state, "/api/v1/topics", "mq.example")).status_code == 200
