"""The verbs, blocking: made from those of the async client, which is the one implementation."""

from __future__ import annotations

import weakref
from functools import partial
from threading import current_thread
from typing import Any, Self

from ...api import connect
from ...clock import Clock
from ..client import Batches, Client, batch_pairs
from ..connection_state import OnDisconnect
from .consuming import BlockingFeed, BlockingReader
from .derived import blocking, blocking_over_lists, in_loop, like, made_here, opening, taking
from .loop_thread import LoopThread
from .publisher import BlockingPublisher
from .queue_verbs import BlockingQueueVerbs


class BlockingClient(BlockingQueueVerbs):
    """A connection to a broker for code without an event loop; `flintmq.connect_sync` makes it.

    Every call blocks the calling thread until it is done, even where that thread runs an event
    loop of its own; there, call it by `asyncio.to_thread` or use `flintmq.connect`.
    """

    def __init__(self, thread: LoopThread, client: Client) -> None:
        self.clock: Clock = client.clock
        self.url: str = client.url
        """What was connected to; where `connect_sync` was given none, what it chose."""
        self._thread = thread
        self._inner = client
        thread.farewell = client.close
        # A connection that nobody closed and nobody can reach any more ends its thread.
        weakref.finalize(self, thread.say_farewell).atexit = False

    # --- publishing

    publish = blocking(Client.publish)
    publish_batch = blocking_over_lists(Client.publish_batch)
    publish_many = blocking_over_lists(Client.publish_many)
    publisher = opening(Client.publisher, BlockingPublisher)

    @like(Client.stage)
    def stage(
        self, writer: str, number: int, part: str | int, batches: Batches, **named: Any
    ) -> None:
        rows = [(topic, made_here(values)) for topic, values in batch_pairs(batches)]
        self._thread.wait_for(self._inner.stage, writer, number, part, rows, **named)

    commit = blocking(Client.commit)
    abort = blocking(Client.abort)

    # --- values

    register_format = in_loop(Client.register_format)
    register_hook = in_loop(Client.register_hook)
    register_schema = in_loop(Client.register_schema)

    # --- consuming

    reader = opening(
        Client.reader,
        BlockingReader,
        "A filter that is a function runs in the connection's thread, and must not block.",
    )
    live = opening(Client.live, BlockingFeed)

    # --- topics

    create_topic = blocking(Client.create_topic)
    configure_topic = blocking(Client.configure_topic)
    delete_topic = blocking(Client.delete_topic)
    purge_topic = blocking(Client.purge_topic)
    topics = blocking(Client.topics)
    topic_info = blocking(Client.topic_info)
    topic_stats = blocking(Client.topic_stats)
    stats_of = blocking(Client.stats_of)

    # --- the connection

    @property
    def is_connected(self) -> bool:
        """Whether calls reach the broker right now."""
        return self._inner.is_connected

    def on_disconnect(self, callback: OnDisconnect) -> OnDisconnect:
        """Call a function, with the cause as a `Disconnected`, whenever the connection is lost.

        It runs in the connection's own thread: it must not block, nor use this connection.
        """
        return self._thread.run(self._inner.on_disconnect, callback)

    on_reconnect = in_loop(Client.on_reconnect)
    backup = blocking(Client.backup)

    def close(self) -> None:
        """Flush publishers, close readers, feeds and subscriptions, and let the broker go."""
        # Threads that read from subscriptions have time to finish, but for this one.
        self._thread.farewell = partial(self._inner._close_for, current_thread())
        self._thread.close()

    def __enter__(self) -> Self:
        if self._thread.ended is not None:
            self._thread.check_usable()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


@taking(connect)
def connect_sync(*arguments: Any, **named: Any) -> BlockingClient:
    """Connect to a broker without an event loop: `with flintmq.connect_sync() as mq`.

    Takes what `flintmq.connect` takes. The connection may be used from many threads, and has a
    background thread of its own until it is closed. It does not survive a fork: connect again in
    the child.
    """
    thread = LoopThread()
    try:
        client = thread.run(connect, *arguments, **named)
        thread.carries_context = client._tracing is not None
        thread.wait_for(client.__aenter__)
    except BaseException:
        thread.say_farewell()
        raise
    return BlockingClient(thread, client)
