"""The verbs that open something to read from: a reader, a live feed, a table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args

from ..broker_api import Filter
from ..errors import InvalidRequest
from ..model import Overflow, Receipt, Start
from .context import ClientContext
from .feed import Feed
from .membership import checked_filter
from .reader import Reader
from .table import Table


class ReadingVerbs:
    """The part of a client that opens what is read."""

    def __init__(
        self,
        context: ClientContext,
        publish: Callable[..., Awaitable[Receipt]],
        publish_batch: Callable[..., Awaitable[Receipt]],
        create_topic: Callable[..., Awaitable[object]],
    ) -> None:
        self._context, self._create_topic = context, create_topic
        self._publish, self._publish_batch = publish, publish_batch

    def reader(
        self,
        topic: str,
        *,
        name: str | None = None,
        start: Start | None = None,
        filter: str | Filter | None = None,
        partitions: Sequence[int] | None = None,
        auto_create: bool | None = None,
    ) -> Reader:
        """Read a topic from a position: `async with mq.reader(...) as reader`.

        `start` is 'earliest' (the default), 'latest', 'committed', an offset or a datetime. It
        counts for a reader without a name, or for a name that has no position yet; a known name
        goes on where it stands. Readers of one name share its position and split the messages.
        Without a name, 'last_per_key' begins with the newest message of each key of a topic with
        `compact="key"`; then comes what follows.
        `filter` is an expression (`headers.region == "eu" and value.amount > 100`) or a function of
        a message. Of a partitioned topic all partitions are read, or those in `partitions`.
        """
        return Reader(
            self._context,
            topic,
            name=name,
            start=start,
            filter=checked_filter(filter),
            partitions=partitions,
            auto_create=self._context.may_create(auto_create),
        )

    def live(
        self,
        pattern: str,
        *,
        capacity: int = 1024,
        overflow: Overflow = "drop_oldest",
        filter: str | Filter | None = None,
    ) -> Feed:
        """What is published from now on: `async with mq.live("orders.>") as feed`.

        `*` in the pattern stands for one word, `>` for the rest. At most `capacity` messages wait;
        `overflow` says what happens to more: `drop_oldest`, `drop_new`, `reject` (the publisher
        gets QueueFull) or `block` (the publisher waits).
        """
        if type(capacity) is not int or capacity < 1:
            raise InvalidRequest(f"capacity must be a whole number of at least 1, not {capacity!r}")
        if overflow not in get_args(Overflow):
            raise InvalidRequest(
                f"overflow must be one of {', '.join(get_args(Overflow))}, not {overflow!r}"
            )
        return Feed(
            self._context,
            pattern,
            capacity=capacity,
            overflow=overflow,
            filter=checked_filter(filter),
        )

    def table(self, topic: str, *, type: Any = None, auto_create: bool | None = None) -> Table[Any]:
        """The last value of every key: `async with mq.table("prices") as prices`.

        It is read like a dict (`prices["EURUSD"]`, `prices.get(...)`, `prices.items()`), written by
        `await prices.set("EURUSD", 1.08)` and `delete`, watched by `prices.watch()`, and kept up to
        date while it is open. With `type` (a dataclass, msgspec Struct, pydantic model ...) every
        value becomes one of these. The topic has to have `compact="key"`; one that does not exist
        is made with it.
        """
        return Table(
            self._context,
            topic,
            type=type,
            auto_create=self._context.may_create(auto_create),
            publish=self._publish,
            publish_batch=self._publish_batch,
            create_topic=self._create_topic,
        )
