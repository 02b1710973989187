"""A reader: goes through a topic by its own position, or by one it shares under a name."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..broker_api import BrokerApi, Filter, ReaderApi
from ..errors import Closed
from ..model import Missed, Seconds, Start
from ..rows import Message, Metadata
from .consuming import Consumer, Owner
from .turns import Turns


class Reader(Consumer[ReaderApi]):
    """Made by `Client.reader`. A position is always the next offset to read."""

    def __init__(
        self,
        owner: Owner,
        turns: Turns,
        broker: BrokerApi,
        topic: str,
        *,
        name: str | None,
        start: Start | None,
        filter: Filter | None,
        auto_create: bool,
    ) -> None:
        super().__init__(owner, turns, f"reader of {topic!r}")
        self._broker = broker
        self.topic, self.name = topic, name
        self._start, self._filter, self._auto_create = start, filter, auto_create

    async def _open(self) -> ReaderApi:
        return await self._broker.open_reader(
            self.topic,
            name=self.name,
            start=self._start,
            filter=self._filter,
            auto_create=self._auto_create,
        )

    @property
    def missed(self) -> int:
        """How many messages retention took before this reader (or its name) came to them."""
        return self._api.missed

    async def events(self) -> AsyncIterator[Message | Missed]:
        """The messages, and a `Missed` wherever retention was faster than this reader."""
        while True:
            try:
                rows = await self.read_batch(1)
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
        """Like `read_batch`, without the payloads: they are passed over and never decoded."""
        return (await self.read_batch(max, timeout)).metadata

    async def seek(self, to: Start) -> None:
        """Go to an offset, a time, 'earliest', 'latest' or 'committed'. A name moves as a whole."""
        await self._api.seek(to)

    async def commit(self, offset: int | Message | None = None) -> int:
        """Remember where this name goes on after its last reader has closed.

        Without an argument: behind everything handed out so far. With a message: behind that
        message. With a number: at that offset, the next to read. Returns the offset committed.
        """
        if isinstance(offset, Message):
            assert offset.offset is not None, "a reader's messages are stored"
            offset = offset.offset + 1
        return await self._api.commit(offset)

    async def position(self) -> int:
        """The next offset to read."""
        return await self._api.position()

    async def lag(self) -> int:
        """How many retained messages are still to be read."""
        return await self._api.lag()
