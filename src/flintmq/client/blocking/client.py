"""The verbs, blocking: made from those of the async client, which is the one implementation."""

from __future__ import annotations

import weakref
from functools import partial
from threading import current_thread
from typing import Any, Self

from ...api import connect
from ...clock import Clock
from ...rows import Message, Rows, Run
from ..client import Client
from ..connection_state import OnDisconnect
from ..delivery import Deliveries
from ..staged_publishing import Batches, batch_pairs
from .consuming import BlockingFeed, BlockingReader, Views
from .delivery import BlockingDeliveries
from .derived import blocking, blocking_over_lists, in_loop, like, made_here, opening, taking
from .loop_thread import LoopThread
from .publisher import BlockingPublisher
from .subscription import BlockingSubscription
from .table import BlockingTable


class BlockingClient:
    """A connection to a broker for code without an event loop; `flintmq.connect_sync` returns it.

    Every call blocks the calling thread until it is done. In async code, use `flintmq.connect`, or
    call it through `asyncio.to_thread`.
    """

    def __init__(self, thread: LoopThread, client: Client) -> None:
        self.clock: Clock = client.clock
        self.url: str = client.url
        """What was connected to; where `connect_sync` was given none, what it chose."""
        self._thread = thread
        self._inner = client

        def reply(message: Message, value: Any, **said: Any) -> bool:
            return thread.wait_for(client.reply, message, value, **said)

        client._codec.replier = reply
        thread.farewell = client.close
        # A connection that nobody closed and nobody can reach any more ends its thread.
        weakref.finalize(self, thread.say_farewell).atexit = False

    # --- publishing

    publish = blocking(Client.publish)
    publish_batch = blocking_over_lists(Client.publish_batch)
    publish_many = blocking_over_lists(Client.publish_many)
    publisher = opening(Client.publisher, BlockingPublisher)

    @like(Client.request)
    def request(self, *arguments: Any, **named: Any) -> Message:
        async def ask() -> Message:
            reply = await self._inner.request(*arguments, **named)
            run = Run(reply._source, reply._row, reply._row + 1, reply._origin)
            return Views().of(Rows([run]))[0]

        return self._thread.wait_for(ask)

    reply = blocking(Client.reply)

    @like(Client.stage)
    def stage(
        self, writer: str, number: int, part: str | int, batches: Batches, **named: Any
    ) -> None:
        rows = [(topic, made_here(values)) for topic, values in batch_pairs(batches)]
        self._thread.wait_for(self._inner.stage, writer, number, part, rows, **named)

    outbox_stats = blocking(Client.outbox_stats)
    flush_outbox = blocking(Client.flush_outbox)
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
    table = opening(Client.table, BlockingTable)

    # --- queues

    subscribe = opening(Client.subscribe, BlockingSubscription)

    @like(
        Client.poll,
        'What a poll that is interrupted (Ctrl-C) had taken is given back; with `ack="auto"` the\n'
        "next poll of the group here returns it.",
    )
    def poll(self, topic: str, group: str, *arguments: Any, **named: Any) -> BlockingDeliveries:
        async def take() -> BlockingDeliveries:
            found = await self._inner.poll(topic, group, *arguments, **named)
            return BlockingDeliveries(self._thread, Views().of(found).runs)

        def put_back(taken: BlockingDeliveries) -> None:
            found = Deliveries(taken.runs)
            self._thread.send_off(lambda: self._inner._pollers.put_back(topic, group, found))

        return self._thread.wait_for_taken(take, put_back)

    @like(Client.peek)
    def peek(self, *arguments: Any, **named: Any) -> Rows:
        async def look() -> Rows:
            return Views().of(await self._inner.peek(*arguments, **named))

        return self._thread.wait_for(look)

    ack = blocking_over_lists(Client.ack)
    nack = blocking_over_lists(Client.nack)
    groups = blocking(Client.groups)
    group_stats = blocking(Client.group_stats)
    pause_group = blocking(Client.pause_group)
    resume_group = blocking(Client.resume_group)
    reset_group = blocking(Client.reset_group)
    delete_group = blocking(Client.delete_group)
    in_flight = blocking(Client.in_flight)
    dead_letters = blocking(Client.dead_letters)
    redrive = blocking_over_lists(Client.redrive)
    discard = blocking_over_lists(Client.discard)
    cancel = blocking(Client.cancel)

    # --- topics

    create_topic = blocking(Client.create_topic)
    configure_topic = blocking(Client.configure_topic)
    delete_topic = blocking(Client.delete_topic)
    purge_topic = blocking(Client.purge_topic)
    topics = blocking(Client.topics)
    topic_info = blocking(Client.topic_info)
    topic_stats = blocking(Client.topic_stats)
    stats_of = blocking(Client.stats_of)
    create_webhook = blocking(Client.create_webhook)
    webhooks = blocking(Client.webhooks)
    webhook = blocking(Client.webhook)
    pause_webhook = blocking(Client.pause_webhook)
    resume_webhook = blocking(Client.resume_webhook)
    test_webhook = blocking(Client.test_webhook)
    delete_webhook = blocking(Client.delete_webhook)
    create_schedule = blocking(Client.create_schedule)
    schedules = blocking(Client.schedules)
    schedule = blocking(Client.schedule)
    pause_schedule = blocking(Client.pause_schedule)
    resume_schedule = blocking(Client.resume_schedule)
    delete_schedule = blocking(Client.delete_schedule)
    run_schedule = blocking(Client.run_schedule)
    add_schema = blocking(Client.add_schema)
    schemas = blocking(Client.schemas)
    schema = blocking(Client.schema)
    check_schema = blocking(Client.check_schema)
    use_schemas = blocking(Client.use_schemas)
    delete_schema = blocking(Client.delete_schema)

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

    @property
    def not_settled(self) -> int:
        """How many messages could not be settled in the background."""
        return self._inner.not_settled

    on_not_settled = in_loop(Client.on_not_settled)
    backup = blocking(Client.backup)

    def close(self) -> None:
        """Flush publishers, close readers, feeds and subscriptions, and disconnect."""
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

    Takes the arguments of `flintmq.connect`. The connection can be used from many threads. It runs
    a background thread until it is closed. It does not survive a fork: connect again in the child.
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
