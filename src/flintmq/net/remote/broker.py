"""The broker behind a socket. Implements BrokerApi over one connection of the native protocol."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import update_wrapper
from itertools import islice
from math import inf
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

import msgspec

from ...batch import OBJECTS, BatchBuilder, RecordBatch
from ...broker_api import (
    Batch,
    Batches,
    BrokerApi,
    ConnectionChanged,
    Fetch,
    Fetched,
    Filter,
    Joining,
    ReaderOpening,
)
from ...clock import Clock, SystemClock
from ...cluster_model import ClusterStatus, ClusterVerb
from ...errors import Closed, Disconnected, FlintError, InvalidRequest
from ...model import Extent, Overflow, Receipt, Start, TopicOptions, changed_options
from ...rows import Decoder, Rows, Run
from ..wire.faults import error_of
from ..wire.frames import Buffer, Frame
from ..wire.operations import (
    BY_VERB,
    ClusterRequest,
    ExtentsRequest,
    Fault,
    FetchedRangeReply,
    FetchedRangesReply,
    FetchRangeRequest,
    FetchRangesRequest,
    JoinGroupRequest,
    KnownTopic,
    Op,
    OpenedReply,
    OpenFeedRequest,
    OpenReaderRequest,
    ReplyToRequest,
    RequestRequest,
    StageRequest,
)
from ..wire.runs import decode_runs
from ..wire.values import gap_of, start_fields
from .address import parse_addresses
from .link import Link, again
from .member import RemoteMember
from .reader import RemoteReader
from .requests import RemoteRequests
from .send_buffer import PendingReceipt, SendBuffer
from .stream import RemoteFeed, RemoteStream
from .tls import ClientTls
from .topics import KnownTopics

T = TypeVar("T")
P = ParamSpec("P")
OnFull = Literal["block", "raise"]

SEND_BYTES_MAX = 16 * 1024 * 1024
"""How much may be published and not acknowledged before publishers wait, or hear QueueFull."""

AT_ONCE_SECONDS = 0.001
"""What is left of a time that is up: 0 would mean that it was never to be waited."""

REPLY_SECONDS = 1.0
"""How much longer than its timeout a request waits for a broker that does not say anything."""

_PLAIN_OPTIONS = TopicOptions()


def _filter_text(filter: Filter | None) -> str | None:
    if filter is None:
        return None
    text = getattr(filter, "text", None)
    if not isinstance(text, str):
        raise InvalidRequest(
            "a function cannot be sent to a remote broker: pass the filter as an "
            "expression, for example 'headers.region == \"eu\"'"
        )
    return text


def _listed(values: Any) -> Any:
    """A sequence or mapping as it travels. The broker says what is wrong with anything else."""
    if isinstance(values, Mapping):
        return dict(values)
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else values


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options as they travel: checked, and times in seconds."""
    wanted = changed_options(_PLAIN_OPTIONS, options)
    return {name: getattr(wanted, name) for name in options}


_WRITTEN: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("filter", _filter_text),
    ("to", start_fields),
    ("offsets", _listed),
    ("parts", _listed),
    ("options", _checked),
)
"""Fields of plain requests that do not travel as they are."""


def _asks(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[RemoteBroker, P], Coroutine[Any, Any, T]]:
    """A verb whose arguments are the fields of its request, as the table of operations has it."""
    row = BY_VERB[verb.__name__]
    answer = row.answer

    async def ask(broker: RemoteBroker, /, *arguments: P.args, **named: P.kwargs) -> T:
        request: Any = row.request(*arguments, **named)
        for name, convert in _WRITTEN:
            if (value := getattr(request, name, None)) is not None:
                setattr(request, name, convert(value))
        until = inf if row.is_long else None
        if row.waits and request.timeout != 0:
            until = broker.link.clock.monotonic() + (request.timeout or inf)
        found: T = await broker._requests.asked(row.op, request, answer, until=until)
        return found

    update_wrapper(ask, verb)
    return ask


class RemoteBroker:
    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        decoder: Decoder | None = None,
        timeout: float | None = 30.0,
        auto_create: bool = True,
        on_full: OnFull = "block",
        send_bytes_max: int = SEND_BYTES_MAX,
        api_key: str | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        if on_full not in get_args(OnFull):
            raise InvalidRequest(f"on_full must be one of {', '.join(get_args(OnFull))}")
        self.clock: Clock = clock or SystemClock()
        self._timeout, self._auto_create = timeout, auto_create
        self._streams: set[RemoteStream] = set()
        self._members: set[RemoteMember] = set()
        self._on_changed: list[ConnectionChanged] = []
        self._topics = KnownTopics(self.clock, decoder)
        name = f"{socket.gethostname()}/{os.getpid()}"
        self.link = Link(
            parse_addresses(url),
            self,
            patience=timeout,
            clock=self.clock,
            client=name,
            api_key=api_key,
            tls=tls,
        )
        self._send_buffer = SendBuffer(
            self.link,
            f"{name}/{secrets.token_hex(6)}",
            is_careful=self._topics.is_careful,
            bytes_max=send_bytes_max,
            blocks=on_full == "block",
        )
        self._requests = RemoteRequests(self.link, self._send_buffer, self._topics)

    # --- the connection

    async def open(self) -> None:
        """Connect. Raises Disconnected with host, port and cause if no server answers."""
        await self.link.open()
        self._requests.is_open = True

    async def close(self) -> None:
        requests = self._requests
        if requests.is_closed:
            return
        requests.is_closed = True
        if requests.is_open:
            requests.is_open = False
            self._send_buffer.close()
            for stream in list(self._streams):
                stream.fail(Closed("the broker"))
            await self.link.close()

    @property
    def is_connected(self) -> bool:
        return self._requests.is_open and self.link.is_up

    def on_connection_changed(self, callback: ConnectionChanged) -> None:
        self._on_changed.append(callback)

    # --- what the link tells

    def connection_changed(self, lost: Disconnected | None) -> None:
        for callback in self._on_changed:
            callback(lost)

    def heard(self, frame: Frame) -> None:
        if frame.op == Op.TOPIC_CHANGED:
            self._topics.learn(msgspec.msgpack.decode(frame.control, type=KnownTopic))
        elif frame.op == Op.DRAIN:
            for member in self._members:
                member.broker_stops()

    def opened(self, opened: OpenedReply) -> None:
        self._send_buffer.bound(opened.in_flight_bytes_max)
        self._topics.opened(opened)
        if opened.resumed:
            for member in self._members:
                member.is_back()

    def connection_lost(self) -> None:
        for member in self._members:
            member.is_away()

    def session_began(self) -> None:
        for stream in list(self._streams):
            stream.reopen()
        for member in list(self._members):
            member.reopen()
        self._send_buffer.send_again()

    def refused(self, error: FlintError) -> None:
        for stream in list(self._streams):
            stream.fail(again(error))
        for member in self._members:
            member.end(error)
        self._send_buffer.fail(error)

    # --- publishing

    def known_options(self, topic: str) -> TopicOptions | None:
        if not isinstance(topic, str):
            raise InvalidRequest(f"a topic name must be a str, not {topic!r}")
        options = self._topics.options
        return options.get(topic.partition("/")[0]) if options else None

    def on_topic_changed(self, callback: Callable[[str, TopicOptions | None], None]) -> None:
        raise InvalidRequest("a remote broker does not provide this to clients")

    def may_gather(self, topic: str) -> bool:
        return not self._topics.is_careful(topic)

    def publish_nowait(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None = None
    ) -> PendingReceipt | None:
        self._requests.check_open()
        if self._send_buffer.is_full(rows.row_count) or (
            type(topic) is str and self._topics.is_careful(topic)
        ):
            return None
        return self._send_buffer.publish(topic, rows, qos, auto_create, timeout)

    def publish_rows_nowait(self, *given: Any, **named: Any) -> None:
        return None

    def publish_value_nowait(self, topic: str, value: bytes) -> Receipt | Awaitable[Receipt] | None:
        if not self._requests.is_open or self._send_buffer.is_full():
            return None
        known = self._topics.by_name
        if known and topic.partition("/")[0] in known:
            return None
        return self._send_buffer.publish_value(topic, value, self._auto_create, self._timeout)

    async def publish(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None
    ) -> Receipt:
        self._requests.check_open()
        if self._send_buffer.is_full(rows.row_count):
            deadline = None if timeout is None else self.clock.monotonic() + timeout
            await self._send_buffer.wait_room(rows.row_count, deadline)
            self._requests.check_open()
            if timeout and deadline is not None:
                timeout = max(AT_ONCE_SECONDS, deadline - self.clock.monotonic())
        return await self._send_buffer.publish(topic, rows, qos, auto_create, timeout)

    async def request(
        self, topic: str, address: str, rows: Batch, timeout: float | None, auto_create: bool = True
    ) -> Rows:
        control = RequestRequest(topic, address, timeout, auto_create)
        until = inf
        if timeout is not None:  # the broker says NoReply: its answer has a moment to come
            until = self.link.clock.monotonic() + timeout + REPLY_SECONDS
        return await self._requests.asked(
            Op.REQUEST, control, Rows, self._fitted(rows), until=until
        )

    async def reply(self, address: str, rows: Batch) -> bool:
        control = ReplyToRequest(address)
        return await self._requests.asked(Op.REPLY_TO, control, bool, self._fitted(rows))

    def _fitted(self, rows: Batch) -> list[Buffer]:
        """A batch as it goes behind a request."""
        fitted = self.link.fitted(_sealed(rows), self.clock.now_ms())
        return [fitted.header(), fitted.body]

    async def stage(
        self, writer: str, number: int, part: str | int, batches: Batches, *, auto_create: bool
    ) -> None:
        parts = [part for _, rows in batches for part in self._fitted(rows)]
        control = StageRequest(writer, number, part, [topic for topic, _ in batches], auto_create)
        await self._requests.asked(Op.STAGE, control, batches=parts)

    commit = _asks(BrokerApi.commit)
    abort = _asks(BrokerApi.abort)

    def writer_topics(self, writer: str) -> list[str]:
        raise InvalidRequest("a remote broker checks permissions itself")

    # --- topics

    backup = _asks(BrokerApi.backup)
    create_topic = _asks(BrokerApi.create_topic)
    configure_topic = _asks(BrokerApi.configure_topic)
    delete_topic = _asks(BrokerApi.delete_topic)
    purge_topic = _asks(BrokerApi.purge_topic)
    topics = _asks(BrokerApi.topics)
    topic_info = _asks(BrokerApi.topic_info)
    topic_stats = _asks(BrokerApi.topic_stats)
    stats_of = _asks(BrokerApi.stats_of)
    definitions = _asks(BrokerApi.definitions)
    define = _asks(BrokerApi.define)
    webhook_states = _asks(BrokerApi.webhook_states)
    test_webhook = _asks(BrokerApi.test_webhook)

    # --- readers and feeds

    async def open_reader(self, reading: ReaderOpening) -> RemoteReader:
        return await self._open_reader(reading, is_whole=False)

    async def open_row(self, reading: ReaderOpening) -> RemoteReader:
        return await self._open_reader(reading, is_whole=True)

    async def _open_reader(self, reading: ReaderOpening, *, is_whole: bool) -> RemoteReader:
        r = reading
        auto_create = r.auto_create and not is_whole
        opening = OpenReaderRequest(
            r.topic,
            r.name,
            start_fields(r.starts or r.start),
            _filter_text(r.filter),
            auto_create,
            is_whole,
        )
        if r.partitions is not None:
            opening.partitions = list(r.partitions)
        opening.resume = dict(r.resume)
        reader = RemoteReader(self._requests, opening, self._streams)
        await reader.open()
        return reader

    async def open_feed(
        self, pattern: str, *, capacity: int, overflow: Overflow, filter: Filter | None
    ) -> RemoteFeed:
        opening = OpenFeedRequest(pattern, capacity, overflow, _filter_text(filter))
        what = f"live feed {pattern!r}"
        feed = RemoteFeed(self._requests, what, opening, Op.OPEN_FEED, self._streams)
        await feed.open()
        return feed

    async def fetch(self, wanted: Fetch) -> Fetched:
        w = wanted
        control = FetchRangeRequest(
            w.topic,
            w.offset,
            w.end,
            w.max_rows,
            w.max_bytes,
            _filter_text(w.filter),
            w.with_expired,
            w.topic_id,
        )
        frame = await self._requests.ask_again(Op.FETCH_RANGE, control)
        taken = msgspec.msgpack.decode(frame.control, type=FetchedRangeReply)
        runs = decode_runs(taken.runs, frame.batches, self._topics.origin)
        return _fetched(taken, runs)

    async def fetch_many(self, wanted: Sequence[Fetch], max_bytes: int) -> list[Fetched]:
        """Small ranges of many topics, in one request; the first of them, if it was too much for
        one reply. All have an end, and the same filter."""
        control = FetchRangesRequest(
            [one.topic for one in wanted],
            [one.offset for one in wanted],
            [one.offset if one.end is None else one.end for one in wanted],
            [one.topic_id for one in wanted],
            max_bytes,
            _filter_text(wanted[0].filter),
            wanted[0].with_expired,
        )
        frame = await self._requests.ask_again(Op.FETCH_RANGES, control)
        reply = msgspec.msgpack.decode(frame.control, type=FetchedRangesReply)
        infos = [info for taken in reply.ranges for info in taken.runs]
        runs = iter(decode_runs(infos, frame.batches, self._topics.origin))
        return [_fetched(taken, list(islice(runs, len(taken.runs)))) for taken in reply.ranges]

    async def cluster(self, verb: ClusterVerb, name: str = "", address: str = "") -> ClusterStatus:
        """What operators ask of a cluster; how it is then."""
        control = ClusterRequest(verb, name, address)
        return await self._requests.asked(Op.CLUSTER, control, ClusterStatus)

    async def extents(self, topic: str, at: Start | None) -> list[Extent]:
        found = (await self.extents_of([topic], at))[topic]
        if isinstance(found, FlintError):
            raise found
        return found

    async def extents_of(
        self, topics: Sequence[str], at: Start | None = None
    ) -> dict[str, list[Extent] | FlintError]:
        """Where several topics begin and end, asked in one go; or the error for a topic."""
        control = ExtentsRequest(list(topics), start_fields(at))
        answers: list[Any] = await self._requests.asked(Op.EXTENTS, control, list[Any])
        found: dict[str, list[Extent] | FlintError] = {}
        for topic, answer in zip(topics, answers, strict=True):
            if answer and isinstance(answer[0], str):
                found[topic] = error_of(msgspec.convert(answer, Fault))
            else:
                found[topic] = msgspec.convert(answer, list[Extent])
        return found

    objects = _asks(BrokerApi.objects)
    wait_beyond = _asks(BrokerApi.wait_beyond)

    # --- groups

    async def join_group(self, joining: Joining) -> RemoteMember:
        j = joining
        start, filter = start_fields(j.start), _filter_text(j.filter)
        request = JoinGroupRequest(
            j.topic, j.group, j.order, filter, start, j.holder, j.auto_create
        )
        member = RemoteMember(self._requests, request, self._members)
        await member.open()
        return member

    groups = _asks(BrokerApi.groups)
    group_stats = _asks(BrokerApi.group_stats)
    pause_group = _asks(BrokerApi.pause_group)
    reset_group = _asks(BrokerApi.reset_group)
    delete_group = _asks(BrokerApi.delete_group)
    peek = _asks(BrokerApi.peek)
    in_flight = _asks(BrokerApi.in_flight)
    dead_letters = _asks(BrokerApi.dead_letters)
    redrive = _asks(BrokerApi.redrive)
    redrive_edited = _asks(BrokerApi.redrive_edited)
    discard = _asks(BrokerApi.discard)
    cancel = _asks(BrokerApi.cancel)


def _sealed(rows: BatchBuilder | RecordBatch) -> RecordBatch:
    if isinstance(rows, RecordBatch):
        return rows
    if rows.columns & OBJECTS:
        raise InvalidRequest("objects are passed by reference and cannot be sent over a network")
    return rows.seal()


def _fetched(taken: FetchedRangeReply, runs: list[Run]) -> Fetched:
    return Fetched(Rows(runs, gap_of(taken.gap)), taken.position, taken.next_offset)
