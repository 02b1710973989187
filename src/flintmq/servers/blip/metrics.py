"""BlipMQ's own metrics, by the names of all its generations, beside ours on `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...engine.figures import Measured
from ..http.collectors import ConnectionCollector
from ..http.exposition import Family, Page, label

if TYPE_CHECKING:
    from .server import BlipServer


class BlipCollector:
    connections = Family(
        "flintmq_blip_connections", "gauge", "BlipMQ clients by protocol version; 0 is the first.",
        ("version",),
    )  # fmt: skip
    refusals = Family(
        "flintmq_blip_refusals_total", "counter", "NACKs sent to BlipMQ clients.", ("code",)
    )
    malformed = Family(
        "flintmq_blip_malformed_total",
        "counter",
        "BlipMQ connections closed because of what they sent.",
    )
    dropped = Family(
        "flintmq_blip_subscriptions_dropped_total", "counter",
        "Polled subscriptions deleted because they were not polled any more.",
    )  # fmt: skip
    not_taken = Family(
        "flintmq_blip_publishes_dropped_total", "counter",
        "QoS 0 publishes that the broker rejected.",
    )  # fmt: skip

    topics = Family("topics", "gauge", "BlipMQ: topics.")
    subscribers = Family("subscribers", "gauge", "BlipMQ: subscriptions.")
    published = Family(
        "messages_published_total", "counter", "BlipMQ: messages published by its clients."
    )
    delivered = Family(
        "messages_delivered_total", "counter", "BlipMQ: messages sent to its clients."
    )
    in_flight = Family("messages_inflight", "gauge", "BlipMQ: messages sent and not acknowledged.")
    expiring = Family(
        "subscriber_expiration_heap_size", "gauge", "BlipMQ: always 0; expiry needs no heap here."
    )
    retrying = Family(
        "subscriber_retry_heap_size", "gauge", "BlipMQ: messages that may be sent again."
    )
    appends = Family("wal_appends_total", "counter", "BlipMQ: QoS 1 messages stored.")
    stored_bytes = Family("wal_bytes_total", "counter", "BlipMQ: bytes of QoS 1 messages stored.")
    push_dropped = Family(
        "blipmq_push_dropped_total", "counter", "BlipMQ: messages dropped by full live queues."
    )
    _plain = (
        topics, subscribers, published, delivered, in_flight, expiring, retrying, appends,
        stored_bytes,
    )  # fmt: skip
    _prefixed = tuple(
        Family(f"blipmq_{family.name}", family.kind, family.help) for family in _plain
    )
    # The first generation's, which are counters by what they count and gauges by their names.
    first_published = Family("blipmq_published", "gauge", "BlipMQ 1: messages published.")
    first_enqueued = Family("blipmq_enqueued", "gauge", "BlipMQ 1: messages sent.")
    first_full = Family(
        "blipmq_dropped_sub_queue_full", "gauge", "BlipMQ 1: messages dropped by full live queues."
    )
    first_ttl = Family(
        "blipmq_dropped_ttl", "gauge",
        "BlipMQ 1: always 0 here; see flintmq_topic_dropped_messages_total for expired "
        "messages.",
    )  # fmt: skip
    first_bytes = Family("blipmq_flush_bytes", "gauge", "BlipMQ 1: bytes sent to its clients.")
    first_batches = Family("blipmq_flush_batches", "gauge", "BlipMQ 1: writes to its clients.")
    families = (
        connections, refusals, malformed, dropped, not_taken, *_plain, *_prefixed, push_dropped,
        first_published, first_enqueued, first_full, first_ttl, first_bytes, first_batches,
    )  # fmt: skip

    def __init__(self, server: BlipServer) -> None:
        self._server = server

    def collect(self, page: Page) -> Iterator[None]:
        server, counters = self._server, self._server.counters
        received, sent = server.traffic()
        ours = 'protocol="blip"'
        page.add(ConnectionCollector.connections, len(server.connections), ours)
        page.add(ConnectionCollector.accepted, server.accepted, ours)
        page.add(ConnectionCollector.refused, server.refused, ours)
        page.add(ConnectionCollector.received, received, ours)
        page.add(ConnectionCollector.sent, sent, ours)
        versions = {"0": 0, "1": 0, "2": 0}
        for connection in server.connections:
            version = connection.session.protocol[-1] if connection.session is not None else ""
            if version in versions:
                versions[version] += 1
        for version, count in versions.items():
            page.add(self.connections, count, label("version", version))
        for code, count in sorted(counters.refusals.items()):
            page.add(self.refusals, count, label("code", str(code)))
        page.add(self.malformed, counters.malformed)
        page.add(self.dropped, counters.subscriptions_dropped)
        page.add(self.not_taken, counters.dropped)
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
        values = (
            topics, subscribers, counters.published, counters.delivered, in_flight, 0, in_flight,
            counters.stored, counters.stored_bytes,
        )  # fmt: skip
        for plain, prefixed, value in zip(self._plain, self._prefixed, values, strict=True):
            page.add(plain, value)
            page.add(prefixed, value)
        page.add(self.push_dropped, dropped)
        page.add(self.first_published, counters.published)
        page.add(self.first_enqueued, counters.delivered)
        page.add(self.first_full, dropped)
        page.add(self.first_ttl, 0)
        page.add(self.first_bytes, sent)
        page.add(self.first_batches, counters.writes)
        yield


FAMILIES = BlipCollector.families
