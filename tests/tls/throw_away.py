"""Certificates that are good for one test, and a broker that has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme

import flintmq
from flintmq.engine.broker import Broker
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.server.tls import ServerTls
from flintmq.net.tls.certificate import Certificate
from flintmq.serde.codec import Codec


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path

    @property
    def serial(self) -> int:
        return Certificate.of_pem(self.cert.read_text()).serial


class Authority:
    """Signs certificates and writes them to files."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory, self._name, self._count = directory, name, 0
        self._ca = trustme.CA()
        self.file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def pair(
        self,
        *hosts: str,
        until: datetime | None = None,
        since: datetime | None = None,
        over: Pair | None = None,
    ) -> Pair:
        """A new certificate; written over the files of another one if there is one."""
        issued = self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")), not_after=until, not_before=since
        )
        if over is None:
            self._count += 1
            base = self._directory / f"{self._name}-{self._count}"
            over = Pair(base.with_suffix(".crt"), base.with_suffix(".key"))
        over.key.touch(0o600)
        issued.private_key_pem.write_to_path(over.key)
        over.cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        return over

    def expired(self) -> Pair:
        return self.pair(
            since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2021, 3, 4, tzinfo=UTC)
        )


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for what somebody else brings about; the story's own time bounds it."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


@asynccontextmanager
async def served(
    tls: ServerTls | None, limits: Limits | None = None
) -> AsyncIterator[tuple[NativeServer, int]]:
    broker = Broker(None, Codec())
    server = NativeServer(broker, limits=limits, tls=tls)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close()
        await broker.close()


async def failure(url: str, **options: Any) -> flintmq.FlintError:
    """Why a connection cannot be made."""
    mq = flintmq.connect(url, **options)
    try:
        await asyncio.wait_for(mq.__aenter__(), 60)
    except flintmq.FlintError as error:
        return error
    finally:
        await mq.close()
    raise AssertionError(f"{url} can be connected to")
