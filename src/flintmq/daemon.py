"""The broker as a process of its own: assembly, start, drain, stop."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from .engine.durable_broker import DurableBroker
from .errors import FlintError, InvalidRequest
from .serde.codec import Codec
from .servers.key_gate import gate_of
from .servers.limits import Limits
from .servers.native import NativeServer
from .storage.filesystem import LocalFileSystem
from .storage.fsync_policy import FsyncPolicy
from .storage.key_file import KEYS_FILE

_log = logging.getLogger(__name__)

PORT = 7600
DRAIN_SECONDS = 10.0
FILES = 512
"""Files the broker needs for itself: journal, segments, and some to spare."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `flintmq serve` is told."""

    data_dir: Path
    listen: tuple[str, int] = ("127.0.0.1", PORT)
    fsync: FsyncPolicy
    drain_seconds: float = DRAIN_SECONDS
    auth: Literal["auto", "required", "off"] = "auto"
    keys_file: Path | None = None
    """Where keys are; by default in the data directory."""
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
        self._is_told = False
        self._failure: FlintError | None = None
        self._broker = DurableBroker(
            LocalFileSystem(settings.data_dir), decoder=Codec(), fsync=settings.fsync
        )
        self._broker.on_failed = self._disk_failed
        self._gate = gate_of(settings.auth, settings.keys_file or settings.data_dir / KEYS_FILE)
        self._server = NativeServer(
            self._broker, limits=fitted_to_files(settings.limits), gate=self._gate
        )

    async def run(self, on_ready: Callable[[tuple[str, int]], None]) -> None:
        """Serve until told to stop. `on_ready` is called once everything is recovered.

        A disk that fails stops the broker too, and is raised once it has stopped.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._gate.reload)
        try:
            await self._broker.open()
            try:
                if not self._stopping.is_set():
                    address = await self._server.start(*self._settings.listen)
                    on_ready(address)
                await self._stopping.wait()
            finally:
                await self._shut_down()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    def _disk_failed(self, error: FlintError) -> None:
        _log.error("the broker stops: %s", error)
        self._failure = error
        self._stopping.set()

    def stop(self) -> None:
        """Stop in good order; asked a second time, at once."""
        if self._is_told:
            print("flintmq: told twice to stop: not waiting any longer", file=sys.stderr)
            sys.stderr.flush()
            # As kill -9 would: what is acknowledged is synced, the rest was never promised.
            os._exit(1)
        self._is_told = True
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


def fitted_to_files(limits: Limits) -> Limits:
    """Each connection takes a file descriptor, and one that the journal lacks would stop the
    broker: have as many as we may, and take in no more clients than that leaves room for."""
    try:
        import resource
    except ImportError:
        return limits  # no such limit on this system
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limits.connections + limits.backlog + limits.told + FILES
    if soft == resource.RLIM_INFINITY or soft >= most:
        return limits
    if hard == resource.RLIM_INFINITY or hard >= most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = hard - min(FILES, hard // 2)
    backlog, told = min(limits.backlog, max(1, room // 4)), min(limits.told, max(1, room // 20))
    connections = min(limits.connections, max(1, room - backlog - told))
    if connections < limits.connections:
        _log.warning(
            "this process may have %d files open (ulimit -n): %d connections, not %d",
            hard,
            connections,
            limits.connections,
        )
    return msgspec.structs.replace(limits, connections=connections, backlog=backlog, told=told)


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


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
