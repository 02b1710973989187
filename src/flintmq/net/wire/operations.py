"""The operations of the native protocol: their numbers, their control parts, and one table of them.

A new operation is a number in `Op`, a control part, and a row in `OPERATIONS`. If its control part
holds just the arguments of a verb of BrokerApi, the row names the verb; the server then needs
nothing more, and the client one line in `remote/broker.py`. Where the server has more to do, a
function in `server/requests.py` goes first. Tests compare docs/security.md and
docs/reference/protocol.md with the table.

Every control part is a MessagePack array, its fields in the order they have here; docs/reference/
protocol.md says what they mean. Fields are only ever added at the end: a receiver takes the default
for one that is missing and ignores those it does not know.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, get_type_hints

import msgspec

from ...broker_api import BrokerApi
from ...model import Durability
from . import rules
from .cluster_map import ClusterMap as ClusterMap
from .cluster_map import MapGroup as MapGroup
from .cluster_map import MapNode as MapNode
from .control import Control as Control
from .definition_requests import DefineRequest, DefinitionsRequest, WebhookStatesRequest
from .letter_requests import RedriveEditedRequest, RedriveRequest
from .offset_requests import ExtentsRequest as ExtentsRequest
from .offset_requests import FetchRangeRequest as FetchRangeRequest
from .offset_requests import FetchRangesRequest as FetchRangesRequest
from .offset_requests import FetchRequest as FetchRequest
from .offset_requests import ObjectsRequest as ObjectsRequest
from .offset_requests import WaitBeyondRequest as WaitBeyondRequest
from .rules import Rule


class Op(IntEnum):
    # --- the connection
    OPEN = 1
    PING = 2
    CANCEL = 3
    GOODBYE = 4
    CLUSTER = 7
    # --- publishing
    PUBLISH = 16
    STAGE = 17
    COMMIT_STAGE = 18
    ABORT_STAGE = 19
    PUBLISH_ROWS = 20
    REQUEST = 21
    REPLY_TO = 22
    # --- topics
    CREATE_TOPIC = 32
    CONFIGURE_TOPIC = 33
    DELETE_TOPIC = 34
    TOPICS = 35
    TOPIC_INFO = 36
    TOPIC_STATS = 37
    BACKUP = 38
    PURGE_TOPIC = 39
    STATS_OF = 40
    DEFINITIONS = 41
    DEFINE = 42
    WEBHOOK_STATES = 43
    TEST_WEBHOOK = 44
    # --- readers and feeds
    OPEN_READER = 48
    OPEN_FEED = 49
    TAKE = 50
    SEEK = 51
    COMMIT = 52
    POSITION = 53
    LAG = 54
    CLOSE_STREAM = 55
    FETCH = 56
    PUT_BACK = 57
    EXTENTS = 58
    WAIT_BEYOND = 59
    FETCH_RANGE = 60
    FETCH_RANGES = 61
    OBJECTS = 62
    # --- groups
    JOIN_GROUP = 64
    TAKE_LEASED = 65
    SETTLE = 66
    GROUPS = 67
    GROUP_STATS = 68
    PAUSE_GROUP = 69
    RESET_GROUP = 70
    DELETE_GROUP = 71
    PEEK = 72
    IN_FLIGHT = 73
    DEAD_LETTERS = 74
    REDRIVE = 75
    CANCEL_DELAYED = 76
    DISCARD = 77
    REDRIVE_EDITED = 78
    # --- from the server
    REPLY = 128
    ERROR = 129
    TOPIC_CHANGED = 130
    DRAIN = 131
    RECEIPTS = 132


class OpenRequest(Control):
    """The first frame of a connection. With `session`, go on with one that lost its connection."""

    session: bytes | None = None
    received: int = 0
    auth: list[Any] | None = None
    client: str = ""
    resumable: bool = False
    follows: bool = False
    """Goes where the leader is: a node that does not lead refuses it with NotLeader."""

    def __repr__(self) -> str:
        auth = "nothing" if self.auth is None else "a credential"
        return f"Open({self.client!r}, {auth})"  # which must not get into a log


class KnownTopic(Control):
    """What a client has to know of a topic before it publishes there."""

    name: str
    options: dict[str, Any] | None
    careful: bool = False
    """Publishing there may have to wait, or be refused for want of room."""
    ttl_ms: int | None = None


class OpenedReply(Control):
    session: bytes
    resumed: bool
    received: int
    frame_bytes_max: int
    in_flight_bytes_max: int
    ping_seconds: float
    grace_seconds: float
    server: str
    topics: list[KnownTopic]
    now_ms: int = 0
    """The broker's time: what is held for a reader expires by it, not by the client's clock."""
    map: ClusterMap | None = None
    """None: this broker runs alone."""


class ClusterRequest(Control):
    """What an operator asks of a cluster."""

    verb: str
    name: str = ""
    address: str = ""


class PublishRequest(Control):
    topic: Any
    qos: int = 1
    auto_create: bool = True
    timeout: float | None = None
    counts: list[int] | None = None


class RowFields(Control):
    """A message that is more than its value."""

    value: bytes
    content_type: str | None = None
    key: Any = None
    """Text or bytes."""
    headers: dict[str, Any] | None = None
    """Values are text or bytes."""
    priority: int = 0
    expiry: int = 0
    """Milliseconds since 1970, or below 0 so many after the append; 0 is never."""
    deliver_at: int = 0
    """In the same way; 0 is at once."""


class RowsRequest(Control):
    """One publish, or several to one topic, as rows. It has an id of its own."""

    topic: Any
    sequence: int
    """Of the first row; the others count on from it."""
    rows: list[bytes | RowFields]
    auto_create: bool = True
    timeout: float | None = None
    counts: list[int] | None = None

    @property
    def qos(self) -> int:
        return 1


class PublishRowsRequest(Control):
    """The first publish has the id of the frame, the others count on from it."""

    producer: str
    publishes: list[RowsRequest]


class ReceiptsReply(Control):
    """Publishes that were stored as a whole, and for the first time. It has no id itself."""

    durability: Durability
    places: list[int]
    """The id of a publish and the offset of its first row, by turns."""


class RequestRequest(Control):
    topic: Any
    address: Any
    timeout: float | None = None
    auto_create: bool = True


class ReplyToRequest(Control):
    address: Any


class StageRequest(Control):
    writer: Any
    number: Any
    part: Any
    topics: list[Any]
    """The topic of each batch behind this."""
    auto_create: bool = True


class CommitStageRequest(Control):
    writer: Any
    number: Any
    parts: list[Any]
    ends: bool = False


class AbortStageRequest(Control):
    writer: Any
    number: Any


class SetTopicRequest(Control):
    name: Any
    options: dict[str, Any]


class NameRequest(Control):
    """Of a topic, a pattern, or a directory."""

    name: Any


class NamesRequest(Control):
    """Of topics."""

    names: list[Any]


class PurgeTopicRequest(Control):
    name: Any
    before: int | None = None
    """An offset; None: everything there is."""


class OpenReaderRequest(Control):
    topic: Any
    name: Any = None
    start: Any = None
    filter: str | None = None
    auto_create: bool = True
    whole: bool = False
    """Of a partitioned topic: all partitions, or those that are named, as one."""
    partitions: list[int] | None = None
    held: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """Of a name, by one that was open before: what it was handed and does not know as committed;
    partition, first offset and behind the last."""
    resume: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Of `last_per_key`, in a new session: by partition, the position and the end of the state."""


class OpenFeedRequest(Control):
    pattern: Any
    capacity: int = 1024
    overflow: str = "drop_oldest"
    filter: str | None = None


class StreamOpenedReply(Control):
    stream: int
    positions: dict[int, int] = msgspec.field(default_factory=dict)
    """Of a reader, the next offset by partition."""
    missed: int = 0
    topic_id: int = 0
    """Of a reader: a topic made anew under the old name has another."""
    state_ends: dict[int, int] = msgspec.field(default_factory=dict)
    """Of a reader that began by `last_per_key`: where the state ends, by partition."""


class TakeRequest(Control):
    stream: int
    max_rows: int
    timeout: float | None = None
    """None waits for ever, 0 not at all."""


class RunInfo(Control):
    """Which rows of the next batch are meant."""

    topic: str
    partition: int
    start: int
    stop: int
    picks: list[int] | None = None


class TakenReply(Control):
    runs: list[RunInfo]
    gap: list[Any] | None = None
    missed: int = 0
    """Of a reader, how many messages it has missed; of a feed, how many were dropped."""
    position: int | None = None
    """Of a fetch, the next offset."""
    more: bool = False
    """There are more, which this reply could not carry."""


class FetchedRangeReply(Control):
    runs: list[RunInfo]
    gap: list[Any] | None
    position: int
    """Where to go on."""
    next_offset: int
    """Where the topic ended then."""


class FetchedRangesReply(Control):
    """The first of the ranges, as many as the reply could carry; one at least."""

    ranges: list[FetchedRangeReply]


class SeekRequest(Control):
    stream: int
    to: Any


class CommitRequest(Control):
    stream: int
    offset: Any = None
    partition: int | None = None
    own: bool = False
    """What this reader holds before the offset is done; others of its name hold what they hold."""


class StreamRequest(Control):
    stream: int


class CancelPieceRequest(Control):
    """Of a publish made of several, which one; None: the request as a whole."""

    piece: int | None = None


class CloseStreamRequest(Control):
    stream: int
    unread: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """Rows that were taken and not looked at: partition, first offset, behind the last."""


class JoinGroupRequest(Control):
    topic: Any
    group: Any
    order: Any = None
    filter: str | None = None
    start: Any = None
    holder: str = ""
    auto_create: bool = True


class JoinedReply(Control):
    stream: int
    info: dict[str, Any]


class TakeLeasedRequest(Control):
    stream: int
    max_rows: int
    lease_seconds: float
    timeout: float | None = None
    auto_ack: bool = False
    in_turn: bool = False
    committed: bool = False


class GrantedReply(Control):
    token: int
    runs: list[RunInfo]
    counts: dict[int, int]


class SettleRequest(Control):
    stream: int
    how: str
    """ack, nack, reject, extend or release."""
    leases: list[Any]
    seconds: float = 0.0
    reason: str = ""


class GroupNameRequest(Control):
    topic: Any
    group: Any = None
    max_rows: int = 0


class DeadLettersRequest(Control):
    topic: Any
    group: Any
    max_rows: int = 0
    first: int = 0
    """The offset in the dead-letter topic to begin with."""


class PauseGroupRequest(Control):
    topic: Any
    group: Any
    paused: bool


class ResetGroupRequest(Control):
    topic: Any
    group: Any
    to: Any


class CancelDelayedRequest(Control):
    topic: Any
    ranges: list[tuple[int, int]]


class Fault(Control):
    """An error, as the client raises it again."""

    kind: str
    text: str
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


_encoder = msgspec.msgpack.Encoder()


def encode(control: Any) -> bytes:
    return _encoder.encode(control)


# --- the table


@dataclass(frozen=True, slots=True)
class Operation:
    op: Op
    request: type[Control]
    rule: Rule
    verb: Callable[..., Any] | None = None
    """The verb of BrokerApi that takes the fields of the request, and whose value is the answer."""
    once: bool = False
    """Whether a client must not ask again when it does not know if it was carried out."""
    waits: bool = False
    """Whether it may wait for messages, for ever: draining does not wait for it."""
    is_long: bool = False
    """Whether it takes as long as it takes: the timeout of the client does not end it."""

    @property
    def arguments(self) -> list[str]:
        """The fields of the request that the verb takes: all it has parameters for."""
        assert self.verb is not None
        return list(inspect.signature(self.verb).parameters)[1:]

    @property
    def answer(self) -> Any:
        """What the answer is decoded as."""
        return get_type_hints(self.verb)["return"]


OPERATIONS: dict[Op, Operation] = {
    row.op: row
    for row in (
        Operation(Op.OPEN, OpenRequest, rules.OPEN),
        Operation(Op.PING, Control, rules.ANYBODY),
        Operation(Op.CANCEL, CancelPieceRequest, rules.ANYBODY),
        Operation(Op.GOODBYE, Control, rules.ANYBODY),
        Operation(Op.CLUSTER, ClusterRequest, rules.EVERYTHING, once=True),
        Operation(Op.PUBLISH, PublishRequest, rules.PUBLISH),
        Operation(Op.PUBLISH_ROWS, PublishRowsRequest, rules.PUBLISH_EACH),
        Operation(Op.REQUEST, RequestRequest, rules.PUBLISH, once=True, waits=True),
        Operation(Op.REPLY_TO, ReplyToRequest, rules.ADDRESS),
        Operation(Op.STAGE, StageRequest, rules.STAGE),
        Operation(Op.COMMIT_STAGE, CommitStageRequest, rules.WRITER, BrokerApi.commit),
        Operation(Op.ABORT_STAGE, AbortStageRequest, rules.WRITER, BrokerApi.abort),
        Operation(Op.CREATE_TOPIC, SetTopicRequest, rules.SETS, BrokerApi.create_topic),
        Operation(Op.CONFIGURE_TOPIC, SetTopicRequest, rules.SETS, BrokerApi.configure_topic),
        Operation(Op.DELETE_TOPIC, NameRequest, rules.NAMED, BrokerApi.delete_topic, once=True),
        Operation(Op.TOPICS, NameRequest, rules.LIST, BrokerApi.topics),
        Operation(Op.TOPIC_INFO, NameRequest, rules.SEE, BrokerApi.topic_info),
        Operation(Op.TOPIC_STATS, NameRequest, rules.SEE, BrokerApi.topic_stats),
        Operation(Op.STATS_OF, NamesRequest, rules.SEE_EACH, BrokerApi.stats_of),
        Operation(
            Op.BACKUP, NameRequest, rules.EVERYTHING, BrokerApi.backup, once=True, is_long=True
        ),
        Operation(Op.PURGE_TOPIC, PurgeTopicRequest, rules.NAMED, BrokerApi.purge_topic, once=True),
        Operation(Op.DEFINITIONS, DefinitionsRequest, rules.ADMINISTER_ANY, BrokerApi.definitions),
        Operation(Op.DEFINE, DefineRequest, rules.ADMINISTER_ANY, BrokerApi.define, once=True),
        Operation(
            Op.WEBHOOK_STATES,
            WebhookStatesRequest,
            rules.ADMINISTER_ANY,
            BrokerApi.webhook_states,
        ),
        Operation(
            Op.TEST_WEBHOOK, GroupNameRequest, rules.ADMINISTER, BrokerApi.test_webhook, once=True
        ),
        Operation(Op.OPEN_READER, OpenReaderRequest, rules.CONSUME),
        Operation(Op.OPEN_FEED, OpenFeedRequest, rules.FEED),
        Operation(Op.TAKE, TakeRequest, rules.STREAM),
        Operation(Op.SEEK, SeekRequest, rules.STREAM),
        Operation(Op.COMMIT, CommitRequest, rules.STREAM),
        Operation(Op.POSITION, StreamRequest, rules.STREAM),
        Operation(Op.LAG, StreamRequest, rules.STREAM),
        Operation(Op.CLOSE_STREAM, CloseStreamRequest, rules.ANYBODY),
        Operation(Op.FETCH, FetchRequest, rules.CONSUME, waits=True),
        Operation(Op.FETCH_RANGE, FetchRangeRequest, rules.CONSUME),
        Operation(Op.FETCH_RANGES, FetchRangesRequest, rules.EACH_TOPIC),
        Operation(Op.PUT_BACK, CloseStreamRequest, rules.STREAM),
        Operation(Op.EXTENTS, ExtentsRequest, rules.EACH_TOPIC),
        Operation(Op.OBJECTS, ObjectsRequest, rules.CONSUME, BrokerApi.objects),
        Operation(
            Op.WAIT_BEYOND, WaitBeyondRequest, rules.EACH_OFFSET, BrokerApi.wait_beyond, waits=True
        ),
        Operation(Op.JOIN_GROUP, JoinGroupRequest, rules.CONSUME),
        Operation(Op.TAKE_LEASED, TakeLeasedRequest, rules.STREAM, waits=True),
        Operation(Op.SETTLE, SettleRequest, rules.STREAM),
        Operation(Op.GROUPS, GroupNameRequest, rules.LOOK, BrokerApi.groups),
        Operation(Op.GROUP_STATS, GroupNameRequest, rules.LOOK, BrokerApi.group_stats),
        Operation(Op.PAUSE_GROUP, PauseGroupRequest, rules.ADMINISTER, BrokerApi.pause_group),
        Operation(
            Op.RESET_GROUP, ResetGroupRequest, rules.ADMINISTER, BrokerApi.reset_group, once=True
        ),
        Operation(
            Op.DELETE_GROUP, GroupNameRequest, rules.ADMINISTER, BrokerApi.delete_group, once=True
        ),
        Operation(Op.PEEK, GroupNameRequest, rules.CONSUME, BrokerApi.peek),
        Operation(Op.IN_FLIGHT, GroupNameRequest, rules.LOOK, BrokerApi.in_flight),
        Operation(Op.DEAD_LETTERS, DeadLettersRequest, rules.CONSUME, BrokerApi.dead_letters),
        Operation(Op.REDRIVE, RedriveRequest, rules.ADMINISTER, BrokerApi.redrive, once=True),
        Operation(Op.DISCARD, RedriveRequest, rules.ADMINISTER, BrokerApi.discard, once=True),
        Operation(
            Op.REDRIVE_EDITED,
            RedriveEditedRequest,
            rules.ADMINISTER,
            BrokerApi.redrive_edited,
            once=True,
        ),
        Operation(
            Op.CANCEL_DELAYED, CancelDelayedRequest, rules.PUBLISH, BrokerApi.cancel, once=True
        ),
    )
}
"""Everything a client may send. What only a server sends has no row."""

BY_VERB = {row.verb.__name__: row for row in OPERATIONS.values() if row.verb is not None}
