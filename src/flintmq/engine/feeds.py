"""Live subscriptions: what is published from now on, at most once, in order, in a bounded queue.

A feed's queue holds ranges of rows, so that fan-out costs the same for a batch as for a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..batch import EXPIRY
from ..broker_api import Filter
from ..clock import Clock
from ..errors import Closed, FlintError, QueueFull
from ..model import Overflow
from ..patterns import PatternIndex
from ..rows import Message, Rows, Run
from .expiry import alive
from .waiting import Bell, again


class FeedBoard:
    """All live feeds of a broker, found by the topics they match.

    A topic keeps what it found until the version changes.
    """

    def __init__(self) -> None:
        self.version = 0
        self.open: set[Feed] = set()
        self._index: PatternIndex[Feed] = PatternIndex()

    def find(self, topic: str) -> tuple[Feed, ...]:
        return tuple(self._index.find(topic))

    def add(self, feed: Feed) -> None:
        self._index.add(feed.pattern, feed)
        self.open.add(feed)
        self.version += 1

    def remove(self, feed: Feed) -> None:
        self._index.remove(feed.pattern, feed)
        self.open.discard(feed)
        self.version += 1


class Feed:
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
        self._bell = Bell()
        self._ended: FlintError | None = None
        self._board = board
        board.add(self)

    # --- the broker's side

    def has_room(self, count: int) -> bool:
        taken = self._waiting + self._coming
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
        elif self._ended is not None:
            raise again(self._ended)
        self._made_room()
        return Rows(runs)

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
        return bool(self._queue) or self._ended is not None

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._bell.listeners.add(callback)

    async def look(self) -> None:
        """What is there is in this process."""

    async def wait(self, timeout: float | None) -> bool:
        if self._queue or self._ended is not None:
            return True
        return await self._bell.wait(self._clock, timeout)

    async def close(self) -> None:
        self._queue.clear()
        self._waiting = 0
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
