"""Where the figures of `/metrics` come from. Each collector owns some families.

Families whose samples are read from one place are a table: the attribute, the name, what it is. A
collector goes through what it counts and yields between any two topics, so that the page is made
in small steps beside the messages. Front ends that have names of their own add collectors.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ...engine.figures import GroupFigures, Measured, TopicFigures
from ...net.server.key_gate import REASONS, ApiKeyGate
from ...net.server.listener import Listener
from .exposition import Family, Page, families, label
from .pages import Pages
from .state import HttpState
from .turnstile import Turnstile

OTHERS = "*"
"""The topic and the group that stand for all that have no series of their own. No name may hold
this character."""


class Collector(Protocol):
    @property
    def families(self) -> Sequence[Family]: ...

    def collect(self, page: Page) -> Iterator[None]:
        """Add samples of the own families. Yields where it may be interrupted."""
        ...


# --- the process

_BUILD = Family(
    "flintmq_build_info", "gauge", "Always 1; the labels describe the build.", ("version", "python")
)
# fmt: off
_PROCESS = families(
    (),
    ("start", "flintmq_start_time_seconds", "Start time of the broker, in seconds since 1970."),
    ("uptime", "flintmq_uptime_seconds", "Time since the broker started."),
    ("ready", "flintmq_ready", "1 if /ready succeeds, else 0."),
    ("failed", "flintmq_disk_failed",
     "1 after the disk has failed: the broker stops; check the disk."),
    ("memory", "flintmq_process_resident_memory_bytes", "Resident memory of the process."),
    ("files", "flintmq_process_open_fds", "Open file descriptors."),
    ("files_max", "flintmq_process_max_fds", "Maximum number of open file descriptors."),
    ("cpu", "flintmq_process_cpu_seconds_total", "CPU time of the process, all threads."),
)
# fmt: on


class ProcessCollector:
    """The process: what it is, since when, and what it takes of the machine."""

    families = (_BUILD, *_PROCESS.values())

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        state = self._state
        versions = f"{label('version', state.version)},{label('python', platform.python_version())}"
        page.add(_BUILD, 1, versions)
        memory, files, files_max = process_figures()
        figures = {
            "start": round(state.started_at, 3),
            "uptime": state.uptime(),
            "ready": state.is_ready(),
            "failed": state.failure() is not None,
            "memory": memory,
            "files": files,
            "files_max": files_max,
            "cpu": time.process_time(),
        }
        page.add_table(_PROCESS, figures)
        yield


def process_figures() -> tuple[int | None, int | None, float | None]:
    """Resident bytes, open files and how many there may be; None where the system does not say."""
    memory = files = files_max = None
    try:
        with open("/proc/self/statm", "rb") as file:
            memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        # Newer kernels say how many there are; a listing of thousands would take its time.
        files = os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files_max = float("inf") if soft == resource.RLIM_INFINITY else float(soft)
    except (OSError, ImportError):
        pass  # another system; what it does not say is left out
    return memory, files, files_max


# --- connections

# fmt: off
_BY_PROTOCOL = families(
    ("protocol",),
    ("connections", "flintmq_connections", "Open connections."),
    ("accepted", "flintmq_connections_accepted_total", "Accepted connections."),
    ("refused", "flintmq_connections_refused_total",
     "Connections rejected, or closed to make room."),
    ("received", "flintmq_received_bytes_total", "Bytes received from clients."),
    ("sent", "flintmq_sent_bytes_total", "Bytes sent to clients."),
)
_CLIENTS = families(
    (),
    ("sessions", "flintmq_sessions",
     "Sessions: connected, or waiting for their client to reconnect."),
    ("logins", "flintmq_logins_total", "Successful logins with a key."),
)
_TLS = families(
    (),
    ("certificate", "flintmq_tls_certificate_expiry_timestamp_seconds",
     "Expiry time of the current TLS certificate, in seconds since 1970."),
    ("handshakes", "flintmq_tls_handshakes_failed_total", "Failed TLS handshakes."),
)
# fmt: on
_FAILED_LOGINS = Family(
    "flintmq_failed_logins_total",
    "counter",
    "Failed logins, by reason: missing, malformed, unknown, wrong, expired.",
    ("reason",),
)


def add_connections(page: Page, protocol: str, server: Listener[Any]) -> None:
    received, sent = server.traffic()
    figures = {
        "connections": len(server.connections),
        "accepted": server.accepted,
        "refused": server.refused,
        "received": received,
        "sent": sent,
    }
    page.add_table(_BY_PROTOCOL, figures, label("protocol", protocol))


class ConnectionCollector:
    """Who is connected, by protocol, and who was let in."""

    families = (
        *_BY_PROTOCOL.values(),
        *_CLIENTS.values(),
        _FAILED_LOGINS,
        *_TLS.values(),
    )

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        native, gate = self._state.native, self._state.gate
        if native is not None:
            add_connections(page, "native", native)
            page.add(_CLIENTS["sessions"], len(native.sessions))
            if native.tls is not None:
                page.add(_TLS["certificate"], native.tls.certificate_expires_at)
                page.add(_TLS["handshakes"], native.handshakes_failed)
        if isinstance(gate, ApiKeyGate):
            page.add(_CLIENTS["logins"], gate.counters.ok)
            for reason in REASONS:  # all from the start: else a first one would be no increase
                count = gate.counters.failed[reason]
                page.add(_FAILED_LOGINS, count, label("reason", reason))
        yield


# --- the event loop

# fmt: off
_LOOP = families(
    (),
    ("seconds", "flintmq_loop_turn_seconds", "Duration of event loop turns.", "histogram"),
    ("cpu_seconds", "flintmq_loop_turn_cpu_seconds",
     "Duration of event loop turns, without waiting for the disk or other processes.", "histogram"),
    ("longest", "flintmq_loop_longest_turn_seconds",
     "Longest event loop turn since the start."),
)
# fmt: on
_OVERRUNS = Family(
    "flintmq_loop_overruns_total",
    "counter",
    "Event loop turns longer than 20 ms, by the function that caused them.",
    ("what",),
)


class LoopCollector:
    """The turns of the event loop: while one goes on, everybody waits."""

    families = (*_LOOP.values(), _OVERRUNS)

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        turns = self._state.turns
        if turns is not None and turns.is_measuring:
            page.add_histogram(_LOOP["seconds"], turns.seconds)
            page.add_histogram(_LOOP["cpu_seconds"], turns.cpu_seconds)
            page.add(_LOOP["longest"], turns.longest.seconds)
            for what, count in sorted(turns.overruns.items()):
                page.add(_OVERRUNS, count, label("what", what))
        yield


# --- HTTP

_REQUESTS = Family(
    "flintmq_http_requests_total",
    "counter",
    "HTTP requests answered; code 0 means the client disconnected first.",
    ("page", "code"),
)
# fmt: off
_HTTP = families(
    (),
    ("cpu", "flintmq_http_cpu_seconds_total", "Event loop time spent on HTTP."),
    ("share", "flintmq_http_cpu_share_max", "Maximum share of event loop time for HTTP."),
    ("held", "flintmq_http_held_total",
     "How often HTTP had to wait for its share of event loop time."),
    ("held_seconds", "flintmq_http_held_seconds_total",
     "How long HTTP work has waited for its share of event loop time."),
    ("too_slow", "flintmq_http_too_slow_total",
     "HTTP connections closed because no request arrived."),
)
# fmt: on


class HttpCollector:
    """What HTTP itself costs, and whom it has kept waiting."""

    families = (_REQUESTS, *_HTTP.values())

    def __init__(self, server: HttpFigures) -> None:
        self._server = server

    def collect(self, page: Page) -> Iterator[None]:
        server = self._server
        for (name, code), count in sorted(server.pages.answers.items()):
            page.add(_REQUESTS, count, f'page="{name}",code="{code}"')
        figures: dict[str, float] = {"too_slow": server.too_slow}
        turnstile = server.pages.turnstile
        if turnstile is not None:
            figures["cpu"] = turnstile.budget.spent_seconds
            figures["share"] = turnstile.budget.share
            figures["held"] = turnstile.held
            figures["held_seconds"] = turnstile.held_seconds
        page.add_table(_HTTP, figures)
        figures = {
            "connections": server.connections,
            "accepted": server.accepted,
            "refused": server.evicted,
        }
        page.add_table(_BY_PROTOCOL, figures, label("protocol", "http"))
        yield


class HttpFigures(Protocol):
    """What is asked of the HTTP server."""

    pages: Pages
    turnstile: Turnstile
    accepted: int
    evicted: int
    too_slow: int

    @property
    def connections(self) -> int: ...


# --- the disk

# fmt: off
_JOURNAL = families(
    (),
    ("sync_seconds", "flintmq_journal_sync_seconds",
     "Duration of disk syncs.", "histogram"),
    ("written_bytes", "flintmq_journal_written_bytes_total", "Bytes written to the journal."),
    ("frames", "flintmq_journal_writes_total",
     "Writes to the journal; each contains many publishes."),
    ("waiting_bytes", "flintmq_journal_waiting_bytes",
     "Bytes waiting to be synced to disk."),
    ("unflushed_bytes", "flintmq_journal_unflushed_bytes",
     "Bytes that the next checkpoint has to write."),
    ("checkpoint_seconds", "flintmq_checkpoint_seconds", "Duration of checkpoints.", "histogram"),
    ("checkpoint_failures", "flintmq_checkpoint_failures_total",
     "Checkpoints that failed because the disk was full."),
    ("is_full", "flintmq_disk_full", "1 while the disk is full and publishes are rejected."),
    ("damaged_messages", "flintmq_damaged_messages",
     "Messages known to be damaged on disk. Reading them fails with an error."),
    ("scrub_bytes", "flintmq_scrub_read_bytes_total",
     "Bytes of sealed segments checked for damage."),
    ("scrub_passes", "flintmq_scrub_passes_total",
     "How often all sealed segments were checked for damage."),
)
# fmt: on


class JournalCollector:
    """The disk: how long a sync takes, how much waits."""

    families = tuple(_JOURNAL.values())

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        broker = self._state.broker
        figures = broker.journal_figures() if isinstance(broker, Measured) else None
        if figures is not None:
            page.add_table(_JOURNAL, figures)
        yield


# --- topics and groups

# fmt: off
_ALL_TOPICS = families(
    (),
    ("topics", "flintmq_topics", "Topics; one with partitions counts once."),
    ("feeds", "flintmq_feeds", "Open live subscriptions."),
)
_TOPIC = families(
    ("topic",),
    ("published", "flintmq_topic_published_messages_total", "Messages published."),
    ("published_bytes", "flintmq_topic_published_bytes_total", "Bytes of messages published."),
    ("delivered", "flintmq_topic_delivered_messages_total",
     "Messages delivered to readers, groups and live subscriptions, counted once for each."),
    ("messages", "flintmq_topic_messages", "Messages stored in the topic."),
    ("bytes", "flintmq_topic_size_bytes", "Bytes of messages stored in the topic."),
    ("first_offset", "flintmq_topic_first_offset",
     "Oldest stored offset; summed over partitions."),
    ("next_offset", "flintmq_topic_next_offset",
     "Offset of the next message; summed over partitions."),
    ("readers", "flintmq_topic_readers", "Open readers."),
    ("publishers_waiting", "flintmq_topic_publishers_waiting",
     "Publishes waiting for space right now."),
)
_RARE = families(
    ("topic",),
    ("damaged", "flintmq_topic_damaged_messages",
     "Messages known to be damaged on disk; only for topics that have some."),
    ("publish_seconds", "flintmq_topic_publish_seconds",
     "Time from receiving a batch to its acknowledgement, for durable topics.", "histogram"),
)
_GROUP = families(
    ("topic", "group"),
    ("lag", "flintmq_group_lag_messages", "Lag: messages not settled yet."),
    ("ready", "flintmq_group_pending_messages", "Messages ready to be delivered."),
    ("in_flight", "flintmq_group_in_flight_messages", "Messages leased to consumers."),
    ("delayed", "flintmq_group_delayed_messages", "Messages waiting for their delivery time."),
    ("oldest_age", "flintmq_group_oldest_age_seconds",
     "Age of the oldest unsettled message; 0 if there is none."),
    ("members", "flintmq_group_members", "Members of the group, or readers with that name."),
    ("waiting", "flintmq_group_waiting_members", "Members waiting for messages."),
    ("paused", "flintmq_group_paused", "1 if the group is paused."),
    ("delivered", "flintmq_group_delivered_messages_total", "Messages delivered to members."),
    ("redelivered", "flintmq_group_redelivered_messages_total",
     "Messages delivered again."),
    ("acked", "flintmq_group_acked_messages_total", "Messages acknowledged by members."),
    ("nacked", "flintmq_group_nacked_messages_total", "Messages returned by members (nack)."),
    ("leases_expired", "flintmq_group_expired_leases_total", "Expired leases."),
    ("dead_lettered", "flintmq_group_dead_letters_total", "Messages that became dead letters."),
)
_PAGE = families(
    (),
    ("series", "flintmq_metrics_series", "Samples on this page."),
    ("topics_left_out", "flintmq_metrics_topics_left_out",
     'Topics beyond metrics_max_series, summed up as topic="*".'),
    ("groups_left_out", "flintmq_metrics_groups_left_out",
     'Groups beyond metrics_max_series, summed up as topic="*", group="*".'),
)
# fmt: on
_DROPPED = Family(
    "flintmq_topic_dropped_messages_total",
    "counter",
    "Messages removed from the topic, by reason: count, bytes, age, expired, overflow, read, "
    "feed, damaged.",
    ("topic", "reason"),
)
_HELD = Family(
    "flintmq_topic_publishes_held_total",
    "counter",
    "Publishes that had to wait, by cause: topic, feed, disk.",
    ("topic", "by"),
)
_GROUP_DROPPED = Family(
    "flintmq_group_dropped_messages_total",
    "counter",
    "Messages never delivered, by reason: expired, filtered, retention, cancelled, reset, damaged.",
    ("topic", "group", "reason"),
)

_SEVERAL_TOPICS = {name: _TOPIC[name] for name in _TOPIC if not name.endswith("_offset")}
"""A sum of offsets of several topics says nothing."""
_CURSOR = {name: _GROUP[name] for name in ("lag", "members")}


class TopicCollector:
    """Topics and groups, as far as there may be series; the rest as one."""

    families = (
        *_ALL_TOPICS.values(),
        *_TOPIC.values(),
        _DROPPED,
        _HELD,
        *_RARE.values(),
        *_GROUP.values(),
        _GROUP_DROPPED,
        *_PAGE.values(),
    )

    def __init__(self, state: HttpState, series_max: int) -> None:
        self._state = state
        self.series_max = series_max

    def collect(self, page: Page) -> Iterator[None]:
        broker = self._state.broker
        if not isinstance(broker, Measured):
            return
        rest = TopicFigures(OTHERS)
        rest_groups = GroupFigures(OTHERS, "queue")
        topics = topics_left_out = groups_left_out = 0
        for name in broker.plain_topics():
            base, slash, partition = name.partition("/")
            if slash and partition != "0":
                continue
            figures = broker.topic_figures(name)
            if figures is None:
                continue  # deleted since
            if slash:
                whole = TopicFigures(base)
                groups: dict[str, GroupFigures] = {}
                number = 0
                while figures is not None:
                    _add_partition(whole, groups, figures)
                    yield
                    number += 1
                    figures = broker.topic_figures(f"{base}/{number}")
                whole.groups = list(groups.values())
                figures = whole
            topics += 1
            if page.series < self.series_max:
                self._add_topic(page, figures)
            else:
                topics_left_out += 1
                readers = rest.readers + figures.readers
                rest.add(figures)
                rest.readers = readers
            text = label("topic", base)
            for group in figures.groups:
                if page.series < self.series_max:
                    self._add_group(page, group, f"{text},{label('group', group.name)}")
                else:
                    groups_left_out += 1
                    rest_groups.add(group)
            yield
        if topics_left_out:
            self._add_topic(page, rest)
        if groups_left_out:
            self._add_group(page, rest_groups, f'topic="{OTHERS}",group="{OTHERS}"')
        page.add_table(_ALL_TOPICS, {"topics": topics, "feeds": broker.feed_count()})
        page.add(_PAGE["topics_left_out"], topics_left_out)
        page.add(_PAGE["groups_left_out"], groups_left_out)
        page.add(_PAGE["series"], page.series + 1)

    def _add_topic(self, page: Page, figures: TopicFigures) -> None:
        text = label("topic", figures.name)
        page.add_table(_SEVERAL_TOPICS if figures.name == OTHERS else _TOPIC, figures, text)
        page.add_counts(_DROPPED, "reason", figures.drops, text)
        page.add_counts(_HELD, "by", figures.waits, text)
        damaged, seconds = figures.damaged or None, figures.publish_seconds
        page.add_table(_RARE, {"damaged": damaged, "publish_seconds": seconds}, text)

    def _add_group(self, page: Page, group: GroupFigures, text: str) -> None:
        page.add_table(_GROUP if group.kind == "queue" else _CURSOR, group, text)
        page.add_counts(_GROUP_DROPPED, "reason", group.drops, text)


def _add_partition(
    whole: TopicFigures, groups: dict[str, GroupFigures], part: TopicFigures
) -> None:
    whole.add(part)
    for group in part.groups:
        groups.setdefault(group.name, GroupFigures(group.name, group.kind)).add(group)
