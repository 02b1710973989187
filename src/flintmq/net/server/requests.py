"""What the server does for each request: a verb of BrokerApi, or one of the functions here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from ...batch import decode_all
from ...broker_api import Fetch, Fetched, Filter, Joining, ReaderApi, ReaderOpening, TakeMode
from ...client.partitioned_reader import PartitionedReader
from ...cluster_model import VERBS, ClusterStatus
from ...errors import FlintError, InvalidRequest, TopicReplaced
from ...group_model import Lease
from ...groups.ranges import ascending, ranges_of_runs
from ...model import Overflow, Start
from ...rows import Rows
from ...serde.filters import compile_filter
from ..wire.faults import fault_of
from ..wire.frames import Buffer, Frame
from ..wire.operations import (
    OPERATIONS,
    CloseStreamRequest,
    ClusterRequest,
    CommitRequest,
    CommitStageRequest,
    Control,
    ExtentsRequest,
    FetchedRangeReply,
    FetchedRangesReply,
    FetchRangeRequest,
    FetchRangesRequest,
    FetchRequest,
    GrantedReply,
    JoinedReply,
    JoinGroupRequest,
    NameRequest,
    Op,
    OpenFeedRequest,
    OpenReaderRequest,
    Operation,
    ReplyToRequest,
    RequestRequest,
    SeekRequest,
    SettleRequest,
    SetTopicRequest,
    StageRequest,
    StreamOpenedReply,
    TakeLeasedRequest,
    TakenReply,
)
from ..wire.operations import StreamRequest as StreamName
from ..wire.rules import Need
from ..wire.values import gap_fields, receipt_fields, start_of
from .publishing import checked_batch
from .streams import OpenMembership, OpenStream, cut

if TYPE_CHECKING:
    from .session import Session


class WithBatches(NamedTuple):
    """An answer with record batches behind it."""

    control: Control
    batches: Sequence[Buffer]


ANSWERED = object()
"""What a request returns that has sent its answer itself."""

Handler = Callable[["Session", Any, Frame], Coroutine[Any, Any, Any]]


def _filter(text: str | None) -> Filter | None:
    return None if text is None else cast(Filter, compile_filter(text))


# --- requests and replies


async def request(session: Session, c: RequestRequest, frame: Frame) -> WithBatches:
    rows = await session.server.broker.request(
        c.topic,
        c.address,
        checked_batch(frame.batches),
        c.timeout,
        c.auto_create and session.access.may_create(c.topic),
    )
    return _some_of(session, rows)


async def reply_to(session: Session, c: ReplyToRequest, frame: Frame) -> bool:
    return await session.server.broker.reply(c.address, checked_batch(frame.batches))


# --- staged writes


async def stage(session: Session, c: StageRequest, frame: Frame) -> None:
    batches = [checked_batch(part) for part in _each_batch(frame.batches)]
    if len(batches) != len(c.topics):
        raise InvalidRequest(f"{len(batches)} batches for {len(c.topics)} topics")
    await session.server.broker.stage(
        c.writer,
        c.number,
        c.part,
        list(zip(c.topics, batches, strict=True)),
        auto_create=c.auto_create,
    )


def _each_batch(buffer: memoryview) -> list[memoryview]:
    parts = []
    position = 0
    for batch in decode_all(buffer, verify=False):
        parts.append(buffer[position : position + batch.byte_length])
        position += batch.byte_length
    return parts


async def commit_stage(session: Session, c: CommitStageRequest, frame: Frame) -> Any:
    receipts = await session.server.broker.commit(c.writer, c.number, c.parts, ends=c.ends)
    return [receipt_fields(receipt) for receipt in receipts]


# --- topics


async def create_topic(session: Session, c: SetTopicRequest, frame: Frame) -> Any:
    _refuse_objects(c)
    return await session.server.broker.create_topic(c.name, c.options)


async def configure_topic(session: Session, c: SetTopicRequest, frame: Frame) -> Any:
    _refuse_objects(c)
    return await session.server.broker.configure_topic(c.name, c.options)


def _refuse_objects(c: SetTopicRequest) -> None:
    if c.options.get("format") == "object":
        raise InvalidRequest(
            "format='object' passes references: such topics exist inside one process only"
        )


async def topics(session: Session, c: NameRequest, frame: Frame) -> Any:
    names = await session.server.broker.topics(c.name)
    return [name for name in names if session.access.sees(name)]


async def backup(session: Session, c: NameRequest, frame: Frame) -> None:
    """It goes into a new or empty directory, which the broker sees to; and only there."""
    _check_place(c.name, session.server.backup_dir)
    await session.server.broker.backup(c.name)


def _check_place(directory: Any, root: Path | None) -> None:
    if type(directory) is not str or not os.path.isabs(directory) or "\0" in directory:
        raise InvalidRequest("a backup needs an absolute path on the broker's machine")
    if root is not None:
        inside, wanted = os.path.realpath(root), os.path.realpath(directory)
        if inside == wanted or os.path.commonpath((inside, wanted)) != inside:
            raise InvalidRequest("a backup must be below the broker's backup_dir")


# --- readers and feeds


async def open_reader(session: Session, c: OpenReaderRequest, frame: Frame) -> StreamOpenedReply:
    session.check_streams()
    broker = session.server.broker
    filter = _filter(c.filter)
    auto_create = c.auto_create and session.access.may_create(c.topic)

    async def open_plain(topic: Any, start: Start | None) -> ReaderApi:
        return await broker.open_reader(
            ReaderOpening(
                topic,
                name=c.name,
                start=start,
                filter=filter,
                auto_create=auto_create,
                resume=c.resume,
            )
        )

    if c.name is not None:
        await session.server.take_over(c.topic, c.name)
    if c.whole:
        api = await _open_row(session, c, open_plain)
    else:
        start = start_of(c.start)
        if isinstance(start, dict):
            raise InvalidRequest("offsets by partition are for a reader of all partitions")
        api = await open_plain(c.topic, start)
    if c.name is not None:
        claim(api, c.held)
    stream = OpenStream(
        session,
        Need("consume", c.topic),
        reader=api,
        can_listen=not c.whole,
        name=c.name,
        sifts=c.filter is not None,
    )
    topic_id = session.server.lasting_id(await broker.topic_info(c.topic))
    return StreamOpenedReply(
        session.add_stream(stream),
        await api.positions(),
        api.missed,
        topic_id,
        dict(api.state_ends),
    )


async def _open_row(
    session: Session,
    c: OpenReaderRequest,
    open_plain: Callable[[Any, Start | None], Coroutine[Any, Any, ReaderApi]],
) -> ReaderApi:
    """A reader of all partitions of a topic, or of some."""
    broker = session.server.broker

    def count() -> int:
        options = broker.known_options(c.topic)
        return (options.partitions or 0) if options is not None else 0

    if not count():
        await broker.topic_info(c.topic)
        raise InvalidRequest(f"topic {c.topic!r} has no partitions")
    reader = PartitionedReader(
        broker.clock,
        lambda number, start: open_plain(f"{c.topic}/{number}", start),
        count if c.partitions is None else None,
    )
    wanted = range(count()) if c.partitions is None else c.partitions
    await reader.open(wanted, start_of(c.start))
    return reader


async def open_feed(session: Session, c: OpenFeedRequest, frame: Frame) -> StreamOpenedReply:
    session.check_streams()
    if c.capacity < 1:
        raise InvalidRequest(f"capacity must be a whole number of at least 1, not {c.capacity!r}")
    if c.overflow not in ("drop_oldest", "drop_new", "block", "reject"):
        raise InvalidRequest(f"unknown overflow {c.overflow!r}")
    api = await session.server.broker.open_feed(
        c.pattern,
        capacity=c.capacity,
        overflow=cast(Overflow, c.overflow),
        filter=_filter(c.filter),
    )
    need = Need("consume", c.pattern, is_pattern=True)
    return StreamOpenedReply(session.add_stream(OpenStream(session, need, feed=api)))


def _reader(session: Session, number: int) -> tuple[OpenStream, ReaderApi]:
    found = session.stream(number)
    if not isinstance(found, OpenStream) or found.reader is None:
        raise InvalidRequest(f"stream {number} is not a reader")
    return found, found.reader


def _member(session: Session, number: int) -> OpenMembership:
    found = session.stream(number)
    if not isinstance(found, OpenMembership):
        raise InvalidRequest(f"stream {number} is not a member of a group")
    return found


async def seek(session: Session, c: SeekRequest, frame: Frame) -> Any:
    stream, reader = _reader(session, c.stream)
    await reader.seek(start_of(c.to))
    stream.drop_left()
    # In this very step: what is taken from there on is sent behind it.
    session.reply(frame.id, await reader.positions())
    return ANSWERED


async def commit(session: Session, c: CommitRequest, frame: Frame) -> int:
    stream, reader = _reader(session, c.stream)
    if isinstance(c.offset, dict):
        if not isinstance(reader, PartitionedReader):
            raise InvalidRequest("a reader of one partition commits one offset")
        return await reader.commit_each(c.offset)
    if c.partition is not None:
        return await reader.commit(c.offset, c.partition, is_own=c.own)
    if c.offset is None and stream.left():
        positions = await _positions(stream, reader)
        return sum(
            [await reader.commit(at, number, is_own=True) for number, at in positions.items()]
        )
    return await reader.commit(c.offset, is_own=c.own)


async def position(session: Session, c: StreamName, frame: Frame) -> dict[int, int]:
    return await _positions(*_reader(session, c.stream))


async def _positions(stream: OpenStream, reader: ReaderApi) -> dict[int, int]:
    """The next offset to send, by partition."""
    left: dict[int, int] = {}
    for partition, first, _ in stream.left():
        left[partition] = min(first, left.get(partition, first))
    return {**await reader.positions(), **left}


async def lag(session: Session, c: StreamName, frame: Frame) -> int:
    stream, reader = _reader(session, c.stream)
    return await reader.lag() + stream.left_count()


async def close_stream(session: Session, c: CloseStreamRequest, frame: Frame) -> None:
    stream = session.streams.pop(c.stream, None)
    if stream is None:
        return
    if isinstance(stream, OpenStream) and stream.denied is None:
        give_back(stream, c.unread)
    await stream.close()


async def put_back(session: Session, c: CloseStreamRequest, frame: Frame) -> bool:
    give_back(_reader(session, c.stream)[0], c.unread)
    return True


def give_back(stream: OpenStream, unread: list[tuple[int, int, int]]) -> None:
    """What was taken and not looked at is read by others of the name, last things first."""
    reader: Any = stream.reader
    if stream.name is None:
        return  # a feed, or a reader by itself
    for partition, first, behind in (*reversed(stream.left()), *reversed(unread)):
        if isinstance(reader, PartitionedReader):
            reader.put_back(partition, first, behind)
        else:
            reader.put_back(first, behind)
    stream.drop_left()


def claim(reader: Any, held: list[tuple[int, int, int]]) -> None:
    """What a reader of a name was handed in a session that is gone is its own again."""
    for partition, first, behind in sorted(held):
        if isinstance(reader, PartitionedReader):
            reader.claim(partition, first, behind)
        else:
            reader.claim(first, behind)


async def fetch(session: Session, c: FetchRequest, frame: Frame) -> WithBatches:
    """Read by offset, without a name and without a trace."""
    if c.timeout != 0:
        await session.server.broker.wait_beyond({c.topic: c.offset}, c.timeout)
    wanted = FetchRangeRequest(c.topic, c.offset, None, c.max_rows, 0)
    rows, position, _ = await _fetched(session, wanted)
    infos, batches = session.encode_runs(rows.runs)
    return WithBatches(TakenReply(infos, gap_fields(rows.gap), rows.missed, position), batches)


async def fetch_range(session: Session, c: FetchRangeRequest, frame: Frame) -> WithBatches:
    """The same in bulk."""
    reply, batches = await _range(session, c)
    return WithBatches(reply, batches)


async def fetch_ranges(session: Session, c: FetchRangesRequest, frame: Frame) -> WithBatches:
    """Small ranges of many topics, until the reply is full."""
    if not c.topics or not len(c.topics) == len(c.offsets) == len(c.ends) == len(c.topic_ids):
        raise InvalidRequest("every topic needs an offset, an end and an id, and there must be one")
    left = c.max_bytes if c.max_bytes > 0 else session.server.limits.delivery_bytes
    replies: list[FetchedRangeReply] = []
    batches: list[Buffer] = []
    for topic, offset, end, id in zip(c.topics, c.offsets, c.ends, c.topic_ids, strict=True):
        rows_max = max(1, end - offset)
        wanted = FetchRangeRequest(
            topic, offset, end, rows_max, left, c.filter, c.with_expired, topic_id=id
        )
        reply, theirs = await _range(session, wanted)
        replies.append(reply)
        batches += theirs
        left -= sum(memoryview(one).nbytes for one in theirs)
        if left <= 0:
            break
        if not len(replies) % RANGES_IN_A_TURN:
            await asyncio.sleep(0)
    return WithBatches(FetchedRangesReply(replies), batches)


async def _range(
    session: Session, c: FetchRangeRequest
) -> tuple[FetchedRangeReply, Sequence[Buffer]]:
    server = session.server
    if c.topic_id is not None:
        found = server.lasting_id(await server.broker.topic_info(c.topic))
        if found != c.topic_id:
            raise TopicReplaced(c.topic, c.topic_id, found)
    rows, position, next_offset = await _fetched(session, c)
    infos, batches = session.encode_runs(rows.runs, keep=False)
    return FetchedRangeReply(infos, gap_fields(rows.gap), position, next_offset), batches


async def _fetched(session: Session, c: FetchRangeRequest) -> Fetched:
    if c.max_rows < 1:
        raise InvalidRequest(f"max_rows must be at least 1, not {c.max_rows}")
    filter = _filter(c.filter)
    await session.room()
    limits = session.server.limits
    most = limits.frame_bytes - FRAME_ROOM_BYTES
    rows_max = min(c.max_rows, FETCH_ROWS_MAX)
    bytes_max = min(c.max_bytes, most) if c.max_bytes > 0 else limits.delivery_bytes
    fetched = await session.server.broker.fetch(
        Fetch(c.topic, c.offset, c.end, rows_max, bytes_max, filter, c.with_expired)
    )
    runs = fetched.rows.runs
    if len(runs) == 1:  # one at least is fetched, however large
        runs, rest, _ = cut(runs, FETCH_ROWS_MAX, most)
        if rest:
            position = rest[0].source.base_offset + rest[0].rows()[0]
            return Fetched(Rows(runs, fetched.rows.gap), position, fetched.next_offset)
    return fetched


FETCH_ROWS_MAX = 1 << 20
RANGES_IN_A_TURN = 32
FRAME_ROOM_BYTES = 1 << 20
"""What of the largest frame is left for the control part: it names every batch."""


async def extents(session: Session, c: ExtentsRequest, frame: Frame) -> Any:
    """The partitions of each topic, or the error for it."""
    server = session.server
    at = start_of(c.at)
    found: list[Any] = []
    for topic in c.topics:
        try:
            parts = await server.broker.extents(topic, at)
            storage = (await server.broker.topic_info(topic)).options.storage
        except FlintError as error:
            found.append(fault_of(error))
            continue
        found.append([replace(part, id=server.lasting(part.id, storage)) for part in parts])
    return found


# --- groups


async def join_group(session: Session, c: JoinGroupRequest, frame: Frame) -> JoinedReply:
    session.check_streams()
    joining = Joining(
        c.topic,
        c.group,
        c.holder or session.client,
        c.order,
        _filter(c.filter),
        start_of(c.start),
        c.auto_create and session.access.may_create(c.topic),
    )
    api = await session.server.broker.join_group(joining)
    member = OpenMembership(api, Need("consume", c.topic))
    return JoinedReply(session.add_stream(member), msgspec.to_builtins(api.info))


async def take_leased(session: Session, c: TakeLeasedRequest, frame: Frame) -> Any:
    if c.max_rows < 1:
        raise InvalidRequest(f"max_rows must be at least 1, not {c.max_rows}")
    member = _member(session, c.stream)
    while True:
        if session.is_full():
            await session.room()
        mode = TakeMode(c.auto_ack, c.in_turn, c.committed)
        grant = await member.api.take(c.max_rows, c.lease_seconds, c.timeout, mode)
        if grant is None:
            if session.server.is_draining:
                # There may be messages, but a stopping broker delivers none: the next one does.
                await asyncio.get_running_loop().create_future()
            return None
        if c.auto_ack or not session.is_full():
            break
        # The client reads slower than it takes, or is away: others may have these meanwhile.
        await member.api.release([(grant.token, ascending(ranges_of_runs(grant.rows.runs)))])
    runs, rest, _ = cut(grant.rows.runs, c.max_rows, session.server.limits.delivery_bytes)
    if rest and not c.auto_ack:
        # Not more than a reply may carry: it does not count as a delivery.
        await member.api.release([(grant.token, ascending(ranges_of_runs(rest)))])
    elif rest:
        runs = list(grant.rows.runs)
    infos, batches = session.encode_runs(runs)
    return WithBatches(GrantedReply(grant.token, infos, dict(grant.counts)), batches)


async def settle(session: Session, c: SettleRequest, frame: Frame) -> None:
    api = _member(session, c.stream).api
    leases: list[Lease] = [
        (int(token), [(int(first), int(behind)) for first, behind in ranges])
        for token, ranges in c.leases
    ]
    if c.how == "ack":
        await api.ack(leases)
    elif c.how == "nack":
        await api.nack(leases, c.seconds)
    elif c.how == "reject":
        await api.reject(leases, c.reason)
    elif c.how == "extend":
        await api.extend(leases, c.seconds)
    elif c.how == "release":
        await api.release(leases)
    else:
        raise InvalidRequest(f"settle must be ack, nack, reject, extend or release, not {c.how!r}")


def _some_of(session: Session, rows: Rows) -> WithBatches:
    """As many as a reply may carry."""
    runs, _, _ = cut(rows.runs, len(rows), session.server.limits.delivery_bytes)
    infos, batches = session.encode_runs(runs)
    return WithBatches(TakenReply(infos), batches)


# --- the cluster


async def cluster(session: Session, c: ClusterRequest, frame: Frame) -> ClusterStatus:
    node = session.server.cluster
    if node is None:
        raise InvalidRequest("this broker is not a node of a cluster: it runs alone")
    if c.verb not in VERBS:
        raise InvalidRequest(f"a cluster does not know {c.verb!r}; it knows {', '.join(VERBS)}")
    return await node.ask(c.verb, c.name, c.address)


# --- the table


def _plain(operation: Operation) -> Handler:
    """Call the verb of the operation with the fields of the request."""
    assert operation.verb is not None
    verb, arguments = operation.verb.__name__, operation.arguments
    read = [(name, _READ.get(name)) for name in arguments]

    async def call(session: Session, c: Control, frame: Frame) -> Any:
        values = [
            getattr(c, name) if convert is None else convert(getattr(c, name))
            for name, convert in read
        ]
        answer = await getattr(session.server.broker, verb)(*values)
        return _some_of(session, answer) if isinstance(answer, Rows) else answer

    return call


_READ: dict[str, Callable[[Any], Any]] = {"filter": _filter, "to": start_of}
"""Fields that do not travel as they are."""

_OWN: dict[Op, Handler] = {
    Op.REQUEST: request,
    Op.REPLY_TO: reply_to,
    Op.CLUSTER: cluster,
    Op.STAGE: stage,
    Op.COMMIT_STAGE: commit_stage,
    Op.CREATE_TOPIC: create_topic,
    Op.CONFIGURE_TOPIC: configure_topic,
    Op.TOPICS: topics,
    Op.BACKUP: backup,
    Op.OPEN_READER: open_reader,
    Op.OPEN_FEED: open_feed,
    Op.SEEK: seek,
    Op.COMMIT: commit,
    Op.POSITION: position,
    Op.LAG: lag,
    Op.CLOSE_STREAM: close_stream,
    Op.FETCH: fetch,
    Op.FETCH_RANGE: fetch_range,
    Op.FETCH_RANGES: fetch_ranges,
    Op.EXTENTS: extents,
    Op.PUT_BACK: put_back,
    Op.JOIN_GROUP: join_group,
    Op.TAKE_LEASED: take_leased,
    Op.SETTLE: settle,
}
HANDLERS: dict[int, tuple[Operation, Handler]] = {
    op: (row, _OWN[op] if op in _OWN else _plain(row))
    for op, row in OPERATIONS.items()
    if row.verb is not None or op in _OWN
}
"""The other operations concern the connection itself or its hot paths: see Session.receive."""
