"""The broker as a process of its own: assembly, start, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from .engine.durable_broker import DurableBroker
from .errors import FlintError, InvalidRequest
from .serde.codec import Codec
from .servers.limits import Limits
from .servers.native import NativeServer
from .storage.filesystem import LocalFileSystem
from .storage.fsync_policy import FsyncPolicy

_log = logging.getLogger(__name__)

PORT = 7600
DRAIN_SECONDS = 10.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `flintmq serve` is told."""

    data_dir: Path
    listen: tuple[str, int] = ("127.0.0.1", PORT)
    fsync: FsyncPolicy
    drain_seconds: float = DRAIN_SECONDS
    limits: Limits = Limits()


def parse_listen(text: str) -> tuple[str, int]:
    """`host:port`, `:port` for this machine alone, or `host` with the usual port."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(PORT)
    host = host.strip("[]")
    if not port.isdecimal() or int(port) > 65_535:
        raise InvalidRequest(f"an address to listen at is HOST:PORT, not {text!r}")
    return host or "127.0.0.1", int(port)


class Daemon:
    """Start, serve, stop: each in the order it is written here."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = asyncio.Event()
        self._failure: FlintError | None = None
        self._broker = DurableBroker(
            LocalFileSystem(settings.data_dir), decoder=Codec(), fsync=settings.fsync
        )
        self._broker.on_failed = self._disk_failed
        self._server = NativeServer(self._broker, limits=settings.limits)

    async def run(self, on_ready: Callable[[tuple[str, int]], None]) -> None:
        """Serve until told to stop. `on_ready` is called once everything is recovered.

        A disk that fails stops the broker too, and is raised once it has stopped.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            await self._broker.open()
            try:
                address = await self._server.start(*self._settings.listen)
                on_ready(address)
                await self._stopping.wait()
            finally:
                await self._shut_down()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    def _disk_failed(self, error: FlintError) -> None:
        _log.error("the broker stops: %s", error)
        self._failure = error
        self._stopping.set()

    def stop(self) -> None:
        self._stopping.set()

    async def _shut_down(self) -> None:
        """Refuse what is new, finish what is under way, let go of clients, sync, close."""
        await self._server.drain(self._settings.drain_seconds)
        await self._server.close()
        try:
            await self._broker.close()
        except FlintError:
            if self._failure is None:  # else it is known already
                raise


def run(settings: Settings, on_ready: Callable[[tuple[str, int]], None]) -> None:
    """Run a broker in this process until SIGTERM or SIGINT; on uvloop where it is installed."""

    async def main() -> None:
        await Daemon(settings).run(on_ready)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
