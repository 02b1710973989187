"""The JSON API over a broker in memory, and a gate with a few keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.routing import BaseRoute

from flintmq.access import EVERYTHING, Access, TopicGrant
from flintmq.engine.broker import Broker
from flintmq.errors import NotAuthenticated
from flintmq.frontends.http.api import api_routes
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.pages import Pages
from flintmq.frontends.http.server import HttpServer
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.net.server.native import NativeServer
from flintmq.serde.codec import Codec

from .running import Running, Start

ADMIN = "admin-key"
SHOWN_KEY = {
    "id": "k1", "name": "billing", "grants": {"orders": ["consume"]}, "made_at_ms": 1500,
    "expires_at_ms": None, "last_used_at_ms": None, "note": "",
}  # fmt: skip


class KeyGate(ApiKeyGate):
    """Keys by what they open."""

    def __init__(self, **keys: Access) -> None:
        super().__init__()
        self.keys = {ADMIN: EVERYTHING, **keys}

    def add(self, key: str, *grants: tuple[str, str]) -> None:
        self.keys[key] = Access(
            key,
            tuple(TopicGrant.of(pattern, permissions.split()) for pattern, permissions in grants),
        )

    @property
    def is_closed(self) -> bool:
        return True

    async def enter(self, credential: str | None, peer: str) -> Access:
        if credential not in self.keys:
            raise NotAuthenticated("no key, or not one of ours")
        return self.keys[credential]

    def still(self, access: Access) -> Access:
        return access


class Caller:
    """Asks the API, as the holder of a key."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def __call__(
        self, method: str, path: str, body: Any = None, *, key: str | None = ADMIN, **options: Any
    ) -> httpx.Response:
        headers = options.pop("headers", {})
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        if method not in ("GET", "DELETE"):
            options["json"] = {} if body is None else body
        return await self._client.request(method, path, headers=headers, **options)

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        response = await self(method, f"/api/v1{path}", body, **options)
        assert response.status_code == 200, response.text
        return response.json()

    async def error(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, str]:
        response = await self(method, f"/api/v1{path}", body, **options)
        error = response.json()["error"]
        assert set(error) == {"kind", "message"}
        assert error["message"]
        return response.status_code, error["kind"]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker(decoder=Codec())
    yield broker
    await broker.close()


@pytest.fixture
def gate() -> KeyGate:
    return KeyGate()


@pytest.fixture
async def native(broker: Broker) -> AsyncIterator[NativeServer]:
    server = NativeServer(broker)
    yield server
    await server.close()


@pytest.fixture
def state(broker: Broker, gate: KeyGate, native: NativeServer) -> HttpState:
    return HttpState(
        broker=broker,
        gate=gate,
        native=native,
        version="1.2.3",
        config={"listen": "127.0.0.1:7600"},
        keys=lambda: [SHOWN_KEY | {"hash": "never shown"}],
    )


@pytest.fixture
def app(state: HttpState) -> Pages:
    return Pages(state, api_routes(state), HttpLimits())


@pytest.fixture
async def call(app: Pages) -> AsyncIterator[Caller]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://flint") as client:
        yield Caller(client)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server with these limits and routes."""
    running: list[Running] = []

    async def start(
        *, routes: list[BaseRoute] | None = None, state: HttpState | None = None, **limits: Any
    ) -> Running:
        broker = Broker()
        state = state or HttpState(broker, ApiKeyGate(), None, "0.1")
        server = HttpServer(state, HttpLimits(**limits), routes=routes or [])
        address = await server.start("127.0.0.1", 0)
        running.append(Running(server, state, broker, address))
        return running[-1]

    yield start
    for one in running:
        await one.server.close()
        await one.broker.close()
