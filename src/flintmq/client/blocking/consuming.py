"""Readers and live feeds for code without an event loop: plain iterators and `with` blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Generic, Self, TypeVar, overload

from ...batch import RecordBatch, twin_of
from ...errors import Closed, InvalidRequest
from ...model import Missed, Overflow, Seconds, Start
from ...rows import Message, Metadata, Rows, Run
from ..consuming import AnyConsumer, Consumer, M, R
from ..feed import Feed
from ..reader import Reader
from .derived import like
from .loop_thread import LoopThread, enter, leave

Inner = TypeVar("Inner", bound=AnyConsumer)
T = TypeVar("T")


class BlockingConsumer(Iterator[M], Generic[Inner, M, R]):
    """A stream of messages. Open it with `with`, or with `open()` and close it yourself.

    Several threads may read from one; each message goes to one of them. A read that is interrupted
    (Ctrl-C) loses nothing: what it had taken already, the next read that is begun here returns.
    """

    def __init__(self, owner: object, thread: LoopThread, inner: Inner) -> None:
        self._owner = owner  # the connection stays open as long as somebody holds a part of it
        self._thread = thread
        self._inner = inner
        self._is_open = False
        self._returned: deque[R] = deque()
        self._views = Views()

    @like(Consumer.read_nowait)
    def read_nowait(self) -> M | None:
        async def take() -> tuple[R, M | None]:
            return _with_first(self._read_batch_nowait(1))

        return self._take(take)[1]

    @like(Consumer.read_batch_nowait)
    def read_batch_nowait(self, max: int = 1000) -> R:
        async def take() -> tuple[R, None]:
            return self._read_batch_nowait(max), None

        return self._take(take)[0]

    @overload
    def read(self, timeout: None = None) -> M: ...
    @overload
    def read(self, timeout: Seconds | None) -> M | None: ...
    def read(self, timeout: Seconds | None = None) -> M | None:
        """The next message; waits for one, and returns None once `timeout` seconds have passed.

        Without a timeout it waits as long as it takes, and never returns None.
        """

        async def take() -> tuple[R, M | None]:
            return _with_first(await self._read_batch(1, timeout))

        return self._take(take)[1]

    @like(Consumer.read_batch)
    def read_batch(self, max: int = 1000, timeout: Seconds | None = None) -> R:
        async def take() -> tuple[R, None]:
            return await self._read_batch(max, timeout), None

        return self._take(take)[0]

    def _read_batch_nowait(self, max: int) -> R:
        again = self._again(max)
        if again.runs:
            return again
        rows: R = self._inner.read_batch_nowait(max)
        rows.gap = again.gap or rows.gap
        return self._seen_from_here(rows)

    async def _read_batch(self, max: int, timeout: Seconds | None) -> R:
        again = self._again(max)
        if again.runs:
            return again
        rows: R = await self._inner.read_batch(max, timeout)
        rows.gap = again.gap or rows.gap
        return self._seen_from_here(rows)

    def _no_rows(self) -> R:
        raise NotImplementedError

    def _seen_from_here(self, rows: Any) -> R:
        """Rows as the callers' threads may look at them."""
        seen: R = self._views.of(rows)
        return seen

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> M:
        if self._has_ended():
            raise StopIteration
        try:
            return self.read()
        except Closed:
            if self._has_ended():
                raise StopIteration from None
            raise

    def open(self) -> Self:
        """Begin to read; what `with` does. Closing it is up to you then."""
        enter(self._thread, self._inner)
        self._is_open = True
        return self

    def close(self) -> None:
        """Give back what is held. Iterators over it end; closing twice is fine."""
        leave(self._thread, self._inner)
        self._returned.clear()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    # --- taking, and taking back

    def _take(self, take: Callable[[], Coroutine[Any, Any, tuple[R, T]]]) -> tuple[R, T]:
        """What a call took, with what the caller makes of it.

        The loop makes both: no statement that a signal could interrupt is left for this thread
        between taking the rows and returning from `read`.
        """
        if not self._is_open and self._thread.ended is None and not self._has_ended():
            raise InvalidRequest(
                f"the {self._inner._what} is not open: use `with`, or call `open()` first"
            )
        return self._thread.wait_for_taken(take, self._put_back)

    def _put_back(self, taken: tuple[R, object]) -> None:
        """A call had taken these rows when its caller was interrupted."""
        rows = taken[0]
        if rows.runs or rows.gap:
            self._returned.appendleft(rows)

    def _again(self, max: int) -> R:
        """Rows that were put back, up to `max`. Only the loop takes them out again, so that one
        read after the other finds them in their order."""
        if not self._returned or type(max) is not int or max < 1:
            return self._no_rows()
        head, rest = self._returned.popleft().split(max)
        if rest.runs:
            self._returned.appendleft(rest)
        return head

    def _has_ended(self) -> bool:
        return self._inner._closed


class BlockingReader(BlockingConsumer[Reader, Message, Rows]):
    """Made by `BlockingClient.reader`. A position is always the next offset to read."""

    def __init__(self, owner: object, thread: LoopThread, inner: Reader) -> None:
        super().__init__(owner, thread, inner)
        self.topic, self.name = inner.topic, inner.name

    def _no_rows(self) -> Rows:
        return Rows()

    @property
    def missed(self) -> int:
        """How many messages retention took before this reader (or its name) came to them."""
        return self._inner.missed

    @like(Reader.events)
    def events(self) -> Iterator[Message | Missed]:
        async def take() -> tuple[Rows, None]:
            rows = self._again(1)
            if not rows.runs and rows.gap is None:
                rows = self._inner._api.take(1)
            if not rows.runs and rows.gap is None:
                rows = await self._inner._wait_for_rows(1, None, or_gap=True)
            return self._views.of(rows), None

        while True:
            try:
                rows = self._take(take)[0]
            except Closed:
                if self._has_ended():
                    return
                raise
            if rows.gap is not None:
                yield rows.gap
            yield from rows

    @like(Reader.read_metadata)
    def read_metadata(self, max: int = 1000, timeout: Seconds | None = None) -> list[Metadata]:
        async def take() -> tuple[Rows, list[Metadata]]:
            rows = await self._read_batch(max, timeout)
            return rows, rows.metadata

        return self._take(take)[1]

    @like(Reader.seek)
    def seek(self, to: Start | Mapping[int, int]) -> None:
        self._thread.wait_for(self._inner.seek, to)
        self._returned.clear()

    @like(Reader.commit)
    def commit(self, offset: int | Message | None = None) -> int:
        if offset is None and self._returned:
            return self._thread.wait_for(self._commit_handed_out)
        return self._thread.wait_for(self._inner.commit, offset)

    @like(Reader.position)
    def position(self) -> int:
        if self._returned:
            return sum(self.positions().values())
        return self._thread.wait_for(self._inner.position)

    @like(Reader.positions)
    def positions(self) -> dict[int, int]:
        return self._thread.wait_for(self._positions)

    @like(Reader.lag)
    def lag(self) -> int:
        return self._thread.wait_for(self._inner.lag) + sum(map(len, self._returned))

    async def _positions(self) -> dict[int, int]:
        positions = await self._inner.positions()
        returned = [message for rows in self._returned for message in rows]
        for message in reversed(returned):  # taken and put back: not handed out yet
            if message.offset is not None and message.partition in positions:
                positions[message.partition] = message.offset
        return positions

    async def _commit_handed_out(self) -> int:
        positions = await self._positions()
        for partition, offset in positions.items():
            await self._inner._api.commit(offset, partition)
        return sum(positions.values())


class BlockingFeed(BlockingConsumer[Feed, Message, Rows]):
    """Made by `BlockingClient.live`. At most once and in order, through a bounded queue."""

    def __init__(self, owner: object, thread: LoopThread, inner: Feed) -> None:
        super().__init__(owner, thread, inner)
        self.pattern, self.capacity = inner.pattern, inner.capacity
        self.overflow: Overflow = inner.overflow

    def _no_rows(self) -> Rows:
        return Rows()

    @property
    def dropped(self) -> int:
        """How many messages were dropped because this feed's queue was full."""
        return self._inner.dropped


class Views:
    """Rows as they leave the loop's thread: over batches that no other thread touches.

    A record batch of the broker remembers what was decoded of it until the broker's cache says
    otherwise, in the loop's thread. A view has the same bytes and what is decoded so far, and
    decodes the rest for itself. Single reads of one batch share a view.
    """

    __slots__ = ("_batch", "_view")

    def __init__(self) -> None:
        self._batch: RecordBatch | None = None
        self._view: RecordBatch | None = None

    def of(self, rows: R) -> R:
        if not any(isinstance(run.source, RecordBatch) for run in rows.runs):
            return rows
        return rows.with_runs([self._run(run) for run in rows.runs], rows.gap)

    def _run(self, run: Run) -> Run:
        batch = run.source
        if not isinstance(batch, RecordBatch):
            return run  # a builder only grows at its end: what is there may be read meanwhile
        view = self._view
        if view is None or self._batch is not batch:
            view = twin_of(batch)
            self._batch, self._view = batch, view
        return run._replace(source=view)


def _with_first(rows: R) -> tuple[R, Any]:
    return rows, rows[0] if rows else None
