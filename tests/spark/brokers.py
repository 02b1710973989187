"""A broker for tests of code that blocks: the real one, with its server, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from flintmq.client.client import Client
from flintmq.engine.host import durable_broker
from flintmq.fsync_policy import FsyncPolicy
from flintmq.net.server.native import NativeServer
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem

T = TypeVar("T")


class ThreadedBroker:
    """Starts, stops, and comes back on the same port with what it kept."""

    def __init__(self, directory: Path, **server: Any) -> None:
        self.directory = directory
        self._server_options = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        scheme = "flints" if self._server_options.get("tls") else "flint"
        return f"{scheme}://127.0.0.1:{self._port}"

    def start(self) -> None:
        self.run(self._start())

    async def _start(self) -> None:
        codec = Codec()
        self.broker = durable_broker(
            LocalFileSystem(self.directory), decoder=codec, fsync=FsyncPolicy.parse("never")
        )
        await self.broker.open()
        self.client = Client(self.broker, codec, auto_create=True, timeout=30.0)
        self._server = NativeServer(self.broker, **self._server_options)
        _, self._port = await self._server.start("127.0.0.1", self._port)

    def stop(self) -> None:
        self.run(self._stop())

    async def _stop(self) -> None:
        await self._server.close()
        await self.broker.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def end(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    # --- what tests do with it

    def create(self, topic: str, **options: Any) -> None:
        self.run(self.client.create_topic(topic, **options))

    def publish(self, topic: str, *values: Any, **keywords: Any) -> None:
        self.run(self.client.publish_batch(topic, list(values), **keywords))

    def checkpoint(self) -> None:
        """Everything there is goes into segments."""
        self.run(self.broker.host.checkpoint())
