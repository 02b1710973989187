"""The connection of a Python process of Spark to a broker: one per process and broker, kept open.

Spark reuses its Python workers, so a kept connection saves connecting in every task. It has an
event loop in a thread of its own. A worker is a fork: connections of its parent process are not
usable there, so they are kept by process id.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..errors import Disconnected, InvalidRequest, OutcomeUnknown
from ..net.remote.broker import RemoteBroker
from ..net.remote.tls import ClientTls
from ..serde.codec import DECODED_BYTES_MAX, Codec

T = TypeVar("T")

RETRY_SECONDS = 0.25
API_KEY = "FLINTMQ_API_KEY"
"""The environment variable with the key, if no option sets one; as with `flintmq.connect`."""


@dataclass(frozen=True)
class BrokerSettings:
    """How to reach a broker. Its repr shows no secrets."""

    servers: str = ""
    api_key: str | None = field(default=None, repr=False)
    api_key_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    patience: float = 60.0
    """How long to wait for a broker that is gone, in seconds."""

    @property
    def url(self) -> str:
        servers = self.servers.strip()
        if "://" not in servers:
            return "flint://" + ",".join(part.strip() for part in servers.split(","))
        scheme = servers.partition("://")[0]
        if scheme not in ("flint", "flints"):
            raise InvalidRequest(
                f"servers must be flint://host:port, flints://host:port or host:port, not {scheme}://"
            )
        return servers

    def tls(self) -> ClientTls:
        return ClientTls.given(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key, verify=True)

    def credential(self) -> str | None:
        if self.api_key_file is None:
            return self.api_key or os.environ.get(API_KEY) or None
        try:
            return Path(self.api_key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"apiKeyFile: {error}") from None


class BrokerLine:
    """A connection with its event loop in a thread of its own. `run` waits for the result."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="flintmq-spark", daemon=True
        )
        self._thread.start()
        try:
            self.broker: RemoteBroker = self.run(_connected(settings))
        except BaseException:
            self._end()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop; returns its result, or raises its error."""
        return self.begin(work).result()

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for requests that change nothing: without an answer they raise Disconnected."""
        try:
            return self.run(work)
        except OutcomeUnknown:
            waited = f"no answer within {self.settings.patience:g} s (brokerTimeout)"
            raise Disconnected(self.broker.link.name, waited) from None

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        try:
            self.run(self.broker.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()


async def _connected(settings: BrokerSettings) -> RemoteBroker:
    url = settings.url
    broker = RemoteBroker(
        url,
        decoder=Codec(DECODED_BYTES_MAX),
        timeout=settings.patience,
        tls=settings.tls() if url.startswith("flints://") else None,
        api_key=settings.credential(),
    )
    await broker.open()
    return broker


_lines: dict[tuple[int, BrokerSettings], BrokerLine] = {}
_making = threading.Lock()


def line_to(settings: BrokerSettings, *, patient: bool = False) -> BrokerLine:
    """The connection of this process to that broker; opened if there is none yet.

    If no broker answers, this fails at once; a `patient` caller waits up to `brokerTimeout` for a
    broker that restarts.
    """
    key = (os.getpid(), settings)
    give_up_at = time.monotonic() + settings.patience
    with _making:
        while (line := _lines.get(key)) is None:
            try:
                line = _lines[key] = BrokerLine(settings)
            except Disconnected:
                if not patient or time.monotonic() >= give_up_at:
                    raise
                time.sleep(RETRY_SECONDS)
        return line


def close_lines() -> None:
    """Close all connections of this process. For tests."""
    with _making:
        for key in [key for key in _lines if key[0] == os.getpid()]:
            _lines.pop(key).close()
