"""Requests that are not answered yet, and when those who wait for them give up.

Each gives up at its own deadline, whatever becomes of the connection. Deadlines are by the clock of
the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Protocol

import msgspec

from ...clock import Clock, Timer
from ...errors import MalformedFrame
from ...model import Durability
from ..wire.frames import Frame
from ..wire.operations import ReceiptsReply

ANSWER_SECONDS = 0.05
"""The broker itself answers when a call runs out of time. How long that answer may take."""

GIVE_UP_SECONDS = 0.01
"""Deadlines this close together are handled by one timer: there may be many."""


_receipts = msgspec.msgpack.Decoder(ReceiptsReply).decode


class Waiting(Protocol):
    """Somebody who waits for the answer to a request."""

    is_parked: bool
    """The answer may take for ever: silence is no sign of trouble."""
    deadline: float | None
    """When to give up, by the client's clock; None: never while there is a connection, and by the
    client's timeout while there is none."""

    def answer(self, frame: Frame) -> None: ...
    def stored(self, offset: int, durability: Durability) -> None:
        """The answer to a publish that there is not more to say of."""
        ...

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        ...

    def expire(self, error: Exception) -> bool:
        """There was no answer in time. Returns whether a late answer is still wanted."""
        ...


class SentRequest:
    """A request whose answer is awaited.

    `on_answer` is called with every answer, `on_late` with one that comes too late for the
    caller. With `on_expired`, the deadline is reported there and the wait goes on.
    """

    __slots__ = (
        "_on_answer", "_on_expired", "_on_late", "deadline", "future", "is_parked",
    )  # fmt: skip

    def __init__(
        self,
        deadline: float | None = None,
        *,
        is_parked: bool = False,
        on_answer: Callable[[Frame], None] | None = None,
        on_late: Callable[[Frame], None] | None = None,
        on_expired: Callable[[Exception], None] | None = None,
    ) -> None:
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.deadline, self.is_parked = deadline, is_parked
        self._on_answer, self._on_late, self._on_expired = on_answer, on_late, on_expired

    def answer(self, frame: Frame) -> None:
        if self._on_answer is not None:
            self._on_answer(frame)  # now: what comes behind it finds it done
        if not self.future.done():
            self.future.set_result(frame)
        elif self._on_late is not None:
            self._on_late(frame)

    def stored(self, offset: int, durability: Durability) -> None:
        self.fail(MalformedFrame("a receipt answers a request that published nothing"))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # a ping is not awaited

    def expire(self, error: Exception) -> bool:
        if self._on_expired is not None:
            self._on_expired(error)
            return True
        self.fail(error)
        return self._on_answer is not None or self._on_late is not None

    def abandon(self) -> None:
        """The caller was cancelled. The answer may have come in the very same turn."""
        if self._on_late is not None and self.future.done() and not self.future.cancelled():
            self._on_late(self.future.result())


class Waiters:
    """Everybody who waits, by request. `on_due` is called when somebody's time is up."""

    def __init__(self, clock: Clock, patience: float | None, on_due: Callable[[], None]) -> None:
        self._clock, self._on_due = clock, on_due
        self.patience = patience
        self.by_id: dict[int, Waiting] = {}
        self.timed = 0
        """How many of them have a deadline."""
        self._late: dict[int, float] = {}  # without a connection: when they give up
        self.timer: Timer | None = None
        """Set while somebody's time may run out."""
        self._due_at = 0.0

    def add(self, id: int, waiting: Waiting) -> None:
        self.by_id[id] = waiting
        if waiting.deadline is not None:
            self.timed += 1
            self.give_up_at(waiting.deadline + ANSWER_SECONDS)

    def pop(self, id: int) -> Waiting | None:
        """Who waits for this, and does so no longer."""
        waiting = self.by_id.pop(id, None)
        if waiting is not None and waiting.deadline is not None:
            self.timed -= 1
        return waiting

    def take_receipts(self, frame: Frame) -> None:
        try:
            receipts = _receipts(frame.control)
        except msgspec.DecodeError as error:
            raise MalformedFrame(f"receipts: {error}") from None
        places = receipts.places
        for id, offset in zip(places[::2], places[1::2], strict=False):
            waiting = self.pop(id)
            if waiting is not None:
                waiting.stored(offset, receipts.durability)

    def give_up_at(self, due: float) -> None:
        """See to it that who waits hears in time that there is no answer."""
        if self.timer is not None:
            if self._due_at <= due:
                return
            self.timer.cancel()
        now = self._clock.monotonic()
        self._due_at = due = max(due, now + GIVE_UP_SECONDS)
        self.timer = self._clock.call_later(due - now, self._look_again)

    def _look_again(self) -> None:
        """Time is up. But if it was this process that was held up, the answer is here and not read
        yet: two turns of the loop, and it is."""
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.call_soon(self._on_due))

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    # --- without a connection

    def connected(self) -> None:
        self._late.clear()

    def disconnected(self) -> None:
        """From now on everybody's time runs."""
        for id in self.by_id:
            self.wait_disconnected(id)

    def wait_disconnected(self, id: int) -> None:
        """Somebody waits for a request while there is no connection."""
        patience = self.patience
        due = inf if patience is None else self._clock.monotonic() + patience
        self._late.setdefault(id, due)
        due = self._due(id)
        if due < inf:
            self.give_up_at(due)

    # --- whose time is up

    def _due(self, id: int) -> float:
        own = self.by_id[id].deadline
        return self._late.get(id, inf) if own is None else own + ANSWER_SECONDS

    def overdue(self, *, everybody: bool = False) -> list[tuple[int, Waiting]]:
        """Those whose time is up, or all who wait for something soon; each is named once."""
        self.stop()
        now = self._clock.monotonic()
        found: list[tuple[int, Waiting]] = []
        next_due = inf
        for id, request in self.by_id.items():
            due = self._due(id)
            is_awaited = not request.is_parked or id in self._late
            if not ((everybody and is_awaited) or due <= now):
                next_due = min(next_due, due)
                continue
            found.append((id, request))
            self._late.pop(id, None)
            if request.deadline is not None:
                request.deadline = None
                self.timed -= 1
        if next_due < inf:
            self.give_up_at(next_due)
        return found

    def take_all(self) -> list[Waiting]:
        """Those who have waited until now. None are left."""
        waiting, self.by_id, self.timed = self.by_id, {}, 0
        self._late.clear()
        return list(waiting.values())
