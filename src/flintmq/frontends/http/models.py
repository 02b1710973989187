"""What the JSON API takes and gives: its requests, its answers, and their fields.

Offsets, ids of topics and partitions are strings: a reader of JSON may hold numbers as floats, and
64 bits do not fit there. Counts, sizes and times are numbers; times are seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ... import group_model, model
from ...access import Permission
from ...client import dead_letters
from ...group_model import Kind
from ...model import TopicOptions
from .shown import Model, Number, shows

Limit = Annotated[int, Meta(ge=1, le=1000)]
Encoding = Literal["text", "base64", "object"]

VALUE_BYTES = 64 * 1024
VALUE_BYTES_MAX = 1024 * 1024


class Asked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The root of what is taken: a field that is not known is refused, not passed over."""


# --- errors


class ErrorDetail(Model):
    kind: str
    """Name of the error in `flintmq.errors`, or of an HTTP error."""
    message: str


class Error(Model):
    error: ErrorDetail
    receipts: list[Receipt] | UnsetType = UNSET
    """Of a publish of many that failed midway: what was published before."""
    lost: list[str] | UnsetType = UNSET
    """Leases that were lost; the others of the request were carried out."""


# --- the broker


class Totals(Model):
    """Sums over all topics. They are at most a second old."""

    topics: int
    messages: int
    bytes: int
    published: int
    delivered: int
    connections: int


class Overview(Model):
    version: str
    uptime_seconds: float
    ready: bool
    totals: Totals


class Config(Model):
    """The settings in force, secrets left out."""

    settings: dict[str, Any]


class Key(Model):
    """A key as it may be shown: never a secret or its hash."""

    id: str
    name: str
    grants: dict[str, list[Permission]]
    """Permissions by topic pattern."""
    made_at: float | None
    expires_at: float | None
    last_used_at: float | None
    """Since the broker started."""
    note: str


class Keys(Model):
    keys: list[Key]


class Connection(Model):
    id: Number
    peer: str
    client: str
    protocol: str
    since: float
    bytes_received: int
    bytes_sent: int
    streams: int
    """Open readers, feeds and memberships."""
    key: str
    """Name of its key; empty if the broker requires none."""


class Connections(Model):
    connections: list[Connection]
    after: Number | None
    """Start of the next page; null on the last page."""


# --- topics


@shows(
    model.TopicStats,
    without=("name", "id", "filters", "partitions"),
    optional=("damaged", "damaged_ranges"),
)
class Stats(Model):
    """A topic at one moment; of a topic with partitions, sums. See `flintmq.TopicStats`."""


class Partition(Model):
    partition: Number
    stats: Stats


@shows(group_model.GroupInfo, without=("topic",))
class Group(Model):
    pass


class Groups(Model):
    groups: list[Group]


@shows(model.TopicInfo)
class Topic(Model):
    pass


@shows(model.TopicInfo)
class TopicPage(Model):
    """A topic with everything that is known of it."""

    stats: Stats
    partitions: list[Partition]
    """Empty if the topic has no partitions."""
    groups: list[Group]


class ListedTopic(Model):
    name: str
    stats: Stats | None = None
    """Only if requested."""


class Topics(Model):
    topics: list[ListedTopic]
    after: str | None
    """Start of the next page; null on the last page."""


class TopicsQuery(Asked):
    pattern: str = ">"
    """`*` matches one word, `>` matches the rest."""
    after: str = ""
    """Last name of the previous page."""
    limit: Limit = 100
    stats: bool = False


_options = get_type_hints(TopicOptions)

TopicChanges: Any = msgspec.defstruct(
    "TopicChanges",
    [(name, kind | UnsetType, UNSET) for name, kind in _options.items()],
    kw_only=True,
    forbid_unknown_fields=True,
    namespace={"__doc__": "Options of a topic; others stay unchanged."},
)


class Purge(Asked):
    before: Number | None = None
    """Delete messages before this offset; without it, all."""


class Purged(Model):
    purged: int


# --- messages


class Message(Model):
    """A message as it is stored. Binary values are base64; long ones are cut."""

    partition: Number
    offset: Number
    timestamp: float
    """When the broker received it."""
    key: str | None
    key_encoding: Encoding | None
    headers: dict[str, str]
    binary_headers: dict[str, str]
    """Binary headers, as base64."""
    priority: int
    content_type: str | None
    expires_at: float | None
    deliver_at: float | None
    value: str
    encoding: Encoding
    size: int
    """Size of the value in bytes."""
    truncated: bool


class Delivered(Message):
    """A message that a group has handed out, under a lease."""

    lease: str
    """Names the lease: ack, nack, reject and extend take it. Empty with `ack` "auto"."""
    delivery_count: int
    """How often it was delivered, this time included."""


class Streamed(Message):
    """A message of a stream: what an SSE event has as data, or a text of a WebSocket."""

    id: str | None
    """Resume behind this message with `Last-Event-ID`, or `after`. Null where a stream cannot be
    resumed: of a pattern, of a group, and of messages that are not stored."""
    topic: str
    lease: str = ""
    """Of a group: acknowledge the message with `{"ack": lease}`."""
    delivery_count: int = 1


class StreamQuery(Asked):
    start: str | None = None
    """Read the topic from here: `earliest`, `latest`, an offset, a time (ISO 8601), or
    `last_per_key`: the newest message of each key of a compacted topic, then what follows. Without
    it, the stream is live: what is published from now on, at most once."""
    after: str | None = None
    """Resume behind the message with this id; the header `Last-Event-ID` says the same."""
    group: str | None = None
    """Take messages of this queue group. Acknowledge them over the WebSocket, or use `ack=auto`."""
    ack: Literal["manual", "auto"] = "manual"
    lease: Annotated[float, Meta(gt=0, le=group_model.LEASE_SECONDS_MAX)] = (
        group_model.LEASE_SECONDS
    )
    """Of a group: seconds until a message is delivered again unless it is acknowledged."""
    prefetch: Limit = 16
    """Of a group: maximum messages that are not acknowledged."""
    filter: str | None = None
    capacity: Annotated[int, Meta(ge=1, le=65_536)] = 256
    """Of a live stream: maximum messages that wait for a slow client."""
    overflow: model.Overflow = "drop_oldest"
    """Of a live stream: what happens to more of them."""
    limit: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """End the stream after so many messages."""
    key: str | None = None
    """API key, for browsers, which cannot send headers here. Use a short-lived one."""


class MessagesQuery(Asked):
    offset: Number | None = None
    """First offset to return; deleted ones are skipped. In descending order, the offset behind the
    first one to return."""
    time: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    """In place of `offset`: messages published at this time or later, in seconds since 1970."""
    order: Literal["asc", "desc"] = "asc"
    """`desc` reads backwards, from the end of the topic unless an offset is given."""
    filter: str | None = None
    """Only messages for which this expression is true."""
    limit: Limit = 10
    value_bytes: Annotated[int, Meta(ge=0, le=VALUE_BYTES_MAX)] = VALUE_BYTES
    """Maximum bytes returned of each value."""


class Messages(Model):
    messages: list[Message]
    next_offset: Number
    """Where to continue, in the same order. There may be more also if nothing was returned: a
    request with a filter looks at a limited number of messages."""


PublishTimeout = Annotated[float, Meta(ge=0, le=30)]


class TableQuery(Asked):
    after: str | None = None
    """The `after` of the page before."""
    filter: str | None = None
    """Only messages for which this expression is true."""
    limit: Limit = 100
    value_bytes: Annotated[int, Meta(ge=0, le=VALUE_BYTES_MAX)] = VALUE_BYTES
    """Maximum bytes returned of each value."""


class TablePage(Model):
    """The newest message of each key, those that were deleted left out; in the order of offsets,
    partition by partition."""

    messages: list[Message]
    after: str | None
    """Where the next page begins; null at the end."""


class RequestQuery(Asked):
    timeout: PublishTimeout = 5.0
    """Seconds to wait for the reply."""


class Replied(Model):
    waiting: bool
    """Whether the request was still waiting for a reply."""


Priority = Annotated[int, Meta(ge=0, le=7)]
TimeToLive = Annotated[float, Meta(gt=0)]
Delay = Annotated[float, Meta(ge=0)]
Qos = Literal[0, 1]


class Publish(Asked):
    """One of `text`, `base64` and `json` is the value."""

    text: str | None = None
    base64: str | None = None
    json: Any = UNSET
    """Any JSON value; encoded in the topic's format, or as JSON if it has none."""
    key: str | None = None
    key_base64: str | None = None
    """In place of `key`, for a binary one."""
    headers: dict[str, str] = {}
    binary_headers: dict[str, str] = {}
    """More headers, whose values are base64."""
    priority: Priority = 0
    ttl: TimeToLive | None = None
    delay: Delay | None = None
    content_type: str | None = None
    partition: Number | None = None
    qos: Qos = 1
    auto_create: bool = True
    producer: str | None = None
    """Together with `sequence`, makes a repeated publish safe: it is stored once."""
    sequence: Number | None = None
    timeout: PublishTimeout = 5.0
    """How long to wait if the topic is full."""


def _header(field: str) -> str:
    return "x-flint-" + field.replace("_", "-")


class RawOptions(Asked, rename=_header):
    """What headers of HTTP may say of a raw body."""

    priority: Priority = 0
    ttl: TimeToLive | None = None
    delay: Delay | None = None
    partition: Number | None = None
    qos: Qos = 1
    auto_create: bool = True
    timeout: PublishTimeout = 5.0


class PublishHeaders(RawOptions):
    """With one of these, but for the last three, the body is the value itself.
    `X-Flint-Header-NAME` is a header of the message."""

    key: str | None = None
    """The key of the message."""
    producer: str | None = None
    """Together with `X-Flint-Sequence`, makes a repeated publish safe: it is stored once."""
    sequence: Number | None = None
    idempotency_key: str | None = msgspec.field(default=None, name="Idempotency-Key")
    """Of your choice: a request that is repeated with the same one is stored once."""


class StreamHeaders(Asked):
    last_event_id: str | None = msgspec.field(default=None, name="Last-Event-ID")
    """Resume behind the message with this id; a browser's EventSource sends it by itself."""


@shows(model.Receipt, first=("topic", "partition"), without=("parts",))
class Receipt(Model):
    offset: Number | None
    """Null if nothing was stored."""


class Receipts(Model):
    """Where many messages were stored."""

    count: int
    """Messages stored, those that were there already included."""
    receipts: list[Receipt]
    """One for each range of consecutive offsets, in the order they were published."""


class CloudEvent(msgspec.Struct, kw_only=True):
    """CloudEvents 1.0 in JSON. Attributes become headers `ce-NAME`, `data` the value."""

    specversion: Literal["1.0"]
    id: Annotated[str, Meta(min_length=1)]
    source: Annotated[str, Meta(min_length=1)]
    type: Annotated[str, Meta(min_length=1)]
    datacontenttype: str | UnsetType = UNSET
    data: Any = UNSET
    data_base64: str | UnsetType = UNSET
    partitionkey: str | UnsetType = UNSET
    """Becomes the key of the message."""


# --- groups


@shows(group_model.GroupStats, without=("name", "topic", "kind", "partitions"))
class GroupFigures(Model):
    """A group at one moment. See `flintmq.GroupStats`."""


class GroupPartition(Model):
    partition: Number
    stats: GroupFigures


class GroupPage(Model):
    name: str
    topic: str
    kind: Kind
    stats: GroupFigures
    partitions: list[GroupPartition]


@shows(group_model.InFlight, without=("topic", "token"))
class InFlight(Model):
    age: float
    """Seconds since it was delivered."""
    expires_in: float
    """Seconds until the lease expires."""


class AllInFlight(Model):
    in_flight: list[InFlight]
    more: bool
    """Whether there are more than `limit`."""


class LimitQuery(Asked):
    limit: Limit = 100


class PeekQuery(Asked):
    limit: Limit = 10
    value_bytes: Annotated[int, Meta(ge=0, le=VALUE_BYTES_MAX)] = VALUE_BYTES


class Peeked(Model):
    messages: list[Message]


# --- consuming

Lease = Annotated[float, Meta(gt=0, le=group_model.LEASE_SECONDS_MAX)]
Leases = Annotated[list[str], Meta(min_length=1, max_length=1000)]


class Poll(Asked):
    """The first poll makes the group. `order`, `filter` and `start` are the group's: leave them
    out to take its own."""

    max: Limit = 10
    """Maximum messages returned. An answer has at most 1 MiB of values, or one message."""
    lease: Lease = group_model.LEASE_SECONDS
    """Seconds until the messages are delivered again unless they are settled."""
    wait: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds to wait for the first message; at most `http_max_wait`."""
    ack: Literal["manual", "auto"] = "manual"
    """With `auto`, messages are settled before they are returned: at most once."""
    order: group_model.Order | None = None
    filter: str | None = None
    start: Literal["earliest", "latest"] | None = None
    auto_create: bool = True
    """Whether to create the topic if it does not exist."""


class Polled(Model):
    messages: list[Delivered]


class Settle(Asked):
    leases: Leases


class Nack(Asked):
    leases: Leases
    delay: Delay = 0.0
    """Seconds until the messages are delivered again."""


class Reject(Asked):
    leases: Leases
    reason: str = "rejected over HTTP"
    """Kept with the dead letters."""


class Extend(Asked):
    leases: Leases
    lease: Lease = group_model.LEASE_SECONDS
    """Seconds from now until the leases end."""


class StreamSettle(Asked):
    """What a client sends over the WebSocket of a group: one of the verbs, with a lease or more."""

    ack: str | Leases | None = None
    nack: str | Leases | None = None
    reject: str | Leases | None = None
    extend: str | Leases | None = None
    delay: Delay = 0.0
    reason: str = "rejected over HTTP"
    lease: Lease | None = None
    """Seconds; that of the stream where it is left out."""


class Reset(Asked):
    """One of these says where the group goes on."""

    to: Literal["earliest", "latest"] | None = None
    offset: Number | None = None
    time: float | None = None
    """Seconds since 1970."""
    offsets: dict[Number, Number] | None = None
    """By partition."""


class Done(Model):
    done: Literal[True] = True


@shows(dead_letters.DeadLetter, without=("message",))
class DeadLetter(Model):
    id: Number
    """The id that redrive and discard take."""
    offset: Number
    """Original offset of the message."""
    message: Message


class DeadLettersQuery(Asked):
    after: Number | None = None
    """Last id of the previous page."""
    time: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    """Only those that died at this time or later, in seconds since 1970."""
    limit: Limit = 20
    value_bytes: Annotated[int, Meta(ge=0, le=VALUE_BYTES_MAX)] = VALUE_BYTES


class DeadLetters(Model):
    dead_letters: list[DeadLetter]
    after: Number | None
    """Start of the next page; null on the last page."""


class Which(Asked):
    """Dead letters: one of `ids`, `filter` and `all` says which are meant; `ids` with `filter`:
    those of them that pass it."""

    ids: list[Number] | None = None
    filter: str | None = None
    all: bool = False


class Count(Model):
    count: int


class PageQuery(Asked):
    after: Number | None = None
    limit: Limit = 100


class NoQuery(Asked):
    """A route that is asked nothing."""
