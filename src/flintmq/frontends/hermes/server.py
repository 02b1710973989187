"""The server of HermesMQ's protocol: connections in, BrokerApi asked.

A broker alone leads from its first moment. A node of a cluster serves these clients while it leads,
and tells them where to go while it does not; a blank one waits for their Bootstrap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ...access import Access
from ...broker_api import LEASED, BrokerApi, Joining, TakeMode
from ...clock import Timer
from ...errors import (
    Closed,
    FlintError,
    NotAuthenticated,
    NotLeader,
    OutcomeUnknown,
    TopicExists,
    TopicNotFound,
)
from ...model import TopicOptions
from ...net.server.connection import ServerConnection as NativeConnection
from ...net.server.gate import ApiKeyGate
from ...net.server.limits import Limits
from ...net.server.listener import ConnectionSlots, Listener
from ...net.server.native import NativeServer
from ...net.server.tls import ServerTls
from ...observe.logs import event, limited
from . import rules
from .connection import HermesConnection
from .holds import Hold, Owner
from .lease_ids import LeaseIds
from .node import HermesNode

if TYPE_CHECKING:
    from ..cluster_view import ClusterView
    from ..http.collectors import Collector

_log = logging.getLogger(__name__)

SWEEP_SECONDS = 30.0
"""How often memberships that nobody uses any more are given up, while there are any."""


class HermesLimits(Limits, frozen=True, kw_only=True):
    """What one client may cost, beside what every client may."""

    pending: int = 1024
    """Requests of one connection that are not answered; beyond that it is not read from."""
    polls: int = 32
    """Polls of one connection at work; others wait for these, as each may bring a large reply."""
    reply_bytes: int = 32 * 1024 * 1024
    """What one poll brings at most; their clients read no frame of more than 64 MiB."""
    frame_seconds: float = 60.0
    """Who has begun a request and sends nothing more of it for so long is let go."""

    def with_those_of_all(self, limits: Limits) -> HermesLimits:
        """The same with what is configured for clients of every protocol."""
        common = {name: getattr(limits, name) for name in Limits.__struct_fields__}
        return msgspec.structs.replace(self, **common)


class HermesServer(Listener[HermesConnection]):
    """What was polled is kept `grace_seconds` for a client whose connection has ended.

    `credential` is the key this front end shows for its clients, who have none. With `native`,
    clients of the native protocol may connect to the same port.
    """

    clients = "HermesMQ's clients"
    limits: HermesLimits

    def __init__(
        self,
        broker: BrokerApi,
        *,
        gate: ApiKeyGate | None = None,
        credential: str | None = None,
        limits: HermesLimits | None = None,
        node_id: int = 1,
        native: NativeServer | None = None,
        may_create: Callable[[], bool] = lambda: True,
        tls: ServerTls | None = None,
        places: ConnectionSlots | None = None,
        cluster: ClusterView | None = None,
    ) -> None:
        super().__init__(limits=limits or HermesLimits(), gate=gate, tls=tls, places=places)
        self.broker, self.cluster = broker, cluster
        self.is_leading = cluster is None
        """Also: we know the topics."""
        self.take_mode = LEASED if cluster is None else TakeMode(committed=True)
        """What a client was told of counts after a fail-over, too."""
        self.node = HermesNode(self, node_id)
        self.native = native
        self.topics: set[str] = set()
        """Those there are."""
        self._may_create = may_create
        self._credential = credential
        self._access: Access | None = None
        self._holds: dict[tuple[str, str], Hold] = {}
        self._joining: dict[tuple[str, str], asyncio.Task[Hold]] = {}
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._awaited: dict[str, dict[asyncio.Future[None], None]] = {}
        self._timers: set[Timer] = set()
        self._sweeping: Timer | None = None

    # --- listening

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; where. Port 0 takes any that is free. Raises what names host, port and cause."""
        if not self._servers:
            self.broker.on_topic_changed(self._topic_changed)
            if self.cluster is None:
                self.topics.update(await self.broker.topics(">"))
            else:
                self.cluster.on_leader_changed(self._leader_changed)
                self._leader_changed()
        address = await self._listen(host, port, lambda: HermesConnection(self))
        if self.access is None:
            event(
                _log,
                logging.WARNING,
                "hermes_without_key",
                "this broker requires keys, which HermesMQ clients cannot send: they are "
                "rejected until hermes_key_file names a file with a key for them",
            )
        return address

    def admit(self, connection: HermesConnection) -> bool:
        is_admitted = self._take_in(connection)
        if is_admitted:
            self.watch_keys()
            if self.native is not None:
                self.accepted -= 1  # it is counted by whom it turns out to belong to
        return is_admitted

    def keep_connection(self) -> None:
        """It speaks HermesMQ's protocol."""
        self.accepted += 1

    def hand_over(self, connection: HermesConnection) -> NativeConnection:
        """It speaks the native protocol: who serves it from now on."""
        assert self.native is not None
        self.left(connection)
        return NativeConnection(self.native)

    def set_limits(self, limits: Limits) -> None:
        self.limits = self.limits.with_those_of_all(limits)

    def collectors(self) -> list[Collector]:
        from .metrics import collectors

        return collectors(self)

    # --- who may do what

    @property
    def access(self) -> Access | None:
        """What clients of this front end may do; None: nothing, they have no key."""
        if self._access is None:
            try:
                self._access = self.gate.judge(self._credential, "hermes front end")
            except NotAuthenticated:
                return None
        try:
            self._access = self.gate.still(self._access)
        except NotAuthenticated:
            self._access = None
        return self._access

    def _keys_changed(self) -> None:
        """Who subscribes is asked nothing more: what was granted has to be looked at now."""
        self._access = None
        access = self.access
        for connection in list(self.connections):
            connection.access_changed(access)

    # --- who leads

    def _leader_changed(self) -> None:
        assert self.cluster is not None
        if self.cluster.is_leading():
            self.run(self._begin_to_lead())
            return
        self.is_leading = False
        for hold in list(self._holds.values()):
            self.drop_hold(hold)
        self._wake_awaiting()

    async def _begin_to_lead(self) -> None:
        with contextlib.suppress(NotLeader):  # it is lost again
            self.topics = set(await self.broker.topics(">"))
            assert self.cluster is not None
            self.is_leading = self.cluster.is_leading()

    def not_leader(self) -> bytes:
        """Who is to be asked, by the address that its cluster was founded with."""
        return rules.not_leader(self._leader_addr())

    def _leader_addr(self) -> str:
        leader = None if self.cluster is None else self.cluster.leader()
        if (
            self.cluster is None
            or leader is None
            or (leader == self.cluster.name and self.is_draining)
        ):
            return ""
        return self.cluster.addresses().get(leader, "")

    def failed(self, error: BaseException) -> bytes:
        """Where the lead was lost before it was known what becomes of a request, clients send it
        again, as they do when a connection is lost."""
        if isinstance(error, OutcomeUnknown) and self.cluster is not None:
            return self.not_leader()
        return rules.failed(error, self._leader_addr())

    # --- topics

    def _topic_changed(self, name: str, options: TopicOptions | None) -> None:
        if options is not None:
            self.topics.add(name)
            for future in self._awaited.pop(name, ()):
                if not future.done():
                    future.set_result(None)
            return
        self.topics.discard(name)
        for key in [key for key in self._holds if key[0] == name]:
            self._give_up(self._holds.pop(key))

    async def obtain_topic(self, name: str) -> None:
        """Make a topic as HermesMQ would, if it is not there; for many at once only once."""
        if name in self.topics:
            return
        if not self._may_create():
            raise TopicNotFound(name)
        await self.create_topic(name)

    async def create_topic(self, name: str) -> None:
        task = self._creating.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._create_topic(name))
            self._creating[name] = task
            task.add_done_callback(lambda _: self._creating.pop(name, None))
        await asyncio.shield(task)

    async def _create_topic(self, name: str) -> None:
        with contextlib.suppress(TopicExists):  # with other options: those count
            await self.broker.create_topic(name, rules.TOPIC_OPTIONS)

    async def wait_for_topic(self, name: str, seconds: float | None) -> bool:
        """Whether there is such a topic before the time is up."""
        if name in self.topics:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(name, {})[future] = None
        timer = None
        if seconds is not None:
            timer = self.broker.clock.call_later(seconds, lambda: _resolve(future))
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            waiting = self._awaited.get(name)
            if waiting is not None:
                waiting.pop(future, None)
                if not waiting:
                    del self._awaited[name]
        return name in self.topics

    def _wake_awaiting(self) -> None:
        for waiting in list(self._awaited.values()):
            for future in waiting:
                _resolve(future)

    # --- groups

    def known_hold(self, topic: str, group: str) -> Hold | None:
        return self._holds.get((topic, group))

    async def hold(self, topic: str, group: str) -> Hold:
        """What is held of a group, which is made if need be. Raises TopicNotFound."""
        key = topic, group
        known = self._holds.get(key)
        if known is not None:
            return known
        task = self._joining.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._join(topic, group))
            self._joining[key] = task
            task.add_done_callback(lambda _: self._joining.pop(key, None))
        return await asyncio.shield(task)

    async def _join(self, topic: str, group: str) -> Hold:
        try:
            joining = Joining(topic, group, "hermes", auto_create=False)
            ids = LeaseIds((await self.broker.topic_info(topic)).id, group)
            member = await self.broker.join_group(joining)
        except (TopicNotFound, Closed):
            self.topics.discard(topic)
            raise
        hold = self._holds[topic, group] = Hold(topic, group, ids, member, self.failed)
        self._sweep_later()
        return hold

    def drop_hold(self, hold: Hold) -> None:
        """It turned out to be gone."""
        if self._holds.get((hold.topic, hold.group)) is hold:
            del self._holds[hold.topic, hold.group]
            self._give_up(hold)

    def _give_up(self, hold: Hold) -> None:
        hold.end()
        self.run(hold.close())

    def _sweep_later(self) -> None:
        if self._sweeping is None and not self.is_draining:
            self._sweeping = self.broker.clock.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = self.broker.clock.monotonic()
        for key, hold in list(self._holds.items()):
            hold.out.forget_old(now)
            if hold.is_idle():
                del self._holds[key]
                self._give_up(hold)
        if self._holds:
            self._sweep_later()

    def give_back_later(self, owner: Owner, held: Iterable[tuple[Hold, int]]) -> None:
        """Whoever polled these has left. It may come back, or ack by another connection."""
        kept = list(held)
        if not kept:
            return

        def give_back() -> None:
            self._timers.discard(timer)
            for hold, offset in kept:
                hold.give_back(offset, owner)

        timer = self.broker.clock.call_later(self.limits.grace_seconds, give_back)
        self._timers.add(timer)

    # --- the end

    def _begin_draining(self, seconds: float) -> None:
        for connection in list(self.connections):
            connection.drain()

    def is_busy(self) -> bool:
        return any(connection.is_busy() for connection in self.connections)

    async def close(self) -> None:
        self._stop_listening()
        for timer in (*self._timers, self._sweeping):
            if timer is not None:
                timer.cancel()
        self._wake_awaiting()
        await self._close_connections()
        for hold in list(self._holds.values()):
            await hold.close()
        self._holds.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        await self._wait_closed()

    def run(self, work: Any) -> asyncio.Task[None]:
        """The same as `spawn`; errors are logged."""
        return self.spawn(_told(work))


async def _told(work: Any) -> None:
    try:
        await work
    except (FlintError, asyncio.CancelledError) as error:
        if not isinstance(error, Closed | NotLeader | asyncio.CancelledError):
            event(_log, logging.WARNING, "hermes_failed", f"HermesMQ front end: {error}")
    except Exception as error:
        limited(
            _log,
            logging.ERROR,
            "hermes_fault",
            type(error).__name__,
            "internal error in the HermesMQ front end; please report it",
            exc_info=error,
        )


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
