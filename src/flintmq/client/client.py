"""The verbs of a connection: publish, read, live, and those of its parts; for all brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable
from contextlib import AsyncExitStack
from os import PathLike, fspath
from typing import Any, Self, Unpack

import msgspec

from ..batch import BatchBuilder, check_compression
from ..broker_api import BrokerApi
from ..clock import Clock
from ..errors import FlintError
from ..model import Receipt, Seconds, StoredReceipt, TopicOptions, seconds
from ..observe.tracing import Tracing
from ..serde.codec import UNSAID, Codec, EncodePlan
from .connection_state import ConnectionState
from .context import ClientContext, Closer
from .keywords import (
    BatchKeywords,
    CallKeywords,
    OnceKeywords,
    PublisherKeywords,
    PublishKeywords,
    check_keywords,
    takes,
)
from .outbox_verbs import OutboxVerbs
from .parts import of_part
from .polling import Pollers
from .publisher import Publisher
from .queue_verbs import QueueVerbs
from .reading_verbs import ReadingVerbs
from .requesting import Requesting
from .schedule_verbs import ScheduleVerbs
from .schema_verbs import SchemaVerbs
from .sending import Sender, publish_identity, time_left
from .staged_publishing import StagedPublishing
from .topic_admin import TopicAdmin
from .values import (
    PLAIN,
    Encoder,
    Value,
    call_settings,
    check_qos,
    pair_list,
    said_of_one,
)
from .webhook_verbs import WebhookVerbs

_HOW_TO_SEND = OnceKeywords.__optional_keys__


class Client:
    """A connection to a broker, created by `flintmq.connect`. Use it with `async with`, or `await`
    it.

    The connection's `timeout` is how long a call waits for the broker, and a publish for space (in
    a full topic with `overflow="block"`). A call's own `timeout` overrides it.
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
        self._context = context = ClientContext(
            broker, auto_create=auto_create, timeout=timeout, tracing=tracing
        )
        self._turns = context.turns
        self._tracing = tracing
        self._state = ConnectionState(broker)
        self._codec = codec
        self._encoder = Encoder(codec)
        self._sender = Sender(broker)
        self._pollers = Pollers(broker, context.settler, tracing, context.timeout)
        self._queues = QueueVerbs(context, self._pollers)
        self._topics = TopicAdmin(context, codec, self._pollers)
        self._reading = ReadingVerbs(
            context, self.publish, self.publish_batch, self._topics.create_topic
        )
        self._webhooks = WebhookVerbs(broker)
        self._schedules = ScheduleVerbs(broker, self.publish)
        self._outbox = OutboxVerbs(broker)
        self._schemas = SchemaVerbs(broker, codec)
        self._staged = StagedPublishing(context, self._encoder, self._sender)
        self._requesting = Requesting(context, self._encoder, self._sender)
        codec.replier = self._requesting.reply
        self._publishers: set[Publisher] = set()
        self._opened = False
        self._closing: asyncio.Task[None] | None = None

    # --- publishing

    @takes(PublishKeywords)
    async def publish(
        self, topic: str, value: Value, **said: Unpack[PublishKeywords]
    ) -> StoredReceipt:
        """Publish one message. Returns once it is stored as the receipt says, or raises.

        The value is bytes, str, or any object that the format can encode; without a format, objects
        are encoded as JSON. The message expires `ttl` seconds after the broker received it. With
        `delay` (seconds) or `at` (a datetime, or seconds since 1970, by the broker's clock), it is
        delivered when it is due. With `qos=0`, only live feeds get it, and it is not stored.
        `partition` chooses the partition. Cancelled or timed out while
        waiting for space: nothing was published.

        With your own `producer` (any str) and `sequence` (any u64), a publish can be repeated
        safely: if the message is already stored, you get the first receipt, marked as a duplicate.
        A topic remembers the last 100,000 sequences of each producer, by default for seven days.
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
                # One message has one offset; a cast for that would cost a call.
                begun: Any = self._broker.publish_value_nowait(topic, value)
                quick: StoredReceipt | Awaitable[StoredReceipt] | None = begun
                if quick is not None:
                    if not isinstance(quick, StoredReceipt):
                        return await quick
                    self._turns.left -= 1
                    if self._turns.left <= 0:
                        await self._turns.pause()
                    return quick
            rows = BatchBuilder()
            rows.append(value)
        else:
            rows = encoder.one(value, plan, row, self.clock.now_ms())
        receipt: Any = await self._publish(topic, rows, options, said)
        stored: StoredReceipt = receipt.parts[0] if receipt.parts else receipt
        return stored

    @takes(BatchKeywords)
    async def publish_batch(
        self, topic: str, values: Iterable[Value] | BatchBuilder, **said: Unpack[BatchKeywords]
    ) -> Receipt:
        """Publish many messages in one step: one receipt with the first offset and the count.

        Options are one value for all messages, or a list with one for each. An empty list publishes
        nothing. If the messages go to several partitions, the receipt has `parts`.
        `batch_compression` (lz4, zstd) compresses the whole batch, which saves more than
        `compression` of each message. `producer` and `sequence` are those of the first message; the
        others count up from it. Such a batch goes to one partition.

        A `BatchBuilder` instead of values has encoded messages, which are published unchanged,
        whatever format and compression the topic has.
        """
        check_keywords("publish_batch", said, BatchKeywords)
        options = self._broker.known_options(topic)
        rows = self._encoder.batch(topic, options, values, said, self.clock.now_ms())
        batch_compression = check_compression(said.get("batch_compression", "none"))
        if not rows.row_count:
            return Receipt(topic, None, 0)
        return await self._publish(topic, rows, options, said, batch_compression)

    @takes(CallKeywords)
    async def publish_many(
        self, messages: Iterable[tuple[str, Value]], **said: Unpack[CallKeywords]
    ) -> list[Receipt]:
        """Publish to several topics at once: one receipt for each (topic, value) pair.

        Order is kept within a topic. All values are encoded first; then each topic is published
        separately. If one fails, the error's `receipts` lists what was published.
        """
        return await self._publish_many(pair_list(messages), {}, said)

    async def _publish_many(
        self, pairs: list[tuple[str, Value]], of_rows: dict[str, Any], said: CallKeywords
    ) -> list[Receipt]:
        """The same, with what is said of every message."""
        check_keywords("publish_many", said, CallKeywords)
        by_topic: dict[str, list[int]] = {}
        for index, (topic, _) in enumerate(pairs):
            by_topic.setdefault(topic, []).append(index)
        encoded: dict[str, BatchBuilder] = {}
        for topic, indexes in by_topic.items():
            plan = self._encoder.plan(topic, self._broker.known_options(topic), UNSAID)
            values = [pairs[index][1] for index in indexes]
            encoded[topic] = self._encoder.many(values, plan, of_rows, self.clock.now_ms())
        receipts: dict[int, Receipt] = {}
        whole_time = self._context.patience(said.get("timeout"))
        deadline = None if whole_time is None else self.clock.monotonic() + whole_time
        for topic, indexes in by_topic.items():
            options = self._broker.known_options(topic)
            once: OnceKeywords = {
                "qos": said.get("qos", 1),
                "timeout": time_left(self.clock, whole_time, deadline),
                "auto_create": said.get("auto_create"),
            }
            try:
                whole = await self._publish(topic, encoded[topic], options, once)
            except FlintError as error:
                error.receipts = [receipts[index] for index in sorted(receipts)]
                raise
            receipts.update(zip(indexes, _apart(whole, len(indexes)), strict=True))
        return [receipts[index] for index in range(len(pairs))]

    @takes(PublisherKeywords)
    def publisher(self, topic: str, **said: Unpack[PublisherKeywords]) -> Publisher:
        """A publisher that collects messages into batches: `async with mq.publisher(...) as pub`.

        Its options override those of the topic; those of each `send` override both.
        """
        check_keywords("publisher", said, PublisherKeywords)
        self._context.check_open()
        publisher = Publisher(
            self._broker,
            self._encoder,
            self._sender,
            topic,
            linger=seconds(said.get("linger", 0.0), "linger"),
            qos=check_qos(said.get("qos", 1)),
            auto_create=self._context.may_create(said.get("auto_create")),
            timeout=self._context.patience(said.get("timeout")),
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
        timeout, auto_create = self._context.patience(said.get("timeout")), said.get("auto_create")
        may_create = self._context.auto_create if auto_create is None else auto_create
        identity = None
        if "producer" in said or "sequence" in said:
            identity = publish_identity(said.get("producer"), said.get("sequence"), qos)
        if options is None and partition is None and batch_compression == "none" and not identity:
            begun = self._broker.publish_nowait(
                topic, rows, qos=qos, auto_create=may_create, timeout=timeout
            )
            if isinstance(begun, Receipt):
                self._turns.left -= 1
                if self._turns.left <= 0:
                    await self._turns.pause()
                return begun
            if begun is not None:
                return await begun
            return await self._broker.publish(
                topic, rows, qos=qos, auto_create=may_create, timeout=timeout
            )
        receipt = await self._sender.publish(
            topic, rows, options, partition, qos=qos, timeout=timeout, auto_create=may_create,
            batch_compression=batch_compression, identity=identity,
        )  # fmt: skip
        self._turns.left -= 1
        if self._turns.left <= 0:
            await self._turns.pause()
        return receipt

    # --- what its parts do

    reader = of_part("_reading", ReadingVerbs.reader)
    live = of_part("_reading", ReadingVerbs.live)
    table = of_part("_reading", ReadingVerbs.table)

    request = of_part("_requesting", Requesting.request)
    reply = of_part("_requesting", Requesting.reply)

    outbox_stats = of_part("_outbox", OutboxVerbs.outbox_stats)
    flush_outbox = of_part("_outbox", OutboxVerbs.flush_outbox)

    stage = of_part("_staged", StagedPublishing.stage)
    commit = of_part("_staged", StagedPublishing.commit)
    abort = of_part("_staged", StagedPublishing.abort)

    register_format = of_part("_codec", Codec.register_format)
    register_hook = of_part("_codec", Codec.register_hook)
    register_schema = of_part("_codec", Codec.register_schema)

    create_topic = of_part("_topics", TopicAdmin.create_topic)
    configure_topic = of_part("_topics", TopicAdmin.configure_topic)
    delete_topic = of_part("_topics", TopicAdmin.delete_topic)
    purge_topic = of_part("_topics", TopicAdmin.purge_topic)
    create_webhook = of_part("_webhooks", WebhookVerbs.create_webhook)
    webhooks = of_part("_webhooks", WebhookVerbs.webhooks)
    webhook = of_part("_webhooks", WebhookVerbs.webhook)
    pause_webhook = of_part("_webhooks", WebhookVerbs.pause_webhook)
    resume_webhook = of_part("_webhooks", WebhookVerbs.resume_webhook)
    test_webhook = of_part("_webhooks", WebhookVerbs.test_webhook)
    delete_webhook = of_part("_webhooks", WebhookVerbs.delete_webhook)
    create_schedule = of_part("_schedules", ScheduleVerbs.create_schedule)
    schedules = of_part("_schedules", ScheduleVerbs.schedules)
    schedule = of_part("_schedules", ScheduleVerbs.schedule)
    pause_schedule = of_part("_schedules", ScheduleVerbs.pause_schedule)
    resume_schedule = of_part("_schedules", ScheduleVerbs.resume_schedule)
    run_schedule = of_part("_schedules", ScheduleVerbs.run_schedule)
    delete_schedule = of_part("_schedules", ScheduleVerbs.delete_schedule)
    add_schema = of_part("_schemas", SchemaVerbs.add_schema)
    schemas = of_part("_schemas", SchemaVerbs.schemas)
    schema = of_part("_schemas", SchemaVerbs.schema)
    check_schema = of_part("_schemas", SchemaVerbs.check_schema)
    use_schemas = of_part("_schemas", SchemaVerbs.use_schemas)
    delete_schema = of_part("_schemas", SchemaVerbs.delete_schema)
    topics = of_part("_topics", TopicAdmin.topics)
    topic_info = of_part("_topics", TopicAdmin.topic_info)
    topic_stats = of_part("_topics", TopicAdmin.topic_stats)
    stats_of = of_part("_topics", TopicAdmin.stats_of)

    subscribe = of_part("_queues", QueueVerbs.subscribe)
    poll = of_part("_queues", QueueVerbs.poll)
    ack = of_part("_queues", QueueVerbs.ack)
    nack = of_part("_queues", QueueVerbs.nack)
    cancel = of_part("_queues", QueueVerbs.cancel)
    groups = of_part("_queues", QueueVerbs.groups)
    group_stats = of_part("_queues", QueueVerbs.group_stats)
    pause_group = of_part("_queues", QueueVerbs.pause_group)
    resume_group = of_part("_queues", QueueVerbs.resume_group)
    reset_group = of_part("_queues", QueueVerbs.reset_group)
    delete_group = of_part("_queues", QueueVerbs.delete_group)
    peek = of_part("_queues", QueueVerbs.peek)
    in_flight = of_part("_queues", QueueVerbs.in_flight)
    dead_letters = of_part("_queues", QueueVerbs.dead_letters)
    redrive = of_part("_queues", QueueVerbs.redrive)
    discard = of_part("_queues", QueueVerbs.discard)

    # --- the connection

    @property
    def is_connected(self) -> bool:
        """Whether calls reach the broker right now.

        False before the connection is opened, after it is closed, and while a remote broker is
        unreachable (the client then reconnects in the background). A broker inside this process is
        connected while it is open.
        """
        return self._opened and not self._context.is_closed and self._state.is_up()

    on_disconnect = of_part("_state", ConnectionState.on_disconnect)
    on_reconnect = of_part("_state", ConnectionState.on_reconnect)
    on_not_settled = of_part("_queues", QueueVerbs.on_not_settled)

    @property
    def not_settled(self) -> int:
        """How many messages could not be settled in the background (`process`, `ack_nowait`, and
        handlers) since the connection was opened. They may be delivered again."""
        return self._context.settler.failed

    async def backup(self, directory: str | PathLike[str]) -> None:
        """Write a consistent copy of all data to an empty directory, while the broker keeps
        working.

        The backup is a data directory: `file://` opens it, and copying it elsewhere restores it.
        """
        self._context.check_open()
        await self._broker.backup(fspath(directory))

    async def close(self) -> None:
        """Flush publishers, close readers, feeds and subscriptions, and disconnect."""
        await self._close_for(asyncio.current_task())

    async def _close_for(self, closer: Closer) -> None:
        """The same, on behalf of a task or thread that waits for it elsewhere. Goes on to its end
        even if cancelled; who closes again waits for that."""
        if self._closing is None:
            self._context.is_closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close(closer))
            await asyncio.shield(self._closing)
        else:
            await asyncio.wait([self._closing])

    async def _close(self, closer: Closer) -> None:
        """Publishers first, the broker last: all of it, whatever raises."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._broker.close)
            closing.push_async_callback(self._pollers.close)
            closing.push_async_callback(self._context.close_consumers, closer)
            for publisher in self._publishers:
                closing.push_async_callback(publisher.close)

    async def __aenter__(self) -> Self:
        self._context.check_open()
        if not self._opened:
            await self._broker.open()
            self._opened = True
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()


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
