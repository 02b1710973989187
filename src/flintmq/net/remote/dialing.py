"""Connects to one of a broker's servers, and again after the connection was lost.

The times here are real ones: they concern the network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import msgspec

from ...errors import (
    Disconnected,
    FlintError,
    MalformedFrame,
    NotAuthenticated,
    NotLeader,
    TlsFailed,
)
from ...observe.logs import event
from ..wire.faults import error_of
from ..wire.frames import Frame, encode_frame
from ..wire.operations import ClusterMap, Fault, Op, OpenedReply, OpenRequest, encode
from .address import Address, parse_addresses, shown
from .connection import ClientConnection, connect
from .tls import ClientTls

_log = logging.getLogger(__name__)

BACKOFF_SECONDS = (0.05, 2.0)
CONNECT_SECONDS = 10.0
SHORT_CONNECT_SECONDS = 2.0
"""The same where there are other servers to try."""
ELECTION_SECONDS = 0.2
"""How long the servers of a cluster that have no leader are left alone before they are asked
again."""
HAND_OVER_SECONDS = 0.01
"""The same at first: a lead that is handed over is taken after a few milliseconds."""
SILENCE_SECONDS = 10.0
"""How long an answer that should come soon may take before the broker is pinged."""
NODE_SILENCE_SECONDS = 2.0
"""The same in a cluster: another node may lead meanwhile."""
SHORT_LIVED_SECONDS = 0.005


class Dialer:
    """`wanted` is what a connection is opened with; `take_up` gets it once it is open, and may
    refuse it."""

    def __init__(
        self,
        addresses: Sequence[Address],
        tls: ClientTls | None,
        *,
        wanted: Callable[[], OpenRequest],
        take_up: Callable[[ClientConnection, OpenedReply], None],
    ) -> None:
        self.addresses = list(addresses)
        self._named = list(addresses)
        self.why = ""
        """Why there is no connection."""
        self.reconnects = 0
        self.follows = True
        """Whether to go where the leader is, in a cluster, or to stay with who answers."""
        self.auth_of: Callable[[Address], list[Any] | None] | None = None
        """What to show each server, if not the same to all; it may be another later."""
        self.map: ClusterMap | None = None
        """The cluster, as the server knew it that took us; None: it runs alone."""
        self._tls = tls
        self._wanted, self._take_up = wanted, take_up
        self._preferred = self.addresses[0]
        """The server that took us last."""
        self._up_since = 0.0
        self._short_lived = 0

    @property
    def name(self) -> str:
        scheme = "flint" if self._tls is None else "flints"
        return f"{scheme}://" + ",".join(map(shown, self._named))

    @property
    def silence_seconds(self) -> float:
        return SILENCE_SECONDS if self.map is None else NODE_SILENCE_SECONDS

    async def open(self, patience: float | None) -> None:
        """Connect for the first time, to the first server that answers and leads."""
        loop = asyncio.get_running_loop()
        give_up_at = inf if patience is None else loop.time() + patience
        pause = BACKOFF_SECONDS[0]
        while True:
            causes: list[tuple[Address, FlintError | OSError]] = []
            count = len(self.addresses)

            def share(tried: int, count: int = count) -> float:
                left = max(0.0, give_up_at - loop.time())
                return min(CONNECT_SECONDS, left / max(1, count - tried))

            if await self._try_all(share, causes):
                return
            # Servers that answer have no leader yet: there will be one.
            has_hope = any(isinstance(error, NotLeader) for _, error in causes)
            if not has_hope or loop.time() + pause >= give_up_at:
                raise self._no_server(causes)
            await asyncio.sleep(pause)
            pause = min(ELECTION_SECONDS, pause * 2)

    def _no_server(self, causes: list[tuple[Address, FlintError | OSError]]) -> Disconnected:
        kind = Disconnected
        if all(isinstance(error, TlsFailed) for _, error in causes):
            kind = TlsFailed
        texts = [_cause(error) for _, error in causes]
        if len(texts) > 1:
            texts = [f"{shown(at)}: {_cause(error)}" for at, error in causes]
        return kind(self.name, "; ".join(texts))

    async def _try_all(
        self,
        seconds: Callable[[int], float],
        causes: list[tuple[Address, FlintError | OSError]],
    ) -> bool:
        """Every server once, from the preferred one on; whether one took us. A server that names
        the leader has that one asked next."""
        at = self.addresses.index(self._preferred) if self._preferred in self.addresses else 0
        waiting = self.addresses[at:] + self.addresses[:at]
        tried: set[Address] = set()
        while waiting:
            address = waiting.pop(0)
            tried.add(address)
            try:
                await self._connect(address, seconds(len(causes)))
            except NotAuthenticated as error:
                if self.auth_of is None:
                    raise  # another server of the same broker says the same
                causes.append((address, error))
            except (FlintError, OSError) as error:
                causes.append((address, error))
                if isinstance(error, NotLeader):
                    hinted = [one for one in self.learn(error.addresses) if one not in tried]
                    waiting = hinted + [one for one in waiting if one not in hinted]
            else:
                self._preferred = address
                return True
        return False

    def learn(self, addresses: Sequence[str]) -> list[Address]:
        """Servers of the same cluster that the URL need not name."""
        found = parse_addresses(f"flint://{','.join(addresses)}") if addresses else []
        self.addresses += [address for address in found if address not in self.addresses]
        return found

    def lost(self, error: Exception | None) -> None:
        """A connection that was up has ended."""
        lived = asyncio.get_running_loop().time() - self._up_since
        self._short_lived = self._short_lived + 1 if lived < SHORT_LIVED_SECONDS else 0
        self.why = str(error) if error else "the broker closed the connection"
        if isinstance(error, (TimeoutError, NotLeader)):
            # It would keep us waiting again: it hangs, or hands over because it stops.
            at = self.addresses.index(self._preferred)
            self._preferred = self.addresses[(at + 1) % len(self.addresses)]
        if isinstance(error, NotLeader):
            self._preferred, *_ = [*self.learn(error.addresses), self._preferred]
        text = f"the connection to {self.name} was lost: {self.why}"
        event(_log, logging.INFO, "broker_lost", text)

    async def come_back(self, pause: float = 0.0) -> NotAuthenticated | TlsFailed | None:
        """Connect again, at once and then less and less often, to each server in turn. Returns why
        that is of no use, if it is."""
        least, most = BACKOFF_SECONDS
        # One that is lost as soon as it is made, again and again, is not made again at once.
        if self._short_lived > 3:
            pause = max(pause, least * 2 ** min(self._short_lived - 3, 10))
        pause = min(most, pause)
        while True:
            if pause:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            causes: list[tuple[Address, FlintError | OSError]] = []
            patience = CONNECT_SECONDS if len(self.addresses) == 1 else SHORT_CONNECT_SECONDS
            try:
                is_back = await self._try_all(partial(_same, patience), causes)
            except NotAuthenticated as error:
                return error
            if is_back:
                self.reconnects += 1
                event(_log, logging.INFO, "broker_back", f"reconnected to {self.name}")
                return None
            self.why = _cause(causes[-1][1])
            is_hopeless = all(isinstance(error, TlsFailed) for _, error in causes)
            if any(isinstance(error, NotLeader) for _, error in causes):
                least, most = HAND_OVER_SECONDS, ELECTION_SECONDS
            if is_hopeless:
                text = f"no connection to {self.name}, and no further attempt: {self.why}"
                event(_log, logging.WARNING, "tls_failed", text, servers=self.name)
                return TlsFailed(self.name, self.why)
            pause = min(most, max(least, pause * 2))

    async def _connect(self, address: Address, seconds: float) -> None:
        opening = asyncio.get_running_loop().create_task(self._opened(address))
        is_done = False
        try:
            await asyncio.wait([opening], timeout=seconds)
            is_done = opening.done()
        finally:
            if not is_done:
                opening.cancel()
                opening.add_done_callback(_drop)
        if not is_done:
            raise Disconnected(self.name, f"it did not answer within {seconds:.3g} s")
        connection, opened = opening.result()
        self._up_since = asyncio.get_running_loop().time()
        self.map = opened.map
        if opened.map is not None:
            self.learn([at for node in opened.map.nodes for at in node.addresses])
        try:
            self._take_up(connection, opened)
        except FlintError:
            connection.abort()
            raise

    async def _opened(self, address: Address) -> tuple[ClientConnection, OpenedReply]:
        connection = await connect(address, self._tls)
        try:
            wanted = self._wanted()
            wanted.follows = self.follows
            if self.auth_of is not None:
                wanted.auth = self.auth_of(address)
            frame = await connection.opening(encode_frame(Op.OPEN, 0, encode(wanted)))
            if frame.op != Op.REPLY:
                raise error_of(decoded(frame, Fault))
            return connection, decoded(frame, OpenedReply)
        except BaseException:
            connection.abort()
            raise


def decoded(frame: Frame, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(frame.control, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"{kind}: {error}") from None


def _same(seconds: float, tried: int) -> float:
    """Each server is given as long."""
    return seconds


def _drop(opening: asyncio.Task[tuple[ClientConnection, OpenedReply]]) -> None:
    """A connection that was made too late."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].abort()


def _cause(error: BaseException) -> str:
    if isinstance(error, Disconnected):
        return str(getattr(error, "cause", error))
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError):
        named = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        return named or str(error) or type(error).__name__
    return str(error)
