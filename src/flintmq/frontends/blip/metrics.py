"""BlipMQ's own metrics, by the names of all its generations, beside ours on `/metrics`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ...engine.figures import Measured
from ..http.collectors import Collector, TableCollector, connections_of
from ..http.exposition import families

if TYPE_CHECKING:
    from .server import BlipServer


def _by_version(server: BlipServer) -> dict[str, int]:
    sessions = [connection.session for connection in server.connections]
    count = Counter(session.protocol[-1] for session in sessions if session is not None)
    return {version: count[version] for version in "012"}


def _topics(server: BlipServer) -> int:
    broker = server.broker
    names = broker.plain_topics() if isinstance(broker, Measured) else ()
    return len({name.partition("/")[0] for name in names})


def _subscribers(server: BlipServer) -> int:
    return len(server.polled) + len(server.pushed) + len(server.flat_feeds)


def _in_flight(server: BlipServer) -> int:
    leases = [one.leases for one in server.polled.all()] + [one.leases for one in server.pushed]
    return sum(len(one) for one in leases if one is not None)


def _live_dropped(server: BlipServer) -> int:
    return (
        server.counters.live_dropped
        + sum(one.feed.dropped for one in server.polled.all())
        + sum(one.live_dropped for one in server.pushed)
        + sum(feed.dropped for feed in server.flat_feeds)
        + sum(shared.dropped for shared in server.shared_feeds())
    )


# fmt: off
OURS = families(
    ("version",),
    ("flintmq_blip_connections", "BlipMQ clients by protocol version; 0 is the first.",
     _by_version),
) + families(
    ("code",),
    ("flintmq_blip_refusals_total", "NACKs sent to BlipMQ clients.",
     lambda server: dict(sorted(server.counters.refusals.items()))),
) + families(
    (),
    ("flintmq_blip_malformed_total", "BlipMQ connections closed because of what they sent.",
     "counters.malformed"),
    ("flintmq_blip_subscriptions_dropped_total",
     "Polled subscriptions deleted because they were not polled any more.",
     "counters.subscriptions_dropped"),
    ("flintmq_blip_publishes_dropped_total", "QoS 0 publishes that the broker rejected.",
     "counters.dropped"),
)
PLAIN = families(
    (),
    ("topics", "BlipMQ: topics.", _topics),
    ("subscribers", "BlipMQ: subscriptions.", _subscribers),
    ("messages_published_total", "BlipMQ: messages published by its clients.",
     "counters.published"),
    ("messages_delivered_total", "BlipMQ: messages sent to its clients.", "counters.delivered"),
    ("messages_inflight", "BlipMQ: messages sent and not acknowledged.", _in_flight),
    ("subscriber_expiration_heap_size", "BlipMQ: always 0; expiry needs no heap here.",
     lambda server: 0),
    ("subscriber_retry_heap_size", "BlipMQ: messages that may be sent again.", _in_flight),
    ("wal_appends_total", "BlipMQ: QoS 1 messages stored.", "counters.stored"),
    ("wal_bytes_total", "BlipMQ: bytes of QoS 1 messages stored.", "counters.stored_bytes"),
)
PREFIXED = tuple(replace(family, name=f"blipmq_{family.name}") for family in PLAIN)
# Those of the first generation are counters by what they count and gauges by their names.
PUSHED_AND_FIRST = families(
    (),
    ("blipmq_push_dropped_total", "BlipMQ: messages dropped by full live queues.", _live_dropped),
    ("blipmq_published", "BlipMQ 1: messages published.", "counters.published"),
    ("blipmq_enqueued", "BlipMQ 1: messages sent.", "counters.delivered"),
    ("blipmq_dropped_sub_queue_full", "BlipMQ 1: messages dropped by full live queues.",
     _live_dropped),
    ("blipmq_dropped_ttl",
     "BlipMQ 1: always 0 here; see flintmq_topic_dropped_messages_total for expired messages.",
     lambda server: 0),
    ("blipmq_flush_bytes", "BlipMQ 1: bytes sent to its clients.",
     lambda server: server.traffic()[1]),
    ("blipmq_flush_batches", "BlipMQ 1: writes to its clients.", "counters.writes"),
)
# fmt: on
_TABLES = (OURS, PLAIN, PREFIXED, PUSHED_AND_FIRST)
FAMILIES = OURS + PLAIN + PREFIXED + PUSHED_AND_FIRST


def collectors(server: BlipServer) -> list[Collector]:
    tables = [TableCollector(table, lambda: server) for table in _TABLES]
    return [connections_of("blip", server), *tables]
