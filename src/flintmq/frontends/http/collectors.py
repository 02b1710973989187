"""Where the figures of `/metrics` come from: tables of metrics, and what each is read from.

A row of a table is the name, the help and the value: an attribute of the subject, or a function of
it. Topics are gone through in small steps, beside the messages. Front ends add tables of their own.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...cluster_model import ClusterFigures
from ...compiled import BUILD
from ...engine.figures import GroupFigures, JournalFigures, Measured, TopicFigures
from ...net.server.gate import REASONS, ApiKeyGate
from ...net.server.listener import Listener
from .cluster_metrics import CLUSTER
from .exposition import Page, Table, families, label
from .state import HttpState
from .webhook_metrics import WEBHOOKS

if TYPE_CHECKING:
    from ...loop.turns import Turns
    from .server import HttpServer

OTHERS = "*"
"""The topic and the group that stand for all that have no series of their own. No name may hold
this character."""
STEP_FIGURES = 16
"""Topics and groups that are read in one step."""


class Collector(Protocol):
    @property
    def families(self) -> Table: ...

    def collect(self, page: Page) -> Iterator[None]:
        """Add samples of the own families. Yields where it may be interrupted."""
        ...


class TableCollector:
    """A sample of each metric of a table, read from one subject; none while that is None."""

    def __init__(self, families: Table, subject: Callable[[], object], labels: str = "") -> None:
        self.families = families
        self._subject, self._labels = subject, labels

    def collect(self, page: Page) -> Iterator[None]:
        subject = self._subject()
        if subject is not None:
            page.add_table(self.families, subject, self._labels)
        yield


# --- the process

# fmt: off
PROCESS = families(
    ("version", "python", "build"),
    ("flintmq_build_info", "Always 1; the labels describe the build.",
     lambda state: {(state.version, platform.python_version(), BUILD): 1}),
) + families(
    (),
    ("flintmq_start_time_seconds", "Start time of the broker, in seconds since 1970.",
     lambda state: round(state.started_at, 3)),
    ("flintmq_uptime_seconds", "Time since the broker started.", HttpState.uptime),
    ("flintmq_ready", "1 if /ready succeeds, else 0.", HttpState.is_ready),
    ("flintmq_disk_failed", "1 after the disk has failed: the broker stops; check the disk.",
     lambda state: state.failure() is not None),
    ("flintmq_process_resident_memory_bytes", "Resident memory of the process.",
     lambda state: resident_bytes()),
    ("flintmq_process_open_fds", "Open file descriptors.", lambda state: open_files()),
    ("flintmq_process_max_fds", "Maximum number of open file descriptors.",
     lambda state: files_max()),
    ("flintmq_process_cpu_seconds_total", "CPU time of the process, all threads.",
     lambda state: time.process_time()),
)
# fmt: on


def resident_bytes() -> int | None:
    """None where the system does not say; so for what follows."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def open_files() -> int | None:
    try:
        # Newer kernels say how many there are; a listing of thousands would take its time.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def files_max() -> float | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else float(soft)


# --- connections


class ConnectionCounts(NamedTuple):
    """Of one protocol."""

    connections: int
    accepted: int
    refused: int
    received: int | None = None
    sent: int | None = None


# fmt: off
CONNECTIONS = families(
    ("protocol",),
    ("flintmq_connections", "Open connections.", "connections"),
    ("flintmq_connections_accepted_total", "Accepted connections.", "accepted"),
    ("flintmq_connections_refused_total", "Connections rejected, or closed to make room.",
     "refused"),
    ("flintmq_received_bytes_total", "Bytes received from clients.", "received"),
    ("flintmq_sent_bytes_total", "Bytes sent to clients.", "sent"),
)
NATIVE = families(
    (),
    ("flintmq_sessions", "Sessions: connected, or waiting for their client to reconnect.",
     lambda native: len(native.sessions)),
    ("flintmq_tls_certificate_expiry_timestamp_seconds",
     "Expiry time of the current TLS certificate, in seconds since 1970.",
     lambda native: None if native.tls is None else native.tls.certificate_expires_at),
    ("flintmq_tls_handshakes_failed_total", "Failed TLS handshakes.",
     lambda native: None if native.tls is None else native.handshakes_failed),
)
LOGINS = families(
    (),
    ("flintmq_logins_total", "Successful logins with a key.", "counters.ok"),
) + families(
    ("reason",),
    ("flintmq_failed_logins_total",
     "Failed logins, by reason: missing, malformed, unknown, wrong, expired.",
     # All from the start: else the first of a reason would be no increase.
     lambda gate: {reason: gate.counters.failed[reason] for reason in REASONS}),
)
# fmt: on


def connections_of(protocol: str, server: Listener[Any]) -> TableCollector:
    def counts() -> ConnectionCounts:
        return ConnectionCounts(
            len(server.connections), server.accepted, server.refused, *server.traffic()
        )

    return TableCollector(CONNECTIONS, counts, label("protocol", protocol))


# --- the event loop

# fmt: off
LOOP = families(
    (),
    ("flintmq_loop_turn_seconds", "Duration of event loop turns.", "seconds", "histogram"),
    ("flintmq_loop_turn_cpu_seconds",
     "Duration of event loop turns, without waiting for the disk or other processes.",
     "cpu_seconds", "histogram"),
    ("flintmq_loop_longest_turn_seconds", "Longest event loop turn since the start.",
     "longest.seconds"),
) + families(
    ("what",),
    ("flintmq_loop_overruns_total",
     "Event loop turns longer than 20 ms, by the function that caused them.",
     lambda turns: dict(sorted(turns.overruns.items()))),
)

# --- HTTP

HTTP = families(
    ("page", "code"),
    ("flintmq_http_requests_total",
     "HTTP requests answered; code 0 means the client disconnected first.",
     lambda server: dict(sorted(server.pages.answers.items()))),
) + families(
    (),
    ("flintmq_http_too_slow_total", "HTTP connections closed because no request arrived.",
     "too_slow"),
)
BUDGET = families(
    (),
    ("flintmq_http_cpu_seconds_total", "Event loop time spent on HTTP.", "budget.spent_seconds"),
    ("flintmq_http_cpu_share_max", "Maximum share of event loop time for HTTP.", "budget.share"),
    ("flintmq_http_held_total", "How often HTTP had to wait for its share of event loop time.",
     "held"),
    ("flintmq_http_held_seconds_total",
     "How long HTTP work has waited for its share of event loop time.", "held_seconds"),
)

# --- the disk

JOURNAL = families(
    (),
    ("flintmq_journal_sync_seconds", "Duration of disk syncs.", "sync_seconds", "histogram"),
    ("flintmq_journal_loop_syncs_total", "Disk syncs of single messages, made on the event loop.",
     "loop_syncs"),
    ("flintmq_journal_stalled_syncs_total",
     "Disk syncs that took longer than slow_disk_seconds.",
     "stalled_syncs"),
    ("flintmq_journal_written_bytes_total", "Bytes written to the journal.", "written_bytes"),
    ("flintmq_journal_writes_total", "Writes to the journal; each contains many publishes.",
     "frames"),
    ("flintmq_journal_waiting_bytes", "Bytes waiting to be synced to disk.", "waiting_bytes"),
    ("flintmq_journal_unflushed_bytes", "Bytes that the next checkpoint has to write.",
     "unflushed_bytes"),
    ("flintmq_checkpoint_seconds", "Duration of checkpoints.", "checkpoint_seconds", "histogram"),
    ("flintmq_checkpoint_failures_total", "Checkpoints that failed because the disk was full.",
     "checkpoint_failures"),
    ("flintmq_disk_full", "1 while the disk is full and publishes are rejected.", "is_full"),
    ("flintmq_damaged_messages",
     "Messages known to be damaged on disk. Reading them fails with an error.", "damaged_messages"),
    ("flintmq_scrub_read_bytes_total", "Bytes of sealed segments checked for damage.",
     "scrub_bytes"),
    ("flintmq_tier_uploaded_bytes_total", "Bytes of segments copied to object storage.",
     "tier_bytes"),
    ("flintmq_tier_failures_total", "Uploads to object storage that failed and are repeated.",
     "tier_failures"),
    ("flintmq_scrub_passes_total", "How often all sealed segments were checked for damage.",
     "scrub_passes"),
)

# --- topics and groups

TOPIC = families(
    ("topic",),
    ("flintmq_topic_published_messages_total", "Messages published.", "published"),
    ("flintmq_topic_published_bytes_total", "Bytes of messages published.", "published_bytes"),
    ("flintmq_topic_delivered_messages_total",
     "Messages delivered to readers, groups and live subscriptions, counted once for each.",
     "delivered"),
    ("flintmq_topic_messages", "Messages stored in the topic.", "messages"),
    ("flintmq_topic_size_bytes", "Bytes of messages stored in the topic.", "bytes"),
    ("flintmq_topic_first_offset", "Oldest stored offset; summed over partitions.", "first_offset"),
    ("flintmq_topic_next_offset", "Offset of the next message; summed over partitions.",
     "next_offset"),
    ("flintmq_topic_readers", "Open readers.", "readers"),
    ("flintmq_topic_publishers_waiting", "Publishes waiting for space right now.",
     "publishers_waiting"),
    ("flintmq_topic_damaged_messages",
     "Messages known to be damaged on disk; only for topics that have some.",
     lambda figures: figures.damaged or None),
    ("flintmq_topic_publish_seconds",
     "Time from receiving a batch to its acknowledgement, for durable topics.",
     "publish_seconds", "histogram"),
) + families(
    ("topic", "reason"),
    ("flintmq_topic_dropped_messages_total",
     "Messages removed from the topic, by reason: count, bytes, age, expired, overflow, read, "
     "feed, damaged.",
     lambda figures: counted(figures.drops)),
) + families(
    ("topic", "by"),
    ("flintmq_topic_publishes_held_total",
     "Publishes that had to wait, by cause: topic, feed, disk.",
     lambda figures: counted(figures.waits)),
)
CURSOR = families(
    ("topic", "group"),
    ("flintmq_group_lag_messages", "Lag: messages not settled yet.", "lag"),
    ("flintmq_group_members", "Members of the group, or readers with that name.", "members"),
) + families(
    ("topic", "group", "reason"),
    ("flintmq_group_dropped_messages_total",
     "Messages never delivered, by reason: expired, filtered, retention, cancelled, reset, "
     "damaged.",
     lambda figures: counted(figures.drops)),
)
QUEUE = CURSOR + families(
    ("topic", "group"),
    ("flintmq_group_pending_messages", "Messages ready to be delivered.", "ready"),
    ("flintmq_group_in_flight_messages", "Messages leased to consumers.", "in_flight"),
    ("flintmq_group_in_doubt_messages",
     "Messages in work when this node began to lead, or was started: their consumers may come back "
     "for grace_seconds.", "in_doubt"),
    ("flintmq_group_delayed_messages", "Messages waiting for their delivery time.", "delayed"),
    ("flintmq_group_oldest_age_seconds", "Age of the oldest unsettled message; 0 if there is none.",
     "oldest_age"),
    ("flintmq_group_waiting_members", "Members waiting for messages.", "waiting"),
    ("flintmq_group_paused", "1 if the group is paused.", "paused"),
    ("flintmq_group_delivered_messages_total", "Messages delivered to members.", "delivered"),
    ("flintmq_group_redelivered_messages_total", "Messages delivered again.", "redelivered"),
    ("flintmq_group_acked_messages_total", "Messages acknowledged by members.", "acked"),
    ("flintmq_group_nacked_messages_total", "Messages returned by members (nack).", "nacked"),
    ("flintmq_group_reclaimed_messages_total",
     "Messages settled by consumers that got them before this node began to lead, or was started.",
     "reclaimed"),
    ("flintmq_group_expired_leases_total", "Expired leases.", "leases_expired"),
    ("flintmq_group_dead_letters_total", "Messages that became dead letters.", "dead_lettered"),
)
ALL_TOPICS = families(
    (),
    ("flintmq_topics", "Topics; one with partitions counts once.", "topics"),
    ("flintmq_feeds", "Open live subscriptions.", "feeds"),
    ("flintmq_metrics_series", "Samples on this page.", "series"),
    ("flintmq_metrics_topics_left_out",
     'Topics beyond metrics_max_series, summed up as topic="*".', "topics_left_out"),
    ("flintmq_metrics_groups_left_out",
     'Groups beyond metrics_max_series, summed up as topic="*", group="*".', "groups_left_out"),
)
# fmt: on
SEVERAL_TOPICS = tuple(family for family in TOPIC if not family.name.endswith("_offset"))
"""A sum of offsets of several topics says nothing."""
_STORED = ("topic_messages", "topic_size_bytes", "topic_first_offset", "topic_next_offset")
FOLLOWED = tuple(one for one in TOPIC if one.name.removeprefix("flintmq_") in _STORED)
FOLLOWED_GROUP = tuple(one for one in CURSOR if one.name == "flintmq_group_lag_messages")
"""What a node knows of topics that another one leads."""


def counted(counts: Mapping[str, int]) -> Mapping[str, int]:
    return {name: count for name, count in counts.items() if count} if counts else counts


class TopicTotals(NamedTuple):
    topics: int
    feeds: int
    series: int
    topics_left_out: int
    groups_left_out: int


class TopicCollector:
    """Topics and groups, as far as there may be series; the rest as one."""

    families = ALL_TOPICS + TOPIC + QUEUE

    def __init__(self, state: HttpState, series_max: int) -> None:
        self._state = state
        self.series_max = series_max

    def collect(self, page: Page) -> Iterator[None]:
        broker = self._state.broker
        if not isinstance(broker, Measured):
            return
        rest = TopicFigures(OTHERS)
        rest_groups = GroupFigures(OTHERS, "queue")
        topics = topics_left_out = groups_left_out = read = 0
        are_led = True
        for base, is_partitioned, figures in topic_figures(broker):
            if is_partitioned:
                figures = yield from whole_topic(broker, base, figures)
            topics += 1
            text = ""
            if page.series < self.series_max:
                text = label("topic", base)
                page.add_table(TOPIC if figures.is_led else FOLLOWED, figures, text)
            else:
                topics_left_out += 1
                readers = rest.readers + figures.readers
                rest.add(figures)
                rest.readers = readers
            for group in figures.groups:
                if page.series < self.series_max:
                    _add_group(page, group, text, is_led=figures.is_led)
                else:
                    groups_left_out += 1
                    rest_groups.add(group)
                    are_led = are_led and figures.is_led
            read += 1 + len(figures.groups)
            if read >= STEP_FIGURES:
                read = 0
                yield
        others = label("topic", OTHERS)
        if topics_left_out:
            several = SEVERAL_TOPICS if rest.is_led else FOLLOWED[:2]
            page.add_table(several, rest, others)
        if groups_left_out:
            _add_group(page, rest_groups, others, is_led=are_led)
        series = page.series + len(ALL_TOPICS)
        totals = TopicTotals(topics, broker.feed_count(), series, topics_left_out, groups_left_out)
        page.add_table(ALL_TOPICS, totals)


def _add_group(page: Page, group: GroupFigures, topic: str, *, is_led: bool) -> None:
    table = FOLLOWED_GROUP if not is_led else QUEUE if group.kind == "queue" else CURSOR
    page.add_table(table, group, f"{topic},{label('group', group.name)}")


def topic_figures(broker: Measured) -> Iterator[tuple[str, bool, TopicFigures]]:
    """Each topic: its name, whether it has partitions, and figures: then those of the first."""
    for name in broker.plain_topics():
        base, slash, partition = name.partition("/")
        if not slash or partition == "0":
            figures = broker.topic_figures(name)
            if figures is not None:  # None: deleted since
                yield base, bool(slash), figures


def whole_topic(
    broker: Measured, base: str, figures: TopicFigures | None
) -> Generator[None, None, TopicFigures]:
    """The partitions of a topic summed up, from the first on."""
    whole = TopicFigures(base)
    groups: dict[str, GroupFigures] = {}
    number = 0
    while figures is not None:
        whole.add(figures)
        for group in figures.groups:
            groups.setdefault(group.name, GroupFigures(group.name, group.kind)).add(group)
        yield
        number += 1
        figures = broker.topic_figures(f"{base}/{number}")
    whole.groups = list(groups.values())
    return whole


GROUPS: dict[str, Table] = {
    "The process": PROCESS,
    "Connections": CONNECTIONS + NATIVE + LOGINS,
    "The disk": JOURNAL,
    "The event loop": LOOP,
    "Topics and groups": TopicCollector.families,
    "Webhooks": WEBHOOKS,
    "The cluster, at each node": CLUSTER,
    "HTTP itself": HTTP + BUDGET,
}
"""For the docs."""


def collectors_of(server: HttpServer, topics: TopicCollector) -> list[Collector]:
    """What every broker shows."""
    state = server.state

    def gate() -> ApiKeyGate | None:
        return None if state.gate.ring is None else state.gate

    def turns() -> Turns | None:
        return state.turns if state.turns is not None and state.turns.is_measuring else None

    def http() -> ConnectionCounts:
        return ConnectionCounts(server.connections, server.accepted, server.evicted)

    def journal() -> JournalFigures | None:
        return state.broker.journal_figures() if isinstance(state.broker, Measured) else None

    def cluster() -> ClusterFigures | None:
        return None if state.cluster is None else state.cluster.figures()

    found: list[Collector] = [TableCollector(PROCESS, lambda: state)]
    if state.native is not None:
        found.append(connections_of("native", state.native))
    return [
        *found,
        TableCollector(CONNECTIONS, http, label("protocol", "http")),
        TableCollector(NATIVE, lambda: state.native),
        TableCollector(LOGINS, gate),
        TableCollector(HTTP, lambda: server),
        TableCollector(BUDGET, lambda: server.pages.turnstile),
        TableCollector(JOURNAL, journal),
        TableCollector(WEBHOOKS, state.webhooks),
        TableCollector(CLUSTER, cluster),
        TableCollector(LOOP, turns),
        topics,
    ]
