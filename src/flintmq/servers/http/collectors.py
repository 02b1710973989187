"""Where the figures of `/metrics` come from. Each collector owns some families.

A collector goes through what it counts and yields between any two topics, so that the page is made
in small steps beside the messages. Front ends that have names of their own add collectors.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from ...engine.figures import GroupFigures, Measured, TopicFigures
from ..key_gate import REASONS, KeyGate
from .exposition import Family, Page, label
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


class ProcessCollector:
    """The process: what it is, since when, and what it takes of the machine."""

    info = Family(
        "flintmq_build_info",
        "gauge",
        "Always 1; the labels describe the build.",
        ("version", "python"),
    )
    start = Family(
        "flintmq_start_time_seconds", "gauge", "Start time of the broker, in seconds since 1970."
    )
    uptime = Family("flintmq_uptime_seconds", "gauge", "Time since the broker started.")
    ready = Family("flintmq_ready", "gauge", "1 if /ready succeeds, else 0.")
    failed = Family(
        "flintmq_disk_failed",
        "gauge",
        "1 after the disk has failed: the broker stops; check the disk.",
    )
    memory = Family(
        "flintmq_process_resident_memory_bytes", "gauge", "Resident memory of the process."
    )
    files = Family("flintmq_process_open_fds", "gauge", "Open file descriptors.")
    files_max = Family(
        "flintmq_process_max_fds", "gauge", "Maximum number of open file descriptors."
    )
    cpu = Family(
        "flintmq_process_cpu_seconds_total",
        "counter",
        "CPU time of the process, all threads.",
    )
    families = (info, start, uptime, ready, failed, memory, files, files_max, cpu)

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        state = self._state
        versions = f"{label('version', state.version)},{label('python', platform.python_version())}"
        page.add(self.info, 1, versions)
        page.add(self.start, round(state.started_at, 3))
        page.add(self.uptime, state.uptime())
        page.add(self.ready, int(state.why_not_ready() is None))
        page.add(self.failed, int(state.failure() is not None))
        page.add(self.cpu, time.process_time())
        memory, files, files_max = process_figures()
        for family, value in ((self.memory, memory), (self.files, files)):
            if value is not None:
                page.add(family, value)
        if files_max is not None:
            page.add(self.files_max, files_max)
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


class ConnectionCollector:
    """Who is connected, by protocol, and who was let in."""

    connections = Family("flintmq_connections", "gauge", "Open connections.", ("protocol",))
    accepted = Family(
        "flintmq_connections_accepted_total", "counter", "Accepted connections.", ("protocol",)
    )
    refused = Family(
        "flintmq_connections_refused_total",
        "counter",
        "Connections rejected, or closed to make room.",
        ("protocol",),
    )
    received = Family(
        "flintmq_received_bytes_total", "counter", "Bytes received from clients.", ("protocol",)
    )
    sent = Family("flintmq_sent_bytes_total", "counter", "Bytes sent to clients.", ("protocol",))
    sessions = Family(
        "flintmq_sessions",
        "gauge",
        "Sessions: connected, or waiting for their client to reconnect.",
    )
    logins = Family("flintmq_logins_total", "counter", "Successful logins with a key.")
    failed_logins = Family(
        "flintmq_failed_logins_total",
        "counter",
        "Failed logins, by reason: missing, malformed, unknown, wrong, expired.",
        ("reason",),
    )
    certificate = Family(
        "flintmq_tls_certificate_expiry_timestamp_seconds",
        "gauge",
        "Expiry time of the current TLS certificate, in seconds since 1970.",
    )
    handshakes = Family("flintmq_tls_handshakes_failed_total", "counter", "Failed TLS handshakes.")
    families = (
        connections, accepted, refused, received, sent, sessions, logins, failed_logins,
        certificate, handshakes,
    )  # fmt: skip

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        native, gate = self._state.native, self._state.gate
        if native is not None:
            protocol = 'protocol="native"'
            received, sent = native.traffic()
            page.add(self.connections, len(native.connections), protocol)
            page.add(self.accepted, native.accepted, protocol)
            page.add(self.refused, native.refused, protocol)
            page.add(self.received, received, protocol)
            page.add(self.sent, sent, protocol)
            page.add(self.sessions, len(native.sessions))
            if native.tls is not None:
                page.add(self.certificate, native.tls.certificate_expires_at)
                page.add(self.handshakes, native.handshakes_failed)
        if isinstance(gate, KeyGate):
            page.add(self.logins, gate.counters.ok)
            for reason in REASONS:  # all from the start: else a first one would be no increase
                count = gate.counters.failed[reason]
                page.add(self.failed_logins, count, label("reason", reason))
        yield


class LoopCollector:
    """The turns of the event loop: while one goes on, everybody waits."""

    turns = Family("flintmq_loop_turn_seconds", "histogram", "Duration of event loop turns.")
    cpu = Family(
        "flintmq_loop_turn_cpu_seconds",
        "histogram",
        "Duration of event loop turns, without waiting for the disk or other processes.",
    )
    longest = Family(
        "flintmq_loop_longest_turn_seconds",
        "gauge",
        "Longest event loop turn since the start.",
    )
    overruns = Family(
        "flintmq_loop_overruns_total",
        "counter",
        "Event loop turns longer than 20 ms, by the function that caused them.",
        ("what",),
    )
    families = (turns, cpu, longest, overruns)

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        turns = self._state.turns
        if turns is not None and turns.is_measuring:
            page.add_histogram(self.turns, turns.seconds)
            page.add_histogram(self.cpu, turns.cpu_seconds)
            page.add(self.longest, turns.longest.seconds)
            for what, count in sorted(turns.overruns.items()):
                page.add(self.overruns, count, label("what", what))
        yield


class HttpCollector:
    """What HTTP itself costs, and whom it has kept waiting."""

    requests = Family(
        "flintmq_http_requests_total",
        "counter",
        "HTTP requests answered; code 0 means the client disconnected first.",
        ("page", "code"),
    )
    cpu = Family("flintmq_http_cpu_seconds_total", "counter", "Event loop time spent on HTTP.")
    share = Family(
        "flintmq_http_cpu_share_max", "gauge", "Maximum share of event loop time for HTTP."
    )
    held = Family(
        "flintmq_http_held_total",
        "counter",
        "How often HTTP had to wait for its share of event loop time.",
    )
    held_seconds = Family(
        "flintmq_http_held_seconds_total",
        "counter",
        "How long HTTP work has waited for its share of event loop time.",
    )
    too_slow = Family(
        "flintmq_http_too_slow_total",
        "counter",
        "HTTP connections closed because no request arrived.",
    )
    families = (requests, cpu, share, held, held_seconds, too_slow)

    def __init__(self, server: HttpFigures) -> None:
        self._server = server

    def collect(self, page: Page) -> Iterator[None]:
        server = self._server
        for (name, code), count in sorted(server.pages.answers.items()):
            page.add(self.requests, count, f'page="{name}",code="{code}"')
        turnstile = server.pages.turnstile
        if turnstile is not None:
            page.add(self.cpu, turnstile.budget.spent_seconds)
            page.add(self.share, turnstile.budget.share)
            page.add(self.held, turnstile.held)
            page.add(self.held_seconds, turnstile.held_seconds)
        page.add(self.too_slow, server.too_slow)
        page.add(ConnectionCollector.connections, server.connections, 'protocol="http"')
        page.add(ConnectionCollector.accepted, server.accepted, 'protocol="http"')
        page.add(ConnectionCollector.refused, server.evicted, 'protocol="http"')
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


class JournalCollector:
    """The disk: how long a sync takes, how much waits."""

    syncs = Family("flintmq_journal_sync_seconds", "histogram", "Duration of disk syncs.")
    written = Family(
        "flintmq_journal_written_bytes_total", "counter", "Bytes written to the journal."
    )
    frames = Family(
        "flintmq_journal_writes_total",
        "counter",
        "Writes to the journal; each contains many publishes.",
    )
    waiting = Family(
        "flintmq_journal_waiting_bytes", "gauge", "Bytes waiting to be synced to disk."
    )
    unflushed = Family(
        "flintmq_journal_unflushed_bytes", "gauge", "Bytes that the next checkpoint has to write."
    )
    checkpoints = Family("flintmq_checkpoint_seconds", "histogram", "Duration of checkpoints.")
    failures = Family(
        "flintmq_checkpoint_failures_total",
        "counter",
        "Checkpoints that failed because the disk was full.",
    )
    full = Family(
        "flintmq_disk_full", "gauge", "1 while the disk is full and publishes are rejected."
    )
    damaged = Family(
        "flintmq_damaged_messages",
        "gauge",
        "Messages known to be damaged on disk. Reading them fails with an error.",
    )
    scrubbed = Family(
        "flintmq_scrub_read_bytes_total",
        "counter",
        "Bytes of sealed segments checked for damage.",
    )
    passes = Family(
        "flintmq_scrub_passes_total",
        "counter",
        "How often all sealed segments were checked for damage.",
    )
    families = (
        *(syncs, written, frames, waiting, unflushed, checkpoints, failures, full),
        *(damaged, scrubbed, passes),
    )

    def __init__(self, state: HttpState) -> None:
        self._state = state

    def collect(self, page: Page) -> Iterator[None]:
        broker = self._state.broker
        figures = broker.journal_figures() if isinstance(broker, Measured) else None
        if figures is not None:
            page.add_histogram(self.syncs, figures.sync_seconds)
            page.add(self.written, figures.written_bytes)
            page.add(self.frames, figures.frames)
            page.add(self.waiting, figures.waiting_bytes)
            page.add(self.unflushed, figures.unflushed_bytes)
            page.add_histogram(self.checkpoints, figures.checkpoint_seconds)
            page.add(self.failures, figures.checkpoint_failures)
            page.add(self.full, int(figures.is_full))
            page.add(self.damaged, figures.damaged_messages)
            page.add(self.scrubbed, figures.scrub_bytes)
            page.add(self.passes, figures.scrub_passes)
        yield


_T = ("topic",)
_G = ("topic", "group")


class TopicCollector:
    """Topics and groups, as far as there may be series; the rest as one."""

    topics = Family("flintmq_topics", "gauge", "Topics; one with partitions counts once.")
    feeds = Family("flintmq_feeds", "gauge", "Open live subscriptions.")

    published = Family(
        "flintmq_topic_published_messages_total", "counter", "Messages published.", _T
    )
    published_bytes = Family(
        "flintmq_topic_published_bytes_total", "counter", "Bytes of messages published.", _T
    )
    delivered = Family(
        "flintmq_topic_delivered_messages_total",
        "counter",
        "Messages delivered to readers, groups and live subscriptions, counted once for each.",
        _T,
    )
    messages = Family("flintmq_topic_messages", "gauge", "Messages stored in the topic.", _T)
    size = Family("flintmq_topic_size_bytes", "gauge", "Bytes of messages stored in the topic.", _T)
    first = Family(
        "flintmq_topic_first_offset", "gauge", "Oldest stored offset; summed over partitions.", _T
    )
    next = Family(
        "flintmq_topic_next_offset",
        "gauge",
        "Offset of the next message; summed over partitions.",
        _T,
    )
    readers = Family("flintmq_topic_readers", "gauge", "Open readers.", _T)
    publishers = Family(
        "flintmq_topic_publishers_waiting", "gauge", "Publishes waiting for space right now.", _T
    )
    dropped = Family(
        "flintmq_topic_dropped_messages_total",
        "counter",
        "Messages removed from the topic, by reason: count, bytes, age, expired, overflow, "
        "read, feed, damaged.",
        ("topic", "reason"),
    )
    broken = Family(
        "flintmq_topic_damaged_messages",
        "gauge",
        "Messages known to be damaged on disk; only for topics that have some.",
        _T,
    )
    held = Family(
        "flintmq_topic_publishes_held_total",
        "counter",
        "Publishes that had to wait, by cause: topic, feed, disk.",
        ("topic", "by"),
    )
    seconds = Family(
        "flintmq_topic_publish_seconds",
        "histogram",
        "Time from receiving a batch to its acknowledgement, for durable topics.",
        _T,
    )

    lag = Family("flintmq_group_lag_messages", "gauge", "Lag: messages not settled yet.", _G)
    pending = Family(
        "flintmq_group_pending_messages", "gauge", "Messages ready to be delivered.", _G
    )
    in_flight = Family(
        "flintmq_group_in_flight_messages", "gauge", "Messages leased to consumers.", _G
    )
    delayed = Family(
        "flintmq_group_delayed_messages", "gauge", "Messages waiting for their delivery time.", _G
    )
    oldest = Family(
        "flintmq_group_oldest_age_seconds",
        "gauge",
        "Age of the oldest unsettled message; 0 if there is none.",
        _G,
    )
    members = Family(
        "flintmq_group_members", "gauge", "Members of the group, or readers with that name.", _G
    )
    waiting = Family("flintmq_group_waiting_members", "gauge", "Members waiting for messages.", _G)
    paused = Family("flintmq_group_paused", "gauge", "1 if the group is paused.", _G)
    group_delivered = Family(
        "flintmq_group_delivered_messages_total", "counter", "Messages delivered to members.", _G
    )
    redelivered = Family(
        "flintmq_group_redelivered_messages_total",
        "counter",
        "Messages delivered again.",
        _G,
    )
    acked = Family(
        "flintmq_group_acked_messages_total",
        "counter",
        "Messages acknowledged by members.",
        _G,
    )
    nacked = Family(
        "flintmq_group_nacked_messages_total", "counter", "Messages returned by members (nack).", _G
    )
    expired = Family("flintmq_group_expired_leases_total", "counter", "Expired leases.", _G)
    dead = Family(
        "flintmq_group_dead_letters_total", "counter", "Messages that became dead letters.", _G
    )
    group_dropped = Family(
        "flintmq_group_dropped_messages_total",
        "counter",
        "Messages never delivered, by reason: expired, filtered, retention, cancelled, reset, "
        "damaged.",
        ("topic", "group", "reason"),
    )

    series = Family("flintmq_metrics_series", "gauge", "Samples on this page.")
    topics_left_out = Family(
        "flintmq_metrics_topics_left_out",
        "gauge",
        'Topics beyond metrics_max_series, summed up as topic="*".',
    )
    groups_left_out = Family(
        "flintmq_metrics_groups_left_out",
        "gauge",
        'Groups beyond metrics_max_series, summed up as topic="*", group="*".',
    )

    families = (
        topics, feeds, published, published_bytes, delivered, messages, size, first, next, readers,
        publishers, dropped, held, broken, seconds, lag, pending, in_flight, delayed, oldest,
        members, waiting, paused, group_delivered, redelivered, acked, nacked, expired, dead,
        group_dropped, series, topics_left_out, groups_left_out,
    )  # fmt: skip

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
        page.add(self.topics, topics)
        page.add(self.feeds, broker.feed_count())
        page.add(self.topics_left_out, topics_left_out)
        page.add(self.groups_left_out, groups_left_out)
        page.add(self.series, page.series + 1)

    def _add_topic(self, page: Page, figures: TopicFigures) -> None:
        text, add = label("topic", figures.name), page.add
        add(self.published, figures.published, text)
        add(self.published_bytes, figures.published_bytes, text)
        add(self.delivered, figures.delivered, text)
        add(self.messages, figures.messages, text)
        add(self.size, figures.bytes, text)
        if figures.name != OTHERS:  # a sum of offsets of several topics says nothing
            add(self.first, figures.first_offset, text)
            add(self.next, figures.next_offset, text)
        add(self.readers, figures.readers, text)
        add(self.publishers, figures.publishers_waiting, text)
        page.add_counts(self.dropped, "reason", figures.drops, text)
        page.add_counts(self.held, "by", figures.waits, text)
        if figures.damaged:
            add(self.broken, figures.damaged, text)
        if figures.publish_seconds is not None:
            page.add_histogram(self.seconds, figures.publish_seconds, text)

    def _add_group(self, page: Page, group: GroupFigures, text: str) -> None:
        add = page.add
        add(self.lag, group.lag, text)
        add(self.members, group.members, text)
        page.add_counts(self.group_dropped, "reason", group.drops, text)
        if group.kind == "queue":
            add(self.pending, group.ready, text)
            add(self.in_flight, group.in_flight, text)
            add(self.delayed, group.delayed, text)
            add(self.oldest, group.oldest_age, text)
            add(self.waiting, group.waiting, text)
            add(self.paused, group.paused, text)
            add(self.group_delivered, group.delivered, text)
            add(self.redelivered, group.redelivered, text)
            add(self.acked, group.acked, text)
            add(self.nacked, group.nacked, text)
            add(self.expired, group.leases_expired, text)
            add(self.dead, group.dead_lettered, text)


def _add_partition(
    whole: TopicFigures, groups: dict[str, GroupFigures], part: TopicFigures
) -> None:
    whole.add(part)
    for group in part.groups:
        groups.setdefault(group.name, GroupFigures(group.name, group.kind)).add(group)
