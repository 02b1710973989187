"""What a broker counts, for whoever watches it: cheap to read, for thousands of topics.

Stats are for people who ask for one topic; figures are for scrapers that ask for all, every few
seconds, beside the messages. Nothing here is worked out that is not counted already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

from ..group_model import Kind
from ..observe.metrics import Histogram

GROUP_SUMS = (
    *("lag", "ready", "in_flight", "delayed", "delivered", "redelivered", "acked", "nacked"),
    *("in_doubt", "reclaimed", "leases_expired", "dead_lettered"),
)
GROUP_MOST = ("oldest_age", "members", "waiting", "paused")
TOPIC_SUMS = (
    *("messages", "bytes", "first_offset", "next_offset", "publishers_waiting", "published"),
    *("published_bytes", "delivered", "damaged"),
)


class GroupFigures(msgspec.Struct):
    """A group of a topic. Counts are since the broker began."""

    name: str
    kind: Kind
    lag: int = 0
    members: int = 0
    ready: int = 0
    in_flight: int = 0
    in_doubt: int = 0
    delayed: int = 0
    waiting: int = 0
    paused: int = 0
    oldest_age: float = 0.0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    reclaimed: int = 0
    leases_expired: int = 0
    dead_lettered: int = 0
    drops: Mapping[str, int] = {}

    def add(self, other: GroupFigures) -> None:
        """Sum up: partitions of a topic, or groups that have no series of their own."""
        for name in GROUP_SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in GROUP_MOST:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        if other.drops:
            self.drops = _summed(self.drops, other.drops)


class TopicFigures(msgspec.Struct):
    """A topic; of one with partitions, sums. Counts are since the broker began."""

    name: str
    messages: int = 0
    bytes: int = 0
    first_offset: int = 0
    next_offset: int = 0
    readers: int = 0
    publishers_waiting: int = 0
    published: int = 0
    published_bytes: int = 0
    delivered: int = 0
    drops: Mapping[str, int] = {}
    waits: Mapping[str, int] = {}
    publish_seconds: Histogram | None = None
    groups: list[GroupFigures] = []
    damaged: int = 0
    is_led: bool = True
    """Whether by this node. Of a topic that another one leads, it knows what is stored and how far
    groups are, and neither counts nor who is there."""

    def add(self, other: TopicFigures) -> None:
        """Sum up, but for the groups: partitions of a topic, or topics without series."""
        for name in TOPIC_SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.readers = max(self.readers, other.readers)
        self.is_led = self.is_led and other.is_led
        if other.drops:
            self.drops = _summed(self.drops, other.drops)
        if other.waits:
            self.waits = _summed(self.waits, other.waits)
        if other.publish_seconds is not None:
            if self.publish_seconds is None:
                self.publish_seconds = Histogram(other.publish_seconds.bounds)
            self.publish_seconds.add(other.publish_seconds)


class JournalFigures(msgspec.Struct):
    sync_seconds: Histogram
    written_bytes: int
    frames: int
    waiting_bytes: int
    """Proposed and not yet safe."""
    unflushed_bytes: int
    """In the journal and in no segment."""
    checkpoint_seconds: Histogram
    checkpoint_failures: int
    is_full: bool
    last_index: int = 0
    """Of the last command that was proposed, since the data directory was made."""
    applied_index: int = 0
    damaged_messages: int = 0
    """What is known to be damaged on the disk, of all topics."""
    scrub_bytes: int = 0
    tier_bytes: int = 0
    """Uploaded to object storage, and verified."""
    tier_failures: int = 0
    scrub_passes: int = 0
    loop_syncs: int = 0
    """Of the syncs, those that the loop made itself."""
    stalled_syncs: int = 0
    """Told of while they took long."""


@runtime_checkable
class Measured(Protocol):
    """A broker that counts in this process."""

    def plain_topics(self) -> list[str]:
        """Names of all plain topics, partitions among them, the oldest first."""
        ...

    def topic_figures(self, name: str) -> TopicFigures | None:
        """Of one plain topic; None if it is gone."""
        ...

    def feed_count(self) -> int: ...
    def journal_figures(self) -> JournalFigures | None: ...


def _summed(ours: Mapping[str, int], theirs: Mapping[str, int]) -> Mapping[str, int]:
    return {key: ours.get(key, 0) + theirs.get(key, 0) for key in {**ours, **theirs}}
