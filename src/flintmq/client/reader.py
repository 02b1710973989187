"""A reader: goes through a topic by its own position, or by one it shares under a name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from ..broker_api import Filter, ReaderApi, ReaderOpening, ReadsRows
from ..errors import Closed, InvalidRequest
from ..model import Missed, Seconds, Start
from ..rows import Message, Metadata, Rows
from .consuming import Consumer
from .context import ClientContext
from .partitioned_reader import PartitionedReader
from .routing import partition_name
from .sending import partitions_of


class Reader(Consumer[ReaderApi, Message, Rows]):
    """Created by `Client.reader`. Its position is the offset of the next message to read."""

    def __init__(
        self,
        context: ClientContext,
        topic: str,
        *,
        name: str | None,
        start: Start | None,
        filter: Filter | None,
        partitions: Sequence[int] | None,
        auto_create: bool,
    ) -> None:
        super().__init__(context, f"reader of {topic!r}")
        self.topic, self.name = topic, name
        self._start: Start | None = start
        self._filter, self._auto_create = filter, auto_create
        self._partitions = partitions

    def _take(self, max: int) -> Rows:
        return self._api.take(max, waits=False)

    def _no_rows(self) -> Rows:
        return Rows()

    async def _open(self) -> ReaderApi:
        options = self._broker.known_options(self.topic)
        count = partitions_of(self.topic, options)
        if count is None:
            if self._partitions is not None:
                raise InvalidRequest(f"partitions=...: topic {self.topic!r} has no partitions")
            return await self._open_plain(self.topic, self._start)
        if isinstance(self._start, int):
            raise InvalidRequest(
                f"start={self._start}: each partition has its own offsets; "
                "use another start, then seek({partition: offset})"
            )
        wanted = self._wanted(count)
        if isinstance(self._broker, ReadsRows):
            return await self._broker.open_row(
                ReaderOpening(
                    self.topic,
                    partitions=None if self._partitions is None else wanted,
                    name=self.name,
                    start=self._start,
                    filter=self._filter,
                )
            )
        reader = PartitionedReader(
            self._clock,
            lambda number, start: self._open_plain(partition_name(self.topic, number), start),
            self._partition_count if self._partitions is None else None,
        )
        await reader.open(wanted, self._start)
        return reader

    async def _open_plain(self, topic: str, start: Start | None) -> ReaderApi:
        return await self._broker.open_reader(
            ReaderOpening(
                topic,
                name=self.name,
                start=start,
                filter=self._filter,
                auto_create=self._auto_create,
            )
        )

    def _partition_count(self) -> int:
        options = self._broker.known_options(self.topic)
        return (options.partitions or 0) if options is not None else 0

    def _wanted(self, count: int) -> list[int]:
        if self._partitions is None:
            return list(range(count))
        wanted = self._partitions
        if not isinstance(wanted, Sequence) or not wanted or isinstance(wanted, str | bytes):
            raise InvalidRequest(
                f"partitions must be a list of at least one number, not {wanted!r}"
            )
        if not all(type(number) is int and 0 <= number < count for number in wanted):
            raise InvalidRequest(
                f"partitions={list(wanted)}: topic {self.topic!r} has {count}, 0 to {count - 1}"
            )
        return sorted(set(wanted))

    @property
    def missed(self) -> int:
        """How many messages retention deleted before this reader (or its name) got to them."""
        return self._api.missed

    async def events(self) -> AsyncIterator[Message | Missed]:
        """Yield messages, and a `Missed` where retention deleted messages before they were read."""
        while True:
            try:
                self._turns.left -= 1
                if self._turns.left <= 0:
                    await self._turns.pause()
                rows = self._api.take(1)
                if not rows.runs and rows.gap is None:
                    rows = await self._wait_for_rows(1, None, or_gap=True)
            except Closed:
                if self._closed:
                    return
                raise
            if rows.gap is not None:
                yield rows.gap
            for message in rows:
                yield message

    async def read_metadata(
        self, max: int = 1000, timeout: Seconds | None = None
    ) -> list[Metadata]:
        """Like `read_batch`, but without the values, which are not decoded."""
        return (await self.read_batch(max, timeout)).metadata

    async def seek(self, to: Start | Mapping[int, int]) -> None:
        """Move to an offset, a time, 'earliest', 'latest' or 'committed'. This moves a named
        position.

        For a topic with partitions, pass `{partition: offset}`.
        """
        await self._api.seek(to)

    async def commit(self, offset: int | Message | None = None) -> int:
        """Store the position of this name. The next reader with this name continues there.

        Without an argument, it commits everything this reader has returned so far; with a message,
        everything up to that message. Messages that another reader of the name has returned are not
        included: until that reader commits them, the position stays before them. With a number, the
        position is set to that offset, whoever holds messages before it. Returns the committed
        offset.
        """
        if not isinstance(offset, Message):
            return await self._api.commit(offset)
        base, _, partition = self.topic.partition("/")
        if (
            offset.offset is None
            or offset.topic != base
            or (partition and offset.partition != int(partition))
        ):
            raise InvalidRequest(
                f"{offset!r} was not read from {self.topic!r}: commit only messages that were read"
            )
        return await self._api.commit(offset.offset + 1, offset.partition, is_own=True)

    async def position(self) -> int:
        """The next offset to read; for several partitions, their sum."""
        return await self._api.position()

    async def positions(self) -> dict[int, int]:
        """The next offset to read, by partition; a plain topic has only partition 0."""
        return await self._api.positions()

    async def lag(self) -> int:
        """How many stored messages this reader has not read yet."""
        return await self._api.lag()
