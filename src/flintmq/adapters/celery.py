"""Celery on FlintMQ: a transport of kombu, and a result backend.

import flintmq.adapters.celery  # makes flint:// and flints:// known

app = Celery("app", broker="flint://localhost:7600", backend="flint://localhost:7600")
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from queue import Empty
from threading import Event
from typing import Any
from uuid import uuid4

from ..api import connect
from ..client.blocking import BlockingDelivery
from ..errors import FlintError, MissingExtra, TopicNotFound
from ..patterns import escape_name
from .celery_bindings import Bindings
from .latest import LatestValues
from .shared import Inbox, Pull, SharedClient

try:
    from celery.backends.base import KeyValueStoreBackend
    from celery.exceptions import TimeoutError as CeleryTimeout
    from celery.states import READY_STATES
    from kombu.transport import TRANSPORT_ALIASES, virtual
    from kombu.utils.encoding import bytes_to_str, ensure_bytes
    from kombu.utils.json import dumps, loads
except ImportError as error:
    raise MissingExtra("flintmq.adapters.celery", "celery") from error

VISIBILITY_SECONDS = 3600.0
"""How long a task may be worked on while its worker is connected. Of a worker that is gone, tasks
are done by others after some seconds."""
AT_ONCE = 16
"""How many messages are taken in one go where the consumer sets no limit."""
GROUP = "celery"
CONNECTING = inspect.signature(connect).parameters.keys() - {"url", "clock"}
"""Transport options that are for the connection."""


class DeliveryQoS(virtual.QoS):
    """What was handed out and is not settled, by delivery tag. Any thread may settle it."""

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self.granted: dict[str, BlockingDelivery] = {}

    def can_consume(self) -> bool:
        return self.can_consume_max_estimate() > 0

    def can_consume_max_estimate(self) -> int:
        limit: int = self.prefetch_count
        return min(AT_ONCE, max(0, limit - len(self.granted))) if limit else AT_ONCE

    def append(self, message: Any, delivery_tag: str) -> None:
        pass  # it was noted when it was taken

    def get(self, delivery_tag: str) -> BlockingDelivery:
        return self.granted[delivery_tag]

    def ack(self, delivery_tag: str) -> None:
        if (delivery := self.granted.pop(delivery_tag, None)) is not None:
            delivery.ack_nowait()
            self.channel.connection.has_room.set()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if (delivery := self.granted.pop(delivery_tag, None)) is not None:
            if requeue:
                delivery.nack_nowait()
            else:
                delivery.reject("rejected by its consumer")
            self.channel.connection.has_room.set()

    def restore_unacked(self) -> list[Any]:
        """Others may have it at once. It is not counted as a delivery."""
        while self.granted:
            _, delivery = self.granted.popitem()
            self.channel.shared.give_back(delivery)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        self._on_collect.cancel()
        if self.channel.shared is not None and not self.channel.shared.is_closed:
            self.restore_unacked()


class FlintChannel(virtual.Channel):
    """Queues are topics with one group. Fanout exchanges are live feeds, as in Redis."""

    QoS = DeliveryQoS
    supports_fanout = True
    do_restore = False
    max_priority = 7

    visibility_timeout = VISIBILITY_SECONDS
    from_transport_options = (*virtual.Channel.from_transport_options, "visibility_timeout")

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.shared: SharedClient = connection.shared
        self.bindings: Bindings = connection.bindings
        self.fanout: dict[str, str] = {}
        """Queues that are bound to a fanout exchange: the topic of its feed."""
        self.inboxes: dict[str, Inbox] = {}
        """Of the queues that are consumed from."""
        self._temporary: set[str] = set()
        self._made: set[str] = set()

    # --- publishing

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        self._make(queue)
        properties, headers = message["properties"], message.get("headers") or {}
        said: dict[str, Any] = {"priority": self._get_message_priority(message)}
        if eta := headers.get("eta"):
            at = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
            said["at"] = at if at.tzinfo else at.replace(tzinfo=UTC)
        if expiration := properties.get("expiration"):
            said["ttl"] = int(expiration) / 1000
        shown = {name: str(headers[name]) for name in ("task", "id") if headers.get(name)}
        self.shared.mq.publish(escape_name(queue), dumps(message).encode(), headers=shown, **said)

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **_: Any
    ) -> None:
        self.shared.mq.publish(_feed_topic(exchange), dumps(message).encode(), qos=0)

    # --- consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        if queue in self.fanout:
            self.inboxes[queue] = self.shared.open_feed(self.fanout[queue])
        else:
            self._make(queue)
            self.inboxes[queue] = Inbox(escape_name(queue), GROUP)
        self.inboxes[queue].is_auto = no_ack or queue in self.fanout
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self.inboxes[queue].deliver = self.connection._callbacks[queue]

    def basic_cancel(self, consumer_tag: str) -> None:
        inbox = self.inboxes.pop(self._tag_to_queue.get(consumer_tag, ""), None)
        super().basic_cancel(consumer_tag)
        if inbox is not None and not self.shared.is_closed:
            self.shared.close_feed(inbox)

    def asked(self) -> list[Pull]:
        """What may be taken right now."""
        room = self.qos.can_consume_max_estimate()
        return [
            Pull(self, queue, inbox, AT_ONCE if inbox.is_auto else room, self.visibility_timeout)
            for queue, inbox in self.inboxes.items()
            if inbox.is_auto or room
        ]

    def took(self, message: Any, *, is_auto: bool) -> dict[str, Any]:
        """A message as kombu has it; noted until it is settled."""
        raw: dict[str, Any] = loads(message.unpacked())
        tag = raw["properties"]["delivery_tag"] = str(uuid4())
        if isinstance(message, BlockingDelivery):
            information = raw["properties"].setdefault("delivery_info", {})
            information["redelivered"] = message.delivery_count > 1
            if not is_auto:
                self.qos.granted[tag] = message
        return raw

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        self._make(queue)
        asked = Pull(self, queue, Inbox(escape_name(queue), GROUP), 1, self.visibility_timeout)
        for _, message in self.shared.take([asked], timeout or 0):
            return self.took(message, is_auto=False)
        raise Empty

    # --- queues and exchanges

    def _new_queue(self, queue: str, **declared: Any) -> None:
        if declared.get("auto_delete") or declared.get("exclusive"):
            self._temporary.add(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":
            self.fanout[queue] = _feed_topic(exchange)
        else:
            self._make(queue)
            self.bindings.add(exchange, (routing_key, pattern, queue))

    def _make(self, queue: str) -> None:
        if queue not in self._made:
            self.shared.make_queue(escape_name(queue), GROUP)
            self._made.add(queue)

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        """Queues that were bound here, and unless that settles it, by any process."""
        if not exchange:
            return [routing_key or default]
        kind = self.typeof(exchange)
        known = self.state.exchanges.get(exchange, {}).get("table", [])
        found = kind.lookup(known, exchange, routing_key, default)
        if kind.type == "direct" and found:
            return found
        return found | kind.lookup(self.bindings.table(exchange), exchange, routing_key, default)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self.fanout or bool(self.shared.mq.topics(escape_name(queue)))

    def _size(self, queue: str) -> int:
        if queue in self.fanout or not self._has_queue(queue):
            return 0
        self._make(queue)
        return self.shared.mq.group_stats(escape_name(queue), GROUP).lag

    def _purge(self, queue: str) -> int:
        count = self._size(queue)
        if count:
            self.shared.mq.purge_topic(escape_name(queue))
        return count

    def _delete(
        self, queue: str, exchange: str, routing_key: str, pattern: str, *_: Any, **__: Any
    ) -> None:
        self.bindings.remove(exchange, (routing_key, pattern, queue))
        self._drop(queue)

    def _drop(self, queue: str) -> None:
        self._made.discard(queue)
        self._temporary.discard(queue)
        with contextlib.suppress(TopicNotFound):
            self.shared.mq.delete_topic(escape_name(queue))

    def close(self) -> None:
        if not self.closed and not self.shared.is_closed:
            for queue in list(self._temporary & self._made):
                self.queue_delete(queue)
        super().close()


def _feed_topic(exchange: str) -> str:
    return f"{escape_name(exchange)}.fanout"


class FlintTransport(virtual.Transport):
    """All connections of a process to a broker are one."""

    Channel = FlintChannel
    can_parse_url = True
    default_port = 7600
    driver_type = driver_name = "flint"
    connection_errors = (*virtual.Transport.connection_errors, FlintError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, FlintError)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset({"direct", "topic", "fanout"})
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.has_room = Event()
        """Set whenever something was settled."""

    def driver_version(self) -> str:
        from .. import __version__

        return __version__

    def establish_connection(self) -> Any:
        options = self.client.transport_options
        self.shared = SharedClient.of(
            self.client.hostname, {name: options[name] for name in CONNECTING & options.keys()}
        )
        self.bindings = Bindings(self.shared)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        self.bindings.close()
        self.shared.leave()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand out what has come, or wait for it. Several queues are waited for at once."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 1.0 if deadline is None else min(1.0, max(0.0, deadline - time.monotonic()))
            self.has_room.clear()
            asked = [one for channel in self.channels for one in channel.asked()]
            found = self.shared.take(asked, left) if asked else []
            for one, message in found:
                if one.inbox is not one.channel.inboxes.get(one.queue):
                    self.shared.give_back(message)  # its consumer was cancelled meanwhile
                    continue
                one.inbox.deliver(one.channel.took(message, is_auto=one.inbox.is_auto))
            if found:
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError
            if not asked:
                self.has_room.wait(left)


Transport = FlintTransport
for _scheme in ("flint", "flints"):
    TRANSPORT_ALIASES.setdefault(_scheme, f"{__name__}:Transport")


class FlintBackend(KeyValueStoreBackend):
    """Results in a topic that keeps the newest value of each task for `result_expires`.

    A process that asks for a result follows that topic and keeps in memory what it holds.
    """

    supports_autoexpire = True
    supports_native_join = True
    persistent = True

    def __init__(self, url: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = url
        self._options = self.app.conf.get("result_backend_transport_options", {})
        self._shared: SharedClient | None = None
        self._latest: LatestValues | None = None

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    @property
    def _results(self) -> tuple[SharedClient, LatestValues]:
        if self._shared is None or self._shared.is_closed or self._latest is None:
            options = {name: self._options[name] for name in CONNECTING & self._options.keys()}
            self._shared = SharedClient.of(self.url, options)
            topic = self._options.get("topic", "celery-results")
            self._latest = LatestValues(self._shared.client, topic, ttl=self.expires or None)
        return self._shared, self._latest

    def get(self, key: Any) -> bytes | None:
        shared, latest = self._results
        return shared.run(latest.get, bytes_to_str(key))

    def mget(self, keys: Any) -> Iterator[bytes | None]:
        return (self.get(key) for key in keys)

    def set(self, key: Any, value: Any) -> None:
        shared, latest = self._results
        shared.run(latest.put, bytes_to_str(key), ensure_bytes(value))

    def delete(self, key: Any) -> None:
        shared, latest = self._results
        shared.run(latest.remove, bytes_to_str(key))

    def _store_result(
        self, task_id: Any, result: Any, state: str, traceback: Any = None, request: Any = None,
        **_: Any,
    ) -> Any:  # fmt: skip
        """Without a look at what is there: a worker would have to follow all results for that."""
        meta = self._get_result_meta(
            result=result, state=state, traceback=traceback, request=request
        )
        meta["task_id"] = bytes_to_str(task_id)
        self.set(self.get_key_for_task(task_id), self.encode(meta))
        return result

    def wait_for(
        self, task_id: Any, timeout: float | None = None, interval: float = 0.5,
        no_ack: bool = True, on_interval: Any = None,
    ) -> Any:  # fmt: skip
        """Woken as soon as a result comes."""
        self._ensure_not_eager()
        shared, latest = self._results
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = latest.version
            meta = self.get_task_meta(task_id)
            if meta["status"] in READY_STATES:
                return meta
            if on_interval:
                on_interval()
            left = interval
            if deadline is not None:
                left = min(interval, deadline - time.monotonic())
                if left <= 0:
                    raise CeleryTimeout("The operation timed out.")
            shared.run(latest.wait_newer, seen, left)
