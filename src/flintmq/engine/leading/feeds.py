"""Live subscriptions: what is published from now on, at most once, in order, in a bounded queue.

A feed's queue holds ranges of rows, so that fan-out costs the same for a batch as for a message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...batch import EXPIRY
from ...broker_api import Filter
from ...clock import Clock
from ...errors import Closed, FlintError, QueueFull
from ...loop.pace import Allowance, pace
from ...model import Overflow
from ...patterns import PatternIndex
from ...rows import Message, Rows, Run
from ..expiry import alive
from ..waiting import Bell, again

UNSIFTED_BYTES_MAX = 64 << 20
"""What a feed's filter may leave for later turns before some of it is dropped."""


class Unsifted(NamedTuple):
    """Rows that a feed's filter has not looked at yet."""

    run: Run
    sift: Callable[[LiveFeed, Unsifted, Allowance], Run | None]
    """Hands the feed what passes; what is left when the time is up."""
    was_let_in: bool

    @property
    def bytes(self) -> int:
        source, start, stop = self.run[:3]
        return source.size(start, stop)


def _as_it_is(callback: Callable[[], object]) -> Callable[[], object]:
    return callback


class FeedBoard:
    """All live feeds of a broker, found by the topics they match.

    A topic keeps what it found until the version changes.
    """

    def __init__(
        self, guarded: Callable[[Callable[[], object]], Callable[[], object]] = _as_it_is
    ) -> None:
        self.guarded = guarded
        """Wraps what a later turn does, which nobody waits for."""
        self.version = 0
        self.open: set[LiveFeed] = set()
        self._index: PatternIndex[LiveFeed] = PatternIndex()

    def find(self, topic: str) -> tuple[LiveFeed, ...]:
        return tuple(self._index.find(topic))

    def add(self, feed: LiveFeed) -> None:
        self._index.add(feed.pattern, feed)
        self.open.add(feed)
        self.version += 1

    def remove(self, feed: LiveFeed) -> None:
        self._index.remove(feed.pattern, feed)
        self.open.discard(feed)
        self.version += 1


class LiveFeed:
    """One live subscriber. Implements FeedApi.

    `capacity` bounds the messages that wait. A batch larger than the capacity is let into an empty
    queue by `block` and `reject`, as it could never be let in otherwise.
    """

    def __init__(
        self,
        pattern: str,
        capacity: int,
        overflow: Overflow,
        clock: Clock,
        board: FeedBoard,
        filter: Filter | None = None,
    ) -> None:
        self.pattern, self.capacity, self.overflow = pattern, capacity, overflow
        self.filter = filter
        self.dropped = 0
        self.delivered = self.matched = self.rejected = 0
        self.refuses = overflow in ("block", "reject")
        self.on_room: set[Callable[[], None]] = set()
        """Topics that hold a publisher back because of this feed."""
        self._clock = clock
        self._queue: deque[tuple[Run, int | None]] = deque()
        self._waiting = 0
        self._coming = 0
        self._unsifted: deque[Unsifted] = deque()
        self._unsifted_bytes = self._unsifted_rows = 0
        self._bell = Bell()
        self._ended: FlintError | None = None
        self._board = board
        board.add(self)

    # --- the broker's side

    def has_room(self, count: int) -> bool:
        taken = self._waiting + self._coming + self._unsifted_rows
        return taken + count <= self.capacity or taken == 0

    def expect(self, count: int) -> None:
        """Keep room for messages that were let in and are still on their way to the disk."""
        self._coming += count

    def have_come(self, count: int) -> None:
        """They are here, or will not come. What a filter or a delay kept out has left room."""
        self._coming -= count
        self._made_room()

    def full(self) -> QueueFull:
        return QueueFull(
            f"the live queue of {self.pattern!r}",
            self.capacity,
            "its subscriber is slow: give it more capacity or another overflow policy",
        )

    def offer(self, run: Run, ttl_ms: int | None, *, was_let_in: bool = True) -> int:
        """Queue a run of rows as the overflow policy says; how many messages were dropped.

        A feed that refuses takes whatever was let in: if it was opened since, more than it can
        hold. What was not is a delayed message, whose publisher has left and cannot be told.
        """
        count = run.row_count
        dropped = 0
        excess = self._waiting + count - self.capacity
        if self.refuses:
            if not was_let_in and not self.has_room(count):
                self.dropped += count
                return count
        elif excess > 0:
            dropped = excess
            if self.overflow == "drop_new":
                count -= excess
                if count <= 0:
                    self.dropped += run.row_count
                    return run.row_count
                run = _cut(run, 0, count)
            elif count > self.capacity:
                self._queue.clear()
                self._waiting = 0
                run = _cut(run, count - self.capacity, count)
                count = self.capacity
            else:
                self._drop_oldest(excess)
            self.dropped += dropped
        self._queue.append((run, ttl_ms))
        self._waiting += count
        self._bell.ring()
        return dropped

    def sift(self, waiting: Unsifted) -> int:
        """Have the filter look at rows: now, or in later turns if there is much to look at. How
        many messages were dropped because it cannot keep up."""
        dropped = 0
        if self._unsifted and not self.refuses:
            while self._unsifted_bytes + waiting.bytes > UNSIFTED_BYTES_MAX and self._unsifted:
                if self.overflow == "drop_new":
                    self.dropped += waiting.run.row_count
                    return waiting.run.row_count
                dropped += self._forget(self._unsifted.popleft())
        self.dropped += dropped
        self._unsifted.append(waiting)
        self._unsifted_bytes += waiting.bytes
        self._unsifted_rows += waiting.run.row_count
        if len(self._unsifted) == 1:
            self._sift_some()
        return dropped

    def _forget(self, waiting: Unsifted) -> int:
        self._unsifted_bytes -= waiting.bytes
        self._unsifted_rows -= waiting.run.row_count
        return waiting.run.row_count

    def _sift_some(self) -> None:
        """Look at what waits for the filter, as far as this turn allows."""
        allowance = pace().begin()
        while self._unsifted:
            waiting = self._unsifted.popleft()
            self._forget(waiting)
            rest = waiting.sift(self, waiting, allowance)
            if rest is not None:
                left = waiting._replace(run=_cut(rest, 0, rest.row_count))
                self._unsifted.appendleft(left)
                self._unsifted_bytes += left.bytes
                self._unsifted_rows += left.run.row_count
            if self._unsifted and allowance.is_over():
                asyncio.get_running_loop().call_soon(self._board.guarded(self._sift_some))
                return
        self._made_room()
        if self._ended is not None:
            self._bell.ring()  # there is nothing more to wait for

    def fail(self, error: FlintError) -> None:
        """Its filter raised: what it has not looked at never comes."""
        self._forget_unsifted()
        self.end(error)

    def _forget_unsifted(self) -> None:
        self._unsifted.clear()
        self._unsifted_bytes = self._unsifted_rows = 0

    def _drop_oldest(self, excess: int) -> None:
        self._waiting -= excess
        while excess:
            run, ttl_ms = self._queue[0]
            count = run.row_count
            if count > excess:
                self._queue[0] = (_cut(run, excess, count), ttl_ms)
                return
            self._queue.popleft()
            excess -= count

    def end(self, error: FlintError) -> None:
        """Nothing more will come; whoever takes or waits gets `error` once the queue is empty."""
        if self._ended is None:
            self._ended = error
            self._board.remove(self)
            self._bell.ring()
            self._made_room()

    # --- the subscriber's side

    def take(self, max_rows: int) -> Rows:
        runs: list[Run] = []
        wanted = max_rows
        queue = self._queue
        while wanted and queue:
            run, ttl_ms = queue[0]
            count = run.row_count
            if count > wanted:
                queue[0] = (_cut(run, wanted, count), ttl_ms)
                run, count = _cut(run, 0, wanted), wanted
            else:
                queue.popleft()
            self._waiting -= count
            picks = alive(run.source, run.start, run.stop, ttl_ms, self._clock.now_ms())
            if picks is not None:
                if run.picks is not None:
                    wanted_rows = set(run.picks)
                    picks = [row for row in picks if row in wanted_rows]
                run = run._replace(picks=picks)
                count = len(picks)
            if count:
                runs.append(run)
                wanted -= count
        if wanted < max_rows:
            self.delivered += max_rows - wanted
        elif self._is_over():
            assert self._ended is not None
            raise again(self._ended)
        self._made_room()
        return Rows(runs)

    def _is_over(self) -> bool:
        """Whether nothing more will come; what waits for the filter still does."""
        return self._ended is not None and not self._unsifted

    def take_one(self) -> Message | None:
        queue = self._queue
        if queue and not self.on_room:
            (source, start, stop, origin, picks, _), ttl_ms = queue[0]
            if picks is None and ttl_ms is None and not source.columns & EXPIRY:
                # Without what `take` has to look after: who takes one by one takes many.
                if start + 1 < stop:
                    queue[0] = (Run(source, start + 1, stop, origin), None)
                else:
                    queue.popleft()
                self._waiting -= 1
                self.delivered += 1
                return Message(source, start, origin)
        rows = self.take(1)
        return rows[0] if rows else None

    def is_ready(self) -> bool:
        return bool(self._queue) or self._is_over()

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._bell.listeners.add(callback)

    async def look(self) -> None:
        """What is there is in this process."""

    async def wait(self, timeout: float | None) -> bool:
        if self._queue or self._is_over():
            return True
        return await self._bell.wait(self._clock, timeout)

    async def close(self) -> None:
        self._queue.clear()
        self._waiting = 0
        self._forget_unsifted()
        self.end(Closed(f"the live feed {self.pattern!r}"))

    def _made_room(self) -> None:
        if self.on_room:
            waiting, self.on_room = self.on_room, set()
            for wake in waiting:
                wake()


def _cut(run: Run, start: int, stop: int) -> Run:
    """The messages `start` to `stop` of a run."""
    if run.picks is not None:
        picks = run.picks[start:stop]
        return run._replace(start=picks[0], stop=picks[-1] + 1, picks=picks)
    return run._replace(start=run.start + start, stop=run.start + stop)
