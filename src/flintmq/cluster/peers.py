"""The lines of a node to all its peers: a main and a bulk one each, which come back by themselves.

Of two nodes the one with the lower id dials. A new line of a peer ends the one before it. Where
there is no line, or too much waits for a slow one, messages are dropped: Raft sends them again.
`Peers` is a `Transport` once it was told who the node is (`join`); before that it answers founding
lines only, by which a cluster is made (`bootstrap`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import Disconnected, MalformedFrame
from ..observe.logs import event
from ..raft import RaftMessage
from .handshake import Refusal, TurnedAway
from .lines import PeerLine, why_no_connection
from .peer_frames import (
    IS_PONG,
    NO_CLUSTER,
    NONCE_BYTES,
    SHIPPING,
    AboutNode,
    FrameKind,
    GoodbyeReason,
    LineKind,
    PeerFrame,
    PeerHealth,
    PeerHello,
    decode_about,
    decode_ping,
    decode_raft,
    encode_about,
    encode_frame,
    encode_ping,
    encode_raft,
)
from .transport import PeerListener

_log = logging.getLogger(__name__)

Address = tuple[str, int]

BACKOFF_SECONDS = (0.05, 1.0)
HOPELESS_SECONDS = 5.0
"""How long a node that was refused for good waits: somebody has to change something first."""
CONNECT_SECONDS = 5.0
PING_SECONDS = 1.0
SILENT_SECONDS = 5.0
FOR_GOOD = 16
ANOTHER_TEXT = "another line of this node has come"
REFUSALS_TOLD_MAX = 1000
ACCEPTING_TURNS = 4
"""Of the loop, from taking a connection from the system to having a line."""


class PeerPlace(NamedTuple):
    """Where a peer is, what it is called, and which directory it has."""

    address: Address
    name: str
    incarnation: int


class LineTls(NamedTuple):
    """Both sides show a certificate; its names have the name of the node."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    client_of_any: ssl.SSLContext | None = None
    """For a node whose name is not known yet: any that the CA has signed will do."""


class Belonging(NamedTuple):
    """Who this node is; a blank one is nobody yet."""

    cluster: bytes = NO_CLUSTER
    node: int = 0
    incarnation: int = 0


@dataclass(slots=True)
class PeerState:
    """What is known of one peer."""

    place: PeerPlace
    lines: dict[LineKind, PeerLine] = field(default_factory=dict)
    coming: dict[LineKind, PeerLine] = field(default_factory=dict)
    """They take the place of lines that are there, with their first frame."""
    about: AboutNode = field(default_factory=AboutNode)
    health: PeerHealth | None = None
    round_trip_ms: int | None = None
    clock_ms: int | None = None
    """How far its clock is ahead of ours."""
    life: str = ""
    dropped: int = 0
    why: str = "not connected yet"
    told: str = ""
    """The refusal that was logged; the same is not logged again."""

    @property
    def is_connected(self) -> bool:
        return LineKind.MAIN in self.lines

    def all_lines(self) -> list[PeerLine]:
        return [*self.lines.values(), *self.coming.values()]

    def waits(self, line: PeerLine) -> bool:
        """Whether there is such a line already, and this one waits for its first frame: whoever
        dials may have meant another node, and turns away when it sees that it met us."""
        kind = line.theirs.line
        if kind not in self.lines or line.dials is not None:
            return False
        if (other := self.coming.get(kind)) is not None:
            other.end(GoodbyeReason.REPLACED, ANOTHER_TEXT)
        self.coming[kind] = line
        return True

    def has_come(self, line: PeerLine) -> bool:
        """Whether that was its first frame."""
        if self.coming.get(line.theirs.line) is not line or line.why is not None:
            return False
        del self.coming[line.theirs.line]
        return True


class Peers:
    """`key`: that of the cluster, where there is no TLS. `found` answers a founding frame, `admit`
    one of a node that wants to join, with the names of its certificate."""

    def __init__(
        self,
        *,
        key: bytes | None = None,
        tls: LineTls | None = None,
        found: Callable[[bytes], bytes] | None = None,
        admit: Callable[[bytes, list[str] | None], bytes] | None = None,
        about: Callable[[], AboutNode] = AboutNode,
        health: Callable[[], PeerHealth] | None = None,
    ) -> None:
        assert (key is None) != (tls is None), "either a key, or TLS"
        self._key, self._tls = key, tls
        self._found, self._admit, self._about = found, admit, about
        self._health = health or clocks
        self.belonging = Belonging()
        self.life = secrets.randbits(63) | 1
        self.level = 1
        """Of the cluster: who knows less is refused."""
        self.states: dict[int, PeerState] = {}
        self._listener: PeerListener | None = None
        self._server: asyncio.Server | None = None
        self._lines: set[PeerLine] = set()
        self._dialing: dict[int, list[asyncio.Task[None]]] = {}
        self._removed: dict[int, str] = {}
        self._refusals: set[str] = set()
        self._pinging: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.on_about: Callable[[int, AboutNode], None] | None = None

    # --- who we are

    async def listen(self, host: str, port: int) -> Address:
        """Where. Port 0 takes any that is free."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._answering,
                host,
                port,
                reuse_address=True,
                ssl=None if self._tls is None else self._tls.server,
            )
        except OSError as error:
            raise Disconnected(
                f"{host}:{port}", f"cannot listen for other nodes: {error.strerror or error}"
            ) from error
        place = self._server.sockets[0].getsockname()
        return str(place[0]), int(place[1])

    def join(self, belonging: Belonging, places: Mapping[int, PeerPlace]) -> None:
        """From now on this node is that one, and has these peers; its own place may be there."""
        self.belonging = belonging
        for node, place in places.items():
            if node != belonging.node:
                self.states[node] = PeerState(place)

    def follow(self, places: Mapping[int, PeerPlace], removed: Mapping[int, str]) -> None:
        """These are the nodes of the cluster now, and those were removed from it."""
        self._removed = dict(removed)
        for node, place in places.items():
            if node in self.states:
                self.states[node].place = place
            elif node != self.belonging.node:
                self.states[node] = PeerState(place)
                if self._listener is not None:
                    self._dial_for_good(node)
        for node in [node for node in self.states if node in removed]:
            self._drop(node)

    def _drop(self, node: int) -> None:
        state = self.states.pop(node)
        for task in self._dialing.pop(node, ()):
            task.cancel()
        for line in state.all_lines():
            line.end(GoodbyeReason.REMOVED, removed_text(state.place.name))
        if state.is_connected and self._listener is not None:
            self._listener.peer_lost(node)

    # --- Transport

    def start(self, listener: PeerListener) -> None:
        self._listener = listener
        loop = asyncio.get_running_loop()
        for node in self.states:
            self._dial_for_good(node)
        self._pinging = loop.call_later(PING_SECONDS, self._ping)

    def _dial_for_good(self, node: int) -> None:
        if self.belonging.node < node:
            loop = asyncio.get_running_loop()
            kinds = (LineKind.MAIN, LineKind.BULK)
            self._dialing[node] = [loop.create_task(self._keep_up(node, kind)) for kind in kinds]

    def send(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        state = self.states.get(peer)
        line = None if state is None else state.lines.get(LineKind.MAIN)
        if line is not None and line.has_room():
            for frame in encode_raft(messages):
                line.write(frame)
        elif state is not None:
            state.dropped += len(messages)

    def send_shipping(self, peer: int, kind: int, body: bytes) -> None:
        state = self.states.get(peer)
        which = LineKind.BULK if kind == FrameKind.CHUNK else LineKind.MAIN
        line = None if state is None else state.lines.get(which)
        if line is not None and line.has_room():
            line.write(encode_frame(kind, (body,)))
        elif state is not None:
            state.dropped += 1

    def tell_about(self) -> None:
        """What this node tells of itself has changed."""
        frame = encode_about(self._about())
        for state in self.states.values():
            line = state.lines.get(LineKind.MAIN)
            if line is not None:
                line.write(frame)

    def clocks_ms(self) -> list[int]:
        """How far the clocks of those that are connected are ahead of ours."""
        states = (state for state in self.states.values() if state.is_connected)
        return [state.clock_ms for state in states if state.clock_ms is not None]

    async def close(self) -> None:
        self._is_closed = True
        if self._pinging is not None:
            self._pinging.cancel()
        dialing = [task for tasks in self._dialing.values() for task in tasks]
        for task in dialing:
            task.cancel()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*dialing, return_exceptions=True)
        for _ in range(ACCEPTING_TURNS):  # who was just accepted is cut off by then
            await asyncio.sleep(0)
        while self._lines:
            for line in list(self._lines):
                line.end(GoodbyeReason.CLOSING, "this node is stopping")
            await next(iter(self._lines)).wait_ended()
        if self._server is not None:
            await self._server.wait_closed()
        for _ in range(ACCEPTING_TURNS):  # what was aborted is gone by then
            await asyncio.sleep(0)

    # --- founding lines

    async def ask(
        self, address: Address, name: str, body: bytes, kind: FrameKind = FrameKind.FOUNDING
    ) -> bytes:
        """One frame to a node, and its answer. Raises Disconnected. Without a name, any node is
        good that has a certificate of the cluster."""
        asking = _Asking(kind, body)
        where = f"{address[0]}:{address[1]}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                line = await self._dial(asking, LineKind.FOUNDING, 0, address, name)
                await line.wait_ended()
        except (OSError, TimeoutError) as error:
            raise Disconnected(where, why_no_connection(error)) from None
        finally:
            if asking.line is not None:
                asking.line.abort()
        if asking.answer is None:
            raise Disconnected(where, line.why.text if line.why else "no answer")
        return asking.answer

    # --- dialing

    def _hello(self, kind: LineKind) -> PeerHello:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return PeerHello(kind, *self.belonging, self.life, nonce, version_min=self.level)

    def _answering(self) -> PeerLine:
        return PeerLine(self, self._hello(LineKind.MAIN), self._key)

    async def _dial(
        self, owner: Peers | _Asking, kind: LineKind, node: int, address: Address, name: str
    ) -> PeerLine:
        tls = self._tls
        _, line = await asyncio.get_running_loop().create_connection(
            lambda: PeerLine(owner, self._hello(kind), self._key, dials=node),
            *address,
            ssl=None if tls is None else tls.client if name else tls.client_of_any,
            server_hostname=None if tls is None else name,
        )
        return line

    async def _keep_up(self, node: int, kind: LineKind) -> None:
        """One line to one peer, again and again."""
        state = self.states[node]
        least, most = BACKOFF_SECONDS
        pause = 0.0
        while not self._is_closed:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(most, max(least, pause * 2))
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    line = await self._dial(self, kind, node, state.place.address, state.place.name)
            except (OSError, TimeoutError) as error:
                if kind is LineKind.MAIN:
                    self._say_refused(node, state, TurnedAway(0, why_no_connection(error)))
                continue
            try:
                await line.wait_ended()
            finally:
                line.end(GoodbyeReason.CLOSING, "this node is stopping")
            if line.why is not None and line.why.reason >= FOR_GOOD:
                pause = HOPELESS_SECONDS
            elif line.was_open:
                pause = least

    # --- lines

    def look(self, line: PeerLine, theirs: PeerHello) -> Refusal | None:
        if theirs.line is LineKind.FOUNDING:
            return None  # what is asked there is judged by what it says
        ours = self.belonging
        if not ours.node or self._listener is None:
            return GoodbyeReason.CLOSING, "this node is starting"
        if theirs.cluster != ours.cluster:
            return (
                GoodbyeReason.CLUSTER,
                f"node {theirs.node} belongs to cluster {theirs.cluster.hex()}, this node to "
                f"{ours.cluster.hex()}",
            )
        state = self.states.get(theirs.node)
        if theirs.node in self._removed:
            return GoodbyeReason.REMOVED, removed_text(self._removed[theirs.node])
        if state is None or line.dials not in (None, theirs.node):
            return GoodbyeReason.NODE, f"node {theirs.node} is no peer of node {ours.node}"
        if theirs.incarnation != state.place.incarnation:
            return (
                GoodbyeReason.INCARNATION,
                f"node {theirs.node} has lost its data directory or has another one; a node "
                "cannot come back without its data",
            )
        if self._tls is not None and state.place.name not in line.certificate_names():
            return (
                GoodbyeReason.CREDENTIAL,
                f"the certificate of node {theirs.node} does not name {state.place.name!r}",
            )
        return None

    def line_made(self, line: PeerLine) -> None:
        if self._is_closed:
            line.abort()
        else:
            self._lines.add(line)

    def line_opened(self, line: PeerLine) -> None:
        if line.theirs.line is not LineKind.FOUNDING:
            state = self.states[line.theirs.node]
            if not state.waits(line):
                self._take_up(line, state)

    def _take_up(self, line: PeerLine, state: PeerState) -> None:
        """It is the line to that node from now on."""
        kind, node = line.theirs.line, line.theirs.node
        before = state.lines.get(kind)
        state.lines[kind] = line
        if before is not None:
            before.end(GoodbyeReason.REPLACED, ANOTHER_TEXT)
        if kind is LineKind.MAIN:
            state.why = state.told = ""
            state.life = f"{line.theirs.life:x}"
            line.write(encode_about(self._about()))
            line.write(encode_ping(self._health()))
            event(
                _log,
                logging.INFO,
                "peer_connected",
                f"connected to node {state.place.name}",
                node=node,
            )
            if self._listener is not None:
                self._listener.peer_connected(node, line.theirs.life)

    def line_frames(self, line: PeerLine, frames: list[PeerFrame]) -> None:
        if line.theirs.line is LineKind.FOUNDING:
            self._answer_founding(line, frames)
            return
        node = line.theirs.node
        state = self.states.get(node)
        if state is None:
            return  # the node was removed
        if state.has_come(line):
            self._take_up(line, state)
        if state.lines.get(line.theirs.line) is not line:
            return  # another one has taken its place
        messages: list[RaftMessage] = []
        for frame in frames:
            match frame.kind:
                case FrameKind.RAFT:
                    messages += decode_raft(frame)
                case FrameKind.PING:
                    self._heard_ping(line, state, frame)
                case FrameKind.ABOUT:
                    state.about = decode_about(frame)
                    if self.on_about is not None:
                        self.on_about(node, state.about)
                case kind if kind in SHIPPING and self._listener is not None:
                    self._listener.receive_shipping(node, kind, frame.body)
        if messages and self._listener is not None:
            for message in messages:
                if message.sender != node or message.receiver != self.belonging.node:
                    raise MalformedFrame(
                        f"node {node} sent a message from {message.sender} to {message.receiver}"
                    )
            self._listener.receive(node, messages)

    def line_lost(self, line: PeerLine) -> None:
        self._lines.discard(line)
        assert line.why is not None
        node = line.dials or (line.theirs.node if line.was_open else 0)
        state = self.states.get(node)
        if state is None:
            text = line.why.text
            if not line.was_open and line.why.reason >= FOR_GOOD and text not in self._refusals:
                if len(self._refusals) < REFUSALS_TOLD_MAX:
                    self._refusals.add(text)  # and not again
                event(
                    _log,
                    logging.WARNING,
                    "peer_refused",
                    f"refused a node: {line.why.text}",
                )
            return
        kind = line.theirs.line if line.was_open else None
        if kind is not None and state.coming.get(kind) is line:
            del state.coming[kind]
        elif kind is not None and state.lines.get(kind) is line:
            del state.lines[kind]
            if kind is LineKind.MAIN and not self._is_closed:
                state.why = line.why.text
                event(
                    _log,
                    logging.INFO,
                    "peer_lost",
                    f"lost the connection to node {state.place.name}: {state.why}",
                    node=node,
                )
                if self._listener is not None:
                    self._listener.peer_lost(node)
        elif not line.was_open:
            self._say_refused(node, state, line.why)

    def _say_refused(self, node: int, state: PeerState, why: TurnedAway) -> None:
        if state.is_connected:
            return
        state.why = why.text
        if why.text != state.told:
            state.told = why.text
            event(
                _log,
                logging.WARNING,
                "peer_refused",
                f"no connection to node {state.place.name}: {why.text}",
                node=node,
            )

    # --- frames

    def _answer_founding(self, line: PeerLine, frames: list[PeerFrame]) -> None:
        for frame in frames:
            if frame.kind == FrameKind.FOUNDING and self._found is not None:
                answer = self._found(bytes(frame.body))
                line.write(encode_frame(FrameKind.FOUNDING, (answer,)))
            elif frame.kind == FrameKind.JOINING and self._admit is not None:
                shown = None if self._tls is None else line.certificate_names()
                answer = self._admit(bytes(frame.body), shown)
                line.write(encode_frame(FrameKind.JOINING, (answer,)))

    def _heard_ping(self, line: PeerLine, state: PeerState, frame: PeerFrame) -> None:
        health = decode_ping(frame)
        if frame.flags & IS_PONG:
            ours = clocks()
            state.round_trip_ms = max(0, ours.boot_ms - health.echo)
            state.clock_ms = health.now_ms + state.round_trip_ms // 2 - ours.now_ms
        else:
            line.write(encode_ping(self._health()._replace(echo=health.boot_ms), is_pong=True))
        state.health = health
        if self._listener is not None:
            self._listener.peer_is_fit(line.theirs.node, not health.flags)

    def _ping(self) -> None:
        loop = asyncio.get_running_loop()
        self._pinging = loop.call_later(PING_SECONDS, self._ping)
        ping = encode_ping(self._health())
        for state in self.states.values():
            for line in state.all_lines():
                if loop.time() - line.heard_at > SILENT_SECONDS:
                    line.end(GoodbyeReason.SILENT, f"silent for {SILENT_SECONDS:g} s")
                    line.abort()
                elif line.has_room():
                    line.write(ping)


class _Asking:
    """The owner of a line that asks one thing."""

    def __init__(self, kind: FrameKind, body: bytes) -> None:
        self._kind, self._body = kind, body
        self.answer: bytes | None = None
        self.line: PeerLine | None = None

    def look(self, line: PeerLine, theirs: PeerHello) -> Refusal | None:
        return None

    def line_made(self, line: PeerLine) -> None:
        self.line = line

    def line_opened(self, line: PeerLine) -> None:
        line.write(encode_frame(self._kind, (self._body,)))

    def line_frames(self, line: PeerLine, frames: list[PeerFrame]) -> None:
        for frame in frames:
            if frame.kind == self._kind:
                self.answer = bytes(frame.body)
                line.end(GoodbyeReason.CLOSING, "answered")

    def line_lost(self, line: PeerLine) -> None: ...


def removed_text(name: str) -> str:
    return (
        f"node {name} was removed from this cluster; to use its machine again, start it with an "
        "empty data directory and --join"
    )


def clocks() -> PeerHealth:
    with contextlib.suppress(AttributeError):
        return PeerHealth(
            time.time_ns() // 1_000_000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        )
    return PeerHealth(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)
