"""The verbs: publish, read, live, and what is needed around them; one class for all brokers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, get_args

from ..batch import BatchBuilder, HeaderValue, Key, RecordBatch, check_compression
from ..broker_api import BrokerApi, Filter
from ..clock import Clock
from ..errors import Closed, FlintError, InvalidRequest
from ..model import (
    Overflow,
    Receipt,
    Seconds,
    Start,
    TopicInfo,
    TopicStats,
    seconds,
    timeout_seconds,
)
from .consuming import Consumer
from .feed import Feed
from .publisher import Publisher
from .reader import Reader
from .turns import Turns
from .values import RowOptions, Value, add_row, batch_of, check_qos, encoded


class Client:
    """A connection to a broker; `flintmq.connect` makes it. Use it as `async with`, or `await` it.

    `timeout` of the connection is how long a publish waits at most where it has to (a full topic
    with `overflow="block"`); a call's own `timeout` goes before it.
    """

    def __init__(self, broker: BrokerApi, *, auto_create: bool, timeout: Seconds | None) -> None:
        self.clock: Clock = broker.clock
        self._broker = broker
        self._auto_create = auto_create
        self._timeout = timeout_seconds(timeout)
        self._turns = Turns()
        self._open: set[Consumer[Any]] = set()
        self._publishers: set[Publisher] = set()
        self._closed = False

    # --- publishing

    async def publish(
        self,
        topic: str,
        value: Value,
        *,
        key: Key | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        content_type: str | None = None,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
    ) -> Receipt:
        """Publish one message. Returns once it is as safe as the receipt says, or raises.

        `ttl` seconds after now nobody is handed it any more; `delay` seconds from now it is due.
        `qos=0` reaches live feeds only and is not stored. Cancelled or timed out while waiting,
        nothing was published.
        """
        if self._turns.spend():
            await self._turns.pause()
        rows = BatchBuilder()
        if (
            key is None
            and headers is None
            and not priority
            and ttl is None
            and delay is None
            and content_type is None
        ):
            rows.append(value if type(value) is bytes else encoded(value))
        else:
            options = RowOptions(key, headers, priority, ttl, delay, content_type)
            add_row(rows, encoded(value), options, self.clock.now_ms())
        return await self._publish(topic, rows, qos, timeout, auto_create)

    async def publish_batch(
        self,
        topic: str,
        values: Iterable[Value],
        *,
        key: Key | list[Key | None] | None = None,
        headers: Mapping[str, HeaderValue] | list[Mapping[str, HeaderValue] | None] | None = None,
        priority: int | list[int] = 0,
        ttl: Seconds | list[Seconds | None] | None = None,
        delay: Seconds | list[Seconds | None] | None = None,
        content_type: str | list[str | None] | None = None,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
        batch_compression: str = "none",
    ) -> Receipt:
        """Publish many messages in one step: one receipt with the first offset and the count.

        Each option is one for all messages, or a list with one for each. An empty list publishes
        nothing and is no error.
        """
        if self._turns.spend():
            await self._turns.pause()
        options = {
            "key": key,
            "headers": headers,
            "priority": priority,
            "ttl": ttl,
            "delay": delay,
            "content_type": content_type,
        }
        rows: BatchBuilder | RecordBatch = batch_of(values, options, self.clock.now_ms())
        if not rows.row_count:
            return Receipt(topic, None, 0)
        if batch_compression != "none":
            assert isinstance(rows, BatchBuilder)
            rows = rows.seal(compression=check_compression(batch_compression))
        return await self._publish(topic, rows, qos, timeout, auto_create)

    async def publish_many(
        self,
        messages: Iterable[tuple[str, Value]],
        *,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
    ) -> list[Receipt]:
        """Publish to several topics at once: a receipt for each (topic, value) pair.

        Order is kept within a topic. Values are all checked first; after that, each topic is
        published on its own, and an error carries the receipts of what was in `receipts`.
        """
        pairs = [(topic, encoded(value)) for topic, value in messages]
        by_topic: dict[str, list[int]] = {}
        for index, (topic, _) in enumerate(pairs):
            by_topic.setdefault(topic, []).append(index)
        receipts: dict[int, Receipt] = {}
        for topic, indexes in by_topic.items():
            rows = BatchBuilder.of([pairs[index][1] for index in indexes])
            try:
                whole = await self._publish(topic, rows, qos, timeout, auto_create)
            except Exception as error:
                error.receipts = [receipts[index] for index in sorted(receipts)]  # type: ignore[attr-defined]
                raise
            receipts.update(zip(indexes, _apart(whole, len(indexes)), strict=True))
        return [receipts[index] for index in range(len(pairs))]

    def publisher(
        self,
        topic: str,
        *,
        linger: Seconds = 0.0,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
        batch_compression: str = "none",
    ) -> Publisher:
        """A publisher that gathers messages into batches: `async with mq.publisher(...) as pub`."""
        self._check_open()
        publisher = Publisher(
            self._broker,
            topic,
            linger=seconds(linger, "linger"),
            qos=check_qos(qos),
            auto_create=self._may_create(auto_create),
            timeout=self._patience(timeout),
            batch_compression=check_compression(batch_compression),
            on_close=self._publishers.discard,
        )
        self._publishers.add(publisher)
        return publisher

    async def _publish(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        qos: int,
        timeout: Seconds | None,
        auto_create: bool | None,
    ) -> Receipt:
        check_qos(qos)
        may_create = self._auto_create if auto_create is None else auto_create
        receipt = self._broker.publish_nowait(topic, rows, qos=qos, auto_create=may_create)
        if receipt is None:
            receipt = await self._broker.publish(
                topic, rows, qos=qos, auto_create=may_create, timeout=self._patience(timeout)
            )
        return receipt

    # --- consuming

    def reader(
        self,
        topic: str,
        *,
        name: str | None = None,
        start: Start | None = None,
        filter: Filter | None = None,
        auto_create: bool | None = None,
    ) -> Reader:
        """Read a topic from a position: `async with mq.reader(...) as reader`.

        `start` is 'earliest' (the default), 'latest', 'committed', an offset or a datetime. It
        counts for a reader without a name, or for a name that has no position yet; a known name
        goes on where it stands. Readers of one name share its position and split the messages.
        """
        return Reader(
            self,
            self._turns,
            self._broker,
            topic,
            name=name,
            start=start,
            filter=filter,
            auto_create=self._may_create(auto_create),
        )

    def live(
        self, pattern: str, *, capacity: int = 1024, overflow: Overflow = "drop_oldest"
    ) -> Feed:
        """What is published from now on: `async with mq.live("orders.>") as feed`.

        `*` in the pattern stands for one word, `>` for the rest. At most `capacity` messages wait;
        `overflow` says what happens to more: `drop_oldest`, `drop_new`, `reject` (the publisher
        gets QueueFull) or `block` (the publisher waits).
        """
        if type(capacity) is not int or capacity < 1:
            raise InvalidRequest(f"capacity is a whole number of at least 1, not {capacity!r}")
        if overflow not in get_args(Overflow):
            raise InvalidRequest(
                f"overflow is one of {', '.join(get_args(Overflow))}, not {overflow!r}"
            )
        return Feed(self, self._turns, self._broker, pattern, capacity=capacity, overflow=overflow)

    # --- topics

    async def create_topic(self, name: str, **options: Any) -> TopicInfo:
        """Make a topic. One that is there already is fine, unless options named here differ."""
        return await self._broker.create_topic(name, options)

    async def configure_topic(self, name: str, **options: Any) -> TopicInfo:
        """Change options of a topic; those not named stay as they are."""
        return await self._broker.configure_topic(name, options)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic and what it holds. Its readers and feeds end with TopicDeleted."""
        await self._broker.delete_topic(name)

    async def topics(self, pattern: str = ">") -> list[str]:
        """The names of the topics that match, sorted."""
        return await self._broker.topics(pattern)

    async def topic_info(self, name: str) -> TopicInfo:
        """A topic's id and options."""
        return await self._broker.topic_info(name)

    async def topic_stats(self, name: str) -> TopicStats:
        """A topic's figures right now."""
        return await self._broker.topic_stats(name)

    # --- the connection

    async def close(self) -> None:
        """Flush publishers, close readers and feeds, and let the broker go."""
        if self._closed:
            return
        self._closed = True
        failed: FlintError | None = None
        try:
            for publisher in list(self._publishers):
                try:
                    await publisher.close()
                except FlintError as error:  # the others are flushed all the same
                    failed = failed or error
        finally:
            for part in list(self._open):
                await part.close()
            await self._broker.close()
        if failed is not None:
            raise failed

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    def opened(self, part: Consumer[Any]) -> None:
        self._open.add(part)

    def closed(self, part: Consumer[Any]) -> None:
        self._open.discard(part)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the connection")

    def _may_create(self, auto_create: bool | None) -> bool:
        return self._auto_create if auto_create is None else auto_create

    def _patience(self, timeout: Seconds | None) -> float | None:
        return self._timeout if timeout is None else timeout_seconds(timeout)


def _apart(receipt: Receipt, count: int) -> list[Receipt]:
    """A receipt for each message of a batch."""
    if receipt.offset is None:
        dropped = 1 if receipt.dropped else 0
        one = Receipt(
            receipt.topic, None, 1 - dropped, dropped=dropped, durability=receipt.durability
        )
        return [one] * count
    return [
        Receipt(receipt.topic, receipt.offset + index, durability=receipt.durability)
        if index < receipt.count
        else Receipt(receipt.topic, None, 0, dropped=1)
        for index in range(count)
    ]
