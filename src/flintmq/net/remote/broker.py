"""The broker behind a socket. Implements BrokerApi over one connection of the native protocol."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import update_wrapper
from math import inf
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast, get_args

import msgspec

from ...batch import EXPIRY, OBJECTS, BatchBuilder, RecordBatch
from ...broker_api import BrokerApi, ConnectionChanged, Fetched, Filter
from ...clock import Clock, SystemClock
from ...errors import (
    Closed,
    Disconnected,
    FlintError,
    InvalidRequest,
    MessageTooLarge,
    OutcomeUnknown,
)
from ...group_model import Order
from ...model import (
    Extent,
    Missed,
    Overflow,
    Receipt,
    Start,
    TopicInfo,
    TopicOptions,
    changed_options,
)
from ...rows import Decoder, Origin, Rows, Run
from ..wire.faults import error_of
from ..wire.frames import HEADER_BYTES, Buffer, Frame
from ..wire.operations import (
    BY_VERB,
    OPERATIONS,
    CloseStreamRequest,
    CommitStageRequest,
    ExtentsRequest,
    Fault,
    FetchedRangeReply,
    FetchRangeRequest,
    JoinGroupRequest,
    KnownTopic,
    NameRequest,
    Op,
    OpenedReply,
    OpenFeedRequest,
    OpenReaderRequest,
    SetTopicRequest,
    StageRequest,
    TakenReply,
    WaitBeyondRequest,
    encode,
)
from ..wire.runs import decode_runs
from ..wire.values import receipt_of, start_fields
from .address import parse_addresses
from .link import CLOSE_SECONDS, Link, SessionLost, again
from .member import RemoteMember
from .outbox import Outbox, PendingReceipt
from .streams import RemoteFeed, RemoteReader, RemoteStream
from .tls import ClientTls

T = TypeVar("T")
P = ParamSpec("P")
OnFull = Literal["block", "raise"]

SEND_BYTES_MAX = 16 * 1024 * 1024
"""How much may be published and not acknowledged before publishers wait, or hear QueueFull."""

AT_ONCE_SECONDS = 0.001
"""What is left of a time that is up: 0 would mean that it was never to be waited."""

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


_WRITTEN: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("filter", _filter_text),
    ("to", start_fields),
    ("offsets", list),
)
"""Fields of plain requests that do not travel as they are."""


def _asks(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[RemoteBroker, P], Coroutine[Any, Any, T]]:
    """A verb whose arguments are the fields of its request, as the table of operations has it."""
    row = BY_VERB[verb.__name__]
    answer = row.answer

    async def ask(broker: RemoteBroker, /, *arguments: P.args, **named: P.kwargs) -> T:
        request = row.request(*arguments, **named)
        for name, convert in _WRITTEN:
            if (value := getattr(request, name, None)) is not None:
                setattr(request, name, convert(value))
        found: T = await broker._asked(row.op, request, answer)
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
        self._decoder = decoder
        self._timeout, self._auto_create = timeout, auto_create
        self.streams: set[RemoteStream] = set()
        self.members: set[RemoteMember] = set()
        self._known: dict[str, KnownTopic] = {}
        self._options: dict[str, TopicOptions] = {}
        self._origins: dict[tuple[str, int], Origin] = {}
        self.has_ttl = False
        self._their_ms, self._met_at = 0, 0.0
        self._closed = False
        self._opened = False
        self._on_changed: list[ConnectionChanged] = []
        name = f"{socket.gethostname()}/{os.getpid()}"
        self.link = Link(
            parse_addresses(url),
            patience=timeout,
            clock=self.clock,
            client=name,
            api_key=api_key,
            tls=tls,
            on_event=self._event,
            on_opened=self._take_up,
            on_new_session=self._start_anew,
            on_lost=self._lost,
            on_refused=self._refused,
            on_changed=self._changed,
        )
        self._outbox = Outbox(
            self.link,
            f"{name}/{secrets.token_hex(6)}",
            self.clock,
            is_careful=self._is_careful,
            bytes_max=send_bytes_max,
            blocks=on_full == "block",
        )

    # --- the connection

    async def open(self) -> None:
        """Connect. Raises Disconnected with host, port and cause if nobody answers."""
        await self.link.open()
        self._opened = True

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._opened:
            self._outbox.close()
            for stream in list(self.streams):
                stream.fail(Closed("the broker"))
            await self.link.close()

    @property
    def is_connected(self) -> bool:
        return self._opened and not self._closed and self.link.is_up

    def on_connection_changed(self, callback: ConnectionChanged) -> None:
        self._on_changed.append(callback)

    def _changed(self, lost: Disconnected | None) -> None:
        for callback in self._on_changed:
            callback(lost)

    def _event(self, frame: Frame) -> None:
        if frame.op == Op.TOPIC_CHANGED:
            self._learn(msgspec.msgpack.decode(frame.control, type=KnownTopic))
        elif frame.op == Op.DRAIN:
            for member in self.members:
                member.broker_stops()

    def _take_up(self, opened: OpenedReply) -> None:
        self._outbox.bound(opened.in_flight_bytes_max)
        self._their_ms, self._met_at = opened.now_ms, self.clock.monotonic()
        known = {topic.name for topic in opened.topics}
        for name in [name for name in self._known if name not in known]:
            self._learn(KnownTopic(name, None))
        for topic in opened.topics:
            self._learn(topic)
        if opened.resumed:
            for member in self.members:
                member.is_back()

    def _learn(self, topic: KnownTopic) -> None:
        name = topic.name
        if topic == self._known.get(name):
            return
        self._origins.clear()
        self._options.pop(name, None)
        if topic.options is None and not topic.careful and topic.ttl_ms is None:
            self._known.pop(name, None)
        else:
            self._known[name] = topic
            if topic.options is not None:
                self._options[name] = msgspec.convert(topic.options, TopicOptions)
        self.has_ttl = any(known.ttl_ms is not None for known in self._known.values())

    def _lost(self) -> None:
        for member in self.members:
            member.is_away()

    def _start_anew(self) -> None:
        """The broker does not know us any more: everything that lasts is set up again."""
        for stream in list(self.streams):
            stream.reopen()
        for member in list(self.members):
            member.reopen()
        self._outbox.send_again()

    def _refused(self, error: FlintError) -> None:
        """Our key is none any more: everything that lasts ends with that."""
        for stream in list(self.streams):
            stream.fail(again(error))
        for member in self.members:
            member.end(error)
        self._outbox.fail(error)

    # --- asking

    def encode(self, control: Any) -> bytes:
        try:
            return encode(control)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"this cannot be sent to a remote broker: {error}") from None

    def before_asking(self) -> None:
        """What was published before something is asked is sent before it."""
        self._outbox.flush()

    async def ask(
        self,
        op: Op,
        control: Any,
        batches: Sequence[Buffer] = (),
        on_answer: Callable[[Frame], None] | None = None,
        *,
        until: float | None = None,
    ) -> Frame:
        """Ask, and wait for the answer until then; by default, as long as the connection's
        `timeout` says. `inf` is as long as it takes, while there is a connection."""
        self._check_open()
        encoded = self.encode(control)
        size = HEADER_BYTES + len(encoded) + 8 + sum(map(len, batches))
        if size > self.link.frame_bytes_max:
            raise MessageTooLarge("a request", size, self.link.frame_bytes_max, "frame_bytes")
        self.before_asking()
        deadline = self.link.deadline() if until is None else until
        return await self.link.ask(
            op,
            msgspec.Raw(encoded),
            batches,
            on_answer=on_answer,
            deadline=None if deadline == inf else deadline,
        )

    def until(self) -> float:
        """The deadline of a call that begins now, which may ask more than once."""
        deadline = self.link.deadline()
        return inf if deadline is None else deadline

    async def ask_stream(self, op: Op, control: Any, until: float | None = None) -> Frame:
        """Open a stream. Cancelled or too late, what is opened all the same is closed."""
        abandoned = False
        opened: list[int] = []

        def answered(frame: Frame) -> None:
            if frame.op == Op.REPLY:
                opened.append(msgspec.msgpack.decode(frame.control)[0])
                if abandoned:
                    close()

        def close() -> None:
            self.link.send(Op.CLOSE_STREAM, encode(CloseStreamRequest(opened[0])))

        try:
            return await self.ask(op, control, (), answered, until=until)
        except (asyncio.CancelledError, OutcomeUnknown):
            abandoned = True
            if opened:
                close()
            raise

    async def ask_if_connected(self, op: Op, control: Any) -> None:
        """Ask what needs no answer where there is no connection: then there is nothing to do. A
        broker that says nothing is told, and not waited for."""
        if self._closed or not self.link.is_up:
            return
        if self.link.is_silent:
            self.link.send(op, self.encode(control))
            return
        seconds = min(CLOSE_SECONDS, inf if self._timeout is None else self._timeout)
        try:
            await self.ask(op, control, until=self.link.deadline(seconds))
        except (SessionLost, Closed, Disconnected, OutcomeUnknown):
            return

    async def _asked(
        self,
        op: Op,
        control: Any,
        kind: type[T] | Any = Any,
        batches: Sequence[Buffer] = (),
        *,
        until: float | None = None,
    ) -> T:
        """Ask and decode the answer. What may be repeated is asked again of a new session."""
        until = self.until() if until is None else until
        while True:
            try:
                frame = await self.ask(op, control, batches, until=until)
            except SessionLost:
                if OPERATIONS[op].may_repeat:
                    continue
                raise OutcomeUnknown(
                    f"the connection to {self.link.name} was lost during the request"
                ) from None
            if kind is Rows:
                taken = msgspec.msgpack.decode(frame.control, type=TakenReply)
                return cast(T, Rows(decode_runs(taken.runs, frame.batches, self.origin)))
            return cast(T, msgspec.msgpack.decode(frame.control, type=kind))

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the broker")
        if not self._opened:
            raise InvalidRequest(
                "this connection is not open: use `async with`, or `await` it first"
            )

    # --- what is known here

    def known_options(self, topic: str) -> TopicOptions | None:
        if not isinstance(topic, str):
            raise InvalidRequest(f"a topic name must be a str, not {topic!r}")
        if not self._options:
            return None
        return self._options.get(topic.partition("/")[0])

    def _is_careful(self, topic: str) -> bool:
        if not self._known:
            return False
        known = self._known.get(topic.partition("/")[0])
        return known is not None and known.careful

    def origin(self, topic: str, partition: int) -> Origin:
        found = self._origins.get((topic, partition))
        if found is None:
            options = self._options.get(topic)
            found = Origin(topic, partition, self._decoder, options)
            if len(self._origins) > 10_000:
                self._origins.clear()
            self._origins[topic, partition] = found
        return found

    def _broker_ms(self) -> int:
        """The broker's time, late by the time its word took to us. One that does not tell it is
        believed to have ours."""
        if not self._their_ms:
            return self.clock.now_ms()
        return self._their_ms + round((self.clock.monotonic() - self._met_at) * 1000)

    def alive(self, run: Run) -> Run | None:
        """What of a run that was held here has not expired meanwhile."""
        source = run.source
        known = self._known.get(run.origin.topic) if self.has_ttl else None
        ttl_ms = None if known is None else known.ttl_ms
        if not source.columns & EXPIRY and ttl_ms is None:
            return run
        now_ms = self._broker_ms()
        rows = run.rows()
        picks = [row for row in rows if _end_of_life(run, row, ttl_ms) > now_ms]
        if len(picks) == len(rows):
            return run
        return run._replace(picks=picks) if picks else None

    # --- publishing

    def on_topic_changed(self, callback: Callable[[str, TopicOptions | None], None]) -> None:
        raise InvalidRequest("a remote broker does not provide this to clients")

    def may_gather(self, topic: str) -> bool:
        return not self._is_careful(topic)

    def publish_nowait(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        *,
        qos: int,
        auto_create: bool,
        timeout: float | None = None,
    ) -> PendingReceipt | None:
        self._check_open()
        if self._outbox.is_full(rows.row_count) or (type(topic) is str and self._is_careful(topic)):
            return None
        return self._outbox.publish(topic, rows, qos, auto_create, timeout)

    def publish_value_nowait(self, topic: str, value: bytes) -> Receipt | Awaitable[Receipt] | None:
        if self._closed or not self._opened or self._outbox.is_full():
            return None
        if self._known and topic.partition("/")[0] in self._known:
            return None
        return self._outbox.publish_value(topic, value, self._auto_create, self._timeout)

    async def publish(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        *,
        qos: int,
        auto_create: bool,
        timeout: float | None,
    ) -> Receipt:
        self._check_open()
        if self._outbox.is_full(rows.row_count):
            deadline = None if timeout is None else self.clock.monotonic() + timeout
            await self._outbox.wait_room(rows.row_count, deadline)
            self._check_open()
            if timeout and deadline is not None:
                timeout = max(AT_ONCE_SECONDS, deadline - self.clock.monotonic())
        return await self._outbox.publish(topic, rows, qos, auto_create, timeout)

    async def stage(
        self,
        writer: str,
        number: int,
        part: str | int,
        batches: Sequence[tuple[str, BatchBuilder | RecordBatch]],
        *,
        auto_create: bool,
    ) -> None:
        sealed = [
            (topic, rows if isinstance(rows, RecordBatch) else _sealed(rows))
            for topic, rows in batches
        ]
        parts: list[Buffer] = []
        now_ms = self.clock.now_ms()
        for _, batch in sealed:
            fitted = self.link.fitted(batch, now_ms)
            parts += (fitted.header(), fitted.body)
        control = StageRequest(writer, number, part, [topic for topic, _ in sealed], auto_create)
        await self._asked(Op.STAGE, control, batches=parts)

    async def commit(self, writer: str, number: int, parts: Sequence[str | int]) -> list[Receipt]:
        names = list(parts) if isinstance(parts, Sequence) and not isinstance(parts, str) else parts
        control = CommitStageRequest(writer, number, names)  # type: ignore[arg-type]
        fields: list[Any] = await self._asked(Op.COMMIT_STAGE, control, list[Any])
        return [receipt_of(receipt) for receipt in fields]

    abort = _asks(BrokerApi.abort)

    def writer_topics(self, writer: str) -> list[str]:
        raise InvalidRequest("a remote broker checks permissions itself")

    # --- topics

    async def backup(self, directory: str) -> None:
        await self._asked(Op.BACKUP, NameRequest(directory), until=inf)

    async def create_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        control = SetTopicRequest(name, _checked(options))
        info: TopicInfo = await self._asked(Op.CREATE_TOPIC, control, TopicInfo)
        return info

    async def configure_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        control = SetTopicRequest(name, _checked(options))
        info: TopicInfo = await self._asked(Op.CONFIGURE_TOPIC, control, TopicInfo)
        return info

    delete_topic = _asks(BrokerApi.delete_topic)
    purge_topic = _asks(BrokerApi.purge_topic)

    async def topics(self, pattern: str) -> list[str]:
        names: list[str] = await self._asked(Op.TOPICS, NameRequest(pattern), list[str])
        return names

    topic_info = _asks(BrokerApi.topic_info)
    topic_stats = _asks(BrokerApi.topic_stats)
    stats_of = _asks(BrokerApi.stats_of)

    # --- readers and feeds

    async def open_reader(
        self,
        topic: str,
        *,
        name: str | None,
        start: Start | None,
        filter: Filter | None,
        auto_create: bool,
    ) -> RemoteReader:
        opening = OpenReaderRequest(
            topic, name, start_fields(start), _filter_text(filter), auto_create
        )
        reader = RemoteReader(self, opening)
        await self._opened_once(reader)
        return reader

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        end: int | None,
        max_rows: int,
        max_bytes: int,
        filter: Filter | None,
        with_expired: bool,
        topic_id: int | None = None,
    ) -> Fetched:
        """Read by offset. With `topic_id`, a topic made anew under the name is TopicReplaced."""
        control = FetchRangeRequest(
            topic, offset, end, max_rows, max_bytes, _filter_text(filter), with_expired, topic_id
        )
        until = self.until()
        while True:
            try:
                frame = await self.ask(Op.FETCH_RANGE, control, until=until)
            except SessionLost:
                continue
            taken = msgspec.msgpack.decode(frame.control, type=FetchedRangeReply)
            gap = None if taken.gap is None else Missed(*taken.gap)
            rows = Rows(decode_runs(taken.runs, frame.batches, self.origin), gap)
            return Fetched(rows, taken.position, taken.next_offset)

    async def extents(self, topic: str, at: Start | None) -> list[Extent]:
        found = (await self.extents_of([topic], at))[topic]
        if isinstance(found, FlintError):
            raise found
        return found

    async def extents_of(
        self, topics: Sequence[str], at: Start | None = None
    ) -> dict[str, list[Extent] | FlintError]:
        """Where several topics begin and end, asked in one go; or why that cannot be told."""
        control = ExtentsRequest(list(topics), start_fields(at))
        answers: list[Any] = await self._asked(Op.EXTENTS, control, list[Any])
        found: dict[str, list[Extent] | FlintError] = {}
        for topic, answer in zip(topics, answers, strict=True):
            if answer and isinstance(answer[0], str):
                found[topic] = error_of(msgspec.convert(answer, Fault))
            else:
                found[topic] = msgspec.convert(answer, list[Extent])
        return found

    async def wait_beyond(self, offsets: Mapping[str, int], timeout: float | None) -> bool:
        control = WaitBeyondRequest(dict(offsets), timeout)
        until = inf if timeout is None else self.clock.monotonic() + timeout if timeout else None
        is_beyond: bool = await self._asked(Op.WAIT_BEYOND, control, bool, until=until)
        return is_beyond

    async def open_row(
        self,
        topic: str,
        *,
        partitions: Sequence[int] | None,
        name: str | None,
        start: Start | None,
        filter: Filter | None,
    ) -> RemoteReader:
        named = None if partitions is None else list(partitions)
        opening = OpenReaderRequest(
            topic, name, start_fields(start), _filter_text(filter), False, True, named
        )
        reader = RemoteReader(self, opening)
        await self._opened_once(reader)
        return reader

    async def open_feed(
        self, pattern: str, *, capacity: int, overflow: Overflow, filter: Filter | None
    ) -> RemoteFeed:
        feed = RemoteFeed(self, OpenFeedRequest(pattern, capacity, overflow, _filter_text(filter)))
        await self._opened_once(feed)
        return feed

    async def _opened_once(self, stream: RemoteStream | RemoteMember) -> None:
        until = self.until()
        while True:
            try:
                await stream.open(until)
                return
            except SessionLost:
                continue

    # --- groups

    async def join_group(
        self,
        topic: str,
        group: str,
        *,
        order: Order | None,
        filter: Filter | None,
        start: Start | None,
        holder: str,
        auto_create: bool,
    ) -> RemoteMember:
        joining = JoinGroupRequest(
            topic, group, order, _filter_text(filter), start_fields(start), holder, auto_create
        )
        member = RemoteMember(self, joining)
        await self._opened_once(member)
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
    discard = _asks(BrokerApi.discard)
    cancel = _asks(BrokerApi.cancel)


def _end_of_life(run: Run, row: int, ttl_ms: int | None) -> float:
    expiry = run.source.expiry(row)
    if expiry:
        return expiry
    return float("inf") if ttl_ms is None else run.source.time(row) + ttl_ms


def _sealed(rows: BatchBuilder) -> RecordBatch:
    if rows.columns & OBJECTS:
        raise InvalidRequest("objects are passed by reference and cannot be sent over a network")
    return rows.seal()


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options as they travel: checked, and times in seconds."""
    wanted = changed_options(_PLAIN_OPTIONS, options)
    return {name: getattr(wanted, name) for name in options}
