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
        applies to readers without a name, and to names without a committed position; other names
        continue where they were. Readers with the same name share its position and split the
        messages. Without a name, 'last_per_key' starts with the newest message of each key of a
        topic with `compact="key"`, then continues with new messages. `filter` is an expression
        (`headers.region == "eu" and value.amount > 100`) or a function of a message. All partitions
        of a topic are read, or those in `partitions`.
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
        """Receive new messages only: `async with mq.live("orders.>") as feed`.

        In a pattern, `*` matches one word and `>` the rest. At most `capacity` messages are queued;
        `overflow` says what happens then: `drop_oldest`, `drop_new`, `reject` (the publisher gets
        QueueFull) or `block` (the publisher waits).
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
        """Open a live view of the last value of every key: `async with mq.table("prices") as
        prices`.

        Read it like a dict (`prices["EURUSD"]`, `prices.get(...)`, `prices.items()`), change it
        with `await prices.set("EURUSD", 1.08)` and `delete`, and follow it with `prices.watch()`.
        It is kept up to date while it is open. With `type` (a dataclass, msgspec Struct, pydantic
        model ...) values are decoded to that type. The topic must have `compact="key"`; if it does
        not exist, it is created.
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
