"""Connects to one of a broker's servers, and again after the connection was lost.

The times here are real ones: they concern the network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from ...errors import Disconnected, FlintError, MalformedFrame, NotAuthenticated, TlsFailed
from ...observe.logs import event
from ..wire.faults import error_of
from ..wire.frames import Frame, encode_frame
from ..wire.operations import Fault, Op, OpenedReply, OpenRequest, encode
from .address import Address, shown
from .connection import ClientConnection, connect
from .tls import ClientTls

_log = logging.getLogger(__name__)

BACKOFF_SECONDS = (0.05, 2.0)
CONNECT_SECONDS = 10.0
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
        self.why = ""
        """Why there is no connection."""
        self.reconnects = 0
        self._tls = tls
        self._wanted, self._take_up = wanted, take_up
        self._at = 0
        self._up_since = 0.0
        self._short_lived = 0

    @property
    def name(self) -> str:
        scheme = "flint" if self._tls is None else "flints"
        return f"{scheme}://" + ",".join(map(shown, self.addresses))

    async def open(self, patience: float | None) -> None:
        """Connect for the first time, to the first server that answers."""
        loop = asyncio.get_running_loop()
        causes = []
        kind: type[Disconnected] = TlsFailed
        give_up_at = inf if patience is None else loop.time() + patience
        count = len(self.addresses)
        for number in range(count):
            self._at = number
            share = max(0.0, give_up_at - loop.time()) / (count - number)
            try:
                await self._connect(min(CONNECT_SECONDS, share))
                return
            except NotAuthenticated:
                raise  # another server of the same broker says the same
            except (FlintError, OSError) as error:
                causes.append(_cause(error))
                if not isinstance(error, TlsFailed):
                    kind = Disconnected
        if len(causes) > 1:
            named = zip(map(shown, self.addresses), causes, strict=True)
            causes = [f"{address}: {cause}" for address, cause in named]
        raise kind(self.name, "; ".join(causes))

    def lost(self, error: Exception | None) -> None:
        """A connection that was up has ended."""
        lived = asyncio.get_running_loop().time() - self._up_since
        self._short_lived = self._short_lived + 1 if lived < SHORT_LIVED_SECONDS else 0
        self.why = str(error) if error else "the broker closed the connection"
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
            is_hopeless = True
            for _ in self.addresses:
                try:
                    await self._connect()
                except NotAuthenticated as error:
                    return error
                except (FlintError, OSError) as error:
                    self.why = _cause(error)
                    self._at = (self._at + 1) % len(self.addresses)
                    is_hopeless = is_hopeless and isinstance(error, TlsFailed)
                else:
                    self.reconnects += 1
                    event(_log, logging.INFO, "broker_back", f"reconnected to {self.name}")
                    return None
            if is_hopeless:
                text = f"no connection to {self.name}, and no further attempt: {self.why}"
                event(_log, logging.WARNING, "tls_failed", text, servers=self.name)
                return TlsFailed(self.name, self.why)
            pause = min(most, max(least, pause * 2))

    async def _connect(self, seconds: float = CONNECT_SECONDS) -> None:
        opening = asyncio.get_running_loop().create_task(self._opened())
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
        try:
            self._take_up(connection, opened)
        except FlintError:
            connection.abort()
            raise

    async def _opened(self) -> tuple[ClientConnection, OpenedReply]:
        connection = await connect(self.addresses[self._at], self._tls)
        try:
            frame = await connection.opening(encode_frame(Op.OPEN, 0, encode(self._wanted())))
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
