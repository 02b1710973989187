"""Readers and live feeds of a remote broker.

A stream asks for as many rows as somebody wants, and holds what has come until it is taken. While
somebody waits, one request waits at the broker; who stops waiting takes it back. So nothing is
handed to this client that was not asked for, and nothing is lost when a wait is cancelled:
what comes all the same is there for the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ...batch import EXPIRY
from ...errors import (
    Closed,
    Disconnected,
    FlintError,
    MalformedFrame,
    NotAuthenticated,
    OutcomeUnknown,
    PermissionDenied,
    TopicDeleted,
)
from ...model import Durability, Missed
from ...rows import Message, Rows, Run
from ..wire.frames import Frame
from ..wire.operations import (
    CloseStreamRequest,
    Control,
    Op,
    StreamOpenedReply,
    TakenReply,
    TakeRequest,
)
from ..wire.runs import decode_runs
from ..wire.values import gap_of
from .link import SessionLost, again, error_in
from .requests import RemoteRequests

AHEAD_MAX = 256
"""How many messages are asked for at once when they are read one by one."""

HELD_MAX = 10_000
"""How many ranges of rows that are not committed a reader of a name remembers for a new session;
of what it forgets, rows may come again."""

STREAK_MIN = 16
"""After how many messages in a row that were there at once it is asked for more than one."""


class RemoteStream:
    """What readers and feeds have in common. At most one take is under way."""

    is_parked = True
    deadline: float | None = None

    def __init__(
        self,
        requests: RemoteRequests,
        what: str,
        opening: Control,
        op: Op,
        registry: set[RemoteStream],
    ) -> None:
        """Those that are open are in the `registry`."""
        self._requests, self._registry = requests, registry
        self._link, self._topics = requests.link, requests.topics
        self._what = what
        self._opening, self._op = opening, op
        self._number: int | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._runs: deque[Run] = deque()
        self._head = 0  # rows of the first run that were taken
        self._gap: Missed | None = None
        self._error: Exception | None = None
        self._ended: FlintError | None = None
        self._count = self._count_before = 0
        self._asking = 0
        self._asked_rows = 0
        self._wanted = 1
        self._streak = 0
        self._parked: set[asyncio.Future[bool]] = set()
        self._lookers: list[asyncio.Future[None]] = []
        self._callbacks: list[Callable[[], None]] = []
        self._is_asking_soon = False
        self._was_withdrawn = False
        self._has_looked = False
        self._missing = 0
        self._behind: deque[tuple[Missed, list[Run]]] = deque()
        self._returning: asyncio.Task[None] | None = None

    async def open(self) -> None:
        frame = await self._requests.open_stream(self._op, self._opening)
        opened = msgspec.msgpack.decode(frame.control, type=StreamOpenedReply)
        self._number = opened.stream
        self._begins_at(opened)
        self._registry.add(self)

    def _begins_at(self, opened: StreamOpenedReply) -> None:
        self._count = opened.missed

    # --- taking

    def take(self, max_rows: int, *, waits: bool = True) -> Rows:
        self._next_behind()
        self._raise_failed()
        gap, self._gap = self._gap, None
        runs: list[Run] = []
        wanted = max_rows
        while wanted and self._runs:
            run = self._runs[0]
            rows = run.rows()[self._head : self._head + wanted]
            self._head += len(rows)
            wanted -= len(rows)
            if self._head >= run.row_count:
                self._runs.popleft()
                self._head = 0
            run = _only(run, rows)
            alive = self._topics.alive(run)
            if alive is not None:
                wanted += run.row_count - alive.row_count
                if alive.row_count:
                    runs.append(alive)
        if not runs and gap is None:
            self._ask_soon(max_rows)
        return Rows(runs, gap)

    def _next_behind(self) -> None:
        """A gap is reported just before the rows behind it."""
        if not self._runs and self._gap is None and self._behind:
            self._gap, runs = self._behind.popleft()
            self._runs.extend(runs)

    def take_one(self) -> Message | None:
        if self._behind:
            self._next_behind()
        if not self._runs or self._error is not None or self._gap is not None:
            if self._runs or self._error is not None or self._gap is not None:
                rows = self.take(1)
                return rows[0] if rows else None
            self._raise_failed()
            self._ask_soon(self._ahead())
            return None
        run = self._runs[0]
        if run.source.columns & EXPIRY or self._topics.has_ttl:
            rows = self.take(1)
            return rows[0] if rows else None
        row = run.start + self._head if run.picks is None else run.picks[self._head]
        self._head += 1
        if self._head >= run.row_count:
            self._runs.popleft()
            self._head = 0
        return Message(run.source, row, run.origin)

    def _ahead(self) -> int:
        """How many to ask for when one is wanted: more where they come one upon the other."""
        extra = self._streak - STREAK_MIN
        return 1 if extra < 0 else min(AHEAD_MAX, 2 << min(extra, 8))

    def _raise_failed(self) -> None:
        if self._runs:
            return
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._ended is not None:
            raise again(self._ended)

    def is_ready(self) -> bool:
        return bool(
            self._runs
            or self._behind
            or self._gap is not None
            or self._error is not None
            or self._ended is not None
            or (self._callbacks and not self._asking)
        )

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    # --- asking

    def _ask_soon(self, rows: int) -> None:
        """Nothing is here. Who waits next asks by that; who does not gets it the next time."""
        self._wanted = rows
        has_looked, self._has_looked = self._has_looked, False
        if self._callbacks:
            self._ask(None)
        elif has_looked:
            return  # they know; what comes now is for the next call
        elif not self._is_asking_soon and not self._asking:
            self._is_asking_soon = True
            self._link.loop.call_soon(self._ask_at_once)

    def _ask_at_once(self) -> None:
        if self._is_asking_soon:
            self._ask(0)

    def _ask(self, timeout: float | None) -> None:
        self._is_asking_soon = False
        if self._asking or self._number is None or self._ended is not None or self._runs:
            return
        if self._returning is not None:
            return  # it asks again, once it is known what became of that
        self._asked_rows = self._wanted
        self._requests.before_asking()
        control = self._requests.encode(TakeRequest(self._number, self._wanted, timeout))
        self._asking = self._link.send(Op.TAKE, control, (), self)

    def answer(self, frame: Frame) -> None:
        self._asking = 0
        came = True
        if frame.op == Op.ERROR:
            error = error_in(frame)
            if isinstance(error, TopicDeleted | Closed | PermissionDenied):
                self._ended = error
            else:
                self._error = error
        else:
            try:
                came = self._take_in(frame)
            except FlintError as error:
                self._error = error
            if self._missing > 0 and self._number is not None and self._error is None:
                # One reply could not carry all that was asked for: the caller gets it together.
                self._asked_rows, self._missing = self._missing, 0
                control = self._requests.encode(TakeRequest(self._number, self._asked_rows, 0))
                self._asking = self._link.send(Op.TAKE, control, (), self)
                return
        self._heard(came or bool(self._runs))

    def _take_in(self, frame: Frame) -> bool:
        taken = msgspec.msgpack.decode(frame.control, type=TakenReply)
        runs = decode_runs(taken.runs, frame.batches, self._topics.origin)
        self._count = taken.missed
        gap = gap_of(taken.gap)
        if not runs and taken.gap is None:
            self._streak = 0
            return False
        self._came(runs)
        count = sum(run.row_count for run in runs)
        self._streak = self._streak + 1 if count == self._asked_rows else 0
        if gap is not None and self._runs:
            self._behind.append((gap, runs))
        elif self._behind:
            self._behind[-1][1].extend(runs)
        else:
            self._gap = gap or self._gap
            self._runs += runs
        self._missing = self._asked_rows - count if taken.more else 0
        return True

    def _came(self, runs: list[Run]) -> None:
        """Rows have come, before they are held for taking."""

    def _heard(self, came: bool) -> None:
        parked: set[asyncio.Future[bool]] = set()
        lookers, self._lookers = self._lookers, []
        for looker in lookers:
            if not looker.done():
                looker.set_result(None)
        if came:
            parked, self._parked = self._parked, set()
            for future in parked:
                if not future.done():
                    future.set_result(True)
            for callback in self._callbacks:
                callback()
        elif self._parked or self._callbacks:
            self._ask(None)
        withdrawn, self._was_withdrawn = self._was_withdrawn, False
        if came and withdrawn and not parked and not lookers and self._runs:
            self._put_back()

    def stored(self, offset: int, durability: Durability) -> None:
        self.fail(MalformedFrame("a receipt answers a request for messages"))

    def fail(self, error: Exception) -> None:
        """The take that was under way will not be answered."""
        if isinstance(error, SessionLost):
            self._asking = 0
            return  # the stream is opened anew, and then asks anew
        if isinstance(error, Closed | NotAuthenticated):
            self._asking = 0
            self._ended = error
        else:
            self._error = error
        self._heard(True)

    def expire(self, error: Exception) -> bool:
        """The take is not answered for now; the caller gets the error."""
        self.fail(error)
        return True

    def at_hand(self) -> bool:
        return True

    async def look(self) -> None:
        until = self._requests.until()
        if self._returning is not None:
            await self._link.done_by(self._returning, until)
        if self._runs or self._behind or self._gap is not None or self._error or self._ended:
            return
        looker: asyncio.Future[None] = self._link.loop.create_future()
        self._lookers.append(looker)
        if self._asking:
            self._link.is_awaited(self._asking)
            self._link.cancel(self._asking)  # it is answered at once, with what there is
        else:
            self._ask(0)
        if (self._asking or self._number is None) and not await self._link.done_by(looker, until):
            raise self._link.no_answer()
        self._has_looked = not self._runs

    async def wait(self, timeout: float | None) -> bool:
        if self.is_ready():
            return True
        future: asyncio.Future[bool] = self._link.loop.create_future()
        self._parked.add(future)
        if self._asking:
            self._link.is_awaited(self._asking)
        self._ask(None)
        timer = None
        if timeout is not None:
            timer = self._link.clock.call_later(timeout, lambda: _resolve(future, False))
        try:
            return await future
        finally:
            self._parked.discard(future)
            if timer is not None:
                timer.cancel()
            if not self._parked and not self._callbacks:
                if self._asking:
                    self._was_withdrawn = True
                    self._link.cancel(self._asking)
                elif self._runs and (not future.done() or future.cancelled() or _is_cancelled()):
                    self._put_back()

    def _put_back(self) -> None:
        """What has come is not wanted here any more: others may have it."""

    # --- after the session was lost

    def reopen(self) -> None:
        self._number = None
        self._asking = 0
        if self._reopening is not None:
            self._reopening.cancel()  # its answer is of no use in a new session
        if self._ended is None:
            self._reopening = self._link.loop.create_task(self._open_again())

    async def _open_again(self) -> None:
        self._count_before += self._count
        self._count = 0
        while self._ended is None:
            try:
                # Once in a session, however late the answer: two would both hold what is ours.
                frame = await self._requests.ask(
                    self._op, self._opening_again(), on_expired=self._not_open_yet
                )
                opened = msgspec.msgpack.decode(frame.control, type=StreamOpenedReply)
                await self._go_on_from(opened)
            except SessionLost:
                return  # lost once more; that opens it anew
            except (Disconnected, OutcomeUnknown) as error:
                self._not_open_yet(error)
                continue
            except FlintError as error:
                self._ended = error
                self._heard(True)
                return
            self._number = opened.stream
            break
        if self._ended is not None:
            if self._number is not None:
                await self._requests.ask_if_connected(
                    Op.CLOSE_STREAM, CloseStreamRequest(self._number)
                )
        elif self._runs:
            self._heard(True)  # one reply of several had come: the rest is asked for by the next
        elif self._parked or self._callbacks or self._lookers:
            self._ask(None if self._parked or self._callbacks else 0)

    def _not_open_yet(self, error: Exception) -> None:
        """The next read raises it; we go on trying."""
        self._error = error
        self._heard(True)

    def _opening_again(self) -> Control:
        return self._opening

    async def _go_on_from(self, opened: StreamOpenedReply) -> None:
        """Set up what else it had."""

    async def _on_stream(
        self,
        make: Callable[[int], Control],
        op: Op,
        on_answer: Callable[[Frame], None] | None = None,
        until: float | None = None,
    ) -> Any:
        """Ask something of the stream; anew if it had to be opened anew."""
        until = self._requests.until() if until is None else until
        while True:
            if self._ended is not None:
                raise again(self._ended)
            if self._number is None:
                if self._reopening is not None and not await self._link.done_by(
                    self._reopening, until
                ):
                    raise self._link.no_answer()
                if self._number is None and self._ended is None:
                    await asyncio.sleep(0.01)
                    if self._link.clock.monotonic() > until:
                        raise self._link.no_answer()
                continue
            try:
                frame = await self._requests.ask(
                    op, make(self._number), until=until, on_answer=on_answer
                )
            except SessionLost:
                continue
            return msgspec.msgpack.decode(frame.control)

    # --- the end

    async def close(self) -> None:
        if self._ended is None or self._number is not None:
            self._ended = self._ended or Closed(f"the {self._what}")
            self._registry.discard(self)
            unread = self._unread()
            self._runs.clear()
            number, self._number = self._number, None
            for parked in self._parked:
                _resolve(parked, True)
            self._heard(True)
            if number is not None:
                closing = CloseStreamRequest(number, unread)
                await self._requests.ask_if_connected(Op.CLOSE_STREAM, closing)

    def _unread(self) -> list[tuple[int, int, int]]:
        return []


class RemoteFeed(RemoteStream):
    """One live subscription. Implements FeedApi."""

    @property
    def dropped(self) -> int:
        return self._count_before + self._count


def _only(run: Run, rows: Any) -> Run:
    """The run of these rows of it alone."""
    if run.picks is None:
        return run._replace(start=rows[0], stop=rows[-1] + 1)
    return run._replace(start=rows[0], stop=rows[-1] + 1, picks=rows)


def _is_cancelled() -> bool:
    """Whether this task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _resolve(future: asyncio.Future[bool], outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)
