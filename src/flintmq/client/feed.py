"""A live feed: what is published from now on to the topics that match a pattern."""

from __future__ import annotations

from ..broker_api import FeedApi, Filter
from ..model import Overflow
from ..rows import Message, Rows
from .consuming import Consumer
from .context import ClientContext


class Feed(Consumer[FeedApi, Message, Rows]):
    """Created by `Client.live`. Messages in order, at most once, through its own bounded queue."""

    def __init__(
        self,
        context: ClientContext,
        pattern: str,
        *,
        capacity: int,
        overflow: Overflow,
        filter: Filter | None,
    ) -> None:
        super().__init__(context, f"live feed {pattern!r}")
        self.pattern, self.capacity = pattern, capacity
        self.overflow: Overflow = overflow
        self._filter = filter

    def _no_rows(self) -> Rows:
        return Rows()

    async def _open(self) -> FeedApi:
        return await self._broker.open_feed(
            self.pattern, capacity=self.capacity, overflow=self.overflow, filter=self._filter
        )

    @property
    def dropped(self) -> int:
        """How many messages were dropped because this feed's queue was full."""
        return self._api.dropped
