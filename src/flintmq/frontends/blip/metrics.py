"""BlipMQ's own metrics, by the names of all its generations, beside ours on `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...engine.figures import Measured
from ..http.collectors import add_connections
from ..http.exposition import Family, Page, families, label

if TYPE_CHECKING:
    from .server import BlipServer


_CLIENTS = Family(
    "flintmq_blip_connections",
    "gauge",
    "BlipMQ clients by protocol version; 0 is the first.",
    ("version",),
)
_REFUSALS = Family(
    "flintmq_blip_refusals_total", "counter", "NACKs sent to BlipMQ clients.", ("code",)
)
# fmt: off
_OURS = families(
    (),
    ("malformed", "flintmq_blip_malformed_total",
     "BlipMQ connections closed because of what they sent."),
    ("subscriptions_dropped", "flintmq_blip_subscriptions_dropped_total",
     "Polled subscriptions deleted because they were not polled any more."),
    ("dropped", "flintmq_blip_publishes_dropped_total",
     "QoS 0 publishes that the broker rejected."),
)
_PLAIN = families(
    (),
    ("topics", "topics", "BlipMQ: topics."),
    ("subscribers", "subscribers", "BlipMQ: subscriptions."),
    ("published", "messages_published_total", "BlipMQ: messages published by its clients."),
    ("delivered", "messages_delivered_total", "BlipMQ: messages sent to its clients."),
    ("in_flight", "messages_inflight", "BlipMQ: messages sent and not acknowledged."),
    ("nothing", "subscriber_expiration_heap_size",
     "BlipMQ: always 0; expiry needs no heap here."),
    ("retrying", "subscriber_retry_heap_size", "BlipMQ: messages that may be sent again."),
    ("stored", "wal_appends_total", "BlipMQ: QoS 1 messages stored."),
    ("stored_bytes", "wal_bytes_total", "BlipMQ: bytes of QoS 1 messages stored."),
)
_PREFIXED = {
    name: Family(f"blipmq_{family.name}", family.kind, family.help)
    for name, family in _PLAIN.items()
}
_PUSHED = families(
    (),
    ("live_dropped", "blipmq_push_dropped_total",
     "BlipMQ: messages dropped by full live queues."),
)
# Those of the first generation are counters by what they count and gauges by their names.
_FIRST = families(
    (),
    ("published", "blipmq_published", "BlipMQ 1: messages published."),
    ("delivered", "blipmq_enqueued", "BlipMQ 1: messages sent."),
    ("live_dropped", "blipmq_dropped_sub_queue_full",
     "BlipMQ 1: messages dropped by full live queues."),
    ("nothing", "blipmq_dropped_ttl",
     "BlipMQ 1: always 0 here; see flintmq_topic_dropped_messages_total for expired messages."),
    ("sent_bytes", "blipmq_flush_bytes", "BlipMQ 1: bytes sent to its clients."),
    ("writes", "blipmq_flush_batches", "BlipMQ 1: writes to its clients."),
)
# fmt: on
_BY_NAME = (_PLAIN, _PREFIXED, _PUSHED, _FIRST)


class BlipCollector:
    families = (
        _CLIENTS,
        _REFUSALS,
        *_OURS.values(),
        *(family for table in _BY_NAME for family in table.values()),
    )

    def __init__(self, server: BlipServer) -> None:
        self._server = server

    def collect(self, page: Page) -> Iterator[None]:
        server, counters = self._server, self._server.counters
        add_connections(page, "blip", server)
        versions = {"0": 0, "1": 0, "2": 0}
        for connection in server.connections:
            version = connection.session.protocol[-1] if connection.session is not None else ""
            if version in versions:
                versions[version] += 1
        for version, count in versions.items():
            page.add(_CLIENTS, count, label("version", version))
        for code, count in sorted(counters.refusals.items()):
            page.add(_REFUSALS, count, label("code", str(code)))
        page.add_table(_OURS, counters)
        yield
        in_flight = sum(len(one.leases) for one in server.polled.all() if one.leases is not None)
        in_flight += sum(len(one.leases) for one in server.pushed if one.leases is not None)
        dropped = counters.live_dropped
        dropped += sum(one.feed.dropped for one in server.polled.all())
        dropped += sum(one.live_dropped for one in server.pushed)
        dropped += sum(feed.dropped for feed in server.flat_feeds)
        dropped += sum(shared.dropped for shared in server.shared_feeds())
        broker = server.broker
        topics = 0
        if isinstance(broker, Measured):
            topics = len({name.partition("/")[0] for name in broker.plain_topics()})
        subscribers = len(server.polled) + len(server.pushed) + len(server.flat_feeds)
        figures = {
            "topics": topics,
            "subscribers": subscribers,
            "published": counters.published,
            "delivered": counters.delivered,
            "in_flight": in_flight,
            "retrying": in_flight,
            "stored": counters.stored,
            "stored_bytes": counters.stored_bytes,
            "live_dropped": dropped,
            "sent_bytes": server.traffic()[1],
            "writes": counters.writes,
            "nothing": 0,
        }
        for table in _BY_NAME:
            page.add_table(table, figures)
        yield


FAMILIES = BlipCollector.families
