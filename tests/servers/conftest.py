from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.engine.broker import Broker
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.serde.codec import Codec

from .keys import KeyedServer


@pytest.fixture
def limits() -> Limits:
    return Limits(handshake_seconds=60)


@pytest.fixture
async def server(limits: Limits) -> AsyncIterator[NativeServer]:
    broker = Broker(None, Codec())
    server = NativeServer(broker, limits=limits)
    yield server
    await server.close()
    await broker.close()


@pytest.fixture
async def address(server: NativeServer) -> tuple[str, int]:
    return await server.start("127.0.0.1", 0)


@pytest.fixture
def url(address: tuple[str, int]) -> str:
    host, port = address
    return f"flint://{host}:{port}"


@pytest.fixture
async def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeyedServer]:
    """A broker with one key so far, that may do everything: `keyed.admin`."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is cut here
    keyed = KeyedServer(tmp_path)
    keyed.admin = keyed.add("admin", publish=">", consume=">", administer=">")
    await keyed.start()
    yield keyed
    await keyed.stop()
