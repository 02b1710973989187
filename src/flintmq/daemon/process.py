"""The broker as a process: assembly, start, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from .. import __version__
from ..broker_api import BrokerApi
from ..compiled import BUILD
from ..config.kinds import shown_address
from ..config.table import Config
from ..errors import FlintError, InvalidRequest, StorageFailed
from ..frontends.front_end import FrontEndContext, front_ends_of
from ..loop.collecting import keep_pauses_short
from ..loop.event_loop import loop_factory as loop_factory
from ..loop.turns import Turns
from ..model import changed_options
from ..net.server.native import NativeServer
from ..observe.logs import Logs, event
from ..observe.recent import RecentEvents
from .assembly import (
    alone,
    files_of,
    fitted_to_files,
    gate_for,
    hosts_of,
    http_limits_of,
    limits_of,
    schedules_of,
    settings_in_force,
    shown,
    slowness_of,
    tls_of,
    webhooks_of,
)
from .clustering import NodePlace, joined, runs_alone
from .notes import DirectoryNotes
from .notify import READY, STOPPING, notify
from .profiling import Profiler, hint
from .reloading import TLS_SETTINGS, Reloading

if TYPE_CHECKING:
    from ..frontends.http.server import HttpServer

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
"""How long writing the last log lines may take on an immediate exit."""

FAILED_DRAIN_SECONDS = 1.0
"""How long clients have to be notified when the broker has failed."""

HTTP_SETTLE_SECONDS = 2.0
"""How long pending HTTP requests may take when the broker is about to close."""


class Daemon:
    """Start, serve, stop: each in the order it is written here."""

    def __init__(
        self,
        config: Config,
        reread: Callable[[], Config] | None = None,
        logs: Logs | None = None,
        place: NodePlace | None = None,
    ) -> None:
        """`reread` returns the current configuration from its sources, or raises FlintError. `logs`
        are the logs of the process, if we set them up; `place` is that of a cluster's node."""
        self._reloading = Reloading(config, reread)
        self._logs = logs
        self._profiler = Profiler(config.profile) if config.profile is not None else None
        self._reason = "requested"
        self._turns = Turns()
        self._events = RecentEvents()
        self.on_reload = self._reloading.on_reload
        self.on_reload += (
            self._reload_tls,
            self._reload_limits,
            self._reload_broker,
            self._reload_logs,
            self._reload_keys,
        )
        self._stopping = asyncio.Event()
        self.on_blank: Callable[[], None] | None = None
        """Called when clients can connect to found the cluster of this node."""
        self._is_told = False
        self._failure: FlintError | None = None
        self._place, self._node = place, None if place is None else place.node(config)
        self._broker = alone(config) if self._node is None else self._node.local
        """The engine of this process."""
        self._verbs: BrokerApi = self._broker if self._node is None else self._node.broker
        """What is served: every verb, also where another node leads."""
        served = self._broker if self._node is None else self._node.for_front_ends
        self._served_to_others: BrokerApi = served
        """The same for clients of other protocols, who do not know who leads."""
        self._broker.auto_create = config.auto_create
        self._broker.set_topic_defaults(config.topic_defaults)
        self._broker.host.on_failed = self._broker_failed
        self._notes = DirectoryNotes(config.data_dir, self._broker.host)
        self._broker.host.damages.on_noted = self._notes.damage_found
        self.gate = gate_for(config)
        if place is not None:
            self.gate.node_token = place.token
            place.on_removed = lambda why: self._broker_failed(InvalidRequest(why))
        self.tls = tls_of(config)
        """One for all ports, so that all of them change certificates together."""
        self._server = NativeServer(
            self._verbs,
            limits=fitted_to_files(limits_of(config), files_of(config)),
            gate=self.gate,
            backup_dir=config.backup_dir,
            tls=self.tls,
            leadership=None if place is None else place.leadership,
            cluster=None if place is None else place.leadership,
        )
        if place is not None and self._node is not None:
            place.serve(self._node, self._server)
        self._webhooks = webhooks_of(config, self._broker, self._node)
        self._schedules = schedules_of(self._broker, self._node)
        self._is_listening = self._is_closed = self._reloads_later = False
        self._http = None if config.http is None else self._http_server()
        self.http_address: tuple[str, int] | None = None
        self.front_ends = front_ends_of(
            FrontEndContext(
                self._served_to_others,
                self.gate,
                self.tls,
                self._server,
                lambda: self.config,
                None if place is None else place.view,
                self._broker,
            )
        )
        """Servers of other protocols, each with its configured address."""
        if self._http is not None:
            for _, front_end in self.front_ends.values():
                self._http.metrics.collectors += front_end.collectors()
        self.addresses: dict[str, tuple[str, int]] = {}
        """Their actual addresses, by protocol."""

    @property
    def config(self) -> Config:
        """The configuration in effect."""
        return self._reloading.config

    async def run(self, on_ready: Callable[[tuple[str, int]], None]) -> None:
        """Serve until stopped. `on_ready` is called when recovery is complete.

        A failing disk stops the broker too; the error is raised after the stop.
        """
        loop = asyncio.get_running_loop()
        self._tell_start()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: partial(self.stop, "SIGTERM"),
            signal.SIGINT: partial(self.stop, "SIGINT"),
            signal.SIGHUP: self.reload,
        }
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # Started in the background by a shell or a CI system: Ctrl-C there is for others.
            del handlers[signal.SIGINT]
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        ours = logging.getLogger(__name__.partition(".")[0])
        if self._http is not None:
            ours.addHandler(self._events)
        try:
            await self._serve(on_ready)
        except FlintError as error:
            if not self._is_listening:
                tell_not_started(error)
            raise
        finally:
            ours.removeHandler(self._events)
            for number in handlers:
                loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    async def _serve(self, on_ready: Callable[[tuple[str, int]], None]) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self._profiler is not None:
                self._profiler.start()
                event(_log, logging.INFO, "profile_hint", hint(os.getpid()))
                loop.add_signal_handler(
                    signal.SIGUSR2, write_profile, self._profiler, self._profiler.write
                )
            if self._http is not None and self.config.http is not None:
                # First: while the broker recovers, it is told so.
                context = None if self.tls is None else self.tls.context
                self.http_address = await self._http.start(*self.config.http, context)
            if not await self._is_founded():
                return
            await (self._broker if self._node is None else self._node).open()
            if self._place is not None:
                self._place.share(self._broker, self.gate, self._reloading)
            self._notes.note_recovery()
            self._turns.start()
            try:
                if not self._stopping.is_set():
                    address = await self._server.start(*self.config.listen)
                    for name, (place, front_end) in self.front_ends.items():
                        if name not in self.addresses:
                            self.addresses[name] = await front_end.start(*place)
                    self._is_listening = True
                    self._webhooks.start()
                    self._schedules.start()
                    if self._place is not None:
                        self._place.listens(address)
                    on_ready(address)
                    event(
                        _log,
                        logging.INFO,
                        "ready",
                        "clients can connect",
                        listen=shown_address(address),
                        http=None
                        if self.http_address is None
                        else shown_address(self.http_address),
                        others=", ".join(
                            f"{name} {shown_address(at)}" for name, at in self.addresses.items()
                        )
                        or None,
                    )
                    notify(READY)
                    if self._reloads_later:
                        self.reload()
                await self._stopping.wait()
                notify(STOPPING)
            except BaseException as error:
                self._reason = str(error) or type(error).__name__
                raise
            finally:
                self._turns.stop()
                await self._shut_down()
        finally:
            if self._profiler is not None:
                loop.remove_signal_handler(signal.SIGUSR2)
                write_profile(self._profiler, self._profiler.stop)
            if self._http is not None:
                await self._http.close()

    async def _is_founded(self) -> bool:
        """Whether this node of a cluster, if it is one, has its place there. If clients are to
        found it, they can connect, and this waits for them; False: until it was stopped."""
        place, node = self._place, self._node
        if place is None or node is None or place.is_founded:
            return True
        address, front_end = self.front_ends["hermes"]
        self.addresses["hermes"] = await front_end.start(*address)
        if self.on_blank is not None:
            self.on_blank()
        notify(READY)
        founding = asyncio.ensure_future(place.wait_founded(node))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((founding, stopping), return_when=asyncio.FIRST_COMPLETED)
            if founding.done():
                await founding
                return True
            notify(STOPPING)
            await front_end.close()
            return False
        finally:
            founding.cancel()
            stopping.cancel()

    def _http_server(self) -> HttpServer:
        # Here: a broker without HTTP has no use for what this loads, and starts sooner.
        from ..frontends.http.api import api_routes
        from ..frontends.http.server import HttpServer
        from ..frontends.http.state import HttpState

        state = HttpState(
            broker=self._served_to_others,
            gate=self.gate,
            native=self._server,
            version=__version__,
            why_not_ready=self._why_not_ready,
            damaged_messages=self._broker.host.damages.messages,
            can_be_asked=lambda: self._is_listening and not self._is_closed,
            failure=lambda: self._failure,
            turns=self._turns,
            config=shown(self.config),
            keys=self.gate.keys_shown,
            hosts=hosts_of(self.config),
            cluster=None if self._place is None else self._place.leadership,
            webhooks=self._webhooks.states,
            origins=self.config.http_cors_origins,
            data_dir=self.config.data_dir,
            settings=lambda: settings_in_force(self.config),
            topic_defaults=lambda: changed_options(
                self._broker.shard.defaults, self.config.topic_defaults
            ),
            events=self._events,
        )
        return HttpServer(state, http_limits_of(self.config), routes=api_routes(state))

    def other_addresses(self) -> dict[str, tuple[str, int]]:
        """Addresses for clients of other protocols, by protocol."""
        http = {} if self.http_address is None else {"http": self.http_address}
        return {**http, **self.addresses}

    def _why_not_ready(self) -> str | None:
        if self._failure is not None:
            return self._reason
        if self._stopping.is_set():
            return "stopping"
        if self._place is not None and not self._place.is_founded:
            return "waiting for Bootstrap"
        if not self._is_listening:
            return "recovering"
        return None if self._place is None or self._place.view.is_led() else "no leader is known"

    def _broker_failed(self, error: FlintError) -> None:
        self._reason = "a fault in the broker"
        if isinstance(error, StorageFailed | InvalidRequest):
            is_of_disk = isinstance(error, StorageFailed)
            self._reason = "the disk has failed" if is_of_disk else str(error)
        self._failure = error
        self._stopping.set()

    def stop(self, why: str = "requested") -> None:
        """Stop gracefully; the second call exits immediately."""
        if self._is_told:
            if self._logs is not None:
                self._logs.flush(FLUSH_SECONDS)
            print("flintmq: second stop signal: exiting immediately", file=sys.stderr)
            sys.stderr.flush()
            # As kill -9 would: what is acknowledged is synced, the rest was never promised.
            os._exit(1)
        self._is_told = True
        if not self._stopping.is_set():
            self._reason = why
        self._stopping.set()

    def reload(self) -> None:
        """Apply changes of the configuration, as far as a running broker can.

        An invalid configuration changes nothing. If the broker is still starting, the
        reload waits.
        """
        if self._stopping.is_set():
            return
        if not self._is_listening:
            self._reloads_later = True  # parts of it are not there yet
            return
        self._reloading.reload(has_keys=self.gate.is_closed)

    def _reload_tls(self, before: Config, after: Config) -> None:
        if self.tls is None:
            return
        is_good = self.tls.reload(after.tls_cert, after.tls_key, after.tls_client_ca)
        is_named = any(getattr(before, name) != getattr(after, name) for name in TLS_SETTINGS)
        if is_named and not is_good:  # else the files have changed, and no setting
            raise InvalidRequest("the files of tls_cert, tls_key or tls_client_ca are not usable")

    def _reload_limits(self, before: Config, after: Config) -> None:
        limits = fitted_to_files(limits_of(after), files_of(after))
        self._server.set_limits(limits)
        for _, front_end in self.front_ends.values():
            front_end.set_limits(limits)
        if self._http is not None:
            self._http.set_limits(http_limits_of(after))
            self._http.state.config = shown(after)
            self._http.state.hosts = hosts_of(after)
            self._http.state.origins = after.http_cors_origins

    def _reload_keys(self, before: Config, after: Config) -> None:
        self.gate.slowing.set(**slowness_of(after))
        self.gate.refresh(at_once=True)

    def _reload_broker(self, before: Config, after: Config) -> None:
        self._broker.host.slow_disk_seconds = after.slow_disk_seconds
        self._broker.host.damages.scrubber.set_rate(after.scrub_bytes)
        self._broker.auto_create = after.auto_create
        self._broker.set_topic_defaults(after.topic_defaults)
        self._broker.set_staged_seconds(after.staged_seconds)
        self._broker.host.set_producer_limits(after.producer_seconds, after.max_producer_bytes)
        self._broker.host.set_sizes(
            checkpoint_bytes=after.checkpoint_bytes, queue_bytes_max=after.max_queue_bytes
        )

    def _reload_logs(self, before: Config, after: Config) -> None:
        if self._logs is not None:
            self._logs.set_levels(after.log_level, after.log_levels)

    async def _shut_down(self) -> None:
        """Reject new requests, finish pending ones, disconnect clients, sync, close."""
        began = time.monotonic()
        event(
            _log,
            logging.INFO,
            "stopping",
            f"the broker is stopping: {self._reason}",
            reason=self._reason,
            connections=len(self._server.connections),
            sessions=len(self._server.sessions),
        )
        front_ends = [front_end for _, front_end in self.front_ends.values()]
        seconds = self.config.drain_seconds
        if self._failure is not None:  # nothing more comes to a good end
            seconds = min(seconds, FAILED_DRAIN_SECONDS)
        if self._node is not None:
            self._node.hand_over()  # first: clients go on with the next leader at once
        self._broker.end_deliveries()
        await self._webhooks.stop()
        await self._schedules.stop()
        async with asyncio.TaskGroup() as draining:
            draining.create_task(self._server.drain(seconds, self._is_worked_for))
            for front_end in front_ends:
                draining.create_task(front_end.drain(seconds, self._is_worked_for))
        unfinished = sum(session.is_busy() for session in self._server.sessions.values())
        for front_end in front_ends:
            await front_end.close()
        await self._server.close()
        self._is_closed = True
        if self._http is not None:
            await self._http.settle(HTTP_SETTLE_SECONDS)
        try:
            await (self._broker if self._node is None else self._node).close()
        except FlintError:
            if self._failure is None:  # else it is known already
                raise
        finally:
            event(
                _log,
                logging.INFO,
                "stopped",
                "the broker has stopped",
                reason=self._reason,
                seconds=time.monotonic() - began,
                unfinished_sessions=unfinished,
            )

    def _is_worked_for(self) -> bool:
        """Whether to wait for consumers: after a disk failure nothing can be settled."""
        return self._failure is None and self._broker.is_worked_for()

    def _tell_start(self) -> None:
        config = self.config
        event(
            _log,
            logging.INFO,
            "starting",
            f"FlintMQ {__version__} is starting",
            version=__version__,
            build=BUILD,
            python=sys.version.split()[0],
            pid=os.getpid(),
            listen=shown_address(config.listen),
            http=None if config.http is None else shown_address(config.http),
            data_dir=config.data_dir.absolute(),
            fsync=str(config.fsync),
        )


def write_profile(profiler: Profiler, write: Callable[[], None]) -> None:
    """Write the profile, and log what came of it. `write` is a method of the profiler."""
    try:
        write()
    except OSError as error:
        event(
            _log,
            logging.ERROR,
            "profile_not_written",
            f"cannot write the profile: {error}",
            file=profiler.path,
        )
        return
    event(
        _log,
        logging.INFO,
        "profile_written",
        "profile written",
        file=profiler.path,
        samples=profiler.samples,
        overhead=round(profiler.overhead, 4),
    )


def run(
    config: Config,
    on_ready: Callable[[tuple[str, int], dict[str, tuple[str, int]]], None],
    reread: Callable[[], Config] | None = None,
    logs: Logs | None = None,
    on_blank: Callable[[dict[str, tuple[str, int]]], None] | None = None,
) -> None:
    """Run a broker in this process until SIGTERM or SIGINT; on uvloop if it is installed.

    `on_ready` gets the address for clients, and those of other protocols by name. `on_blank` gets
    the latter of a node whose cluster clients have to found first.
    """

    async def main() -> None:
        async with AsyncExitStack() as around:
            try:
                place = None
                if not runs_alone(config):
                    place = await around.enter_async_context(joined(config))
                daemon = Daemon(config, reread, logs, place)
            except FlintError as error:  # of keys, certificates and other nodes
                tell_not_started(error)
                raise
            if on_blank is not None:
                daemon.on_blank = lambda: on_blank(daemon.other_addresses())
            keep_pauses_short()
            await daemon.run(lambda address: on_ready(address, daemon.other_addresses()))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def tell_not_started(error: FlintError) -> None:
    event(_log, logging.ERROR, "not_started", f"the broker cannot start: {error}")
