"""The server of the native protocol: connections in, sessions kept, BrokerApi asked."""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from ...access import Access
from ...broker_api import BrokerApi
from ...cluster_model import ClusterApi
from ...errors import (
    Disconnected,
    FlintError,
    InvalidRequest,
    MalformedFrame,
    NotAuthenticated,
    NotLeader,
    QueueFull,
)
from ...model import OPTION_NAMES, TopicInfo, TopicOptions
from ...observe.logs import event
from ..wire.frames import Frame
from ..wire.operations import ClusterMap, KnownTopic, Op, OpenedReply, OpenRequest, encode
from ..wire.runs import RunEncoder
from .connection import ServerConnection
from .gate import ApiKeyGate
from .limits import Limits
from .listener import ConnectionSlots, Listener
from .publishing import Draining
from .session import Session
from .tls import ServerTls

_log = logging.getLogger(__name__)

SESSION_BYTES = 16
HANDSHAKES_SECONDS = 0.002
"""What TLS handshakes may take of one turn of the loop."""
MEMORY_BITS = 62
TERM_BITS = 40
_memories: WeakKeyDictionary[BrokerApi, int] = WeakKeyDictionary()
"""A number for what each broker has in memory, which no other has."""


class Leadership(Protocol):
    """What a node of a cluster knows of who leads."""

    def refusal(self) -> NotLeader | None:
        """None: this node does. Else where to go."""

    def map(self) -> ClusterMap: ...


class NativeServer(Listener[ServerConnection]):
    """A connection opens a session, or takes up the one it had."""

    def __init__(
        self,
        broker: BrokerApi,
        *,
        limits: Limits | None = None,
        name: str = "flintmq",
        gate: ApiKeyGate | None = None,
        backup_dir: Path | None = None,
        tls: ServerTls | None = None,
        places: ConnectionSlots | None = None,
        leadership: Leadership | None = None,
        cluster: ClusterApi | None = None,
    ) -> None:
        super().__init__(limits=limits or Limits(), gate=gate, tls=tls, places=places)
        self.broker = broker
        self.leadership = leadership
        """Who leads; None: this broker runs alone."""
        self.cluster = cluster
        """What operators ask of the cluster this broker is a node of."""
        self.backup_dir = backup_dir
        """Where clients may have backups made; None: wherever the broker may write."""
        self.name = name
        self.encoder = RunEncoder()
        self._turned_away: set[ServerConnection] = set()
        self._shaking_hands: dict[ServerConnection, None] = {}  # in the order they came
        self._is_shaking_hands = False
        self.handshakes_failed = 0
        self.sessions: dict[bytes, Session] = {}
        self._away: dict[bytes, Session] = {}  # those without a connection, in the order they left
        self.known: dict[str, KnownTopic] = {}
        self.looking = 0
        """How many sessions are about to look for something to deliver."""
        self._sweeping: asyncio.TimerHandle | None = None

    # --- listening

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; where. Port 0 takes any that is free. Raises what names host, port and cause."""
        if not self._servers:
            self.broker.on_topic_changed(self._topic_changed)
            if self.leadership is None:
                await self.learn_topics(self.broker)
        return await self._listen(host, port, lambda: ServerConnection(self), pipes_tls=True)

    async def learn_topics(self, broker: BrokerApi) -> None:
        """What clients have to know of the topics that are there."""
        known = {}
        for name in await broker.topics(">"):
            topic = known_topic(name, (await broker.topic_info(name)).options)
            if topic is not None:
                known[name] = topic
        self.known = known

    def send_away(self, error: NotLeader) -> None:
        """Another node leads: clients that follow the leader go there. What they have asked is not
        answered any more, so they ask all of it again, in order."""
        for session in list(self.sessions.values()):
            if session.follows:
                session.expel(error)

    def admit(self, connection: ServerConnection) -> FlintError | None:
        """Take a connection in; or why it is refused, which it hears once it has said hello."""
        if self._take_in(connection):
            self._sweep_later()
            return None
        if len(self._turned_away) >= self.limits.told:
            connection.abort()  # a flood gets no answers
        else:
            self._turned_away.add(connection)
        if self.is_draining:
            return Draining("the broker is stopping")
        return QueueFull(
            "the broker's connection table",
            self.limits.connections,
            "close some connections, or raise max_connections",
        )

    def shake_hands_later(self, connection: ServerConnection) -> None:
        """A step of a TLS handshake takes up to a millisecond: a few in each turn of the loop, so
        that many who connect at once do not hold up those who are connected."""
        self._shaking_hands[connection] = None
        if not self._is_shaking_hands:
            self._is_shaking_hands = True
            asyncio.get_running_loop().call_soon(self._shake_hands)

    def _shake_hands(self) -> None:
        loop = asyncio.get_running_loop()
        enough_at = loop.time() + HANDSHAKES_SECONDS
        try:
            while self._shaking_hands and loop.time() < enough_at:
                connection = next(iter(self._shaking_hands))
                del self._shaking_hands[connection]
                connection.shake_hands()
        finally:
            self._is_shaking_hands = bool(self._shaking_hands)
            if self._is_shaking_hands:
                loop.call_soon(self._shake_hands)

    def left(self, connection: ServerConnection) -> None:
        super().left(connection)
        self._turned_away.discard(connection)

    def set_limits(self, limits: Limits) -> None:
        """Also for connections that are open; but a client is not disconnected for keeping
        the ping interval it was given."""
        super().set_limits(limits)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._sweep_later()

    def _sweep_later(self) -> None:
        if self._sweeping is None and self.connections:
            seconds = max(0.05, self.limits.idle_seconds / 10)
            self._sweeping = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Let go of who has been silent too long; one timer for all connections."""
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            silent = now - connection.heard_at
            allowed = max(self.limits.idle_seconds, connection.idle_seconds)
            if silent > allowed and not connection.is_held_by_us:
                connection.refuse(
                    Disconnected(
                        connection.peer,
                        f"no complete frame arrived for {silent:.0f} s; clients must ping",
                    )
                )
        self._sweep_later()

    # --- sessions

    def open_session(self, connection: ServerConnection, frame: Frame) -> None:
        try:
            wanted = msgspec.msgpack.decode(frame.control, type=OpenRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedFrame(f"OPEN: {error}") from None
        try:
            access = self.gate.judge(credential_in(wanted), connection.host)
        except NotAuthenticated as error:
            connection.refuse_login(error)
            return
        if wanted.follows and self.leadership is not None:
            refusal = self.leadership.refusal()
            if refusal is not None:
                connection.turn_away(refusal)
                return
        self.watch_keys()
        known = self.sessions.get(wanted.session) if wanted.session is not None else None
        if known is not None and known.access.key != access.key:
            known = None  # another's
        if known is not None and known.can_resume(wanted.received):
            known.use(access)
            known.attach(connection)
            self._welcome(connection, known, frame.id, True)
            known.send_again(wanted.received)
        else:
            if known is not None:
                known.end()
            session = Session(self, secrets.token_bytes(SESSION_BYTES), wanted, access)
            self.sessions[session.id] = session
            session.attach(connection)
            self._welcome(connection, session, frame.id, False)

    def _welcome(
        self, connection: ServerConnection, session: Session, request: int, resumed: bool
    ) -> None:
        limits = self.limits
        opened = OpenedReply(
            session.id,
            resumed,
            session.received,
            limits.frame_bytes,
            limits.in_flight_bytes,
            limits.ping_seconds,
            limits.grace_seconds,
            self.name,
            [topic for topic in self.known.values() if session.access.sees(topic.name)],
            self.broker.clock.now_ms(),
            None if self.leadership is None else self.leadership.map(),
        )
        connection.opened(session)
        connection.idle_seconds = limits.idle_seconds
        connection.write(session.uncounted(Op.REPLY, request, encode(opened)))

    def lasting_id(self, topic: TopicInfo) -> int:
        """A topic in memory begins again at offset 0 with its broker: then it is another one."""
        return self.lasting(topic.id, topic.options.storage)

    def lasting(self, id: int, storage: str) -> int:
        if storage == "durable":
            return id
        if self.leadership is not None:  # with who leads: it ends also where the same leads again
            return (self.leadership.map().groups[0].term << TERM_BITS) + id
        return _memories.setdefault(self.broker, secrets.randbits(MEMORY_BITS)) + id

    def forget(self, session: Session) -> None:
        self.sessions.pop(session.id, None)
        self._away.pop(session.id, None)

    async def take_over(self, topic: str, name: str) -> None:
        """Somebody reads on under a name. Where all others of that name are away, they are not
        waited for any longer: a program that was killed and started again is to get what it had
        read and not committed, and not what lies behind it."""
        if not self._away:
            return
        readers = [session for session in self.sessions.values() if session.reads(topic, name)]
        if all(session.id in self._away for session in readers):
            for session in readers:
                await session.finish()

    def is_away(self, session: Session) -> None:
        """Its client may come back within the grace time, unless too many are awaited."""
        self._away[session.id] = session
        limits = self.limits
        while (
            len(self._away) > limits.away
            or sum(one.replies.bytes for one in self._away.values()) > limits.away_bytes
        ):
            oldest = next(iter(self._away.values()))
            event(
                _log,
                logging.INFO,
                "session_not_kept",
                "the session of a disconnected client was dropped: too many are kept",
                client=oldest.client,
                away=len(self._away),
            )
            oldest.end()

    def is_back(self, session: Session) -> None:
        self._away.pop(session.id, None)

    # --- what clients know of topics

    def _topic_changed(self, name: str, options: TopicOptions | None) -> None:
        """Tell every client what it has to know of a topic that was made, changed or deleted."""
        before = self.known.get(name)
        after = None if options is None else known_topic(name, options)
        if before == after or not self._servers:
            return
        if after is None:
            del self.known[name]
        else:
            self.known[name] = after
        control = encode(after or KnownTopic(name, None))
        for session in list(self.sessions.values()):
            if session.access.sees(name):
                session.send(Op.TOPIC_CHANGED, 0, control)

    def tell_topics(self, session: Session, before: Access) -> None:
        """Tell a client of topics that its key sees since it was changed; others it may forget."""
        for topic in self.known.values():
            saw, sees = before.sees(topic.name), session.access.sees(topic.name)
            if saw != sees:
                told = topic if sees else KnownTopic(topic.name, None)
                session.send(Op.TOPIC_CHANGED, 0, encode(told))

    # --- keys that change while they are in use

    def _has_clients(self) -> bool:
        return bool(self.sessions)  # also of those that may come back

    def _keys_changed(self) -> None:
        for session in list(self.sessions.values()):
            try:
                session.use(self.gate.still(session.access))
            except NotAuthenticated as error:
                session.expel(error)

    # --- the end

    def _begin_draining(self, seconds: float) -> None:
        for session in list(self._away.values()):
            session.end()  # no client comes back to this process
        for session in list(self.sessions.values()):
            session.send(Op.DRAIN, 0, encode([seconds]))

    def is_busy(self) -> bool:
        return any(session.is_busy() for session in self.sessions.values())

    async def close(self) -> None:
        self._stop_listening()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._turned_away):
            connection.abort()
        for connection in list(self.connections):
            connection.close()  # first: what ends now ends for us, and clients come back elsewhere
        for session in list(self.sessions.values()):
            session.silence()
            await session.finish()
        await self._close_connections()
        await self._wait_closed()


def credential_in(wanted: OpenRequest) -> str | None:
    """The key a client brings. What it brings instead is never repeated: it may be one."""
    match wanted.auth:
        case None:
            return None
        case ["key", str(key)]:
            return key
        case _:
            raise InvalidRequest('auth must be nil or ["key", the key]')


def known_topic(name: str, options: TopicOptions) -> KnownTopic | None:
    """What clients have to know of a topic; None where they may treat it like any other."""
    careful = options.overflow in ("block", "reject")
    special = options if options.concern_clients() else None
    if not careful and special is None and options.ttl is None:
        return None
    ttl_ms = None if options.ttl is None else max(1, round(options.ttl * 1000))
    said = None if special is None else _said(special)
    return KnownTopic(name, said, careful, ttl_ms)


_DEFAULTS = TopicOptions()


def _said(options: TopicOptions) -> dict[str, Any]:
    """The options that are not what they are by default."""
    return {
        name: msgspec.to_builtins(value)
        for name in OPTION_NAMES
        if (value := getattr(options, name)) != getattr(_DEFAULTS, name)
    }
