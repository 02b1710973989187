"""One client's line to the broker: sends, hears, and comes back after a lost connection.

Frames are counted on both sides. After a lost connection the session is resumed: both sides send
again what the other has not received, so nothing is carried out twice. Where the session is gone
(the broker was restarted, or we were away too long), requests without an answer fail with
SessionLost, and their callers decide what can be asked again.

Deadlines are by the clock of the client; the line's own times (backoff, silence) are real ones:
they concern the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

import msgspec

from ...batch import RecordBatch, absolute
from ...clock import Clock, done_within
from ...errors import (
    Closed,
    Disconnected,
    FlintError,
    MalformedFrame,
    NotAuthenticated,
    OutcomeUnknown,
    TlsFailed,
)
from ..wire.faults import error_of
from ..wire.frames import Buffer, Frame, encode_frame
from ..wire.hello import DURATIONS, ROWS
from ..wire.operations import (
    OPERATIONS,
    Fault,
    Op,
    OpenedReply,
    OpenRequest,
    encode,
)
from .address import Address
from .connection import ClientConnection
from .dialing import Dialer, decoded
from .sent_frames import SentFrames
from .tls import ClientTls
from .waiting import ANSWER_SECONDS, SentRequest, Waiters, Waiting

CLOSE_SECONDS = 2.0
"""How long closing waits for the broker. It need not answer: what is held there is given back when
it hears of it, or when the session has ended."""

FRAME_SLACK_BYTES = 1024 * 1024
"""What a reply may have beside the batch that was published in a frame of the largest size."""

TRY_AGAIN_SECONDS = 1.0
"""After a certificate that was not trusted, a new request has it tried again, not more often."""

ENDS_WHEN_CANCELLED = frozenset(op for op, row in OPERATIONS.items() if row.waits or row.is_long)


class SessionLost(Exception):
    """The broker does not know of this request. Never leaves this package."""


class BrokerDraining(Exception):
    """The broker is about to stop and did not do this. Never leaves this package."""


class LinkOwner(Protocol):
    """What a link tells of."""

    def heard(self, frame: Frame) -> None:
        """A frame that answers no request."""
        ...

    def opened(self, opened: OpenedReply) -> None: ...
    def session_began(self) -> None:
        """In place of one that is gone: everything that lasts is set up again."""
        ...

    def connection_lost(self) -> None: ...
    def refused(self, error: FlintError) -> None:
        """The API key is not valid any more; nothing is asked from now on."""
        ...

    def connection_changed(self, lost: Disconnected | None) -> None: ...


class Link:
    def __init__(
        self,
        addresses: Sequence[Address],
        owner: LinkOwner,
        *,
        patience: float | None,
        clock: Clock,
        client: str,
        api_key: str | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._owner = owner
        self.clock = clock
        self._client = client
        self._auth = None if api_key is None else ["key", api_key]
        self.dialer = Dialer(addresses, tls, wanted=self._wanted, take_up=self._take_up)
        self._waiters = Waiters(clock, patience, self._give_up)
        self._connection: ClientConnection | None = None
        self._session: bytes | None = None
        self._frames = SentFrames()
        self._received = 0
        self._last_id = 0
        self._connecting: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._watch_is_long = True
        self.is_silent = False
        """Whether somebody has waited in vain, and nothing was heard since."""
        self._failed_at = 0.0
        self._is_closing = False
        self._ping_seconds = 120.0
        self._pinged = False
        self._goodbye: asyncio.Future[None] | None = None
        self.frame_bytes_max = 0
        self._features = 0
        self.failure: TlsFailed | None = None
        """Why we have stopped trying to connect."""
        self.refusal: NotAuthenticated | None = None
        """Why nothing is asked any more: this one lasts."""

    @property
    def name(self) -> str:
        return self.dialer.name

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @property
    def is_up(self) -> bool:
        return self._connection is not None

    @property
    def reconnects(self) -> int:
        return self.dialer.reconnects

    def deadline(self, seconds: float | None = None) -> float | None:
        """When a request that begins now gives up: in `seconds`, or by the client's timeout."""
        if seconds is None:
            seconds = self._waiters.patience
        return None if seconds is None else self.clock.monotonic() + seconds

    # --- connecting

    async def open(self) -> None:
        """Connect for the first time, within the client's timeout."""
        await self.dialer.open(self._waiters.patience)

    def _wanted(self) -> OpenRequest:
        return OpenRequest(self._session, self._received, self._auth, self._client, True)

    def fitted(self, batch: RecordBatch, now_ms: int) -> RecordBatch:
        """A batch as this broker knows it: one that does not know of durations gets times, by our
        own clock."""
        return batch if self._features & DURATIONS else absolute(batch, now_ms)

    @property
    def takes_rows(self) -> bool:
        """Whether publishes may go out as rows, now."""
        return self._connection is not None and self._features & ROWS != 0

    def _take_up(self, connection: ClientConnection, opened: OpenedReply) -> None:
        self._connection = connection
        self.failure = None
        connection.frame_bytes_max = opened.frame_bytes_max + FRAME_SLACK_BYTES
        self.frame_bytes_max = opened.frame_bytes_max
        self._features = connection.features
        self._ping_seconds = opened.ping_seconds
        self._pinged = self.is_silent = False
        self._waiters.connected()
        try:
            self._owner.opened(opened)
            if opened.resumed:
                self._resume(connection, opened.received)
            else:
                self._begin_session(opened.session)
            self._watch()
            connection.listen(self._receive, self._lost)
        except FlintError:
            self._connection = None
            self._session = b""  # an unknown one: the next begins anew
            raise

    def _resume(self, connection: ClientConnection, received: int) -> None:
        self._frames.acknowledge(received)
        for parts in self._frames.to_send_again():
            connection.write(parts)
        self._frames.are_written()

    def _begin_session(self, session: bytes) -> None:
        is_new = self._session is not None
        self._session = session
        self._received = 0
        self._frames.begin()
        if is_new:
            for request in self._waiters.take_all():
                request.fail(SessionLost())
            self._owner.session_began()

    def _lost(self, error: Exception | None) -> None:
        was_up = self._connection is not None
        self._connection = None
        self._said_goodbye()
        if self._is_closing:
            return
        self.dialer.lost(error)
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        self._owner.connection_lost()
        self._waiters.disconnected()
        if self._connecting is None:
            self._connecting = self.loop.create_task(self._come_back())
        if was_up:
            self._owner.connection_changed(self.disconnected())

    async def _come_back(self, pause: float = 0.0) -> None:
        useless: NotAuthenticated | TlsFailed | None = None
        try:
            useless = await self.dialer.come_back(pause)
        finally:
            if self._connecting is asyncio.current_task():
                self._connecting = None
        if isinstance(useless, NotAuthenticated):
            self._refused(useless)
        elif useless is not None:
            # A certificate does not mend itself: everybody who waits gets an error, and the next
            # request has it tried again.
            self.failure = useless
            self._failed_at = self.loop.time()
            self._give_up(everybody=True)
        else:
            self._owner.connection_changed(None)

    def _try_again(self) -> None:
        """Somebody asks for something after we had stopped trying."""
        if self.failure is None or self._connecting is not None or self._is_closing:
            return
        wait = self._failed_at + TRY_AGAIN_SECONDS - self.loop.time()
        self._connecting = self.loop.create_task(self._come_back(max(0.0, wait)))

    def _refused(self, error: NotAuthenticated) -> None:
        """The broker does not know our key, or not any more: to ask again would not help. All
        requests fail with it, also those to come."""
        self.refusal = error
        self._frames.forget()
        for request in self._waiters.take_all():
            request.fail(again(error))
        self._owner.refused(error)

    # --- giving up

    def is_awaited(self, id: int) -> None:
        """Somebody new waits for a request: without a connection they hear of it in time too."""
        if self._connection is None and id in self._waiters.by_id:
            self._waiters.wait_disconnected(id)
            self._try_again()

    def _give_up(self, *, everybody: bool = False) -> None:
        if self._is_closing:
            return
        waiting = self._waiters.by_id
        unsent = self._frames.unwritten()
        never_sent: set[int] = set()
        for id, request in self._waiters.overdue(everybody=everybody):
            if id in unsent and not request.is_parked:
                del waiting[id]
                never_sent.add(id)
                request.fail(self.disconnected())
            elif not request.expire(OutcomeUnknown(self._why_no_answer())):
                del waiting[id]
        if never_sent:
            self._frames.take_back(never_sent)

    async def done_by(self, future: asyncio.Future[Any], deadline: float) -> bool:
        """Wait until something is done or it is too late; whether it is done."""
        if deadline == inf:
            await asyncio.wait([future])
            return True
        left = deadline + ANSWER_SECONDS - self.clock.monotonic()
        return await done_within(self.clock, future, left)

    def no_answer(self) -> FlintError:
        """The error for somebody who has waited in vain, and has asked nothing."""
        return self.disconnected() if not self.is_up else OutcomeUnknown(self._why_no_answer())

    def _why_no_answer(self) -> str:
        if self._connection is None:
            return f"the connection to {self.name} was lost: {self.dialer.why}"
        self.is_silent = True
        return f"{self.name} did not answer in time"

    def disconnected(self) -> Disconnected:
        kind = Disconnected if self.failure is None else TlsFailed
        return kind(self.name, self.dialer.why)

    # --- asking

    def send(
        self,
        op: int,
        control: bytes,
        batches: Sequence[Buffer] = (),
        waiting: Waiting | None = None,
        *,
        id: int | None = None,
    ) -> int:
        """Send a request, at the end of this turn of the loop or once there is a connection."""
        if self._is_closing:
            raise Closed("the connection")
        if id is None:
            id = self._last_id = self._last_id + 1
        if self.refusal is not None:
            if waiting is not None:
                self.loop.call_soon(waiting.fail, again(self.refusal))
            return id
        parts = encode_frame(op, id, control, batches, received=self._received)
        self._frames.add(id if waiting is not None else 0, parts)
        if waiting is not None:
            self._waiters.add(id, waiting)
        if self._connection is not None:
            self._connection.write(parts)
            self._frames.are_written()
            if self._watch_is_long and waiting is not None and not waiting.is_parked:
                self._watch()
        elif waiting is not None:
            self._waiters.wait_disconnected(id)
            self._try_again()
        return id

    def send_together(self, op: int, control: bytes, requests: Sequence[Waiting]) -> int:
        """Send several requests in one frame, over the connection there is; the id of the first.
        The others count on from it."""
        assert self._connection is not None
        first = id = self._last_id + 1
        self._last_id += len(requests)
        for request in requests:
            self._waiters.add(id, request)
            id += 1
        parts = encode_frame(op, first, control, received=self._received)
        self._frames.add(first, parts)
        self._connection.write(parts)
        self._frames.are_written()
        if self._watch_is_long:
            self._watch()
        return first

    def write_now(self, work: Callable[[], None]) -> None:
        """Do what sends, and write that at once, with what was sent in this turn before."""
        if self._connection is not None:
            self._connection.write_now(work)
        else:
            work()

    async def ask(
        self, op: Op, control: bytes, batches: Sequence[Buffer] = (), *, sent: SentRequest
    ) -> Frame:
        """Send a request and wait for its answer; an error is raised as it was there.

        Without an answer by its deadline, the outcome is unknown. Cancelled, what was asked is
        carried out all the same, but for what may wait or takes long.
        """
        id = self.send(op, control, batches, sent)
        try:
            frame = await sent.future
        except (asyncio.CancelledError, OutcomeUnknown) as error:
            if isinstance(error, asyncio.CancelledError):
                sent.abandon()
            if op in ENDS_WHEN_CANCELLED and id in self._waiters.by_id:
                self.cancel(id)
            raise
        if frame.op == Op.ERROR:
            raise error_in(frame)
        return frame

    def cancel(self, id: int) -> None:
        """Have a request end that waits; it is still answered."""
        self.send_control(Op.CANCEL, (), id)

    def send_control(self, op: int, control: Any, id: int) -> None:
        """Send what has no answer of its own."""
        if not self._is_closing:
            self.send(op, encode(control), id=id)

    # --- hearing

    def _receive(self, frames: list[Frame]) -> None:
        self._pinged = self.is_silent = False
        waiters = self._waiters
        for frame in frames:
            if frame.received:
                self._frames.acknowledge(frame.received)
            if frame.op == Op.ERROR and frame.id == 0:
                raise error_of(decoded(frame, Fault))
            self._received += 1
            if frame.op == Op.RECEIPTS:
                waiters.take_receipts(frame)
            elif frame.id:
                waiting = waiters.pop(frame.id)
                if waiting is not None:
                    self._answer(waiting, frame)
            elif frame.op != Op.REPLY:
                self._owner.heard(frame)
        if not waiters.timed and waiters.timer is not None:
            waiters.stop()

    def _answer(self, waiting: Waiting, frame: Frame) -> None:
        """A request ends also if its answer makes no sense."""
        try:
            waiting.answer(frame)
        except (FlintError, msgspec.DecodeError, TypeError, ValueError) as error:
            waiting.fail(MalformedFrame(f"the answer to request {frame.id}: {error}"))

    # --- silence

    def _watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watch_is_long = all(one.is_parked for one in self._waiters.by_id.values())
        seconds = self._ping_seconds
        if not self._watch_is_long:
            seconds = min(seconds, self.dialer.silence_seconds)
        self._watching = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Nothing was heard for a while? Then ask; no answer to that either: connect anew."""
        self._watching = None
        connection = self._connection
        if connection is None:
            return
        quiet = self.loop.time() - connection.heard_at
        silence = self.dialer.silence_seconds
        if self._pinged and quiet >= silence:
            connection.abort(TimeoutError(f"nothing was heard from it for {quiet:.0f} s"))
            return
        waits = any(not one.is_parked for one in self._waiters.by_id.values())
        if not self._pinged and quiet >= (silence if waits else self._ping_seconds) * 0.9:
            self._pinged = True
            self.send(Op.PING, b"\x90", (), SentRequest())
        self._watch()

    # --- the end

    async def close(self) -> None:
        """Say goodbye, so that everything held there is given back before this returns."""
        if self._is_closing:
            return
        try:
            if self._connection is not None:
                await self._say_goodbye()
        finally:
            self._end()

    async def _say_goodbye(self) -> None:
        self._goodbye = self.loop.create_future()
        self.send(Op.GOODBYE, b"\x90")
        self._is_closing = True
        seconds = 0.0 if self.is_silent else CLOSE_SECONDS
        timer = self.loop.call_later(seconds, self._said_goodbye)
        try:
            await self._goodbye
        finally:
            timer.cancel()

    def _end(self) -> None:
        self._is_closing = True
        self._waiters.stop()
        for under_way in (self._watching, self._connecting):
            if under_way is not None:
                under_way.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for request in self._waiters.take_all():
            request.fail(Closed("the connection"))

    def _said_goodbye(self) -> None:
        if self._goodbye is not None and not self._goodbye.done():
            self._goodbye.set_result(None)


def again(error: FlintError) -> FlintError:
    """The same error for somebody else: each has a traceback of its own."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.args = error.args
    fresh.__dict__.update(error.__dict__)
    return fresh


def error_in(frame: Frame) -> Exception:
    """What an ERROR frame says, as it is raised here."""
    fault = decoded(frame, Fault)
    return BrokerDraining() if fault.kind == "Draining" else error_said(fault)


def error_said(fault: Fault) -> FlintError:
    if fault.kind == "Cancelled":
        # Who has cancelled it does not listen any more; else it ended with the session.
        return Closed("the connection")
    return error_of(fault)
