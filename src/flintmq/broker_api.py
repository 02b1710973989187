"""What every way of running a broker offers to the layers above it.

The engine in the process, the broker behind a socket and the replicated one implement `BrokerApi`;
the client's verbs and the servers' front ends are written against it alone. It speaks of plain
topics and of rows; formats and partitions are the client's business.

Taking and waiting are two calls: `take` never waits, `wait` never takes. So a call that is
cancelled while it waits has taken nothing, and nothing can be lost between the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from .batch import BatchBuilder, RecordBatch, RowSource
from .clock import Clock
from .errors import Disconnected
from .group_model import GroupInfo, GroupStats, InFlight, Lease, Order, Ranges
from .model import (
    Definition,
    Durability,
    Extent,
    FarObjects,
    Overflow,
    Receipt,
    Start,
    TopicInfo,
    TopicOptions,
    TopicStats,
)
from .rows import Message, Origin, Rows
from .webhook_model import WebhookAnswer, WebhookState


class OutOfTime(Exception):
    """Raised by a decoder in a filter: the filter goes on another time."""


class RowFilter(Protocol):
    """A filter that was compiled from an expression."""

    @property
    def text(self) -> str: ...
    @property
    def uses_value(self) -> bool:
        """Whether it may ask for values: to decode them is what takes time."""
        ...

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The fields of the value that it uses, if it uses nothing else of it."""
        ...

    def pick(
        self,
        source: RowSource,
        rows: Sequence[int],
        origin: Origin,
        decode: Callable[[RowSource, int], object] | None,
        limit: int | None = None,
    ) -> list[int]:
        """Those of `rows` that pass, in order; no more than `limit`. Where `decode` raises
        OutOfTime, those before that row."""
        ...


Filter = Callable[[Message], bool] | RowFilter
Batch = BatchBuilder | RecordBatch
Batches = Sequence[tuple[str, Batch]]
"""Rows by plain topic."""


class StreamApi(Protocol):
    """What a reader and a live subscription have in common."""

    def is_ready(self) -> bool:
        """Whether there may be something to take right now."""
        ...

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call back whenever there may be something new, until this is closed."""
        ...

    def take(self, max_rows: int) -> Rows: ...
    def take_one(self) -> Message | None:
        """None also while the disk is reading: wait for it."""
        ...

    async def look(self) -> None:
        """Find out what is there, where that takes a request; then take has it."""
        ...

    async def wait(self, timeout: float | None) -> bool:
        """Whether there is something to take; False when the time is up."""
        ...

    async def close(self) -> None: ...


class FeedApi(StreamApi, Protocol):
    """A live subscription's queue."""

    @property
    def dropped(self) -> int: ...


class ReaderApi(StreamApi, Protocol):
    """One reader's hold on a topic. Positions are always the next offset to read."""

    @property
    def missed(self) -> int: ...
    @property
    def state_ends(self) -> Mapping[int, int]:
        """Of a reader that began by `last_per_key`: where the state ends, by partition."""
        ...

    def at_hand(self) -> bool:
        """Whether `take` need not wait for a disk. If it must, reading begins, and `on_ready` is
        called back once it need not."""
        ...

    def take(self, max_rows: int, *, waits: bool = True) -> Rows:
        """What is there. Unless it `waits` for a disk, as far as that is at hand."""
        ...

    async def seek(self, to: Start | Mapping[int, int]) -> None: ...
    async def commit(
        self, offset: int | None, partition: int | None = None, *, is_own: bool = False
    ) -> int:
        """Remember where the name goes on. With `is_own`, or without an offset, what this reader
        holds before it is done, and what others of the name hold is not."""
        ...

    async def position(self) -> int: ...
    async def positions(self) -> dict[int, int]: ...
    async def lag(self) -> int: ...


class TakeMode(NamedTuple):
    """How messages are taken from a queue."""

    auto_ack: bool = False
    """They are acknowledged before they are handed out, and nothing is leased."""
    in_turn: bool = False
    """The taker works on messages of one key one after the other, as they come: a queue by key may
    hand out several of them at once."""
    committed: bool = False
    """Also what nobody had before is handed out only once that is as durable as a publish: whoever
    leads next knows the lease."""


LEASED = TakeMode()


class Grant(NamedTuple):
    """Messages of a queue that were handed to one member, under one lease and token.

    Tokens only grow: of two grants of a message, the later has the higher one.
    """

    token: int
    rows: Rows
    counts: Mapping[int, int]
    """How often they were delivered, by offset, where that is not 1."""


class Fetched(NamedTuple):
    """Rows that were read by offset, and where to go on."""

    rows: Rows
    position: int
    next_offset: int
    """Where the topic ended when they were read."""


class ReaderOpening(msgspec.Struct, frozen=True):
    """What a reader reads, and from where."""

    topic: str
    name: str | None = None
    """Readers of one name share a position, which lasts."""
    start: Start | None = None
    filter: Filter | None = None
    auto_create: bool = True
    partitions: Sequence[int] | None = None
    """Of a partitioned topic that is read as a whole; None: all there are and will be."""
    resume: Mapping[int, tuple[int, int]] = {}
    """Of `last_per_key`, by one that was open before: by partition, where it goes on, and where the
    state ends."""
    starts: Mapping[int, int] = {}
    """Of a row of partitions: an offset for each, in place of `start`."""


class Fetch(msgspec.Struct, frozen=True):
    """What to read of a plain topic by offset."""

    topic: str
    offset: int
    end: int | None = None
    """Nothing from this offset on; None: what there is."""
    max_rows: int = 1_000_000
    max_bytes: int = 1 << 20
    filter: Filter | None = None
    with_expired: bool = False
    topic_id: int | None = None
    """Of a remote broker: a topic made anew under the name has another, and is TopicReplaced."""


class Joining(msgspec.Struct, frozen=True):
    """Which queue group of a plain topic to join, and what it must be. What is None is the group's
    own."""

    topic: str
    group: str
    holder: str
    """A label that says who holds a lease."""
    order: Order | None = None
    filter: Filter | None = None
    start: Start | None = None
    auto_create: bool = True


class LeaseWatcher(Protocol):
    """Who keeps messages that a member has taken, and has to know whether they are its own still.

    A member behind a socket is in doubt while its connection is lost.
    """

    def in_doubt(self, member: MemberApi) -> None:
        """Hand out nothing of this member before `sure` is called."""
        ...

    def sure(self, member: MemberApi, lost: Collection[int]) -> None:
        """The broker has confirmed what the member holds, but for these offsets."""
        ...

    def broker_stops(self, member: MemberApi) -> None:
        """Give back what no caller has seen: the broker waits for the rest to be settled."""
        ...


class MemberApi(Protocol):
    """One member's hold on a queue group of a plain topic.

    Settling is by token and ranges of offsets, many at once. A settle counts until the message was
    granted to another, also if the broker was restarted since; what is lost is named by LeaseLost
    after everything else was carried out. To ack what is settled already changes nothing.
    """

    @property
    def info(self) -> GroupInfo: ...

    @property
    def is_instant(self) -> bool:
        """Whether settling waits for nothing: there is nothing to gain by settling many at once."""
        ...

    def watch(self, watcher: LeaseWatcher) -> None:
        """Tell the watcher from now on."""
        ...

    def is_ready(self) -> bool:
        """Whether there may be something to take right now."""
        ...

    async def take(
        self, max_rows: int, lease_seconds: float, wait: float | None, mode: TakeMode = LEASED
    ) -> Grant | None:
        """Up to `max_rows` messages; waits for the first up to `wait` seconds (None: for ever),
        never for more. None once the time is up, or earlier where partitions were added, so
        that they can be joined. Those who wait are served in their order. Cancelled, nothing was
        taken.
        """
        ...

    async def ack(self, leases: Sequence[Lease]) -> None: ...
    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        """Give back what was not done, to be delivered again in `delay` seconds; where that was
        the last of `max_deliveries`, it goes to the dead letters."""
        ...

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        """Straight to the dead letters."""
        ...

    async def extend(self, leases: Sequence[Lease], seconds: float) -> None:
        """Have the leases end that many seconds from now."""
        ...

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give back what was not looked at: it does not count as a delivery."""
        ...

    async def close(self) -> None:
        """Leave the group. What is still leased is given back at once."""
        ...


@runtime_checkable
class Paced(Protocol):
    """A member of a queue that knows what the rate limit of its topic says."""

    def seconds_until_token(self) -> float:
        """How long until the rate limit lets one more message go; 0 where it does now."""
        ...


@runtime_checkable
class KnowsLeases(Protocol):
    """A member that can say what is out of its group, whoever has it."""

    def standing(self) -> Sequence[Lease]:
        """Every token, with what can be settled under it: also where its lease ran out."""
        ...


@runtime_checkable
class SettlesBefore(Protocol):
    """A broker that can settle what is not leased: for protocols that commit a position in a
    queue."""

    async def settle_before(self, topic: str, group: str, offset: int) -> None:
        """Everything before an offset is done for this queue, also what is leased. What was
        settled beyond stays so; nothing ever becomes unsettled."""
        ...


ConnectionChanged = Callable[[Disconnected | None], None]
"""Called with the cause when the connection is lost, and with None when it is back."""


@runtime_checkable
class Connected(Protocol):
    """A broker behind a connection that may be lost and made again."""

    @property
    def is_connected(self) -> bool: ...
    def on_connection_changed(self, callback: ConnectionChanged) -> None:
        """Call back whenever the connection is lost or back, until this is closed."""
        ...


@runtime_checkable
class ReadsRows(Protocol):
    """A broker that puts the partitions of a topic together itself: a remote one."""

    async def open_row(self, reading: ReaderOpening) -> ReaderApi:
        """A reader of these partitions, or of all there are and will be."""
        ...


class Waiter(Protocol):
    """Who wants to hear that a change was made, or why not."""

    def applied(self) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class SharedPublish(Protocol):
    """Publishes that are on their way to the disk together, and become safe together."""

    waiters: list[Waiter]
    """Told once, in this order."""


class Placed(NamedTuple):
    """Messages whose place is decided. They are stored, or not, with all that share the publish."""

    offset: int
    """Of the first."""
    shared: SharedPublish
    durability: Durability


class BrokerApi(Protocol):
    @property
    def clock(self) -> Clock: ...

    def known_options(self, topic: str) -> TopicOptions | None:
        """The options of a topic, if they matter to who publishes there; see concern_clients."""
        ...

    def on_topic_changed(self, callback: Callable[[str, TopicOptions | None], None]) -> None:
        """Call back whenever a topic was made or configured, or deleted (None)."""
        ...

    def may_gather(self, topic: str) -> bool:
        """Whether several publishes to a topic may be stored as one publish of all their rows."""
        ...

    def publish_nowait(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None = None
    ) -> Receipt | Awaitable[Receipt] | None:
        """Publish at once, or None where that would mean to wait. The rows become the broker's.

        Where only the disk is waited for, the place of the rows is decided and the receipt follows:
        what is published next comes behind them. `timeout` is for a remote broker, where it
        turns out later that a publish has to wait.
        """
        ...

    def publish_value_nowait(self, topic: str, value: bytes) -> Receipt | Awaitable[Receipt] | None:
        """A short cut for one plain value; None where `publish_nowait` has to be asked."""
        ...

    def publish_rows_nowait(
        self,
        topic: str,
        values: list[bytes],
        content_type: str | None,
        producer: str,
        sequence: int,
    ) -> Receipt | Placed | Awaitable[Receipt] | None:
        """A short cut for a few messages of a producer that are nothing but values, and the
        cheapest way to publish many times in one turn of the event loop, to whichever topics:
        what is `Placed` shares a publish with others, whose `waiters` are told. None where
        `publish_nowait` has to be asked, with a batch. The list becomes the broker's."""
        ...

    async def publish(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None
    ) -> Receipt: ...

    async def request(
        self, topic: str, address: str, rows: Batch, timeout: float | None, auto_create: bool = True
    ) -> Rows:
        """Publish one message that names a reply address in its headers, and wait for the first
        reply to that address: one row. NoResponders where nobody would get the message."""
        ...

    async def reply(self, address: str, rows: Batch) -> bool:
        """Send one message to a reply address; whether the request was still waiting for it."""
        ...

    async def stage(
        self, writer: str, number: int, part: str | int, batches: Batches, *, auto_create: bool
    ) -> None:
        """Lay rows for plain topics ready; they are not seen before a commit. They are kept as they
        are when this is called."""
        ...

    async def commit(
        self, writer: str, number: int, parts: Sequence[str | int], *, ends: bool = False
    ) -> list[Receipt]:
        """Append staged parts to their topics, all in one step: a receipt for each topic. A writer
        that `ends` stages nothing more, and is forgotten a while later."""
        ...

    async def abort(self, writer: str, number: int) -> None: ...

    def writer_topics(self, writer: str) -> Collection[str]:
        """The topics a writer has staged for, and those its last commit went to."""
        ...

    async def backup(self, directory: str) -> None:
        """Write a consistent copy of everything to an empty directory of the broker's machine."""
        ...

    async def create_topic(self, name: str, options: dict[str, Any]) -> TopicInfo: ...
    async def configure_topic(self, name: str, options: dict[str, Any]) -> TopicInfo: ...
    async def delete_topic(self, name: str) -> None: ...
    async def purge_topic(self, name: str, before: int | None) -> int:
        """Drop every message before an offset, or all there are; how many. The topic, its groups
        and its offsets stay."""
        ...

    async def topics(self, pattern: str) -> list[str]: ...
    async def topic_info(self, name: str) -> TopicInfo: ...
    async def topic_stats(self, name: str) -> TopicStats: ...
    async def stats_of(self, names: Sequence[str]) -> list[TopicStats | None]:
        """The figures of many topics: of the first of them, as many as one answer has time for,
        and at least of one. None stands for a topic that does not exist."""
        ...

    async def definitions(
        self, kind: str, topic: str | None = None, name: str | None = None
    ) -> list[Definition]:
        """Of one topic, or of all; with a name, that one if there is one."""
        ...

    async def define(
        self, kind: str, topic: str, name: str, value: bytes | None, version: int | None = None
    ) -> int:
        """Keep a definition with its topic, in place of one of that name; without a value, remove
        it. With a version, only if that is the one in force (0: there is none), or else raise
        DefinitionChanged. The new version; 0 where nothing was there to remove."""
        ...

    async def webhook_states(self, topic: str | None = None) -> list[WebhookState]:
        """How the webhooks of a topic are doing, or of all topics."""
        ...

    async def test_webhook(self, topic: str, group: str) -> WebhookAnswer:
        """Send a test request to the target of a webhook."""
        ...

    async def open_reader(self, reading: ReaderOpening) -> ReaderApi: ...
    async def fetch(self, wanted: Fetch) -> Fetched:
        """Read a plain topic by offset, up to before `end`, without a trace: nothing is committed,
        and no limit of the topic takes what was only fetched for read.

        Whole stored batches as they are, until there are `max_rows` or `max_bytes`; one at least.
        With a filter, a limited number of rows is looked at in one call; `position` says how far.
        """
        ...

    async def extents(self, topic: str, at: Start | None) -> list[Extent]:
        """Where a topic begins and ends, by partition, and the offset that `at` means there."""
        ...

    async def objects(self, topic: str, start: int, end: int) -> FarObjects:
        """What of these offsets of a plain topic is in object storage: for who can read there."""
        ...

    async def wait_beyond(self, offsets: Mapping[str, int], timeout: float | None) -> bool:
        """Wait until a plain topic has messages beyond the offset named for it; False when the
        time is up. True too where one of them is not there."""
        ...

    async def open_feed(
        self, pattern: str, *, capacity: int, overflow: Overflow, filter: Filter | None
    ) -> FeedApi: ...

    # --- groups; a topic here may be a whole row of partitions, but for join_group and cancel

    async def join_group(self, joining: Joining) -> MemberApi:
        """Become a member of a queue group, which is made if need be."""
        ...

    async def groups(self, topic: str) -> list[GroupInfo]: ...
    async def group_stats(self, topic: str, group: str) -> GroupStats: ...
    async def pause_group(self, topic: str, group: str, paused: bool) -> None: ...
    async def reset_group(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None: ...
    async def delete_group(self, topic: str, group: str) -> None: ...
    async def peek(self, topic: str, group: str, max_rows: int) -> Rows:
        """What would be handed out next, without leasing it."""
        ...

    async def in_flight(self, topic: str, group: str, max_rows: int) -> list[InFlight]: ...
    async def dead_letters(self, topic: str, group: str, max_rows: int, first: int = 0) -> Rows:
        """The group's dead letters as they lie in the dead-letter topic, oldest first, from an
        offset of that topic on."""
        ...

    async def redrive(
        self, topic: str, group: str, offsets: Sequence[int] | None, filter: Filter | None
    ) -> int:
        """Put dead letters back for their group: these, or those that pass, or all; how many."""
        ...

    async def redrive_edited(
        self, topic: str, group: str, id: int, changes: Mapping[str, Any]
    ) -> int:
        """Put one dead letter back for its group with changes to `value`, `key`, `headers` and
        `content_type`, in one step; 0 where it is not there any more."""
        ...

    async def discard(
        self, topic: str, group: str, offsets: Sequence[int] | None, filter: Filter | None
    ) -> int:
        """Let dead letters go for good, chosen as for redrive; how many."""
        ...

    async def cancel(self, topic: str, ranges: Ranges) -> int:
        """Withdraw delayed messages that are not due yet; how many there were."""
        ...

    async def open(self) -> None:
        """Begin: recover, connect, or whatever has to be done before the first call."""
        ...

    async def close(self) -> None: ...
