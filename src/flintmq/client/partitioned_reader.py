"""One reader over several partitions: positions stay with the partitions, reading goes round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ..broker_api import ReaderApi
from ..clock import Clock
from ..errors import FlintError, InvalidRequest
from ..model import Start
from ..rows import Message, Rows, Run

OpenPartition = Callable[[int, Start | None], Coroutine[Any, Any, ReaderApi]]


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
        self._parked: asyncio.Future[bool] | None = None
        self._failed: FlintError | None = None

    async def open(self, partitions: list[int], start: Start | None) -> None:
        for partition in partitions:
            reader = await self._open_partition(partition, start)
            reader.on_ready(self._wake)
            self._readers[partition] = reader
            self._order.append(reader)

    def _wake(self) -> None:
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(True)

    # --- reading

    @property
    def missed(self) -> int:
        return sum(reader.missed for reader in self._order)

    def take(self, max_rows: int) -> Rows:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        runs: list[Run] = []
        gap = None
        wanted = max_rows
        for reader in self._from_turn():
            try:
                rows = reader.take(wanted)
            except FlintError as error:
                if not runs:
                    raise
                self._failed = error  # hand out what was taken first
                break
            runs.extend(rows.runs)
            gap = gap or rows.gap
            wanted -= len(rows)
            if not wanted:
                break
        return Rows(runs, gap)

    def take_one(self) -> Message | None:
        for reader in self._from_turn():
            message = reader.take_one()
            if message is not None:
                return message
        return None

    def _from_turn(self) -> list[ReaderApi]:
        self._turn = (self._turn + 1) % len(self._order)
        return self._order[self._turn :] + self._order[: self._turn]

    def is_ready(self) -> bool:
        return self._failed is not None or any(reader.is_ready() for reader in self._order)

    def on_ready(self, callback: Callable[[], None]) -> None:
        for reader in self._order:
            reader.on_ready(callback)

    async def wait(self, timeout: float | None) -> bool:
        if self._has_grown():
            assert self._count is not None
            await self.open(list(range(len(self._order), self._count())), "earliest")
        if self.is_ready():
            return True
        parked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._parked = parked
        timer = None
        if timeout is not None:
            timer = self._clock.call_later(
                timeout, lambda: None if parked.done() else parked.set_result(False)
            )
        try:
            return await parked
        finally:
            self._parked = None
            if timer is not None:
                timer.cancel()

    def _has_grown(self) -> bool:
        return self._count is not None and self._count() > len(self._order)

    # --- positions

    async def seek(self, to: Start | Mapping[int, int]) -> None:
        if isinstance(to, Mapping):
            for partition, offset in to.items():
                await self._reader(partition).seek(offset)
            return
        if isinstance(to, int) and len(self._order) > 1:
            raise InvalidRequest(
                f"seek({to}): each partition has offsets of its own; seek({{partition: offset}})"
            )
        for reader in self._order:
            await reader.seek(to)

    async def commit(self, offset: int | None, partition: int | None = None) -> int:
        if partition is not None:
            return await self._reader(partition).commit(offset)
        if offset is not None and len(self._order) > 1:
            raise InvalidRequest(
                f"commit({offset}): each partition has offsets of its own; commit a message"
            )
        return sum([await reader.commit(offset) for reader in self._order])

    def _reader(self, partition: int) -> ReaderApi:
        reader = self._readers.get(partition)
        if reader is None:
            raise InvalidRequest(
                f"partition {partition} is not read here; these are: {sorted(self._readers)}"
            )
        return reader

    async def positions(self) -> dict[int, int]:
        return {number: await reader.position() for number, reader in self._readers.items()}

    async def position(self) -> int:
        return sum((await self.positions()).values())

    async def lag(self) -> int:
        return sum([await reader.lag() for reader in self._order])

    async def close(self) -> None:
        for reader in self._order:
            await reader.close()
