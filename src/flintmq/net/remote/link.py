"""One client's line to the broker: connects, sends, and comes back after a lost connection.

Frames are counted on both sides. After a lost connection the session is resumed: both sides send
again what the other has not received, so nothing is carried out twice. Where the session is gone
(the broker was restarted, or we were away too long), whoever waits for an answer hears SessionLost
and decides what can be asked again.

Who waits for an answer gives up at its own deadline, whatever becomes of the connection. Deadlines
are by the clock of the client; the line's own times (backoff, silence) are real ones: they concern
the network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

import msgspec

from ...batch import RecordBatch, absolute
from ...broker_api import ConnectionChanged
from ...clock import Clock, Timer, done_within
from ...errors import (
    Closed,
    Disconnected,
    FlintError,
    MalformedFrame,
    NotAuthenticated,
    OutcomeUnknown,
    TlsFailed,
)
from ...observe.logs import event
from ..wire.faults import error_of
from ..wire.frames import Buffer, Frame, encode_frame
from ..wire.hello import DURATIONS
from ..wire.operations import Fault, Op, OpenedReply, OpenRequest, encode
from .address import Address, shown
from .connection import ClientConnection, connect
from .tls import ClientTls

_log = logging.getLogger(__name__)

BACKOFF_SECONDS = (0.05, 2.0)
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
"""How long a broker is waited for by somebody who closes something. It need not answer: what is
held there is given back when it hears of it, or when the session has ended."""

ANSWER_SECONDS = 0.05
"""The broker itself answers when a call runs out of time. That answer may take so long."""

FRAME_SLACK_BYTES = 1024 * 1024
"""What a reply may have beside the batch that was published in a frame of the largest size."""

SHORT_LIVED_SECONDS = 0.005
GIVE_UP_SECONDS = 0.01
"""Who gives up within so short a time is told together: there may be many."""

TRY_AGAIN_SECONDS = 1.0
"""After a certificate that was not trusted, whoever asks has it tried again, not more often."""

SILENCE_SECONDS = 10.0
"""How long an answer that should come soon may take before it is asked whether anybody is there."""


ENDS_WHEN_CANCELLED = frozenset({Op.FETCH, Op.WAIT_BEYOND, Op.BACKUP})


class SessionLost(Exception):
    """The broker does not know of this request. Never leaves this package."""


class BrokerDraining(Exception):
    """The broker is about to stop and did not do this. Never leaves this package."""


class Waiting(Protocol):
    """Somebody who waits for the answer to a request."""

    is_parked: bool
    """The answer may take for ever: nobody wonders about silence."""
    deadline: float | None
    """When to give up, by the client's clock; None: never while there is a connection, and by our
    patience while there is none."""

    def answer(self, frame: Frame) -> None: ...
    def fail(self, error: Exception) -> None:
        """There will be no answer."""

    def expire(self, error: Exception) -> bool:
        """There was no answer in time; whether it is still to be told should one come."""


class SentRequest:
    """A request whose answer is awaited."""

    __slots__ = ("_on_answer", "deadline", "future", "is_parked")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_answer: Callable[[Frame], None] | None = None
    ) -> None:
        self.future: asyncio.Future[Frame] = loop.create_future()
        self.is_parked = False
        self.deadline: float | None = None
        self._on_answer = on_answer

    def answer(self, frame: Frame) -> None:
        if self._on_answer is not None:
            self._on_answer(frame)  # now: what comes behind it finds it done
        if not self.future.done():
            self.future.set_result(frame)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self, error: Exception) -> bool:
        self.fail(error)
        return self._on_answer is not None


class _Pinged:
    """Nobody waits for the answer to a ping: that it comes is enough."""

    is_parked = False
    deadline: float | None = None

    def answer(self, frame: Frame) -> None:
        pass

    def fail(self, error: Exception) -> None:
        pass

    def expire(self, error: Exception) -> bool:
        return False


class Link:
    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        patience: float | None,
        clock: Clock,
        client: str,
        api_key: str | None = None,
        tls: ClientTls | None = None,
        on_event: Callable[[Frame], None],
        on_opened: Callable[[OpenedReply], None],
        on_new_session: Callable[[], None],
        on_lost: Callable[[], None],
        on_refused: Callable[[FlintError], None],
        on_changed: ConnectionChanged,
    ) -> None:
        self._addresses = list(addresses)
        self._patience = patience
        self.clock = clock
        self._client = client
        self._auth = None if api_key is None else ["key", api_key]
        self._tls = tls
        self._on_event = on_event
        self._on_opened = on_opened
        self._on_new_session = on_new_session
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._on_changed = on_changed
        self._connection: ClientConnection | None = None
        self._session: bytes | None = None
        self._sent = self._received = 0
        self._wrote = 0  # of what was sent, how much was ever written to a socket
        self._kept: deque[tuple[int, list[Buffer]]] = deque()  # request, frame: not acknowledged
        self._waiting: dict[int, Waiting] = {}
        self._last_id = 0
        self._connecting: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._late: dict[int, float] = {}  # without a connection: when who waits gives up
        self._watch_is_long = True
        self._up_since = 0.0
        self._short_lived = 0
        self._giving_up: Timer | None = None
        self._give_up_due = 0.0
        self._timed = 0  # of those who wait, how many have a deadline
        self._is_ignored = False
        self._lost_because = ""
        self._failed_at = 0.0
        self._at = 0
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
        self.reconnects = 0

    @property
    def name(self) -> str:
        scheme = "flint" if self._tls is None else "flints"
        return f"{scheme}://" + ",".join(map(shown, self._addresses))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @property
    def patience(self) -> float | None:
        return self._patience

    @property
    def is_up(self) -> bool:
        return self._connection is not None

    @property
    def is_silent(self) -> bool:
        """Whether somebody has waited in vain, and nothing was heard since."""
        return self._is_ignored

    def deadline(self, seconds: float | None = None) -> float | None:
        """When to give up on what is asked now: in so many seconds, or by our patience."""
        if seconds is None:
            seconds = self._patience
        return None if seconds is None else self.clock.monotonic() + seconds

    # --- connecting

    async def open(self) -> None:
        """Connect for the first time, to the first server that answers, within our patience."""
        causes = []
        kind: type[Disconnected] = TlsFailed
        give_up_at = inf if self._patience is None else self.loop.time() + self._patience
        count = len(self._addresses)
        for number in range(count):
            self._at = number
            share = max(0.0, give_up_at - self.loop.time()) / (count - number)
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
            named = zip(map(shown, self._addresses), causes, strict=True)
            causes = [f"{address}: {cause}" for address, cause in named]
        raise kind(self.name, "; ".join(causes))

    async def _connect(self, seconds: float = CONNECT_SECONDS) -> None:
        opening = self.loop.create_task(self._opened_connection())
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
        try:
            self._take_up(connection, opened)
        except FlintError:
            self._connection = None
            self._session = b""  # nobody's: the next one begins anew
            connection.abort()
            raise

    async def _opened_connection(self) -> tuple[ClientConnection, OpenedReply]:
        connection = await connect(self._addresses[self._at], self._tls)
        wanted = OpenRequest(self._session, self._received, self._auth, self._client, True)
        try:
            frame = await connection.opening(encode_frame(Op.OPEN, 0, encode(wanted)))
            if frame.op != Op.REPLY:
                raise error_of(_decoded(frame, Fault))
            return connection, _decoded(frame, OpenedReply)
        except BaseException:
            connection.abort()
            raise

    def fitted(self, batch: RecordBatch, now_ms: int) -> RecordBatch:
        """A batch as this broker knows it: one that does not know of durations gets times, by our
        own clock."""
        return batch if self._features & DURATIONS else absolute(batch, now_ms)

    def _take_up(self, connection: ClientConnection, opened: OpenedReply) -> None:
        self._connection = connection
        self._up_since = self.loop.time()
        self.failure = None
        connection.frame_bytes_max = opened.frame_bytes_max + FRAME_SLACK_BYTES
        self.frame_bytes_max = opened.frame_bytes_max
        self._features = connection.features
        self._ping_seconds = opened.ping_seconds
        self._pinged = False
        self._late.clear()
        self._is_ignored = False
        self._on_opened(opened)
        if opened.resumed:
            self._acknowledge(opened.received)
            for _, parts in self._kept:
                connection.write(parts)
            self._wrote = self._sent
        else:
            is_new = self._session is not None
            self._session = opened.session
            self._sent = self._received = self._wrote = 0
            self._kept.clear()
            if is_new:
                self._start_anew()
        self._watch()
        connection.listen(self._receive, self._lost)

    def _start_anew(self) -> None:
        """The session we had is gone: everybody asks again what can be asked again."""
        for request in self._nobody_waits():
            request.fail(SessionLost())
        self._on_new_session()

    def _lost(self, error: Exception | None) -> None:
        was_up = self._connection is not None
        if was_up:
            lived = self.loop.time() - self._up_since
            self._short_lived = self._short_lived + 1 if lived < SHORT_LIVED_SECONDS else 0
        self._connection = None
        if self._goodbye is not None and not self._goodbye.done():
            self._goodbye.set_result(None)
        if self._is_closing:
            return
        self._lost_because = str(error) if error else "the broker closed the connection"
        event(
            _log,
            logging.INFO,
            "broker_lost",
            f"the connection to {self.name} was lost: {self._lost_because}",
        )
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        self._on_lost()
        self._late = dict.fromkeys(self._waiting, self._by_our_patience())
        for id in self._waiting:
            self._give_up_in_time(id)
        if self._connecting is None:
            self._connecting = self.loop.create_task(self._come_back())
        if was_up:
            self._on_changed(self.disconnected())

    async def _come_back(self, pause: float = 0.0) -> None:
        """Connect again, at once and then less and less often, to each server in turn."""
        least, most = BACKOFF_SECONDS
        # One that is lost as soon as it is made, again and again, is not made again at once.
        if self._short_lived > 3:
            pause = max(pause, least * 2 ** min(self._short_lived - 3, 10))
        pause = min(most, pause)
        try:
            while not self._is_closing:
                if pause:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                is_hopeless = True
                for _ in self._addresses:
                    try:
                        await self._connect()
                    except NotAuthenticated as error:
                        self._refused(error)
                        return
                    except (FlintError, OSError) as error:
                        self._lost_because = _cause(error)
                        self._at = (self._at + 1) % len(self._addresses)
                        is_hopeless = is_hopeless and isinstance(error, TlsFailed)
                    else:
                        self.reconnects += 1
                        event(_log, logging.INFO, "broker_back", f"reconnected to {self.name}")
                        self._on_changed(None)
                        return
                if is_hopeless:
                    self._stop_trying()
                    return
                pause = min(most, max(least, pause * 2))
        finally:
            if self._connecting is asyncio.current_task():
                self._connecting = None

    def _stop_trying(self) -> None:
        """A certificate does not mend itself: nobody waits for that, and it is tried again when
        somebody asks for something."""
        event(
            _log,
            logging.WARNING,
            "tls_failed",
            f"no connection to {self.name}, and no further attempt: {self._lost_because}",
            servers=self.name,
        )
        self.failure = TlsFailed(self.name, self._lost_because)
        self._failed_at = self.loop.time()
        self._connecting = None
        self._give_up(everybody=True)

    def _try_again(self) -> None:
        """Somebody asks for something after we had stopped trying."""
        if self.failure is None or self._connecting is not None or self._is_closing:
            return
        wait = self._failed_at + TRY_AGAIN_SECONDS - self.loop.time()
        self._connecting = self.loop.create_task(self._come_back(max(0.0, wait)))

    def _refused(self, error: NotAuthenticated) -> None:
        """The broker does not know our key, or not any more: to ask again would not help. Whoever
        waits hears it, and whoever asks from now on."""
        self.refusal = error
        self._late.clear()
        self._kept.clear()
        for request in self._nobody_waits():
            request.fail(again(error))
        self._on_refused(error)

    # --- giving up

    def _give_up_at(self, due: float) -> None:
        """See to it that who waits hears in time that there is no answer."""
        if self._giving_up is not None:
            if self._give_up_due <= due:
                return
            self._giving_up.cancel()
        now = self.clock.monotonic()
        self._give_up_due = due = max(due, now + GIVE_UP_SECONDS)
        self._giving_up = self.clock.call_later(due - now, self._look_again)

    def _look_again(self) -> None:
        """Time is up. But if it was we who were held up, the answer is here and not read yet:
        two turns of the loop, and it is."""
        self.loop.call_soon(lambda: self.loop.call_soon(self._give_up))

    def is_awaited(self, id: int) -> None:
        """Somebody new waits for a request: without a connection they hear of it in time too."""
        if self._connection is None and id in self._waiting:
            self._late.setdefault(id, self._by_our_patience())
            self._give_up_in_time(id)
            self._try_again()

    def _give_up_in_time(self, id: int) -> None:
        due = self._due(id)
        if due < inf:
            self._give_up_at(due)

    def _due(self, id: int) -> float:
        own = self._waiting[id].deadline
        return self._late.get(id, inf) if own is None else own + ANSWER_SECONDS

    def _by_our_patience(self) -> float:
        return inf if self._patience is None else self.clock.monotonic() + self._patience

    def _give_up(self, *, everybody: bool = False) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if self._is_closing:
            return
        now = self.clock.monotonic()
        unsent = self._unsent()
        never_sent: set[int] = set()
        next_due = inf
        for id, request in list(self._waiting.items()):
            due = self._due(id)
            is_awaited = not request.is_parked or id in self._late
            if not ((everybody and is_awaited) or due <= now):
                next_due = min(next_due, due)
                continue
            self._late.pop(id, None)
            if request.deadline is not None:
                request.deadline = None
                self._timed -= 1
            if id in unsent and not request.is_parked:
                del self._waiting[id]
                never_sent.add(id)
                request.fail(self.disconnected())
            elif not request.expire(OutcomeUnknown(self._why_no_answer())):
                del self._waiting[id]
        if never_sent:
            self._take_out(never_sent)
        if next_due < inf:
            self._give_up_at(next_due)

    async def done_by(self, future: asyncio.Future[Any], deadline: float) -> bool:
        """Wait until something is done or it is too late; whether it is done."""
        if deadline == inf:
            await asyncio.wait([future])
            return True
        left = deadline + ANSWER_SECONDS - self.clock.monotonic()
        return await done_within(self.clock, future, left)

    def no_answer(self) -> FlintError:
        """What who has waited in vain, and has asked nothing, is told."""
        return self.disconnected() if not self.is_up else OutcomeUnknown(self._why_no_answer())

    def _unsent(self) -> set[int]:
        """Requests that were never written to a socket."""
        count = self._sent - self._wrote
        return {request for request, _ in list(self._kept)[-count:]} if count else set()

    def _why_no_answer(self) -> str:
        if self._connection is None:
            return f"the connection to {self.name} was lost: {self._lost_because}"
        self._is_ignored = True
        return f"{self.name} did not answer in time"

    def disconnected(self) -> Disconnected:
        kind = Disconnected if self.failure is None else TlsFailed
        return kind(self.name, self._lost_because)

    def _take_out(self, ids: set[int]) -> None:
        """Never send requests that were never written: nobody has counted them."""
        kept = [entry for entry in self._kept if entry[0] not in ids]
        self._sent -= len(self._kept) - len(kept)
        self._kept = deque(kept)

    # --- asking

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

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
            id = self.next_id()
        if self.refusal is not None:
            if waiting is not None:
                self.loop.call_soon(waiting.fail, again(self.refusal))
            return id
        parts = encode_frame(op, id, control, batches, received=self._received)
        self._sent += 1
        self._kept.append((id if waiting is not None else 0, parts))
        if waiting is not None:
            self._waiting[id] = waiting
            if waiting.deadline is not None:
                self._timed += 1
                self._give_up_at(waiting.deadline + ANSWER_SECONDS)
        if self._connection is not None:
            self._connection.write(parts)
            self._wrote = self._sent
            if self._watch_is_long and waiting is not None and not waiting.is_parked:
                self._watch()
        elif waiting is not None:
            self._late[id] = self._by_our_patience()
            self._give_up_in_time(id)
            self._try_again()
        return id

    def write_now(self, work: Callable[[], None]) -> None:
        """Do what sends, and write that at once, with what was sent in this turn before."""
        if self._connection is not None:
            self._connection.write_now(work)
        else:
            work()

    async def ask(
        self,
        op: int,
        control: Any,
        batches: Sequence[Buffer] = (),
        *,
        on_answer: Callable[[Frame], None] | None = None,
        deadline: float | None = None,
    ) -> Frame:
        """Send a request and wait for its answer; an error is raised as it was there.

        Without an answer by its deadline, the outcome is unknown. Cancelled, what was asked is
        carried out all the same, but for what may wait for ever.
        """
        call = SentRequest(self.loop, on_answer)
        call.deadline = deadline
        id = self.send(op, encode(control), batches, call)
        try:
            frame = await call.future
        except asyncio.CancelledError:
            if op in ENDS_WHEN_CANCELLED and id in self._waiting:
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
        self._pinged = self._is_ignored = False
        for frame in frames:
            if frame.received:
                self._acknowledge(frame.received)
            if frame.op == Op.ERROR and frame.id == 0:
                raise error_of(_decoded(frame, Fault))
            self._received += 1
            if frame.id:
                waiting = self._waiting.pop(frame.id, None)
                if waiting is not None:
                    if waiting.deadline is not None:
                        self._timed -= 1
                    self._answer(waiting, frame)
            elif frame.op != Op.REPLY:
                self._on_event(frame)
        if not self._timed and self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _answer(self, waiting: Waiting, frame: Frame) -> None:
        """Whoever waits hears something, also if the answer makes no sense."""
        try:
            waiting.answer(frame)
        except (FlintError, msgspec.DecodeError, TypeError, ValueError) as error:
            waiting.fail(MalformedFrame(f"the answer to request {frame.id}: {error}"))

    def _acknowledge(self, received: int) -> None:
        surplus = len(self._kept) - (self._sent - received)
        if not 0 <= received <= self._sent:
            raise MalformedFrame(f"{received:,} frames received of {self._sent:,} that were sent")
        for _ in range(surplus):
            self._kept.popleft()

    # --- silence

    def _watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watch_is_long = all(request.is_parked for request in self._waiting.values())
        seconds = self._ping_seconds
        if not self._watch_is_long:
            seconds = min(seconds, SILENCE_SECONDS)
        self._watching = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Nothing was heard for a while? Then ask; no answer to that either: connect anew."""
        self._watching = None
        connection = self._connection
        if connection is None:
            return
        quiet = self.loop.time() - connection.heard_at
        if self._pinged and quiet >= SILENCE_SECONDS:
            connection.abort(TimeoutError(f"nothing was heard from it for {quiet:.0f} s"))
            return
        waits = any(not request.is_parked for request in self._waiting.values())
        if not self._pinged and quiet >= (SILENCE_SECONDS if waits else self._ping_seconds) * 0.9:
            self._pinged = True
            self.send(Op.PING, b"\x90", (), _Pinged())
        self._watch()

    # --- the end

    async def close(self) -> None:
        """Say goodbye, so that everything held there is given back before this returns."""
        if self._is_closing:
            return
        if self._connection is not None:
            self._goodbye = self.loop.create_future()
            self.send(Op.GOODBYE, b"\x90")
            seconds = 0.0 if self.is_silent else CLOSE_SECONDS
            timer = self.loop.call_later(seconds, self._said_goodbye)
            self._is_closing = True
            try:
                await self._goodbye
            finally:
                timer.cancel()
                self._end()
        else:
            self._is_closing = True
            self._end()

    def _end(self) -> None:
        for timer in (self._watching, self._giving_up):
            if timer is not None:
                timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for request in self._nobody_waits():
            request.fail(Closed("the connection"))

    def _nobody_waits(self) -> list[Waiting]:
        """Those who have waited until now."""
        waiting, self._waiting, self._timed = self._waiting, {}, 0
        return list(waiting.values())

    def _said_goodbye(self) -> None:
        if self._goodbye is not None and not self._goodbye.done():
            self._goodbye.set_result(None)


def _drop(opening: asyncio.Task[tuple[ClientConnection, OpenedReply]]) -> None:
    """A connection that was made when nobody wanted it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].abort()


def again(error: FlintError) -> FlintError:
    """The same error for somebody else: each has a traceback of its own."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.args = error.args
    fresh.__dict__.update(error.__dict__)
    return fresh


def error_in(frame: Frame) -> Exception:
    """What an ERROR frame says, as it is raised here."""
    fault = _decoded(frame, Fault)
    return BrokerDraining() if fault.kind == "Draining" else error_said(fault)


def error_said(fault: Fault) -> FlintError:
    if fault.kind == "Cancelled":
        # Who has cancelled it does not listen any more; else it ended with the session.
        return Closed("the connection")
    return error_of(fault)


def _decoded(frame: Frame, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(frame.control, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"{kind}: {error}") from None


def _cause(error: BaseException) -> str:
    if isinstance(error, Disconnected):
        return str(getattr(error, "cause", error))
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError):
        named = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        return named or str(error) or type(error).__name__
    return str(error)
