"""One reader over several partitions: positions stay with the partitions, reading goes round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..broker_api import ReaderApi
from ..clock import Clock
from ..errors import Corrupt, FlintError, InvalidRequest
from ..loop.pace import pace
from ..model import Start
from ..rows import Message, Rows, Run
from .parking import Parking

OpenPartition = Callable[[int, Start | None], Coroutine[Any, Any, ReaderApi]]
TOGETHER = 64
"""Partitions that are opened or committed at a time: one sync to the disk serves all of them, and
no turn of the event loop takes long."""

T = TypeVar("T")


class PartitionedReader:
    """Implements ReaderApi over the readers of a row of topics.

    Each call begins at another partition, so that none is starved. Partitions that are added while
    it is open are read from their start, if it reads all of them.
    """

    def __init__(
        self, clock: Clock, open_partition: OpenPartition, count: Callable[[], int] | None
    ) -> None:
        self._clock = clock
        self._open_partition = open_partition
        self._count = count  # None: these partitions and no others
        self._readers: dict[int, ReaderApi] = {}
        self._order: list[ReaderApi] = []
        self._turn = 0
        self._parking = Parking(clock)
        self._callbacks: list[Callable[[], None]] = []
        self._failed: FlintError | None = None
        self._growing: asyncio.Task[None] | None = None
        self._closed = False

    async def open(
        self, partitions: Iterable[int], start: Start | Mapping[int, int] | None
    ) -> None:
        """Open these partitions too: all of them or, when one cannot be opened, none. A start may
        be an offset for each partition."""
        opened: dict[int, ReaderApi] = {}

        async def open_one(partition: int) -> None:
            at = start.get(partition) if isinstance(start, Mapping) else start
            opened[partition] = await self._open_partition(partition, at)

        try:
            numbers = list(partitions)
            await together([open_one(number) for number in numbers])
            opened = {number: opened[number] for number in numbers}
        except BaseException:
            for reader in opened.values():
                await reader.close()
            raise
        for reader in opened.values():
            for callback in (self._parking.wake, *self._callbacks):
                reader.on_ready(callback)
        self._readers.update(opened)
        self._order.extend(opened.values())

    # --- reading

    @property
    def missed(self) -> int:
        return sum(reader.missed for reader in self._order)

    @property
    def state_ends(self) -> dict[int, int]:
        return {number: end for one in self._order for number, end in one.state_ends.items()}

    def take(self, max_rows: int, *, waits: bool = True) -> Rows:
        self._raise_failed()
        runs: list[Run] = []
        wanted = max_rows
        for reader in self._ready_from_turn():
            try:
                rows = reader.take(wanted, waits=waits)
            except FlintError as error:
                if not runs:
                    raise
                self._failed = error  # hand out what was taken first
                break
            if rows.gap is not None:
                # A gap is told just before the rows behind it, and one at a time.
                return Rows([*rows.runs, *runs], rows.gap)
            runs.extend(rows.runs)
            wanted -= len(rows)
            if not wanted or (not rows.runs and pace().is_over()):  # a filter has looked for long
                break
        return Rows(runs)

    def take_one(self) -> Message | None:
        self._raise_failed()
        for reader in self._ready_from_turn():
            message = reader.take_one()
            if message is not None:
                return message
        return None

    def _raise_failed(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def _ready_from_turn(self) -> Iterable[ReaderApi]:
        self._look_for_more()
        turn = self._turn
        self._turn = (turn + 1) % len(self._order)
        return (reader for reader in self._order[turn:] + self._order[:turn] if reader.is_ready())

    def is_ready(self) -> bool:
        return self._failed is not None or any(reader.is_ready() for reader in self._order)

    def at_hand(self) -> bool:
        ready = [reader for reader in self._order if reader.is_ready()]
        return not ready or sum(reader.at_hand() for reader in ready) > 0

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        for reader in self._order:
            reader.on_ready(callback)

    async def look(self) -> None:
        for reader in self._order:
            await reader.look()

    async def wait(self, timeout: float | None) -> bool:
        self._look_for_more()
        while not self.is_ready() or not self.at_hand():
            is_reading = self.is_ready()
            if not await self._parking.wait(None if is_reading else timeout):
                return False
            if not is_reading:
                return True
        return True

    # --- partitions that are added

    def _look_for_more(self) -> None:
        """Have added partitions opened beside the reading, which may never come to wait."""
        if self._count is None or self._growing is not None or self._closed:
            return
        if self._count() > len(self._order):
            self._growing = asyncio.get_running_loop().create_task(self._grow())

    async def _grow(self) -> None:
        try:
            # Raises if the topic is gone: what has the name now is not what is read here.
            await self._order[0].position()
            assert self._count is not None
            await self.open(range(len(self._order), self._count()), "earliest")
        except FlintError as error:
            self._failed = self._failed or error
        finally:
            self._growing = None
            self._parking.wake()

    async def _all_open(self) -> None:
        self._look_for_more()
        if self._growing is not None:
            await asyncio.shield(self._growing)

    # --- positions

    async def seek(self, to: Start | Mapping[int, int]) -> None:
        await self._all_open()
        if isinstance(self._failed, Corrupt):
            self._failed = None  # where it is still in the way, it is heard of again
        if isinstance(to, Mapping):
            wanted = [(self._reader(number), offset) for number, offset in to.items()]
            for offset in to.values():  # all are right before one is moved
                if type(offset) is not int or offset < 0:
                    raise InvalidRequest(f"seek({dict(to)}): {offset!r} is not an offset")
            for reader, offset in wanted:
                await reader.seek(offset)
            return
        if isinstance(to, int) and len(self._order) > 1:
            raise InvalidRequest(
                f"seek({to}): each partition has its own offsets; use seek({{partition: offset}})"
            )
        for reader in self._order:
            await reader.seek(to)

    async def commit_each(self, offsets: Mapping[int, int]) -> int:
        """Commit an offset of every partition that is named."""
        await self._all_open()
        wanted = [(self._reader(number), offset) for number, offset in offsets.items()]
        return sum(await together([reader.commit(offset) for reader, offset in wanted]))

    async def commit(
        self, offset: int | None, partition: int | None = None, *, is_own: bool = False
    ) -> int:
        await self._all_open()
        if partition is not None:
            return await self._reader(partition).commit(offset, is_own=is_own)
        if offset is not None and len(self._order) > 1:
            raise InvalidRequest(
                f"commit({offset}): each partition has its own offsets; commit a message instead"
            )
        return sum(await together([reader.commit(offset, is_own=is_own) for reader in self._order]))

    def put_back(self, partition: int, first: int, end: int) -> None:
        """Nobody has looked at these: the next of the name gets them."""
        reader: Any = self._reader(partition)
        reader.put_back(first, end)

    def claim(self, partition: int, first: int, end: int) -> None:
        """These were handed to us before; of what is not read here, nothing."""
        reader: Any = self._readers.get(partition)
        if reader is not None:
            reader.claim(first, end)

    def _reader(self, partition: int) -> ReaderApi:
        reader = self._readers.get(partition)
        if reader is None:
            raise InvalidRequest(
                f"partition {partition} is not read by this reader; it reads "
                f"{sorted(self._readers)}"
            )
        return reader

    async def positions(self) -> dict[int, int]:
        await self._all_open()
        return {number: await reader.position() for number, reader in self._readers.items()}

    async def position(self) -> int:
        return sum((await self.positions()).values())

    async def lag(self) -> int:
        await self._all_open()
        return sum([await reader.lag() for reader in self._order])

    async def close(self) -> None:
        self._closed = True
        if self._growing is not None:
            await asyncio.shield(self._growing)
        for reader in self._order:
            await reader.close()
        self._parking.wake()  # those who wait here hear that it is closed


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run them side by side, some at a time. When one fails, those that have begun are waited for,
    and the others are not begun."""
    done: list[T] = []
    try:
        for begin in range(0, len(works), TOGETHER):
            some = works[begin : begin + TOGETHER]
            results = await asyncio.gather(*some, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
                done.append(result)
    finally:
        for work in works:
            work.close()  # those that were not begun
    return done
