"""What all consumers have in common: taking what is there, waiting for what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any, Generic, Self, TypeVar, overload

from ..broker_api import FeedApi, ReaderApi
from ..errors import Closed, InvalidRequest
from ..model import Seconds, timeout_seconds
from ..rows import Message, RowsOf
from .context import ClientContext, Closer
from .intake import MessageIntake

Api = TypeVar("Api", ReaderApi, FeedApi, MessageIntake)
M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=RowsOf[Any])


class Consumer(AsyncIterator[M], Generic[Api, M, R]):
    """A stream of messages. Open it with `async with`, or with `await` and close it yourself.

    Cancelling any call loses nothing: messages are taken in the same step that returns them.
    """

    def __init__(self, context: ClientContext, what: str) -> None:
        self._context = context
        self._broker = context.broker
        self._clock = context.clock
        self._turns = context.turns
        self._what = what
        self._opened: Api | None = None
        self._closed = False

    async def _open(self) -> Api:
        raise NotImplementedError

    @property
    def _api(self) -> Api:
        api = self._opened
        if api is None:
            if self._closed:
                raise Closed(f"the {self._what}")
            raise InvalidRequest(
                f"the {self._what} is not open: use `async with`, or `await` it first"
            )
        return api

    @property
    def _stream(self) -> Any:
        """The same where all kinds are alike: what they hand out is M and R."""
        return self._opened or self._api

    def read_nowait(self) -> M | None:
        """The next message if there is one right now."""
        rows = self.read_batch_nowait(1)
        return rows[0] if rows else None

    def read_batch_nowait(self, max: int = 1000) -> R:
        """Up to `max` messages that are there right now."""
        _checked_max(max)
        stream = self._stream
        rows: R = stream.take(max)
        while not rows.runs and rows.gap is None and stream.is_ready():
            rows = stream.take(max)  # a filter looks at so many at a time
        return rows

    @overload
    async def read(self, timeout: None = None) -> M: ...
    @overload
    async def read(self, timeout: Seconds | None) -> M | None: ...
    async def read(self, timeout: Seconds | None = None) -> M | None:
        """The next message; waits for one, and returns None once `timeout` seconds have passed.

        Without a timeout it waits as long as it takes, and never returns None.
        """
        self._turns.left -= 1
        if self._turns.left <= 0:
            await self._turns.pause()
        stream: Any = self._opened or self._api
        message: M | None = stream.take_one()
        if message is not None:
            return message
        rows = await self._wait_for_rows(1, timeout)
        return rows[0] if rows else None

    async def read_batch(self, max: int = 1000, timeout: Seconds | None = None) -> R:
        """Up to `max` messages: waits for the first, never for more. Empty once time is up."""
        self._turns.left -= 1
        if self._turns.left <= 0:
            await self._turns.pause()
        rows = self._take(_checked_max(max))
        if rows.runs:
            return rows
        return await self._wait_for_rows(max, timeout, rows)

    async def _wait_for_rows(
        self,
        max: int,
        timeout: Seconds | None,
        rows: R | None = None,
        *,
        or_gap: bool = False,
    ) -> R:
        left = timeout_seconds(timeout)
        deadline = None if left is None else self._clock.monotonic() + left
        if rows is None:
            rows = self._no_rows()
        gap = rows.gap
        if left == 0:
            await self._stream.look()
            looked = self._take(max)
            looked.gap = gap = looked.gap or gap
            if looked.runs:
                return looked
            rows = looked
        while left is None or left > 0 or self._api.is_ready():
            if not await self._api.wait(left):
                break
            rows = self._take(max)
            gap = rows.gap or gap
            if rows.runs or (or_gap and gap is not None):
                break
            await self._turns.pause()  # nothing was for us: look on, but let others run
            if deadline is not None:
                left = deadline - self._clock.monotonic()
        rows.gap = gap
        return rows

    def _take(self, max: int) -> R:
        """What is there, if no disk has to be waited for."""
        rows: R = self._stream.take(max)
        return rows

    def _no_rows(self) -> R:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        if self._closed:
            raise StopAsyncIteration
        self._turns.left -= 1
        if self._turns.left <= 0:
            await self._turns.pause()
        stream: Any = self._opened or self._api
        message: M | None = stream.take_one()
        if message is not None:
            return message
        try:
            first: M = (await self._wait_for_rows(1, None))[0]
            return first
        except Closed:
            if self._closed:
                raise StopAsyncIteration from None
            raise

    def __await__(self) -> Generator[Any, None, Self]:
        return self._enter().__await__()

    async def _enter(self) -> Self:
        if self._closed:
            raise Closed(f"the {self._what}")
        if self._opened is None:
            opened = await self._open()
            if self._closed:  # meanwhile
                await opened.close()
                raise Closed(f"the {self._what}")
            self._opened = opened
            self._context.consumers.add(self)
        return self

    async def __aenter__(self) -> Self:
        return await self._enter()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back what is held. Iterators over it end; closing twice is fine."""
        self._closed = True
        api, self._opened = self._opened, None
        if api is not None:
            self._context.consumers.discard(self)
            await api.close()

    async def _close_for(self, closer: Closer) -> None:
        """The same, on behalf of a task or thread that waits for it elsewhere."""
        await self.close()


AnyConsumer = Consumer[Any, Any, Any]


def _checked_max(max: int) -> int:
    if type(max) is not int or max < 1:
        raise InvalidRequest(f"max must be a whole number of at least 1, not {max!r}")
    return max
