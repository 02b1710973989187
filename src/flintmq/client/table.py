"""A table: the last value of every key of a compacted topic, kept up to date in this process.

It reads the topic by `last_per_key`: first the state, then what follows. A value is decoded when it
comes; one that does not decode is an error of that key alone. A slow watcher is not sent every
change of a key, but the newest, so that no more waits for it than there are keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload
from weakref import WeakSet

from ..batch import BatchBuilder, Key
from ..errors import Closed, FlintError, InvalidRequest, TopicExists, TopicNotFound
from ..model import Receipt, Seconds, timeout_seconds
from ..rows import Message, Rows
from .context import ClientContext, Closer
from .parking import Parking
from .reader import Reader

V = TypeVar("V")

ROWS_AT_ONCE = 256
"""So many messages are taken in between two turns of the event loop."""


class TableChange(NamedTuple, Generic[V]):
    """The change of a key. `value` is None if it was deleted, `before` is None if it is new."""

    key: Key
    value: V | None
    before: V | None
    is_deleted: bool = False


class Undecodable(NamedTuple):
    """Stands for a value that does not decode."""

    error: FlintError


class TableWatch(Generic[V]):
    """Made by `Table.watch`: the changes from then on, of all keys or of some."""

    def __init__(self, table: Table[V], keys: frozenset[Key]) -> None:
        self._table, self._keys = table, keys
        self._pending: dict[Key, TableChange[V]] = {}
        self._parking = Parking(table._clock)

    @overload
    async def read(self, timeout: None = None) -> TableChange[V]: ...
    @overload
    async def read(self, timeout: Seconds | None) -> TableChange[V] | None: ...
    async def read(self, timeout: Seconds | None = None) -> TableChange[V] | None:
        """The next change; waits for one, and returns None once `timeout` seconds have passed."""
        left = timeout_seconds(timeout)
        clock = self._table._clock
        deadline = None if left is None else clock.monotonic() + left
        while not self._pending:
            self._table._check_following()
            left = None if deadline is None else deadline - clock.monotonic()
            if (left is not None and left <= 0) or not await self._parking.wait(left):
                return None
        change = self._pending.pop(next(iter(self._pending)))
        for value in (change.value, change.before):
            if isinstance(value, Undecodable):
                raise value.error
        return change

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TableChange[V]:
        try:
            return await self.read()
        except Closed:
            if self._table._closed:
                raise StopAsyncIteration from None
            raise

    def _changed(self, change: TableChange[V]) -> None:
        if self._keys and change.key not in self._keys:
            return
        waiting = self._pending.pop(change.key, None)
        if waiting is not None:
            change = change._replace(before=waiting.before)
        self._pending[change.key] = change
        self._parking.wake()

    def _put_back(self, change: TableChange[V]) -> None:
        """Nobody has seen it."""
        later = self._pending.pop(change.key, None)
        if later is not None:
            change = later._replace(before=change.before)
        self._pending = {change.key: change, **self._pending}


class Table(Mapping[Key, V]):
    """Created by `Client.table`; use it with `async with`. Reading it like a dict never waits.

    It shows what it has received so far, so it lags behind the broker by the latency of a message.
    Your own changes are visible as soon as the call returns. While the connection is lost it keeps
    its values, and catches up afterwards.
    """

    __hash__ = object.__hash__

    def __init__(
        self,
        context: ClientContext,
        topic: str,
        *,
        type: Any,
        auto_create: bool,
        publish: Callable[..., Awaitable[Receipt]],
        publish_batch: Callable[..., Awaitable[Receipt]],
        create_topic: Callable[..., Awaitable[object]],
    ) -> None:
        self.topic = topic
        self._context, self._clock, self._type = context, context.clock, type
        self._auto_create, self._create_topic = auto_create, create_topic
        self._publish, self._publish_batch = publish, publish_batch
        self._values: dict[Key, V | Undecodable] = {}
        self._read_up_to: dict[int, int] = {}
        self._watches: WeakSet[TableWatch[V]] = WeakSet()
        self._parking = Parking(context.clock)
        self._reader: Reader | None = None
        self._following: asyncio.Task[None] | None = None
        self._failed: FlintError | None = None
        self._closed = False

    # --- reading

    def __getitem__(self, key: Key) -> V:
        self._check_following()
        value = self._values[key]
        if isinstance(value, Undecodable):
            raise value.error
        return value

    def __iter__(self) -> Iterator[Key]:
        """The keys there are now; changes meanwhile do no harm."""
        self._check_following()
        return iter(list(self._values))

    def __len__(self) -> int:
        self._check_following()
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        self._check_following()
        return key in self._values

    def watch(self, *keys: Key, initial: bool = False) -> TableWatch[V]:
        """Follow changes: `async for change in prices.watch("EURUSD")`.

        Without keys, it follows all of them. With `initial`, the current values come first, as if
        they were new. A slow watcher gets only the newest change of a key.
        """
        self._check_following()
        watch = TableWatch(self, frozenset(keys))
        self._watches.add(watch)
        if initial:
            for key in keys or list(self._values):
                if key in self._values:
                    value: Any = self._values[key]
                    watch._changed(TableChange(key, value, None))
        return watch

    # --- writing

    async def set(self, key: Key, value: V) -> Receipt:
        """Publish a value for a key, and wait until this table has it.

        An empty value would delete the key: `delete` does that.
        """
        self._check_following()
        if isinstance(value, bytes | bytearray | memoryview | str) and not value:
            raise InvalidRequest(
                f"an empty value would delete key {key!r} of {self.topic!r}: use delete({key!r})"
            )
        return await self._wait_seen(await self._publish(self.topic, value, key=key))

    async def delete(self, key: Key) -> Receipt:
        """Delete a key, by publishing a tombstone (an empty message). Deleting a missing key is
        fine.
        """
        self._check_following()
        tombstone = BatchBuilder()  # as it is, whatever format the topic has
        tombstone.append_row(b"", key=key)
        receipt = await self._publish_batch(self.topic, tombstone)
        return await self._wait_seen(receipt.parts[0] if receipt.parts else receipt)

    async def _wait_seen(self, receipt: Receipt) -> Receipt:
        """Until what was published has come back to us; not where it is only queued."""
        offset, patience = receipt.offset, self._context.timeout
        deadline = None if patience is None else self._clock.monotonic() + patience
        while offset is not None and self._read_up_to.get(receipt.partition, 0) <= offset:
            self._check_following()
            left = None if deadline is None else deadline - self._clock.monotonic()
            if (left is not None and left <= 0) or not await self._parking.wait(left):
                break
        return receipt

    # --- following

    async def _follow(self, reader: Reader) -> None:
        try:
            while True:
                self._take_in(await reader.read_batch(ROWS_AT_ONCE))
                await asyncio.sleep(0)
        except FlintError as error:
            self._failed = error
        finally:
            self._parking.wake()
            for watch in list(self._watches):
                watch._parking.wake()

    async def _load(self, reader: Reader) -> None:
        """The state as of now, or of when there was nothing more to read."""
        ends = reader._api.state_ends
        while any(self._read_up_to.get(number, 0) < end for number, end in ends.items()):
            rows = await reader.read_batch(ROWS_AT_ONCE, timeout=0)
            if not rows:
                break
            self._take_in(rows)
            await asyncio.sleep(0)

    def _take_in(self, rows: Rows) -> None:
        for message in rows:
            assert message.offset is not None
            self._read_up_to[message.partition] = message.offset + 1
            key = message.key
            if key is not None:
                self._changed(key, message)
        self._parking.wake()

    def _changed(self, key: Key, message: Message) -> None:
        before: Any = self._values.get(key)
        is_deleted = message.value == b""
        value: Any = None
        if not is_deleted:
            value = self._values[key] = self._decoded(message)
        elif key in self._values:
            del self._values[key]
        else:
            return
        for watch in list(self._watches):
            watch._changed(TableChange(key, value, before, is_deleted))

    def _decoded(self, message: Message) -> Any:
        try:
            return message.decode(self._type)
        except FlintError as error:
            return Undecodable(error)

    def _check_following(self) -> None:
        if self._failed is not None and not self._closed:
            raise self._failed
        if self._closed or self._context.is_closed:
            raise Closed(f"the table of {self.topic!r}")
        if self._reader is None:
            raise InvalidRequest(
                f"the table of {self.topic!r} is not open: use `async with`, or `await` it first"
            )

    # --- opening and closing

    async def _open_reader(self) -> Reader:
        reader = Reader(
            self._context,
            self.topic,
            name=None,
            start="last_per_key",
            filter=None,
            partitions=None,
            auto_create=False,
        )
        return await reader

    async def _enter(self) -> Self:
        if self._closed:
            raise Closed(f"the table of {self.topic!r}")
        self._context.check_open()
        if self._reader is not None:
            return self
        try:
            reader = await self._open_reader()
        except TopicNotFound:
            if not self._auto_create:
                raise
            with suppress(TopicExists):  # somebody was quicker
                await self._create_topic(self.topic, compact="key")
            reader = await self._open_reader()
        try:
            await self._load(reader)
        except BaseException:
            await reader.close()
            raise
        self._reader = reader
        self._following = asyncio.get_running_loop().create_task(self._follow(reader))
        self._context.consumers.add(self)
        return self

    async def close(self) -> None:
        """Stop following. Watchers end; closing twice is fine."""
        self._closed = True
        self._context.consumers.discard(self)
        if self._reader is not None:
            await self._reader.close()
        if self._following is not None:
            await asyncio.wait([self._following])

    async def _close_for(self, closer: Closer) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._enter().__await__()

    async def __aenter__(self) -> Self:
        return await self._enter()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()
