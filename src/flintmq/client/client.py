"""The verbs: publish, read, live, and what is needed around them; one class for all brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from os import PathLike, fspath
from typing import Any, Self, Unpack, cast, get_args

import msgspec

from ..batch import BatchBuilder, check_compression
from ..broker_api import BrokerApi, Filter
from ..clock import Clock
from ..errors import Closed, FlintError, InvalidRequest
from ..model import (
    VALUE_OPTIONS,
    Overflow,
    Receipt,
    Seconds,
    Start,
    StoredReceipt,
    TopicInfo,
    TopicKeywords,
    TopicOptions,
    TopicStats,
    changed_options,
    seconds,
    timeout_seconds,
)
from ..observe.tracing import Tracing
from ..serde.codec import UNSAID, Codec, CodecSettings, EncodePlan, settings_of
from ..serde.formats import schema_text
from .connection_state import ConnectionState, OnDisconnect, OnReconnect
from .consuming import AnyConsumer, Closer
from .feed import Feed
from .keywords import (
    BatchKeywords,
    OnceKeywords,
    PublisherKeywords,
    PublishKeywords,
    check_keywords,
    takes,
)
from .polling import Pollers
from .publisher import Publisher
from .queue_verbs import QueueVerbs, checked_filter
from .reader import Reader
from .sending import Sender, publish_identity, time_left
from .turns import YieldEvery
from .values import (
    PLAIN,
    Encoder,
    RowOptions,
    Value,
    call_settings,
    check_qos,
    one_for_each,
    pair_list,
    said_of_one,
    value_list,
)

DEFAULT_OPTIONS = TopicOptions()
STATS_AT_ONCE = 256
"""How many topics `stats_of` asks for in one request."""

_HOW_TO_SEND = OnceKeywords.__optional_keys__

Batches = (
    Mapping[str, Iterable[Value] | BatchBuilder]
    | Iterable[tuple[str, Iterable[Value] | BatchBuilder]]
)
"""Values by topic: a dict, or pairs."""


class Client(QueueVerbs):
    """A connection to a broker; `flintmq.connect` makes it. Use it as `async with`, or `await` it.

    `timeout` of the connection is how long a call waits at most for the broker, and a publish for
    room (a full topic with `overflow="block"`); a call's own `timeout` goes before it.
    """

    def __init__(
        self,
        broker: BrokerApi,
        codec: Codec,
        *,
        auto_create: bool,
        timeout: Seconds | None,
        tracing: Tracing | None = None,
        url: str = "memory://",
    ) -> None:
        self.clock: Clock = broker.clock
        self.url = url
        """What was connected to; where `connect` was given none, what it chose."""
        self._broker = broker
        self._connection = ConnectionState(broker)
        self._codec = codec
        self._encoder = Encoder(codec)
        self._sender = Sender(broker)
        self._auto_create = auto_create
        self._timeout = timeout_seconds(timeout)
        self._turns = YieldEvery()
        self._tracing = tracing
        self._pollers = Pollers(broker, tracing, self._timeout)
        self._open: set[AnyConsumer] = set()
        self._publishers: set[Publisher] = set()
        self._opened = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    # --- publishing

    @takes(PublishKeywords)
    async def publish(
        self, topic: str, value: Value, **said: Unpack[PublishKeywords]
    ) -> StoredReceipt:
        """Publish one message. Returns once it is as safe as the receipt says, or raises.

        The value is bytes, str, or any object the format can write; without a format, objects are
        written as JSON. `ttl` seconds after the broker took it in nobody is handed it any more;
        `delay` seconds after that it is due, or at the time `at` by the broker's clock (a datetime,
        or seconds since 1970; one that has passed means now). `qos=0` reaches live feeds only and
        is not stored. `partition` chooses among the partitions of a topic that has them.
        Cancelled or timed out while waiting, nothing was published.

        With a `producer` (any str) and a `sequence` (any u64) of its own, the same publish may be
        repeated: if it is there already, the receipt is that of the first time and says so. A topic
        remembers the last 100,000 sequences of each producer, for seven days unless it is told
        otherwise.
        """
        options = self._broker.known_options(topic)
        encoder = self._encoder
        row, settings = PLAIN, UNSAID
        if said and not _HOW_TO_SEND.issuperset(said):
            row, settings = said_of_one("publish", said, PublishKeywords)
        plan: EncodePlan | None = encoder.default
        if options is not None or settings is not UNSAID:
            plan = encoder.plan(topic, options, settings)
        if row is PLAIN and type(value) is bytes and plan is encoder.default:
            if not said:
                quick = self._broker.publish_value_nowait(topic, value)
                if quick is not None:
                    if not isinstance(quick, Receipt):
                        return await quick  # type: ignore[return-value]
                    self._turns.left -= 1
                    if self._turns.left <= 0:
                        await self._turns.pause()
                    return quick  # type: ignore[return-value]
            rows = BatchBuilder()
            rows.append(value)
        else:
            rows = encoder.one(value, plan, row, self.clock.now_ms())
        receipt = await self._publish(topic, rows, options, said)
        # Calls on the way cost more than a look by the type checker is worth.
        return receipt.parts[0] if receipt.parts else receipt  # type: ignore[return-value]

    @takes(BatchKeywords)
    async def publish_batch(
        self, topic: str, values: Iterable[Value] | BatchBuilder, **said: Unpack[BatchKeywords]
    ) -> Receipt:
        """Publish many messages in one step: one receipt with the first offset and the count.

        What is said of a message is one for all, or a list with one for each. An empty list
        publishes nothing and is no error. Spread over partitions, the receipt has `parts`.
        `batch_compression` (lz4, zstd) compresses the batch as a whole, which gains more than
        `compression` of each message. `producer` and `sequence` are those of the first message;
        the others count on from it. Such a batch goes to one partition.

        A `BatchBuilder` in place of values has rows that are encoded already: they are published
        as they are, whatever the topic's format and compression.
        """
        check_keywords("publish_batch", said, BatchKeywords)
        options = self._broker.known_options(topic)
        of_rows = {name: value for name, value in said.items() if name in RowOptions._fields}
        now_ms = self.clock.now_ms()
        formats, compressions = said.get("format"), said.get("compression")
        if isinstance(values, BatchBuilder):
            if any(said.get(name) for name in (*RowOptions._fields, *CodecSettings._fields)):
                raise InvalidRequest(
                    "a BatchBuilder carries all options: set them when you add messages to it"
                )
            rows = values
        elif isinstance(formats, list) or isinstance(compressions, list):
            items = value_list(values)
            plans = [
                self._encoder.plan(
                    topic, options, call_settings({**said, "format": one, "compression": another})
                )
                for one, another in zip(
                    one_for_each("format", formats, len(items)),
                    one_for_each("compression", compressions, len(items)),
                    strict=True,
                )
            ]
            rows = self._encoder.each(items, plans, of_rows, now_ms)
        else:
            plan = self._encoder.plan(topic, options, call_settings(said))
            rows = self._encoder.many(values, plan, of_rows, now_ms)
        batch_compression = check_compression(said.get("batch_compression", "none"))
        if not rows.row_count:
            return Receipt(topic, None, 0)
        return await self._publish(topic, rows, options, said, batch_compression)

    async def publish_many(
        self,
        messages: Iterable[tuple[str, Value]],
        *,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
    ) -> list[Receipt]:
        """Publish to several topics at once: a receipt for each (topic, value) pair.

        Order is kept within a topic. Values are all encoded first; after that, each topic is
        published on its own, and an error carries the receipts of what was in `receipts`.
        """
        pairs = pair_list(messages)
        by_topic: dict[str, list[int]] = {}
        for index, (topic, _) in enumerate(pairs):
            by_topic.setdefault(topic, []).append(index)
        encoded: dict[str, BatchBuilder] = {}
        of_rows = self._options_of_many()
        for topic, indexes in by_topic.items():
            plan = self._encoder.plan(topic, self._broker.known_options(topic), UNSAID)
            values = [pairs[index][1] for index in indexes]
            encoded[topic] = self._encoder.many(values, plan, of_rows, self.clock.now_ms())
        receipts: dict[int, Receipt] = {}
        whole_time = self._patience(timeout)
        deadline = None if whole_time is None else self.clock.monotonic() + whole_time
        for topic, indexes in by_topic.items():
            options = self._broker.known_options(topic)
            said: OnceKeywords = {
                "qos": qos,
                "timeout": time_left(self.clock, whole_time, deadline),
                "auto_create": auto_create,
            }
            try:
                whole = await self._publish(topic, encoded[topic], options, said)
            except FlintError as error:
                error.receipts = [receipts[index] for index in sorted(receipts)]
                raise
            receipts.update(zip(indexes, _apart(whole, len(indexes)), strict=True))
        return [receipts[index] for index in range(len(pairs))]

    def _options_of_many(self) -> dict[str, Any]:
        """What `publish_many` says of each message."""
        return {}

    @takes(PublisherKeywords)
    def publisher(self, topic: str, **said: Unpack[PublisherKeywords]) -> Publisher:
        """A publisher that gathers messages into batches: `async with mq.publisher(...) as pub`.

        What it says of its values goes before what the topic says, and each `send` before that.
        """
        check_keywords("publisher", said, PublisherKeywords)
        self._check_open()
        publisher = Publisher(
            self._broker,
            self._encoder,
            self._sender,
            topic,
            linger=seconds(said.get("linger", 0.0), "linger"),
            qos=check_qos(said.get("qos", 1)),
            auto_create=self._may_create(said.get("auto_create")),
            timeout=self._patience(said.get("timeout")),
            batch_compression=check_compression(said.get("batch_compression", "none")),
            settings=call_settings(said),
            partition=said.get("partition"),
            on_close=self._publishers.discard,
            tracing=self._tracing,
        )
        self._publishers.add(publisher)
        return publisher

    async def _publish(
        self,
        topic: str,
        rows: BatchBuilder,
        options: TopicOptions | None,
        said: OnceKeywords,
        batch_compression: str = "none",
    ) -> Receipt:
        partition, qos = said.get("partition"), check_qos(said.get("qos", 1))
        timeout, auto_create = said.get("timeout"), said.get("auto_create")
        may_create = self._auto_create if auto_create is None else auto_create
        identity = None
        if "producer" in said or "sequence" in said:
            identity = publish_identity(said.get("producer"), said.get("sequence"), qos)
        if options is None and partition is None and batch_compression == "none" and not identity:
            begun = self._broker.publish_nowait(
                topic, rows, qos=qos, auto_create=may_create, timeout=self._patience(timeout)
            )
            if isinstance(begun, Receipt):
                self._turns.left -= 1
                if self._turns.left <= 0:
                    await self._turns.pause()
                return begun
            if begun is not None:
                return await begun
            return await self._broker.publish(
                topic, rows, qos=qos, auto_create=may_create, timeout=self._patience(timeout)
            )
        receipt = await self._sender.publish(
            topic,
            rows,
            options,
            partition,
            qos=qos,
            timeout=self._patience(timeout),
            auto_create=may_create,
            batch_compression=batch_compression,
            identity=identity,
        )
        self._turns.left -= 1
        if self._turns.left <= 0:
            await self._turns.pause()
        return receipt

    # --- staged writes

    async def stage(
        self,
        writer: str,
        number: int,
        part: str | int,
        batches: Batches,
        *,
        auto_create: bool | None = None,
    ) -> None:
        """Lay messages ready that `commit` appends later, in one step with others.

        `batches` has lists of values by topic, as a dict or as (topic, values) pairs; a
        `BatchBuilder` in place of a list brings keys and headers. `writer` names who stages,
        `number` is one of its steps and grows, `part` one piece of that step: the same part again
        takes the place of the first. What is not committed within an hour is dropped. At or below
        the writer's last committed number nothing is done.
        """
        self._check_open()
        now_ms = self.clock.now_ms()
        rows: list[tuple[str, BatchBuilder]] = []
        for topic, values in batch_pairs(batches):
            options = self._broker.known_options(topic)
            if isinstance(values, BatchBuilder):
                built = values
            else:
                plan = self._encoder.plan(topic, options, UNSAID)
                if plan is None:
                    raise InvalidRequest(
                        f"topic {topic!r} passes objects by reference; they cannot be staged"
                    )
                built = self._encoder.many(values, plan, {}, now_ms)
            if built.row_count:
                rows += self._sender.routed(topic, built, options, None)
        await self._broker.stage(
            writer, number, part, rows, auto_create=self._may_create(auto_create)
        )

    async def commit(self, writer: str, number: int, parts: Sequence[str | int]) -> list[Receipt]:
        """Append exactly the named parts to their topics, all of them in one step, or none.

        Returns a receipt for each topic and partition. What else the writer has staged up to that
        number is dropped, and the number is remembered for good: the same commit again changes
        nothing and returns the same receipts, marked as duplicates (none for earlier numbers).
        A topic that is full raises TopicFull: a commit neither waits nor drops a part of itself.
        """
        self._check_open()
        return await self._broker.commit(writer, number, parts)

    async def abort(self, writer: str, number: int) -> None:
        """Drop what is staged under a number. It may be staged anew."""
        self._check_open()
        await self._broker.abort(writer, number)

    # --- values

    def register_format(
        self,
        name: str,
        *,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        media_type: str | None = None,
    ) -> None:
        """Add a format of your own to this connection: `publish(..., format=name)`."""
        self._codec.register_format(name, encode=encode, decode=decode, media_type=media_type)

    def register_hook(
        self, name: str, *, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
    ) -> None:
        """Add a step from bytes to bytes, for `pre_hooks` (before compression) or `post_hooks`."""
        self._codec.register_hook(name, encode=encode, decode=decode)

    def register_schema(self, schema: Any) -> str:
        """Make an Avro schema known to this connection; returns its fingerprint."""
        return self._codec.register_schema(schema)

    # --- consuming

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
        `filter` is an expression (`headers.region == "eu" and value.amount > 100`) or a function of
        a message. Of a partitioned topic all partitions are read, or those in `partitions`.
        """
        return Reader(
            self,
            self._turns,
            self._broker,
            topic,
            name=name,
            start=start,
            filter=checked_filter(filter),
            partitions=partitions,
            auto_create=self._may_create(auto_create),
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
            self,
            self._turns,
            self._broker,
            pattern,
            capacity=capacity,
            overflow=overflow,
            filter=checked_filter(filter),
        )

    # --- topics

    async def create_topic(self, name: str, **options: Unpack[TopicKeywords]) -> TopicInfo:
        """Make a topic. One that is there already is fine, unless options named here differ.

        With `partitions=n` it is a row of n topics; limits then hold for each of them.
        """
        return await self._broker.create_topic(
            name, self._checked_options(cast(dict[str, Any], options))
        )

    async def configure_topic(self, name: str, **options: Unpack[TopicKeywords]) -> TopicInfo:
        """Change options of a topic; those not named stay as they are.

        Partitions can be added. What is stored stays where it is; from then on a key may go to
        another partition than before, so order by key holds for what is published afterwards only.
        """
        ours = (await self._broker.topic_info(name)).options
        checked = self._checked_options(cast(dict[str, Any], options), ours)
        return await self._broker.configure_topic(name, checked)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic and what it holds. Its readers, feeds and subscriptions end with
        TopicDeleted."""
        await self._broker.delete_topic(name)
        await self._pollers.forget(name)

    async def purge_topic(self, name: str, before: int | None = None) -> int:
        """Drop every message of a topic, or those before an offset; how many there were.

        The topic stays, with its options, groups and offsets: what is published next comes behind
        what is gone. Readers and groups that had not come to it yet go on behind it. Partitions
        have offsets of their own: purge one as in "orders/0", or all of them without an offset.
        """
        return await self._broker.purge_topic(name, before)

    async def topics(self, pattern: str = ">") -> list[str]:
        """The names of the topics that match, sorted."""
        return await self._broker.topics(pattern)

    async def topic_info(self, name: str) -> TopicInfo:
        """A topic's id and options."""
        return await self._broker.topic_info(name)

    async def topic_stats(self, name: str) -> TopicStats:
        """A topic's figures right now."""
        return await self._broker.topic_stats(name)

    async def stats_of(self, names: Sequence[str]) -> list[TopicStats]:
        """The figures of many topics, in a few requests. Topics that do not exist are left out."""
        found: list[TopicStats] = []
        done = 0
        while done < len(names):
            some = await self._broker.stats_of(names[done : done + STATS_AT_ONCE])
            found += [one for one in some if one is not None]
            done += len(some)
        return found

    # --- the connection

    @property
    def is_connected(self) -> bool:
        """Whether calls reach the broker right now.

        False before the connection is opened, after it is closed, and while a remote broker is out
        of reach: it is then connected to again in the background. A broker inside this process is
        connected while it is open.
        """
        return self._opened and not self._closed and self._connection.is_up()

    def on_disconnect(self, callback: OnDisconnect) -> OnDisconnect:
        """Call a function, with the cause as a `Disconnected`, whenever the connection is lost.

        It runs on the event loop; an async one becomes a task. Calls are not affected: they wait
        for the connection to come back, within their timeout. Works as a decorator.
        """
        self._connection.on_disconnect(callback)
        return callback

    def on_reconnect(self, callback: OnReconnect) -> OnReconnect:
        """Call a function, without arguments, whenever a lost connection is back."""
        self._connection.on_reconnect(callback)
        return callback

    async def backup(self, directory: str | PathLike[str]) -> None:
        """Write a consistent copy of everything into an empty directory, while work goes on.

        It is a data directory itself: `file://` opens it, and copying it elsewhere restores it.
        """
        self._check_open()
        await self._broker.backup(fspath(directory))

    async def close(self) -> None:
        """Flush publishers, close readers, feeds and subscriptions, and let the broker go."""
        await self._close_for(asyncio.current_task())

    async def _close_for(self, closer: Closer) -> None:
        """The same, on behalf of a task or thread that waits for it elsewhere. Goes on to its end
        even if cancelled; who closes again waits for that."""
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close(closer))
            await asyncio.shield(self._closing)
        else:
            await asyncio.wait([self._closing])

    async def _close(self, closer: Closer) -> None:
        """Publishers first, the broker last: all of it, whatever raises."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._broker.close)
            closing.push_async_callback(self._pollers.close)
            closing.push_async_callback(self._close_parts, closer)
            for publisher in self._publishers:
                closing.push_async_callback(publisher.close)

    async def _close_parts(self, closer: Closer) -> None:
        # All at once: each may have to wait for work in progress.
        closing = (part._close_for(closer) for part in list(self._open))
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def __aenter__(self) -> Self:
        self._check_open()
        if not self._opened:
            await self._broker.open()
            self._opened = True
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    def opened(self, part: AnyConsumer) -> None:
        self._open.add(part)

    def closed(self, part: AnyConsumer) -> None:
        self._open.discard(part)

    def _checked_options(
        self, options: dict[str, Any], ours: TopicOptions = DEFAULT_OPTIONS
    ) -> dict[str, Any]:
        """Changes of a topic's options whose formats, hooks and so on this connection knows."""
        if options.get("schema") is not None:
            options = {**options, "schema": schema_text(options["schema"])}
        named = {name: options[name] for name in VALUE_OPTIONS if name in options}
        settings = settings_of(changed_options(ours, named))
        if settings.format != "object":
            self._codec.checked(settings)
        elif settings != CodecSettings(format="object"):
            raise InvalidRequest(
                "format='object' passes references: no other value option can be combined with it"
            )
        return options

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the connection")

    def _may_create(self, auto_create: bool | None) -> bool:
        return self._auto_create if auto_create is None else auto_create

    def _patience(self, timeout: Seconds | None) -> float | None:
        return self._timeout if timeout is None else timeout_seconds(timeout)


def _apart(receipt: Receipt, count: int) -> list[Receipt]:
    """A receipt for each message of a batch that went to one topic or one partition."""
    if receipt.parts:
        return _apart(receipt.parts[0], count)
    if receipt.offset is None:
        dropped = 1 if receipt.dropped else 0
        one = msgspec.structs.replace(receipt, count=1 - dropped, dropped=dropped)
        return [one] * count
    return [
        msgspec.structs.replace(receipt, offset=receipt.offset + index, count=1, dropped=0)
        if index < receipt.count
        else msgspec.structs.replace(receipt, offset=None, count=0, dropped=1)
        for index in range(count)
    ]


def batch_pairs(batches: Batches) -> list[tuple[str, Iterable[Value] | BatchBuilder]]:
    """What is to be staged, as pairs, checked."""
    pairs = list(batches.items()) if isinstance(batches, Mapping) else list(batches)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidRequest(
                "batches must be a dict of lists of values by topic, or a list of (topic, "
                f"values) pairs; not one with {pair!r}"
            )
    return [(topic, values) for topic, values in pairs]
