"""One topic: its log, its limits, and everybody who waits for it.

Everything here happens in single steps of the event loop: deciding, appending, fanning out and
waking are never interrupted. What a publish needs to wait for is decided before anything is done.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ..batch import (
    DELIVER_AT,
    EXPIRY,
    KEY_HASH,
    KEYS,
    OBJECTS,
    PRODUCER,
    UNSTAMPED,
    BatchBuilder,
    DecodeCache,
    RecordBatch,
    RowSource,
)
from ..broker_api import Filter, OutOfTime, RowFilter
from ..clock import Clock, Timer
from ..errors import (
    Corrupt,
    FilterFailed,
    FlintError,
    GroupExists,
    GroupNotFound,
    InvalidRequest,
    MessageTooLarge,
    QueueFull,
    TopicFull,
)
from ..group_model import GroupInfo, GroupStats, Ranges
from ..groups.lanes import LaneIndex
from ..groups.offset_set import OffsetSet
from ..groups.ranges import count_in
from ..groups.token_bucket import TokenBucket
from ..logs import limited
from ..metrics import Histogram, Meter
from ..model import Receipt, Start, TopicInfo, TopicOptions, TopicStats
from ..pace import Allowance, pace
from ..rows import Decoder, Message, Origin, Run, ValueTooLarge
from .commands import (
    AdvanceFirstOffset,
    Attempts,
    Cancel,
    Command,
    CreateGroup,
    DeleteGroup,
    GroupChange,
    PauseGroup,
    ResetGroup,
    Settle,
)
from .dedup import Producers, Remembered
from .delays import Delays, Stored, Unstored
from .expiry import FOREVER, alive, end_of_life
from .feeds import Feed, FeedBoard, Unsifted
from .figures import GroupFigures, TopicFigures
from .keeping import AtOnce, Done, Keeper
from .lanes_of_topic import TopicLanes
from .log import MemoryLog, TopicLogApi
from .pending import Pending
from .queue_group import DISCARDED, Dead, QueueGroup
from .readers import Cursor, Reader, resolve_start
from .waiting import Bell, again, resolve

SWEEP_MS_MIN = 10
"""Retention by time looks at a topic at most this often."""

SWEEP_ROWS = 16_384
"""How many messages it drops in one go, or a batch more: after a long stop all of them are due."""

UNSTORED_DELAYED_MAX = 100_000
"""How many delayed QoS 0 messages wait for their time; they are held in memory outside the log."""

COUNT_MAX = 1 << 24
"""What a topic keeps at most where it has no limit by count: even empty messages take room."""

_PIECE_ROWS = 256
"""How many rows a filter looks at between two looks at the time, where it decodes no values."""

_log = logging.getLogger(__name__)

_GAPS_MAX = 64
_DELAYS_KEPT = 1024


def _ignore(command: Command) -> None: ...


def _as_it_is(callback: Callable[[], object]) -> Callable[[], object]:
    return callback


def _refuse(*_: object) -> Any:
    raise AssertionError("a topic of its own has no groups")


class _Look:
    """Decodes values for a filter, until the time is up."""

    __slots__ = ("_allowance", "_fields", "_is_first", "_topic", "decode", "stopped_at")

    def __init__(
        self, topic: Topic, fields: tuple[str, ...] | None, allowance: Allowance | None
    ) -> None:
        self._topic, self._fields, self._allowance = topic, fields, allowance
        self._is_first = True
        self.stopped_at: int | None = None
        """The row at which the time was up."""
        self.decode = None if topic.origin.decoder is None else self._decode

    def _decode(self, source: RowSource, row: int) -> object:
        if self._allowance is not None:
            if not self._is_first and self._allowance.is_over():
                self.stopped_at = row
                raise OutOfTime
            self._is_first = False
        origin = self._topic.origin
        assert origin.decoder is not None
        try:
            return origin.decoder.value_for_filter(source, row, origin, self._fields)
        except ValueTooLarge as error:
            self._topic.value_too_large(source.base_offset + row, error)
            raise


class Topic:
    def __init__(
        self,
        name: str,
        id: int,
        options: TopicOptions,
        *,
        clock: Clock,
        cache: DecodeCache,
        board: FeedBoard,
        decoder: Decoder | None = None,
        log: TopicLogApi | None = None,
        apply: Callable[[Command], None] = _ignore,
        bury: Callable[[Topic, QueueGroup, list[Dead]], Awaitable[None]] = _refuse,
        compile: Callable[[str], Filter] = _refuse,
        guarded: Callable[[Callable[[], object]], Callable[[], object]] = _as_it_is,
        remembered: Remembered | None = None,
    ) -> None:
        self.name, self.id, self.clock = name, id, clock
        base, _, partition = name.partition("/")
        self._base, self._partition = base, int(partition or 0)
        self._decoder = decoder
        self.log: TopicLogApi = log or MemoryLog(cache)
        self.lanes = TopicLanes(self.log)
        self.queues: dict[str, QueueGroup] = {}
        self.keeper: Keeper = AtOnce(id, apply)
        self.bucket: TokenBucket | None = None
        self._bury, self._compile = bury, compile
        self.guarded = guarded
        """Around every callback that nobody waits for: a fault in it stops the broker."""
        self.bell = Bell()
        self._board = board
        self._feeds: tuple[Feed, ...] = ()
        self._feeds_version = -1
        self.published = Meter()
        self.delivered = Meter()
        self.publish_seconds: Histogram | None = None
        """From being let in to being safe, of each batch; where there is a disk to wait for."""
        self._drops: Counter[str] = Counter()
        self._waits: Counter[str] = Counter()
        self._readers: set[Reader] = set()
        self._cursors: dict[str, Cursor] = {}
        self.discarded: OffsetSet | None = None
        """Dead letters that were let go for good; None while there are none."""
        self.producers = Producers(remembered, id)
        self._reader_count = 0
        self.too_large = 0
        """How many values filters did not look into."""
        self._publishers: deque[_Publisher] = deque()
        self._expired: deque[list[int]] = deque()
        self._delays = Delays()
        self._due_while_cancelled: list[Stored] = []
        self._sweep_timer: Timer | None = None
        self._sweep_due_ms = 0
        self._delay_timer: Timer | None = None
        self._expiry_seen = False  # of a message of its own; from then on readers look for it
        self._held_by = "topic"
        self._unmarked = 0
        self._ended: FlintError | None = None
        self.claimed: set[str] = set()
        """Names of groups that are being made."""
        self.leaving: dict[str, asyncio.Future[None]] = {}
        """Names of groups and readers whose deletion is on its way, and when it is done."""
        self._first_token = 1
        self.options = TopicOptions()
        self._take_options(options)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The live feeds that match this topic's name."""
        if self._feeds_version != self._board.version:
            self._feeds = self._board.find(self._base)
            self._feeds_version = self._board.version
        return self._feeds

    # --- options

    def configure(self, options: TopicOptions) -> None:
        self._take_options(options)
        if self._drops_oldest:
            self._keep_limits()
        self._rearm_sweep()
        self._wake_publisher()
        for group in self.queues.values():
            group.wake()

    def _take_options(self, options: TopicOptions) -> None:
        limits = (options.rate_limit, options.rate_burst)
        if limits != (self.options.rate_limit, self.options.rate_burst):
            rate, burst = limits
            self.bucket = None if rate is None else TokenBucket(rate, burst)
        self.options = options
        special = options if options.concern_clients() else None
        self.origin = Origin(self._base, self._partition, self._decoder, special)
        self.ttl_ms = None if options.ttl is None else max(1, round(options.ttl * 1000))
        age = options.retention_age
        self._age_ms = None if age is None else max(1, round(age * 1000))
        self._count_max = options.retention_count or COUNT_MAX
        self._bytes_max = FOREVER if options.retention_bytes is None else options.retention_bytes
        self._drops_oldest = options.overflow == "drop_oldest"
        self._takes_objects = options.format == "object"
        self.may_expire = self.ttl_ms is not None or self._expiry_seen
        self._is_involved = (
            self.may_expire
            or self._age_ms is not None
            or not self._drops_oldest
            or options.max_message_bytes is not None
            or special is not None
        )

    def info(self) -> TopicInfo:
        return TopicInfo(self.name, self.id, self.options)

    # --- publishing

    def publish(
        self, rows: BatchBuilder | RecordBatch, qos: int, *, first_in_line: bool = False
    ) -> Receipt | Pending | None:
        """Take the rows in, or return None if the publisher has to wait. Raises what refuses it.

        Where taking in takes time, the receipt is pending; the offsets are decided all the same.
        """
        if bool(rows.columns & OBJECTS) != self._takes_objects:
            raise InvalidRequest(
                f"topic {self.name!r} was made anew meanwhile, and takes "
                + ("objects by reference" if self._takes_objects else "bytes, not objects")
            )
        if self.options.max_message_bytes is not None:
            self._check_sizes(rows, self.options.max_message_bytes)
        if self._publishers and not first_in_line:
            if qos and self.options.overflow in ("block", "reject"):
                self._refuse_what_never_fits(rows)
            return None
        count = rows.row_count
        if rows.columns & PRODUCER and qos:
            assert isinstance(rows, RecordBatch)
            known = self._known_sequences(rows)
            if known is not None:
                return known
        for feed in self.feeds:
            if feed.refuses and not feed.has_room(self._meant_for(feed, rows)):
                if feed.overflow == "reject":
                    raise feed.full()
                feed.on_room.add(self._wake_publisher)
                self._held_by = "feed"
                return None
        now_ms = self.clock.now_ms()
        if qos == 0:
            self._check_waiting_room(rows)
            rows.append_time = now_ms
            self._fan_out(rows, now_ms, None)
            self.published.add(count, now_ms)
            return Receipt(self._base, None, count, self._partition, durability="none")
        dropped = 0
        if self._drops_oldest:
            last = rows.size(count - 1, count)
            if last > self._bytes_max:
                self._refuse_too_large(last)  # it would push itself out
        else:
            room = self._room(rows)
            if room < count:
                if self.options.overflow != "drop_new":
                    self._held_by = "topic"
                    return None
                dropped = count - room
                self._drops["overflow"] += dropped
                if room == 0:
                    return Receipt(self._base, None, 0, self._partition, dropped)
                rows, count = _head_of(rows, room), room
        return self._take_in(rows, count, now_ms, dropped)

    def may_gather(self) -> bool:
        """Whether publishes may be joined: none of them can be refused, or has to wait, alone."""
        return not (
            self._is_involved or self._publishers or any(feed.refuses for feed in self.feeds)
        )

    def publish_value(self, value: bytes) -> Receipt | Pending | None:
        """The quick way for one plain value; None where the topic has more to think about."""
        if self._is_involved or self._publishers or self.feeds or len(value) > self._bytes_max:
            return None
        log = self.log
        now_ms = self.clock.now_ms()
        offset = log.append_value(value, now_ms)
        self.published.add(1, now_ms, len(value))
        if log.next_offset - log.first_offset > self._count_max or log.byte_count > self._bytes_max:
            self._keep_limits()
        self.bell.ring()
        return Receipt(self._base, offset, 1, self._partition)

    def _known_sequences(self, batch: RecordBatch) -> Receipt | Pending | None:
        """The receipt of a batch that was published before, by its producer and sequence."""
        count = batch.row_count
        offset = self.producers.find(batch.producer or "", batch.base_sequence, count)
        if offset is None:
            return None
        return Receipt(self._base, offset, count, self._partition, duplicate=True)

    def _take_in(
        self, rows: BatchBuilder | RecordBatch, count: int, now_ms: int, dropped: int
    ) -> Receipt | Pending:
        offset = self._append(rows, count, now_ms)
        return Receipt(self._base, offset, count, self._partition, dropped)

    def _append(self, rows: BatchBuilder | RecordBatch, count: int, now_ms: int) -> int:
        """Add rows to the log, and let everybody know; the offset of the first."""
        log = self.log
        bytes_before = log.byte_count
        offset = log.append(rows, now_ms)
        self.published.add(count, now_ms, log.byte_count - bytes_before)
        if rows.columns & PRODUCER:
            assert isinstance(rows, RecordBatch)
            self.producers.add(rows.producer or "", rows.base_sequence, count, offset, now_ms)
        if rows.columns & EXPIRY:
            self.may_expire = self._expiry_seen = self._is_involved = True
        if self.feeds or rows.columns & DELIVER_AT:
            self._fan_out(rows, now_ms, offset)
        if log.next_offset - log.first_offset > self._count_max or log.byte_count > self._bytes_max:
            self._keep_limits()
        if self._sweep_timer is None and (self.may_expire or self._age_ms is not None):
            self._arm_sweep()
        self.bell.ring()
        return offset

    def _check_sizes(self, rows: BatchBuilder | RecordBatch, limit: int) -> None:
        if isinstance(rows, RecordBatch) and rows.compression:
            return  # the client has checked; a compressed payload is not opened here
        for row in range(rows.row_count):
            size = rows.size(row, row + 1)
            if size > limit:
                raise MessageTooLarge(
                    f"message {row} for topic {self.name!r}", size, limit, "max_message_bytes"
                )

    def _room(self, rows: BatchBuilder | RecordBatch) -> int:
        """How many of the rows fit, after everything every reader has passed is dropped."""
        count = rows.row_count
        fitting = self._fitting(rows)
        if fitting < count:
            passed = self._passed_by_all()
            if passed is not None and passed > self.log.first_offset:
                self._pass_over(passed, "read")
                fitting = self._fitting(rows)
        if fitting < count and self.options.overflow != "drop_new":
            self._refuse_what_never_fits(rows)
            if self.options.overflow == "reject":
                raise self._full(count)
        return fitting

    def _fitting(self, rows: BatchBuilder | RecordBatch) -> int:
        count = rows.row_count
        stored, stored_bytes = self._occupied()
        room = min(count, max(0, self._count_max - stored))
        bytes_room = self._bytes_max - stored_bytes
        if rows.size(0, count) <= bytes_room:
            return room
        return max(0, bisect_right(range(room + 1), bytes_room, key=lambda n: rows.size(0, n)) - 1)

    def _occupied(self) -> tuple[int, int]:
        """Messages and bytes that count against the limits."""
        log = self.log
        return log.next_offset - log.first_offset, log.byte_count

    def _refuse_what_never_fits(self, rows: BatchBuilder | RecordBatch) -> None:
        count, size = rows.row_count, rows.size(0, rows.row_count)
        if count > self._count_max:
            raise TopicFull(
                self.name,
                self._limit(count),
                f"a batch of {count:,} messages can never fit; split it",
                never_fits=True,
            )
        if size > self._bytes_max:
            if count > 1:
                raise TopicFull(
                    self.name,
                    f"retention_bytes={self._bytes_max}",
                    f"a batch of {size:,} bytes can never fit; split it",
                    never_fits=True,
                )
            self._refuse_too_large(size)

    def _refuse_too_large(self, size: int) -> None:
        raise MessageTooLarge(
            f"a message for {self.name!r}", size, self._bytes_max, "retention_bytes"
        )

    def _passed_by_all(self) -> int | None:
        """The offset that every named cursor and every open reader has passed; None without any."""
        positions = [cursor.done_before() for cursor in self._cursors.values()]
        positions += [group.floor for group in self.queues.values()]
        return min(*positions, self.log.next_offset) if positions else None

    def _limit(self, count: int) -> str:
        """The limit that keeps `count` more messages out."""
        options = self.options
        if self._occupied()[0] + count > self._count_max:
            return f"retention_count={options.retention_count}"
        return f"retention_bytes={options.retention_bytes}"

    def _full(self, count: int, waited: float | None = None) -> TopicFull:
        slowest = min(self._cursors.values(), key=lambda c: c.done_before(), default=None)
        holding = min(self.queues.values(), key=lambda g: g.floor, default=None)
        if holding is not None and (slowest is None or holding.floor < slowest.done_before()):
            why = f"group {holding.name!r} still has {holding.unsettled():,} messages to settle"
        elif slowest is None:
            why = "nobody reads it; open a reader, or choose overflow='drop_oldest'"
        elif (done := slowest.done_before()) < slowest.unread_from():
            why = f"reader {slowest.label!r} has not committed offset {done} and has it in work"
        else:
            why = f"reader {slowest.label!r} still has {self.lag(slowest):,} messages to read"
            if not slowest.members:
                why += "; nobody has it open: open it, and read on or seek('latest')"
        if waited is not None:
            why += f" (waited {waited:g} s)"
        return TopicFull(self.name, self._limit(count), why)

    # --- staged writes

    def check_fits(self, batches: Sequence[RecordBatch]) -> None:
        """Raise unless all of these can be taken in right now. A commit never waits or drops."""
        if self.options.max_message_bytes is not None:
            for batch in batches:
                self._check_sizes(batch, self.options.max_message_bytes)
        count = sum(batch.row_count for batch in batches)
        size = sum(batch.size(0, batch.row_count) for batch in batches)
        for feed in self.feeds:
            if feed.refuses and not feed.has_room(count):
                raise feed.full()
        if self._drops_oldest:
            last = batches[-1].size(batches[-1].row_count - 1, batches[-1].row_count)
            if last > self._bytes_max:
                self._refuse_too_large(last)
            return
        if not self._has_room(count, size):
            passed = self._passed_by_all()
            if passed is not None and passed > self.log.first_offset:
                self._pass_over(passed, "read")
            if not self._has_room(count, size):
                raise self._full(count)

    def _has_room(self, count: int, size: int) -> bool:
        stored, stored_bytes = self._occupied()
        return stored + count <= self._count_max and stored_bytes + size <= self._bytes_max

    def place(self, batches: Sequence[RecordBatch], now_ms: int) -> tuple[int, int]:
        """Decide where these go: offset and time."""
        return self.log.next_offset, max(now_ms, self.log.last_time)

    def append_rows(self, rows: BatchBuilder) -> None:
        """Take rows in whatever the limits say: dead letters are never refused."""
        self._append(rows, rows.row_count, self.clock.now_ms())

    def apply_append(self, batch: RecordBatch) -> None:
        """Take in a batch whose place was decided."""
        self._append(batch, batch.row_count, batch.append_time)

    # --- publishers that wait

    async def publish_when_possible(
        self, rows: BatchBuilder | RecordBatch, qos: int, timeout: float | None
    ) -> Receipt | Pending:
        """Wait in line until the rows can be taken in. Cancelled or timed out: nothing is done."""
        me = _Publisher()
        self._publishers.append(me)
        self._waits[self._held_by] += 1
        timer = None
        if timeout == 0:
            me.is_late = True
        elif timeout is not None:
            timer = self.clock.call_later(timeout, me.give_up)
        try:
            while True:
                if self._ended is not None:
                    raise again(self._ended)
                if self._publishers[0] is me:
                    receipt = self.publish(rows, qos, first_in_line=True)
                    if receipt is not None:
                        return receipt
                if me.is_late:  # also if it was woken in the same turn, to no avail
                    raise self._why_waiting(timeout, rows.row_count)
                await me.woken
                me.woken = asyncio.get_running_loop().create_future()
        finally:
            if timer is not None:
                timer.cancel()
            self._publishers.remove(me)
            self._wake_publisher()

    def _why_waiting(self, timeout: float | None, count: int) -> FlintError:
        for feed in self.feeds:
            if feed.overflow == "block" and not feed.has_room(count):
                return QueueFull(
                    f"the live queue of {feed.pattern!r}",
                    feed.capacity,
                    f"its subscriber blocks publishers and took nothing for {timeout:g} s",
                )
        return self._full(count, timeout)

    def wake_publishers(self) -> None:
        """Have everybody who waits in line look again, one after the other."""
        self._wake_publisher()

    def _wake_publisher(self) -> None:
        if self._publishers:
            resolve(self._publishers[0].woken, True)

    # --- fan-out

    def _meant_for(self, feed: Feed, rows: BatchBuilder | RecordBatch) -> int:
        """How many of the rows a feed would get, were they published now."""
        count = rows.row_count
        if feed.filter is None:
            return count
        rows.base_offset, rows.append_time = self.log.next_offset, self.clock.now_ms()
        try:
            picks, looked = self.look_through(feed.filter, rows, range(count), None, pace().begin())
            return len(picks) + count - looked  # those that there was no time for may be for it
        except Exception:
            return 0  # publishing tells the feed
        finally:
            rows.base_offset, rows.append_time = UNSTAMPED, 0

    def _fan_out(self, rows: BatchBuilder | RecordBatch, now_ms: int, offset: int | None) -> None:
        """Hand rows to the live feeds: at once, or when they are due."""
        count = rows.row_count
        if not rows.columns & DELIVER_AT:
            self._offer(Run(rows, 0, count, self.origin))
            return
        if offset is not None:
            self._deliver_due(now_ms)  # what comes with its time over is not delayed any more
            now_ms = self.lanes.served_ms
        due_now = []
        for row in range(count):
            due_ms = rows.deliver_at(row)
            if due_ms <= now_ms:
                due_now.append(row)
            elif offset is None:
                self._delays.add_unstored(due_ms, rows, row)
            else:
                self._delays.add(due_ms, offset + row, rows.priority(row))
        if due_now:
            self._offer(Run(rows, 0, count, self.origin, due_now))
        stored = self._delays.stored
        if stored > _DELAYS_KEPT and stored > 2 * (self.log.next_offset - self.log.first_offset):
            self._delays.forget_before(self.log.first_offset)
        self._arm_delays(now_ms)

    def _check_waiting_room(self, rows: BatchBuilder | RecordBatch) -> None:
        waiting = self._delays.unstored + rows.row_count
        if rows.columns & DELIVER_AT and waiting > UNSTORED_DELAYED_MAX:
            raise QueueFull(
                f"the waiting room of {self.name!r} for delayed QoS 0 messages",
                UNSTORED_DELAYED_MAX,
                "publish them with qos=1, which stores them",
            )

    def _offer(self, run: Run, *, was_let_in: bool = True) -> None:
        for feed in self.feeds:
            if feed.filter is None:
                self._hand_to(feed, run, was_let_in)
            else:
                self._drops["feed"] += feed.sift(Unsifted(run, self._sift, was_let_in))

    def _hand_to(self, feed: Feed, run: Run, was_let_in: bool) -> None:
        dropped = feed.offer(run, self.ttl_ms, was_let_in=was_let_in)
        self._drops["feed"] += dropped
        self.delivered.total += max(0, run.row_count - dropped)

    def _sift(self, feed: Feed, waiting: Unsifted, allowance: Allowance) -> Run | None:
        """Hand a feed what of a run passes its filter; what is left when the time is up. A filter
        that raises ends its feed."""
        assert feed.filter is not None
        run, _, was_let_in = waiting
        source, rows = run.source, run.rows()
        try:
            picks, looked = self.look_through(feed.filter, source, rows, None, allowance)
        except Exception as error:  # never the publisher's trouble
            if not isinstance(error, FilterFailed):
                error = FilterFailed(self._base, None, error)
            feed.fail(error)
            return None
        feed.matched += len(picks)
        feed.rejected += looked - len(picks)
        if picks:
            self._hand_to(feed, run._replace(picks=picks), was_let_in)
        return run._replace(picks=rows[looked:]) if looked < len(rows) else None

    def _passes(self, wants: Callable[[Message], bool], message: Message) -> bool:
        try:
            return wants(message)
        except Exception as error:
            raise FilterFailed(self._base, message.offset, error) from error

    def pick(
        self, wants: Filter, source: RowSource, rows: Sequence[int], limit: int | None = None
    ) -> list[int]:
        """The rows that pass a filter; of an expression no more than `limit`."""
        return self.look_through(wants, source, rows, limit, None)[0]

    def look_through(
        self,
        wants: Filter,
        source: RowSource,
        rows: Sequence[int],
        limit: int | None,
        allowance: Allowance | None,
    ) -> tuple[list[int], int]:
        """The rows that pass a filter, and how many of `rows` were looked at: at least one, and
        fewer than all if the allowance is over before. No more than `limit` pass."""
        if callable(wants):
            return self._look_by_function(wants, source, rows, limit, allowance)
        if not wants.uses_value and len(rows) <= _PIECE_ROWS:
            return self._picked(wants, source, rows, None, limit), len(rows)
        look = _Look(self, wants.fields, allowance)
        picks: list[int] = []
        looked = 0
        was_enabled = gc.isenabled()
        gc.disable()  # what is decoded is let go of at once; collecting meanwhile is for nothing
        try:
            while looked < len(rows) and (limit is None or len(picks) < limit):
                if looked and allowance is not None and allowance.is_over():
                    break
                piece = rows[looked : looked + _PIECE_ROWS]
                left = None if limit is None else limit - len(picks)
                picks += self._picked(wants, source, piece, look.decode, left)
                if look.stopped_at is not None:
                    looked += piece.index(look.stopped_at)
                    break
                looked += len(piece)
        finally:
            if was_enabled:
                gc.enable()
        return picks, looked

    def _picked(
        self,
        wants: RowFilter,
        source: RowSource,
        rows: Sequence[int],
        decode: Callable[[RowSource, int], object] | None,
        limit: int | None,
    ) -> list[int]:
        try:
            return wants.pick(source, rows, self.origin, decode, limit)
        except FlintError:
            raise  # of the disk
        except Exception as error:
            raise FilterFailed(self._base, None, error) from error

    async def look_through_all(
        self, wants: Filter, source: RowSource, rows: Sequence[int]
    ) -> list[int]:
        """The rows that pass a filter, in as many turns as it takes."""
        picks: list[int] = []
        while rows:
            some, looked = self.look_through(wants, source, rows, None, pace().begin())
            picks += some
            rows = rows[looked:]
            if rows:
                await asyncio.sleep(0)
        return picks

    def _look_by_function(
        self,
        wants: Callable[[Message], bool],
        source: RowSource,
        rows: Sequence[int],
        limit: int | None,
        allowance: Allowance | None,
    ) -> tuple[list[int], int]:
        picks: list[int] = []
        for looked, row in enumerate(rows):
            if len(picks) == limit or (looked and allowance is not None and allowance.is_over()):
                return picks, looked
            if self._passes(wants, Message(source, row, self.origin)):
                picks.append(row)
        return picks, len(rows)

    def value_too_large(self, offset: int, error: ValueTooLarge) -> None:
        """A filter came to a value that it may not look into: it is missing for the filter."""
        self.too_large += 1
        limited(
            _log,
            logging.WARNING,
            "filter_value_too_large",
            self.name,
            f"a filter does not look into a message of {self.name!r}: {error}; it is treated as "
            "having no value. Raise max_decoded_bytes, or filter by key, headers or priority",
            topic=self.name,
            offset=offset,
            limit=error.bytes_max,
        )

    def _arm_delays(self, now_ms: int) -> None:
        if self._delay_timer is not None:
            self._delay_timer.cancel()
            self._delay_timer = None
        due_ms = self._delays.next_due_ms()
        if due_ms is not None and self._ended is None:
            seconds = max(0, due_ms - now_ms) / 1000
            self._delay_timer = self.clock.call_later(seconds, self.guarded(self._delays_are_over))

    def _delays_are_over(self) -> None:
        self._deliver_due(self.clock.now_ms())
        self._arm_delays(self.clock.now_ms())

    def _deliver_due(self, now_ms: int) -> None:
        """Hand what is due to the live feeds and to the groups that know of it as delayed."""
        self.lanes.served_ms = max(now_ms, self.lanes.served_ms)
        due = self._delays.take_due(now_ms)
        if self.lanes.cancelling:
            due = self._kept_back(due)
        self._hand_out_due(due)

    def _kept_back(self, due: list[Stored | Unstored]) -> list[Stored | Unstored]:
        """Without those that are being cancelled: they wait for what becomes of that."""
        rest: list[Stored | Unstored] = []
        for delayed in due:
            first, row = delayed
            if isinstance(first, int) and first in self.lanes.cancelling:
                self._due_while_cancelled.append((first, row))
            else:
                rest.append(delayed)
        return rest

    def _hand_out_due(self, due: Iterable[Stored | Unstored]) -> None:
        stored: list[tuple[int, int]] = []
        for delayed in due:
            first, row = delayed
            if isinstance(first, int):
                if first < self.log.first_offset:
                    self._drops["feed"] += len(self.feeds)  # retention was faster
                    continue
                stored.append((first, row))
                if not self.feeds:
                    continue
                try:
                    first, row, _ = self.log.locate(first)
                except FlintError as error:  # also a disk that cannot be asked now: groups wait
                    reason = "damaged" if isinstance(error, Corrupt) else "feed"
                    self._drops[reason] += len(self.feeds)
                    continue
            self._offer(Run(first, row, row + 1, self.origin), was_let_in=False)
        if stored:
            self.lanes.add_due(stored)
            for group in self.queues.values():
                group.add_due(stored)

    # --- retention

    def _pass_over(self, offset: int, reason: str) -> None:
        """Decide to drop everything before `offset`."""
        self._drop(offset, reason)

    def _kept(self, offset: int) -> int:
        """How far one may drop, of what lies before `offset`: groups may keep what they have not
        settled."""
        if not self.options.keep_until_settled or not self.queues:
            return offset
        return min(offset, min(group.floor for group in self.queues.values()))

    def purge(self, before: int | None) -> tuple[int, Done]:
        """Decide to drop what lies before an offset, or all of it, whoever still wants it: how many
        messages that are, and what to wait for."""
        first, end = self._first_decided(), self.log.next_offset
        offset = end if before is None else min(before, end)
        if offset <= first:
            return 0, None
        return offset - first, self.keeper.change(AdvanceFirstOffset(self.id, offset, "purged"))

    def _first_decided(self) -> int:
        """The first offset, once what was decided has been done."""
        return self.log.first_offset

    def apply_advance(self, offset: int, reason: str) -> None:
        if offset > self.log.first_offset:
            self._drop(offset, reason)
            if reason == "purged" and offset >= self.log.next_offset:
                self.producers.clear()
        if self._sweep_timer is None:
            self._arm_sweep()
        self._wake_publisher()

    def _drop(self, offset: int, reason: str) -> None:
        start = self.log.first_offset
        self._drops[reason] += self.log.drop_to(offset)
        self.lanes.drop_before(self.log.first_offset)
        if self.discarded is not None:
            self.discarded.discard_before(self.log.first_offset)
        if reason == "expired":
            if self._expired and self._expired[-1][1] == start:
                self._expired[-1][1] = offset
            else:
                self._expired.append([start, offset])
                if len(self._expired) > _GAPS_MAX:
                    self._expired.popleft()
        elif self._sweep_timer is not None and (
            self.log.first_offset == self.log.next_offset
            or (self._expiry_seen and self._front_due_ms()[0] < self._sweep_due_ms)
        ):
            self._rearm_sweep()  # who set the alarm is gone, and may not have been first to expire

    def missed_between(self, start: int, stop: int) -> int:
        """How many of these offsets were dropped unread; what expired was not missed."""
        expired = sum(max(0, min(stop, last) - max(start, first)) for first, last in self._expired)
        return stop - start - expired

    def _keep_limits(self) -> None:
        """Drop the oldest until count and bytes are within their limits.

        Where publishers wait or are refused instead, nobody's messages are dropped for the dead
        letters and redriven ones that are taken in all the same: there is less room for the next.
        """
        if not self._drops_oldest:
            return
        log = self.log
        end = self._kept(log.next_offset)
        if end <= log.first_offset:
            return  # not one may go: how many should is of no interest
        surplus = log.next_offset - log.first_offset - self._count_max
        if surplus > 0:
            self._drop(min(end, log.first_offset + surplus), "count")
        if log.byte_count > self._bytes_max:
            self._drop(log.offset_freeing(log.byte_count - self._bytes_max, end), "bytes")

    def _arm_sweep(self) -> None:
        due_ms = self._front_due_ms()[0]
        if due_ms < FOREVER and self._ended is None:
            wait_ms = max(SWEEP_MS_MIN, due_ms - self.clock.now_ms())
            self._sweep_due_ms = due_ms
            self._sweep_timer = self.clock.call_later(wait_ms / 1000, self.guarded(self._sweep))

    def _rearm_sweep(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._arm_sweep()

    def _front_due_ms(self) -> tuple[int, str]:
        """When the first message's time is up, and why."""
        log = self.log
        has_limit = self.may_expire or self._age_ms is not None
        if not has_limit or log.first_offset == log.next_offset:
            return FOREVER, ""
        source, row, _ = log.outline(log.first_offset)
        due_ms, reason = self._due_ms(source, row)
        if reason == "age" and self._is_held(log.first_offset):
            return end_of_life(source, row, self.ttl_ms), "expired"
        return due_ms, reason

    def _is_held(self, offset: int) -> bool:
        """Whether a group keeps this one from retention."""
        return self._kept(offset + 1) <= offset

    def _due_ms(self, source: RowSource, row: int) -> tuple[int, str]:
        due_ms, reason = end_of_life(source, row, self.ttl_ms), "expired"
        if self._age_ms is not None and source.time(row) + self._age_ms < due_ms:
            due_ms, reason = source.time(row) + self._age_ms, "age"
        return due_ms, reason

    def _sweep(self) -> None:
        """Drop what time has ended, from the front; then sleep until the next is due."""
        self._sweep_timer = None
        now_ms = self.clock.now_ms()
        self._drop_due(now_ms)
        self._arm_sweep()
        self._wake_publisher()

    def _drop_due(self, now_ms: int) -> None:
        log = self.log
        enough = log.first_offset + SWEEP_ROWS
        while log.first_offset < enough:
            due_ms, reason = self._front_due_ms()
            if due_ms > now_ms:
                break
            source, row, stop = log.locate_first()
            offset = log.first_offset + self._rows_due(source, row, stop, now_ms, reason)
            self._drop(self._kept(offset) if reason == "age" else offset, reason)

    def _rows_due(
        self,
        source: RowSource,
        row: int,
        stop: int,
        now_ms: int,
        reason: str,
        is_held: bool = False,
    ) -> int:
        """How many rows from `row` on are due for the same reason as the first one. Those that a
        group holds are not due by their age."""
        age_ms = self._age_ms if self._age_ms is not None and not is_held else FOREVER
        if not source.columns & EXPIRY:
            # All have the same time to live, and times never go back.
            life_ms = age_ms if self.ttl_ms is None else min(self.ttl_ms, age_ms)
            rows = range(row + 1, stop)
            return 1 + bisect_right(rows, now_ms - life_ms, key=source.time)
        end = row + 1
        while end < stop:
            life, age = end_of_life(source, end, self.ttl_ms), source.time(end) + age_ms
            if min(life, age) > now_ms or (reason == "age") != (age < life):
                break
            end += 1
        return end - row

    # --- readers

    def open_reader(self, name: str | None, start: Start | None, filter: Filter | None) -> Reader:
        cursor = self._cursor(name, start, filter)
        reader = Reader(self, cursor)
        self._readers.add(reader)
        return reader

    def _cursor(self, name: str | None, start: Start | None, filter: Filter | None) -> Cursor:
        if name is None:
            if start == "committed":
                raise InvalidRequest(
                    "start='committed' needs a name: an unnamed reader has committed nothing"
                )
            self._reader_count += 1
            label = f"*{self._reader_count}"  # no name may hold a *, so it is nobody's name
            position = resolve_start(self, "earliest" if start is None else start)
            cursor = self._cursors[label] = Cursor(label, None, position, filter)
            return cursor
        if name in self.queues or name in self.claimed:
            raise GroupExists(self._base, name, {"kind": ("queue", "cursor")})
        known = self._cursors.get(name)
        position = resolve_start(self, "earliest" if start is None else start, known)
        if known is None:
            known = self._cursors[name] = Cursor(name, name, position, filter)
        elif not known.members:
            known.filter = filter
        elif filter is not None and filter != known.filter:
            raise InvalidRequest(
                f"reader name {name!r} is open with another filter, and the filter belongs to the "
                "name: leave it out, or use a name of your own"
            )
        return known

    def has_cursor(self, name: str) -> bool:
        """Whether it is applied that readers go by this name."""
        return name in self._cursors

    def has_reader_name(self, name: str) -> bool:
        """Whether readers go by this name, or have gone by it."""
        return name in self._cursors  # one of no name has a label that is no name

    def is_open(self, name: str) -> bool:
        """Whether a reader of this name is open."""
        cursor = self._cursors.get(name)
        return cursor is not None and cursor.members > 0

    def reader_names(self) -> set[str]:
        return {cursor.name for cursor in self._cursors.values() if cursor.name is not None}

    async def begin_cursor(self, cursor: Cursor) -> None:
        """A new name has begun; make that last."""

    async def commit_cursor(self, cursor: Cursor, offset: int) -> None:
        """Remember where a name goes on."""
        cursor.committed = offset

    def close_reader(self, reader: Reader, cursor: Cursor) -> None:
        if reader not in self._readers:
            return
        self._readers.discard(reader)
        if cursor.members == 1:
            reader.miss_returned()  # what it has itself was read
        reader.let_go()
        cursor.members -= 1
        if not cursor.members:
            if cursor.name is None:
                del self._cursors[cursor.label]
            else:
                cursor.rest(self.log.first_offset)
        self.bell.ring()  # its own pending reads end, others may get what it left
        self._wake_publisher()

    def was_read(self, count: int) -> None:
        self._unmarked += count
        if self._unmarked > 15 or not self.delivered.is_marked:
            # a clock is read now and then, not for each message
            self._unmarked = 0
            self.delivered.add(count, self.clock.now_ms())
        else:
            self.delivered.total += count
        if self._publishers:
            self._wake_publisher()

    def lag(self, cursor: Cursor) -> int:
        log = self.log
        ahead = max(0, log.next_offset - max(cursor.position, log.first_offset))
        returned = cursor.returned
        return ahead + returned.count - returned.count_before(log.first_offset)

    # --- groups

    def bury(self, group: QueueGroup, dead: list[Dead]) -> Awaitable[None]:
        """Move messages that a group gives up to its dead letters, in one step with settling."""
        return self._bury(self, group, dead)

    def key_hashes(self, start: int, stop: int) -> list[int]:
        hashes: list[int] = []
        while start < stop:
            try:
                source, row, rows = self.log.locate(start)
            except Corrupt:  # nobody gets it: no key has to wait for it
                source, row, rows = self.log.outline(start)
            end = min(rows, row + stop - start)
            if source.columns & (KEY_HASH | KEYS):
                hashes += map(source.key_hash, range(row, end))
            else:
                hashes += [0] * (end - row)
            start += end - row
        return hashes

    def apply_group_change(self, command: GroupChange) -> None:
        """Make a change of a group that was decided. What is gone since is passed over."""
        match command:
            case CreateGroup():
                self._apply_create_group(command)
            case Cancel(_, ranges):
                self._apply_cancel(ranges)
            case DeleteGroup(_, name):
                self._apply_delete_group(name)
            case Settle() | Attempts() | ResetGroup() | PauseGroup():
                group = self.queues.get(command.group)
                if group is not None:
                    self._apply_to(group, command)

    def _apply_to(
        self, group: QueueGroup, command: Settle | Attempts | ResetGroup | PauseGroup
    ) -> None:
        match command:
            case Settle(_, _, ranges, reason):
                group.apply_settle(ranges, reason)
                if reason == DISCARDED:
                    self.discard(ranges)
                self.group_moved()
            case Attempts():
                self._apply_attempts(group, command)
            case ResetGroup(_, _, floor):
                group.apply_reset(floor)
                self.group_moved()
            case PauseGroup(_, _, paused):
                group.apply_pause(paused)

    def _apply_attempts(self, group: QueueGroup, command: Attempts) -> None:
        """Nothing: what hands messages out knows already how often it did."""

    def _apply_create_group(self, command: CreateGroup) -> None:
        self.claimed.discard(command.group)
        if command.group not in self.queues and not self.has_cursor(command.group):
            text = command.filter
            group = self.queues[command.group] = QueueGroup(
                self,
                command.group,
                order=command.order,
                filter=None if text is None else self._compile(text),
                filter_text=text,
                start=command.start,
                floor=command.floor,
            )
            group.queue.begin_tokens(self._first_token)
            group.pass_cancelled()

    def delete_group(self, name: str) -> Done:
        """Decide to forget a group or a reader name that nobody has open."""
        done = self.keeper.change(DeleteGroup(self.id, name))
        if done is not None:
            self.leaving[name] = done
            done.add_done_callback(lambda _: self.leaving.pop(name, None))
        return done

    def _apply_delete_group(self, name: str) -> None:
        group = self.queues.pop(name, None)
        if group is not None:
            group.end(GroupNotFound(self._base, name))
            self._first_token = max(self._first_token, group.queue.next_token)
            self.forget_index(group.queue.index)
            self.group_moved()
        cursor = self._cursors.get(name)
        if cursor is not None and not cursor.members:
            del self._cursors[name]
            self._wake_publisher()

    def discard(self, ranges: Ranges) -> None:
        """Nobody gets these any more, in whatever way they read."""
        if self.discarded is None:
            self.discarded = OffsetSet()
        self.discarded.add_ranges(ranges)
        for group in self.queues.values():
            group.apply_settle(ranges, DISCARDED)

    def living(
        self, source: RowSource, start: int, stop: int, *, with_expired: bool = False
    ) -> Sequence[int] | None:
        """The rows of a range that may be read; None where that is every one of them."""
        picks: Sequence[int] | None = None
        if self.may_expire and not with_expired:
            picks = alive(source, start, stop, self.ttl_ms, self.clock.now_ms())
        gone, base = self.discarded, source.base_offset
        if gone is not None and gone.present(base + start, base + stop):
            rows = range(start, stop) if picks is None else picks
            picks = [row for row in rows if base + row not in gone]
        return picks

    def cancels(self, ranges: Ranges) -> None:
        """It is decided that these never become due; the command is on its way."""
        self.lanes.cancelling.add_ranges(ranges)

    def cancels_not(self, ranges: Ranges) -> None:
        """Nothing came of that. What has fallen due meanwhile is handed out now."""
        self.lanes.cancelling.remove_ranges(ranges)
        back, self._due_while_cancelled = self._due_while_cancelled, []
        self._hand_out_due(self._kept_back(list(back)))

    def _apply_cancel(self, ranges: Ranges) -> None:
        self.lanes.cancelling.remove_ranges(ranges)
        self._due_while_cancelled = [
            pair
            for pair in self._due_while_cancelled
            if not any(start <= pair[0] < stop for start, stop in ranges)
        ]
        for start, stop in ranges:
            self.lanes.cancelled.add_range(start, stop)
            self._forget_delays(start, stop)
        for group in self.queues.values():
            group.apply_settle(ranges, "cancelled")
        self._arm_delays(self.clock.now_ms())

    def _forget_delays(self, start: int, stop: int) -> None:
        """Take back those that wait still: since it was decided, their time may have come."""
        self._delays.discard(self.due_after(start, stop, self.lanes.served_ms))

    def due_after(self, start: int, stop: int, time_ms: int) -> list[int]:
        """Which of these are due after a time. Of each batch the times are read once."""
        log = self.log
        offset, stop = max(start, log.first_offset), min(stop, log.next_offset)
        found: list[int] = []
        while offset < stop:
            source, row, rows = log.outline(offset)
            end = min(rows, row + stop - offset)
            if source.columns & DELIVER_AT:
                base, due_ms = offset - row, source.deliver_at
                found += [base + at for at in range(row, end) if due_ms(at) > time_ms]
            offset += end - row
        return found

    def only_for(self, name: str | None, start: int, stop: int) -> None:
        """These were appended for one group alone: the others are done with them."""
        if name is not None:
            for group in self.queues.values():
                if group.name != name:
                    group.apply_settle([(start, stop)], "redriven")

    def group_moved(self) -> None:
        """A group has settled something, or is gone: there may be room, or less to keep."""
        if self.options.keep_until_settled:
            self._keep_limits()
            self._rearm_sweep()
        if self._publishers:
            self._wake_publisher()

    def forget_index(self, index: LaneIndex) -> None:
        if all(group.queue.index is not index for group in self.queues.values()):
            self.lanes.release(index)

    def delayed_from(self, offset: int) -> int:
        """How many delayed messages wait for their time from an offset on."""
        return self._delays.count_from(offset)

    def group_infos(self) -> list[GroupInfo]:
        cursors = [
            GroupInfo(name=cursor.name, topic=self._base, kind="cursor")
            for cursor in self._cursors.values()
            if cursor.name is not None
        ]
        return [*cursors, *(group.info for group in self.queues.values())]

    def cursor_stats(self, name: str) -> GroupStats | None:
        cursor = self._cursors.get(name)
        if cursor is None or cursor.name is None:
            return None
        log = self.log
        position = max(cursor.position, log.first_offset)
        lag = self.lag(cursor)
        age = (self.clock.now_ms() - log.time_of(position)) / 1000 if lag else None
        return GroupStats(
            name=name,
            topic=self._base,
            kind="cursor",
            position=cursor.position,
            lag=lag,
            members=cursor.members,
            ready=lag,
            oldest_age=None if age is None else max(0.0, age),
            drops={"retention": cursor.missed} if cursor.missed else {},
        )

    # --- the end, and the figures

    def end(self, error: FlintError) -> None:
        """The topic is gone: everybody who is here hears `error`, and is woken to hear it."""
        self._ended = error
        for reader in self._readers:
            reader.end(error)
        for group in self.queues.values():
            group.end(error)
        for timer in (self._sweep_timer, self._delay_timer):
            if timer is not None:
                timer.cancel()
        self.bell.ring()
        for publisher in self._publishers:
            resolve(publisher.woken, True)

    def _filter_counts(self) -> dict[str, dict[str, int]]:
        counted = {
            cursor.label: (cursor.matched, cursor.rejected)
            for cursor in self._cursors.values()
            if cursor.matched or cursor.rejected
        }
        for feed in self.feeds:
            if feed.filter is not None:
                counted[f"live {feed.pattern}"] = (feed.matched, feed.rejected)
        return {
            label: {"matched": matched, "rejected": rejected}
            for label, (matched, rejected) in counted.items()
        }

    def figures(self) -> TopicFigures:
        """What is counted here, without working anything out: for many topics, many times."""
        log = self.log
        return TopicFigures(
            name=self._base,
            messages=log.next_offset - log.first_offset,
            bytes=log.byte_count,
            first_offset=log.first_offset,
            next_offset=log.next_offset,
            readers=len(self._readers),
            publishers_waiting=len(self._publishers),
            published=self.published.total,
            published_bytes=self.published.size,
            delivered=self.delivered.total,
            drops=self._drops,
            waits=self._waits,
            publish_seconds=self.publish_seconds,
            groups=[
                *(
                    self._cursor_figures(cursor)
                    for cursor in self._cursors.values()
                    if cursor.name is not None
                ),
                *(group.figures() for group in self.queues.values()),
            ],
            damaged=count_in(self.damaged_ranges()),
        )

    def damaged_ranges(self) -> Ranges:
        """What is known to be damaged on the disk."""
        return []

    def _cursor_figures(self, cursor: Cursor) -> GroupFigures:
        return GroupFigures(
            name=cursor.label,
            kind="cursor",
            lag=self.lag(cursor),
            members=cursor.members,
            drops={"retention": cursor.missed} if cursor.missed else {},
        )

    def _not_told(self, cursor: Cursor) -> int:
        """How many a cursor has missed that nobody has heard of yet."""
        first = self.log.first_offset
        lost = cursor.lost_before(first)
        if cursor.position < first:
            lost.append((cursor.position, first))
        return sum(self.missed_between(start, stop) for start, stop in lost)

    def stats(self) -> TopicStats:
        log, now_ms = self.log, self.clock.now_ms()
        self.delivered.add(0, now_ms)
        missed = {
            label: cursor.missed + self._not_told(cursor) for label, cursor in self._cursors.items()
        }
        return TopicStats(
            name=self.name,
            id=self.id,
            message_count=log.next_offset - log.first_offset,
            byte_count=log.byte_count,
            first_offset=log.first_offset,
            next_offset=log.next_offset,
            subscribers=len(self._readers)
            + len(self.feeds)
            + sum(len(group.members) for group in self.queues.values()),
            lag={
                **{label: self.lag(cursor) for label, cursor in self._cursors.items()},
                **{name: group.unsettled() for name, group in self.queues.items()},
            },
            missed=missed,
            drops={reason: count for reason, count in self._drops.items() if count},
            waits={reason: count for reason, count in self._waits.items() if count},
            filters=self._filter_counts(),
            publishers_waiting=len(self._publishers),
            published=self.published.total,
            delivered=self.delivered.total,
            rates={
                "published": self.published.per_second(now_ms),
                "published_bytes": self.published.size_per_second(now_ms),
                "delivered": self.delivered.per_second(now_ms),
            },
            damaged=count_in(self.damaged_ranges()),
            damaged_ranges=self.damaged_ranges(),
        )


def _head_of(rows: BatchBuilder | RecordBatch, count: int) -> BatchBuilder:
    head = rows.empty_like() if isinstance(rows, BatchBuilder) else BatchBuilder()
    head.extend(rows, 0, count)
    return head


class _Publisher:
    """A publish that waits in line."""

    __slots__ = ("is_late", "woken")

    def __init__(self) -> None:
        self.woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.is_late = False

    def give_up(self) -> None:
        self.is_late = True
        resolve(self.woken, False)
