from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.engine.broker import Broker
from flintmq.engine.host import Host, durable_broker
from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.server import BlipServer
from flintmq.net.server.limits import Limits
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def options() -> BlipOptions:
    return BlipOptions()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[Broker]:
    broker = Broker(clock, Codec())
    broker.set_topic_defaults({"max_deliveries": 3})
    yield broker
    await broker.close()


@pytest.fixture
async def server(broker: Broker, options: BlipOptions) -> AsyncIterator[BlipServer]:
    server = BlipServer(broker, options=options, limits=Limits(handshake_seconds=60))
    yield server
    await server.close()


@pytest.fixture
async def address(server: BlipServer) -> tuple[str, int]:
    return await server.start("127.0.0.1", 0)


class Restarted:
    """A durable broker with its front end, which can be stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.broker: Broker | None = None
        self.server: BlipServer | None = None

    async def start(self) -> tuple[str, int]:
        self.broker = durable_broker(LocalFileSystem(self._directory), decoder=Codec())
        self.broker.set_topic_defaults({"max_deliveries": 3})
        await self.broker.open()
        self.server = BlipServer(self.broker)
        return await self.server.start("127.0.0.1", 0)

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.drain(1)
            await self.server.close()
        if self.broker is not None:
            await self.broker.close()
        self.server = self.broker = None


@pytest.fixture
async def restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Restarted]:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is cut here
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)
    made = Restarted(tmp_path / "data")
    yield made
    await made.stop()
