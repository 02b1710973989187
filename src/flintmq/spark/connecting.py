"""The line from a Python process of Spark to the broker: one for each process and broker, kept.

Spark keeps its Python workers from task to task, so a connection that is kept saves making one for
every task. It has an event loop in a thread of its own. A worker is a fork of another process; what
that one held is not ours, so lines are known by process.
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

from ..client.client import Client
from ..errors import Disconnected, InvalidRequest, OutcomeUnknown
from ..net.remote.broker import RemoteBroker
from ..net.remote.tls import ClientTls
from ..serde.codec import DECODED_BYTES_MAX, Codec

T = TypeVar("T")

RETRY_SECONDS = 0.25
API_KEY = "FLINTMQ_API_KEY"
"""Where a process that was given no key finds one, as with `flintmq.connect`."""


@dataclass(frozen=True)
class BrokerSettings:
    """How to reach a broker. What is secret in it is not shown."""

    servers: str = ""
    api_key: str | None = field(default=None, repr=False)
    api_key_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    patience: float = 60.0
    """How long a broker that went away is waited for, in seconds."""

    @property
    def url(self) -> str:
        servers = self.servers.strip()
        if "://" not in servers:
            return "flint://" + ",".join(part.strip() for part in servers.split(","))
        scheme = servers.partition("://")[0]
        if scheme not in ("flint", "flints"):
            raise InvalidRequest(
                f"servers is flint://host:port, flints://host:port or host:port; not {scheme}://..."
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
    """A connection with a loop in a thread of its own. `run` waits for what is asked of it."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="flintmq-spark", daemon=True
        )
        self._thread.start()
        codec = Codec(DECODED_BYTES_MAX)
        try:
            self.broker: RemoteBroker = self.run(self._made(settings, codec))
            self.client = Client(self.broker, codec, auto_create=True, timeout=settings.patience)
        except BaseException:
            self._end()
            raise

    @staticmethod
    async def _made(settings: BrokerSettings, codec: Codec) -> RemoteBroker:
        url = settings.url
        broker = RemoteBroker(
            url,
            decoder=codec,
            timeout=settings.patience,
            tls=settings.tls() if url.startswith("flints://") else None,
            api_key=settings.credential(),
        )
        await broker.open()
        return broker

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do something; its result, or its error."""
        return self.begin(work).result()

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for what changes nothing: no answer is no connection, and nothing else."""
        try:
            return self.run(work)
        except OutcomeUnknown:
            waited = f"it was waited for, {self.settings.patience:g} s long (brokerTimeout)"
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


_lines: dict[tuple[int, BrokerSettings], BrokerLine] = {}
_making = threading.Lock()


def line_to(settings: BrokerSettings, *, patient: bool = False) -> BrokerLine:
    """The line of this process to that broker; made if there is none yet.

    Where nobody answers, that is said at once; a `patient` caller waits for a broker that is about
    to come back, as long as its settings say.
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
    """Close what this process has open: for tests, which leave nothing behind."""
    with _making:
        for key in [key for key in _lines if key[0] == os.getpid()]:
            _lines.pop(key).close()
