"""The verbs, blocking: thin over the async client, which is the one implementation.

Every signature is the async one; a test compares them. See `flintmq.Client` for the whole story of
each verb.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from threading import current_thread
from types import TracebackType
from typing import Any, Self, Unpack

from ..api import File, OnFull, connect
from ..batch import BatchBuilder, HeaderValue, Key
from ..broker_api import Filter
from ..client.client import Batches, Client, batch_pairs
from ..client.connection_state import OnDisconnect, OnReconnect
from ..client.routing import Route
from ..client.values import Value, When
from ..clock import Clock
from ..model import (
    Overflow,
    Receipt,
    Seconds,
    Start,
    StoredReceipt,
    TopicInfo,
    TopicKeywords,
    TopicStats,
)
from ..serde.codec import DECODED_BYTES_MAX
from .consuming import BlockingFeed, BlockingReader
from .loop_thread import LoopThread
from .publisher import BlockingPublisher
from .queue_verbs import BlockingQueueVerbs


def connect_sync(
    url: str | None = None,
    *,
    auto_create: bool = True,
    timeout: Seconds | None = 30.0,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    clock: Clock | None = None,
    fsync: str = "always",
    on_full: OnFull = "block",
    api_key: str | None = None,
    tls_ca: File | None = None,
    tls_cert: File | None = None,
    tls_key: File | None = None,
    tls_verify: bool = True,
    tracing: bool | None = None,
) -> BlockingClient:
    """Connect to a broker without an event loop: `with flintmq.connect_sync() as mq`.

    Takes what `flintmq.connect` takes. The connection may be used from many threads, and has a
    background thread of its own until it is closed. It does not survive a fork: connect again in
    the child.
    """
    thread = LoopThread()
    try:
        client = thread.run(
            connect,
            url,
            auto_create=auto_create,
            timeout=timeout,
            decoded_bytes_max=decoded_bytes_max,
            clock=clock,
            fsync=fsync,
            on_full=on_full,
            api_key=api_key,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_verify=tls_verify,
            tracing=tracing,
        )
        thread.carries_context = client._tracing is not None
        thread.wait_for(client.__aenter__)
    except BaseException:
        thread.say_farewell()
        raise
    return BlockingClient(thread, client)


class BlockingClient(BlockingQueueVerbs):
    """A connection to a broker for code without an event loop; `flintmq.connect_sync` makes it.

    Every call blocks the calling thread until it is done, even where that thread runs an event
    loop of its own; there, call it by `asyncio.to_thread` or use `flintmq.connect`.
    """

    def __init__(self, thread: LoopThread, client: Client) -> None:
        self.clock: Clock = client.clock
        self._thread = thread
        self._client = client
        thread.farewell = client.close
        # A connection that nobody closed and nobody can reach any more ends its thread.
        weakref.finalize(self, thread.say_farewell).atexit = False

    # --- publishing

    def publish(
        self,
        topic: str,
        value: Value,
        *,
        key: Key | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        at: When | None = None,
        content_type: str | None = None,
        format: str | None = None,
        compression: str | None = None,
        pre_hooks: Sequence[str] | None = None,
        post_hooks: Sequence[str] | None = None,
        magic_header: str | None = None,
        schema: Any = None,
        partition: Route | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
    ) -> StoredReceipt:
        """Publish one message. Returns once it is as safe as the receipt says, or raises."""
        return self._thread.wait_for(
            self._client.publish,
            topic,
            value,
            key=key,
            headers=headers,
            priority=priority,
            ttl=ttl,
            delay=delay,
            at=at,
            content_type=content_type,
            format=format,
            compression=compression,
            pre_hooks=pre_hooks,
            post_hooks=post_hooks,
            magic_header=magic_header,
            schema=schema,
            partition=partition,
            producer=producer,
            sequence=sequence,
            qos=qos,
            timeout=timeout,
            auto_create=auto_create,
        )

    def publish_batch(
        self,
        topic: str,
        values: Iterable[Value] | BatchBuilder,
        *,
        key: Key | list[Key | None] | None = None,
        headers: Mapping[str, HeaderValue] | list[Mapping[str, HeaderValue] | None] | None = None,
        priority: int | list[int] = 0,
        ttl: Seconds | list[Seconds | None] | None = None,
        delay: Seconds | list[Seconds | None] | None = None,
        at: When | list[When | None] | None = None,
        content_type: str | list[str | None] | None = None,
        format: str | list[str | None] | None = None,
        compression: str | list[str | None] | None = None,
        pre_hooks: Sequence[str] | None = None,
        post_hooks: Sequence[str] | None = None,
        magic_header: str | None = None,
        schema: Any = None,
        partition: Route | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
        batch_compression: str = "none",
    ) -> Receipt:
        """Publish many messages in one step: one receipt with the first offset and the count.

        Each option is one for all messages, or a list with one for each.
        """
        return self._thread.wait_for(
            self._client.publish_batch,
            topic,
            values if isinstance(values, BatchBuilder) else _made_here(values),
            key=key,
            headers=headers,
            priority=priority,
            ttl=ttl,
            delay=delay,
            at=at,
            content_type=content_type,
            format=format,
            compression=compression,
            pre_hooks=pre_hooks,
            post_hooks=post_hooks,
            magic_header=magic_header,
            schema=schema,
            partition=partition,
            producer=producer,
            sequence=sequence,
            qos=qos,
            timeout=timeout,
            auto_create=auto_create,
            batch_compression=batch_compression,
        )

    def publish_many(
        self,
        messages: Iterable[tuple[str, Value]],
        *,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
    ) -> list[Receipt]:
        """Publish to several topics at once: a receipt for each (topic, value) pair."""
        return self._thread.wait_for(
            self._client.publish_many,
            _made_here(messages),
            qos=qos,
            timeout=timeout,
            auto_create=auto_create,
        )

    def publisher(
        self,
        topic: str,
        *,
        linger: Seconds = 0.0,
        format: str | None = None,
        compression: str | None = None,
        pre_hooks: Sequence[str] | None = None,
        post_hooks: Sequence[str] | None = None,
        magic_header: str | None = None,
        schema: Any = None,
        partition: Route | None = None,
        qos: int = 1,
        timeout: Seconds | None = None,
        auto_create: bool | None = None,
        batch_compression: str = "none",
    ) -> BlockingPublisher:
        """A publisher that gathers messages into batches: `with mq.publisher(...) as pub`."""
        publisher = self._thread.run(
            self._client.publisher,
            topic,
            linger=linger,
            format=format,
            compression=compression,
            pre_hooks=pre_hooks,
            post_hooks=post_hooks,
            magic_header=magic_header,
            schema=schema,
            partition=partition,
            qos=qos,
            timeout=timeout,
            auto_create=auto_create,
            batch_compression=batch_compression,
        )
        return BlockingPublisher(self, self._thread, publisher)

    # --- staged writes

    def stage(
        self,
        writer: str,
        number: int,
        part: str | int,
        batches: Batches,
        *,
        auto_create: bool | None = None,
    ) -> None:
        """Lay messages ready that `commit` appends later, in one step with others."""
        return self._thread.wait_for(
            self._client.stage,
            writer,
            number,
            part,
            _batches_made_here(batches),
            auto_create=auto_create,
        )

    def commit(self, writer: str, number: int, parts: Sequence[str | int]) -> list[Receipt]:
        """Append exactly the named parts to their topics, all of them in one step, or none."""
        return self._thread.wait_for(self._client.commit, writer, number, parts)

    def abort(self, writer: str, number: int) -> None:
        """Drop what is staged under a number. It may be staged anew."""
        return self._thread.wait_for(self._client.abort, writer, number)

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
        self._thread.run(
            self._client.register_format, name, encode=encode, decode=decode, media_type=media_type
        )

    def register_hook(
        self, name: str, *, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
    ) -> None:
        """Add a step from bytes to bytes, for `pre_hooks` (before compression) or `post_hooks`."""
        self._thread.run(self._client.register_hook, name, encode=encode, decode=decode)

    def register_schema(self, schema: Any) -> str:
        """Make an Avro schema known to this connection; returns its fingerprint."""
        return self._thread.run(self._client.register_schema, schema)

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
    ) -> BlockingReader:
        """Read a topic from a position: `with mq.reader(...) as reader`.

        `start` is 'earliest' (the default), 'latest', 'committed', an offset or a datetime. A
        filter that is a function runs in the connection's thread, and must not block.
        """
        reader = self._thread.run(
            self._client.reader,
            topic,
            name=name,
            start=start,
            filter=filter,
            partitions=partitions,
            auto_create=auto_create,
        )
        return BlockingReader(self, self._thread, reader)

    def live(
        self,
        pattern: str,
        *,
        capacity: int = 1024,
        overflow: Overflow = "drop_oldest",
        filter: str | Filter | None = None,
    ) -> BlockingFeed:
        """What is published from now on: `with mq.live("orders.>") as feed`."""
        feed = self._thread.run(
            self._client.live, pattern, capacity=capacity, overflow=overflow, filter=filter
        )
        return BlockingFeed(self, self._thread, feed)

    # --- topics

    def create_topic(self, name: str, **options: Unpack[TopicKeywords]) -> TopicInfo:
        """Make a topic. One that is there already is fine, unless options named here differ."""
        return self._thread.wait_for(self._client.create_topic, name, **options)

    def configure_topic(self, name: str, **options: Unpack[TopicKeywords]) -> TopicInfo:
        """Change options of a topic; those not named stay as they are."""
        return self._thread.wait_for(self._client.configure_topic, name, **options)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and what it holds. Its readers, feeds and subscriptions end with
        TopicDeleted."""
        return self._thread.wait_for(self._client.delete_topic, name)

    def purge_topic(self, name: str, before: int | None = None) -> int:
        """Drop every message of a topic, or those before an offset; how many there were."""
        return self._thread.wait_for(self._client.purge_topic, name, before)

    def topics(self, pattern: str = ">") -> list[str]:
        """The names of the topics that match, sorted."""
        return self._thread.wait_for(self._client.topics, pattern)

    def topic_info(self, name: str) -> TopicInfo:
        """A topic's id and options."""
        return self._thread.wait_for(self._client.topic_info, name)

    def topic_stats(self, name: str) -> TopicStats:
        """A topic's figures right now."""
        return self._thread.wait_for(self._client.topic_stats, name)

    # --- the connection

    @property
    def url(self) -> str:
        """What was connected to; where `connect_sync` was given none, what it chose."""
        return self._client.url

    @property
    def is_connected(self) -> bool:
        """Whether calls reach the broker right now."""
        return self._client.is_connected

    def on_disconnect(self, callback: OnDisconnect) -> OnDisconnect:
        """Call a function, with the cause as a `Disconnected`, whenever the connection is lost.

        It runs in the connection's own thread: it must not block, nor use this connection.
        """
        return self._thread.run(self._client.on_disconnect, callback)

    def on_reconnect(self, callback: OnReconnect) -> OnReconnect:
        """Call a function, without arguments, whenever a lost connection is back."""
        return self._thread.run(self._client.on_reconnect, callback)

    def backup(self, directory: str | PathLike[str]) -> None:
        """Write a consistent copy of everything into an empty directory, while work goes on."""
        return self._thread.wait_for(self._client.backup, directory)

    def close(self) -> None:
        """Flush publishers, close readers, feeds and subscriptions, and let the broker go."""
        # Threads that read from subscriptions have time to finish, but for this one.
        self._thread.farewell = partial(self._client._close_for, current_thread())
        self._thread.close()

    def __enter__(self) -> Self:
        if self._thread.ended is not None:
            self._thread.check_usable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _made_here(items: Iterable[Any]) -> Iterable[Any]:
    """A generator runs in the thread of who wrote it, not in the connection's."""
    return list(items) if isinstance(items, Iterator) else items


def _batches_made_here(batches: Batches) -> Batches:
    return [
        (topic, values if isinstance(values, BatchBuilder) else _made_here(values))
        for topic, values in batch_pairs(batches)
    ]
