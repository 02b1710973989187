"""What the routes of the console take and give. Rows of long lists are arrays."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ....access import Permission
from ....observe.recent import RecentEvent
from ..models import Asked, Limit
from ..shown import Model, Number


class Me(Model):
    """Whose key this is, and what it may do."""

    name: str
    """Of the key; empty where the broker asks for none."""
    key: str
    """The public id of the key."""
    grants: dict[str, list[Permission]]
    """Permissions by topic pattern."""
    asks_for_keys: bool
    can_change_keys: bool
    """Whether keys can be made and removed: false with `auth = "off"`."""
    is_cluster: bool
    version: str


class Sample(Model):
    """The broker at one moment; rates are those since the sample before.

    A node of a cluster that follows does not know what is delivered and in flight: null, as in
    the rows below.
    """

    at: float
    """Seconds since 1970."""
    topics: int
    groups: int
    messages: int
    bytes: int
    published: float
    """Messages per second."""
    published_bytes: float | None
    delivered: float | None
    lag: int
    """Messages that groups have not settled, and named readers have not read."""
    in_flight: int | None
    dead_letters: int
    connections: int
    loop_seconds: float | None
    """99 of 100 turns of the event loop took at most so long."""
    sync_seconds: float | None
    """The same of disk syncs."""
    memory: int | None
    disk_free: int | None
    disk_size: int | None


class Samples(Model):
    samples: list[Sample]
    """Of the last hour, oldest first."""
    last_event: int
    """The number of the newest event."""


class TopicRow(Model, array_like=True, gc=False):
    """A topic as it was in the newest sample. A topic with partitions is one row."""

    name: str
    messages: int
    bytes: int
    published: float
    """Messages per second."""
    delivered: float | None
    lag: int
    dead_letters: int
    """Of its groups, where they have dead-letter topics of their own."""
    groups: int
    partitions: int
    """0 for a topic without partitions."""
    trail: list[int]
    """Messages published in each of the last slots of 10 s; empty if there were none."""


class GroupRow(Model, array_like=True, gc=False):
    """A group as it was in the newest sample."""

    topic: str
    name: str
    kind: Literal["queue", "cursor"]
    lag: int
    in_flight: int | None
    delayed: int | None
    members: int | None
    is_paused: bool
    oldest_age: float | None
    delivered: float | None
    """Messages per second; of a reader, by how far its position has moved."""
    dead_letters: int


class Figures(Model):
    at: float
    """When they were taken, in seconds since 1970."""
    topics: list[TopicRow]
    groups: list[GroupRow]


class EventsQuery(Asked):
    after: Number | None = None
    """Only events behind this number."""
    limit: Limit = 1000


class Events(Model):
    events: list[RecentEvent]
    """Oldest first."""


class SettingShown(Model):
    name: str
    value: Any
    source: str
    """`default`, a file and line, a variable or a flag."""
    meaning: str
    group: str
    reload: bool
    """Whether it can be changed while the broker runs (SIGHUP)."""


class Settings(Model):
    settings: list[SettingShown]


class TopicOption(Model):
    name: str
    kind: Literal["count", "bytes", "seconds", "rate", "text", "words", "choice", "yes or no"]
    meaning: str
    choices: list[str]
    default: Any
    """Of this broker."""
    is_final: bool
    """Whether it can only be set when the topic is created."""


class TopicOptionList(Model):
    options: list[TopicOption]


class CreateKey(Asked):
    name: str
    grants: Annotated[dict[str, list[Permission]], Meta(min_length=1)]
    """Permissions by topic pattern."""
    expires: Annotated[float, Meta(gt=0, le=10**10)] | None = None
    """Seconds until it expires."""
    note: Annotated[str, Meta(max_length=1000)] = ""


class CreatedKey(Model):
    id: str
    name: str
    key: str
    """The whole key: shown here only."""
    is_first: bool
    """Whether the broker asks for keys from now on."""


class EditedLetter(Asked):
    """One of `text` and `base64` is the new value; what is left out stays as it is."""

    text: str | None = None
    base64: str | None = None
    key: str | msgspec.UnsetType | None = msgspec.UNSET
    headers: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """All of them: those not named are dropped. Binary headers always stay."""
    content_type: str | msgspec.UnsetType | None = msgspec.UNSET


class PartitionMove(Model):
    """Of one partition."""

    partition: Number
    position: Number
    """Everything before it is settled."""
    to: Number
    lag: int
    lag_after: int
    """If nothing else happens meanwhile."""


class ResetPreview(Model):
    again: int
    """Messages that would be delivered again, at most: some of them may be settled or filtered."""
    skipped: int
    """Messages that would never be delivered, at most."""
    in_flight: int
    """Leases that would end."""
    partitions: list[PartitionMove]
