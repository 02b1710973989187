"""A publisher for many threads: `send` fills a batch where it is called; the loop gets batches.

Rows are gathered in the calling thread, by the async publisher's own `send`, under a lock. The
loop hears of a batch twice at most, however many messages it has: when it begins (so that it goes
out in time) and when it is full. The loop never waits for the lock.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from collections import deque
from typing import Self, Unpack

from ...batch import BatchBuilder
from ...clock import Timer
from ...errors import FlintError, InvalidRequest
from ...model import Receipt, Seconds, TopicOptions
from ..keywords import MessageKeywords, takes
from ..publisher import Publisher
from ..values import Value
from .derived import like
from .loop_thread import LoopThread

HANDED_OVER_MAX = 8
"""How many full batches may be on their way to the loop before `send` waits for it."""


class _Armed:
    """Stands for the loop's timer on the side of the callers."""

    def cancel(self) -> None:
        pass


_ARMED = _Armed()


class Gathering(Publisher):
    """The callers' side of a publisher: it encodes and gathers rows, and never publishes any.

    It has the settings of the publisher it stands before, which belongs to the loop.
    """

    def __init__(self, thread: LoopThread, inner: Publisher) -> None:
        self.__dict__.update(inner.__dict__)
        self.lock = allocate_lock()
        self.holder = 0
        self.is_due = False
        """Whoever sends is to hand over what is open."""
        self.is_ahead = False
        """Whoever sends is to wait until the loop has taken what is full."""
        self.full: deque[tuple[BatchBuilder, TopicOptions | None]] = deque()
        self._thread = thread
        self._inner = inner
        self._timer: Timer | None = None

    # --- with the lock

    def _arm(self) -> None:
        """A batch begins: the loop sees to it that it goes out in time."""
        if self._thread.ended is not None:
            self._thread.check_usable()
        self._check_room(self._inner._waiting_bytes, "publisher.flush()")
        self._thread.soon(self._begin_batch)
        self._armed = _ARMED

    def _dispatch(self) -> None:
        """Lay the open batch aside for the loop, if it has rows."""
        if self._move_aside():
            self._thread.soon(self._end_batch)

    def _move_aside(self) -> bool:
        self._armed = None
        self.is_due = False
        self.is_ahead = len(self.full) >= HANDED_OVER_MAX
        rows = self._rows
        if not rows.row_count:
            return False
        fresh, lay_aside, batch = rows.empty_like(), self.full.append, (rows, self._options)
        # A signal cannot come between these two: there is no call but the last.
        self._rows = fresh
        lay_aside(batch)
        return True

    def mend(self) -> None:
        """A signal interrupted `send`: leave out a row that is there in part."""
        rows = self._rows
        if not rows.row_count:
            self._take_options()
            return
        mended = rows.empty_like()
        mended.extend(rows, 0, rows.row_count)
        self._rows = mended

    # --- in the loop

    def _begin_batch(self) -> None:
        if self._linger:
            self._cancel_timer()
            self._timer = self._clock.call_later(self._linger, self.take_open)
        else:
            self.take_open()

    def take_open(self) -> None:
        """Publish everything gathered so far. Who is sending right now hands it over itself."""
        self.is_due = True
        if self.lock.acquire(blocking=False):
            try:
                self._move_aside()
            finally:
                self.lock.release()
        self._end_batch()

    def _end_batch(self) -> None:
        self._cancel_timer()
        self.hand_on()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hand_on(self) -> None:
        """Give full batches to the publisher that knows how to publish them, in order."""
        self.is_ahead = False
        inner = self._inner
        while self.full:
            inner._rows, inner._options = self.full.popleft()
            inner._dispatch()

    async def flush(self, timeout: Seconds | None = None) -> None:
        self.take_open()
        await self._inner.flush(timeout)

    async def close(self) -> None:
        self.take_open()
        await self._inner.close()


class BlockingPublisher:
    """Made by `BlockingClient.publisher`; use it as `with`. Several threads may send.

    `send` adds a message to the open batch. The batch goes out when it is full, when `linger`
    seconds have passed, or (linger 0) as soon as the connection's thread gets to it; a linger of a
    millisecond or two makes larger batches of it. `flush` returns once everything sent is
    acknowledged, and raises if something is not.
    """

    def __init__(self, owner: object, thread: LoopThread, inner: Publisher) -> None:
        self._owner = owner
        self._thread = thread
        self._inner = inner
        self.topic = inner.topic
        self._gathering = Gathering(thread, inner)
        self._lock = self._gathering.lock
        thread.gatherings.add(self._gathering)

    @property
    def sent(self) -> int:
        return self._inner.sent

    @property
    def acknowledged(self) -> int:
        return self._inner.acknowledged

    @property
    def last_receipt(self) -> Receipt | None:
        return self._inner.last_receipt

    @takes(MessageKeywords)
    def send(self, value: Value, **said: Unpack[MessageKeywords]) -> None:
        """Add one message. Raises QueueFull when too much is unacknowledged.

        It waits for no acknowledgement; only for the connection's thread, if that is behind.
        """
        if self._thread.ended is not None:
            self._thread.check_usable()
        gathering, me = self._gathering, get_ident()
        if gathering.holder == me:
            raise InvalidRequest(
                "send was called inside a hook of the same publisher: use another publisher"
            )
        with self._lock:
            gathering.holder = me
            try:
                gathering.send(value, **said)
            except Exception:
                raise  # refused: the row was not added
            except BaseException:
                gathering.mend()
                raise
            finally:
                gathering.holder = 0
        if gathering.is_due:
            self._hand_over()
        if gathering.is_ahead:
            self._thread.run(gathering.hand_on)

    @like(Publisher.flush)
    def flush(self, timeout: Seconds | None = None) -> None:
        self._thread.check_usable()
        self._hand_over()
        self._thread.wait_for(lambda: self._gathering.flush(timeout))

    def close(self) -> None:
        """Flush, then refuse further sends."""
        gathering = self._gathering
        if self._thread.ended is not None:
            return
        try:
            with self._lock:
                gathering._dispatch()
                gathering._closed = True
            self._thread.wait_for(gathering.close)
        finally:
            self._thread.gatherings.discard(gathering)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except FlintError:
            if error is None:  # the block's own error goes first
                raise

    def _hand_over(self) -> None:
        with self._lock:
            self._gathering._dispatch()
