"""A topic that this node leads: who publishes, who waits, who listens.

Everything here happens in single steps of the event loop: deciding, proposing, fanning out and
waking are never interrupted. What a publish needs to wait for is decided before anything is done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ...batch import (
    DELIVER_AT,
    EXPIRY,
    OBJECTS,
    PRODUCER,
    RecordBatch,
    RestingRows,
    RowSource,
    slice_batch,
)
from ...broker_api import Filter, Placed
from ...clock import Clock
from ...errors import (
    FlintError,
    GroupNotFound,
    InvalidRequest,
    TopicFull,
)
from ...groups.token_bucket import TokenBucket
from ...model import Receipt
from ...observe.metrics import Meter
from ...rows import Decoder, Origin, Run
from ..commands import AdvanceFirstOffset, CreateGroup, DeleteGroup
from ..deciding import (
    Rows,
    check_sizes,
    fitting,
    limit_of,
    refuse_too_large,
    refuse_what_never_fits,
)
from ..expiry import alive
from ..pending import Pending
from ..proposer import Done, Proposer
from ..state.group import COMPACTED, GroupState
from ..state.topic import TopicState
from ..view import TopicView
from ..waiting import Bell, again
from .at_once import PublishAtOnce
from .burying import Dead
from .committing import StagedCommits
from .compacting import Compacting
from .cursors import ReaderCursors
from .delaying import Delaying
from .fan_out import FanOut
from .feeds import FeedBoard, LiveFeed
from .intake import PublishIntake
from .lead_check import LeadCheck
from .line import PublisherLine
from .queue_group import QueueGroup
from .sieve import Sieve
from .sweeping import Sweeping


@dataclass(slots=True)
class ShardContext:
    """What the topics of a shard share."""

    clock: Clock
    board: FeedBoard
    decoder: Decoder | None
    guarded: Callable[[Callable[[], object]], Callable[[], object]]
    """Around every callback that nobody waits for: a fault in it stops the broker."""
    bury: Callable[[LeadingTopic, QueueGroup, list[Dead]], Awaitable[None]]
    filter_of: Callable[[GroupState], Filter | None]
    lead: LeadCheck | None = None


class LeadingTopic:
    def __init__(self, state: TopicState, proposer: Proposer, around: ShardContext) -> None:
        self.state, self.proposer, self._around = state, proposer, around
        self.name, self.id, self.log, self.lanes = state.name, state.id, state.log, state.lanes
        self.clock, self.guarded, self.lead = around.clock, around.guarded, around.lead
        self.base, _, partition = state.name.partition("/")
        self.partition = int(partition or 0)
        self.view: TopicView[Pending | Placed] = TopicView(state)
        self.ended: FlintError | None = None
        self.bell = Bell()
        self.board = around.board
        self.known_feeds: tuple[LiveFeed, ...] = ()
        self.feeds_version = -1
        self.published, self.delivered = Meter(), Meter()
        self.drops: Counter[str] = Counter()
        self.line = PublisherLine(self)
        self.publishers = self.line.waiting
        self.wake_publisher = self.line.wake
        self._unmarked = 0
        self.expiry_seen = False  # of a message of its own; from then on readers look for it
        self.bucket: TokenBucket | None = None
        self._rate: tuple[float | None, float | None] = (None, None)
        self.claimed: set[str] = set()
        """Names of groups that are being made."""
        self.leaving: dict[str, asyncio.Future[None]] = {}
        """Names of groups and readers whose deletion is on its way, and when it is done."""
        self._first_token = 1
        self.sieve = Sieve(self.name, Origin(self.base, self.partition, around.decoder, None))
        self._take_options()
        self.queues: dict[str, QueueGroup] = {}
        self.fan_out = FanOut(self)
        self.intake = PublishIntake(self)
        self.sweeping = Sweeping(self)
        self.delaying = Delaying(self)
        self.cursors = ReaderCursors(self)
        self.compacting = Compacting(self)
        self.commits = StagedCommits(self)
        self.cancelled = self.delaying.cancelled
        self.name_set, self.name_gone = self.cursors.name_set, self.cursors.name_gone
        quick: PublishAtOnce | PublishIntake
        quick = PublishAtOnce(self) if proposer.is_instant else self.intake
        self.publish_value: Callable[[bytes], Receipt | Pending | None] = quick.publish_value
        self.publish_rows: Callable[
            [list[bytes], str | None, str, int], Receipt | Placed | Pending | None
        ] = quick.publish_rows
        state.observer = self

    def take_up(self, reclaim_seconds: float, last_term: int) -> None:
        """Begin with what is applied. What was handed out is kept for those who come back within
        that time."""
        if self.log.has_expiry():
            self.saw_expiry()
        with self.log.at_once():  # nobody is served before it is known what there is
            self.sweeping.arm()
            for group in self.state.groups.values():
                self.group_made(group)
            self.delaying.take_up()
            for leading in self.queues.values():
                leading.take_up(reclaim_seconds, last_term)

    @property
    def feeds(self) -> tuple[LiveFeed, ...]:
        """The live feeds that match this topic's name."""
        board = self.board
        if self.feeds_version != board.version:
            self.known_feeds = board.find(self.base)
            self.feeds_version = board.version
        return self.known_feeds

    def _take_options(self) -> None:
        options = self.options = self.state.options
        rate = (options.rate_limit, options.rate_burst)
        if rate != self._rate:
            self._rate = rate
            self.bucket = None if rate[0] is None else TokenBucket(rate[0], rate[1])
        special = options if options.concern_clients() else None
        self.origin = Origin(self.base, self.partition, self._around.decoder, special)
        self.sieve.origin = self.origin
        self.ttl_ms = None if options.ttl is None else max(1, round(options.ttl * 1000))
        age = options.retention_age
        self.age_ms = None if age is None else max(1, round(age * 1000))
        self._takes_objects = options.format == "object"
        self.may_expire = self.ttl_ms is not None or self.expiry_seen
        self.may_refuse = (
            not self.state.drops_oldest
            or options.max_message_bytes is not None
            or self._takes_objects
        )
        """Whether rows are looked at before they are let in."""
        self.is_involved = (
            self.may_refuse or self.may_expire or self.age_ms is not None or special is not None
        )

    def saw_expiry(self) -> None:
        self.may_expire = self.expiry_seen = self.is_involved = True

    # --- publishing

    def publish(
        self, rows: Rows, qos: int, *, first_in_line: bool = False
    ) -> Receipt | Pending | None:
        """Take the rows in, or return None if the publisher has to wait. Raises what refuses it.

        Where taking in takes time, the receipt is pending; the offsets are decided all the same.
        """
        state, proposer = self.state, self.proposer
        if qos and not proposer.is_instant:
            refusal = proposer.failure or proposer.full
            if refusal is not None:
                raise again(refusal)
            if proposer.is_full:
                proposer.when_room(self.wake_publisher)
                self.line.held_by = "disk"
                return None
        if bool(rows.columns & OBJECTS) != self._takes_objects:
            self._refuse_kind()
        if self.options.max_message_bytes is not None:
            check_sizes(state, rows)
        if self.publishers and not first_in_line:
            if qos and self.options.overflow in ("block", "reject"):
                refuse_what_never_fits(state, self.view, rows)
            return None
        count = rows.row_count
        if rows.columns & PRODUCER and qos:
            assert isinstance(rows, RecordBatch)
            repeated = self.intake.repeat_of(rows, count)
            if repeated is not None:
                return repeated
        has_feeds = self.known_feeds or self.feeds_version != self.board.version
        if has_feeds and self.fan_out.holds_back(rows):
            self.line.held_by = "feed"
            return None
        now_ms = self.clock.now_ms()
        if qos == 0:
            self.delaying.check_room(rows)
            rows.append_time = now_ms
            self.hand_on(rows, now_ms, None)
            self.published.add(count, now_ms)
            return Receipt(self.base, None, count, self.partition, durability="none")
        dropped = 0
        if state.drops_oldest:
            last = rows.size(count - 1, count)
            if last > state.bytes_max:
                refuse_too_large(state, last)
        else:
            room = self._room(rows)
            if room < count:
                if self.options.overflow != "drop_new":
                    self.line.held_by = "topic"
                    return None
                dropped = count - room
                self.drops["overflow"] += dropped
                if room == 0:
                    return Receipt(self.base, None, 0, self.partition, dropped)
                rows, count = _head_of(rows, room), room
        if proposer.is_instant:
            rows.append_time = now_ms
            return Receipt(self.base, state.append(rows), count, self.partition, dropped)
        return self.intake.take_in(rows, count, now_ms, dropped)

    def may_gather(self) -> bool:
        """Whether publishes may be joined: none of them can be refused, or has to wait, alone."""
        return not (self.may_refuse or self.publishers or any(feed.refuses for feed in self.feeds))

    def _refuse_kind(self) -> NoReturn:
        raise InvalidRequest(
            f"topic {self.name!r} was created again in the meantime, and takes "
            + ("objects by reference" if self._takes_objects else "bytes, not objects")
        )

    def _room(self, rows: Rows) -> int:
        """How many of the rows fit, after everything every reader has passed is dropped."""
        state, view, count = self.state, self.view, rows.row_count
        room = fitting(state, view, rows)
        if room < count and self.drop_what_all_passed():
            room = fitting(state, view, rows)
        if room < count and self.options.overflow != "drop_new":
            refuse_what_never_fits(state, view, rows)
            if self.options.overflow == "reject":
                raise self.full(count)
        return room

    def drop_what_all_passed(self) -> bool:
        """Drop what every named cursor and every open reader has passed; whether there was any."""
        positions = [cursor.done_before() for cursor in self.cursors.all.values()]
        positions += [group.floor for group in self.state.groups.values()]
        passed = min(*positions, self.log.next_offset) if positions else 0
        if passed <= self.log.first_offset:
            return False
        self.sweeping.pass_over(passed, "read")
        return True

    def full(self, count: int, waited: float | None = None) -> TopicFull:
        cursors, groups = self.cursors.all.values(), self.queues.values()
        slowest = min(cursors, key=lambda cursor: cursor.done_before(), default=None)
        holding = min(groups, key=lambda group: group.state.floor, default=None)
        if holding is not None and (slowest is None or holding.state.floor < slowest.done_before()):
            why = f"group {holding.name!r} still has {holding.unsettled():,} messages to settle"
        elif slowest is None:
            why = "it has no reader; open one, or choose overflow='drop_oldest'"
        elif (done := slowest.done_before()) < slowest.unread_from():
            why = f"reader {slowest.label!r} has read offset {done} and not committed it"
        else:
            lag = self.cursors.lag(slowest)
            why = f"reader {slowest.label!r} still has {lag:,} messages to read"
            if not slowest.members:
                why += "; it is not open: open it, and continue reading or seek('latest')"
        if waited is not None:
            why += f" (waited {waited:g} s)"
        return TopicFull(self.name, limit_of(self.state, self.view, count), why)

    # --- what was applied

    def appended(self, rows: Rows, offset: int, count: int, size: int) -> None:
        self.published.add(count, rows.append_time, size)
        if not self.proposer.is_instant:
            producer, first = None, 0
            if rows.columns & PRODUCER:
                assert isinstance(rows, RecordBatch)
                producer, first = rows.producer, rows.base_sequence
            self.view.applied(producer, first, size)
        if rows.columns & EXPIRY and not self.expiry_seen:
            self.saw_expiry()
            self.sweeping.rearm()  # it may be the first already, and the next to go
        if (
            rows.columns & DELIVER_AT
            or self.known_feeds
            or self.board.version != self.feeds_version
        ):
            self.hand_on(rows, rows.append_time, offset)
        if self.intake.expected:
            self.intake.have_come(offset + count)
        if not self.sweeping.is_armed and (self.may_expire or self.age_ms is not None):
            self.sweeping.arm()
        if self.compacting.is_on:
            self.compacting.appended()
        self.bell.ring()

    def appended_evenly(
        self, batches: Sequence[RecordBatch | RestingRows], offset: int, count: int, size: int
    ) -> None:
        self.commits.appended(batches, count, size)

    def appended_rows(
        self, offset: int, count: int, size: int, producer: str | None, sequence: int
    ) -> None:
        log = self.log
        self.published.add(count, log.last_time, size)
        if not self.proposer.is_instant:
            self.view.applied(producer, sequence, size)
        if self.known_feeds or self.board.version != self.feeds_version:
            # One of these is new: who published the rows found none.
            for at in range(max(offset, log.first_offset), offset + count):
                source, row, _ = log.locate(at)
                self.fan_out.offer(Run(source, row, row + 1, self.origin))
        if not self.sweeping.is_armed and (self.may_expire or self.age_ms is not None):
            self.sweeping.arm()
        self.bell.ring()

    def hand_on(self, rows: Rows, now_ms: int, offset: int | None) -> None:
        """Give rows to the live feeds: at once, or when they are due."""
        run = Run(rows, 0, rows.row_count, self.origin)
        if rows.columns & DELIVER_AT:
            due_now = self.delaying.add(rows, now_ms, offset)
            if not due_now:
                return
            run = run._replace(picks=due_now)
        self.fan_out.offer(run)

    def dropped(self, start: int, stop: int, reason: str) -> None:
        self.drops[reason] += stop - start
        sweeping = self.sweeping
        if sweeping.is_armed or reason in ("expired", COMPACTED):
            sweeping.dropped(start, stop, reason)
        if not sweeping.is_armed and (self.may_expire or self.age_ms is not None):
            sweeping.arm()
        if self.publishers:
            self.wake_publisher()

    def settled(self) -> None:
        if self.options.keep_until_settled:
            self.sweeping.rearm()
        self.wake_publisher()

    def configured(self) -> None:
        self._take_options()
        self.compacting.configured()
        self.sweeping.rearm()
        self.wake_publisher()
        for group in self.queues.values():
            group.wake()

    def group_made(self, group: GroupState) -> None:
        made = QueueGroup(self, group, self._around.filter_of)
        self.queues[group.name] = made
        group.queue.begin_tokens(self._first_token)

    def group_gone(self, group: GroupState) -> None:
        gone = self.queues.pop(group.name)
        gone.end(GroupNotFound(self.base, group.name))
        self._first_token = max(self._first_token, group.queue.next_token)

    # --- for readers and groups

    def was_read(self, count: int) -> None:
        self._unmarked += count
        if self._unmarked > 15 or not self.delivered.is_marked:
            # a clock is read now and then, not for each message
            self._unmarked = 0
            self.delivered.add(count, self.clock.now_ms())
        else:
            self.delivered.total += count
        if self.publishers:
            self.wake_publisher()

    def living(
        self, source: RowSource, start: int, stop: int, *, with_expired: bool = False
    ) -> Sequence[int] | None:
        """The rows of a range that may be read; None where that is every one of them."""
        picks: Sequence[int] | None = None
        if self.may_expire and not with_expired:
            picks = alive(source, start, stop, self.ttl_ms, self.clock.now_ms())
        gone, base = self.state.discarded, source.base_offset
        if gone is not None and gone.present(base + start, base + stop):
            rows = range(start, stop) if picks is None else picks
            picks = [row for row in rows if base + row not in gone]
        return picks

    def bury(self, group: QueueGroup, dead: list[Dead]) -> Awaitable[None]:
        """Move messages that a group gives up to its dead letters, in one step with settling."""
        return self._around.bury(self, group, dead)

    def purge(self, before: int | None) -> tuple[int, Done]:
        """Decide to drop what lies before an offset, or all of it, whoever still wants it: how many
        messages that are, and what to wait for."""
        first, end = self.view.first_offset, self.log.next_offset
        offset = end if before is None else min(before, end)
        if offset <= first:
            return 0, None
        self.view.pass_over(offset)
        done = self.proposer.change(AdvanceFirstOffset(self.id, offset, "purged"))
        return offset - first, done

    async def make_group(self, command: CreateGroup) -> QueueGroup | None:
        """Have a group made; None where something was faster: readers of that name, or a delete."""
        name, claimed = command.group, self.claimed
        claimed.add(name)
        done = self.proposer.change(command)
        if done is None:
            claimed.discard(name)
        else:
            done.add_done_callback(lambda _: claimed.discard(name))
            await asyncio.shield(done)
        return self.queues.get(name)

    def delete_group(self, name: str) -> Done:
        """Decide to forget a group or a reader name that nobody has open."""
        done = self.proposer.change(DeleteGroup(self.id, name))
        if done is not None:
            self.leaving[name] = done
            done.add_done_callback(lambda _: self.leaving.pop(name, None))
        return done

    # --- the end

    def end(self, error: FlintError) -> None:
        """Nobody leads the topic any more: everybody who is here hears `error`, and is woken to
        hear it. What was let in and not proposed never will be."""
        self.ended = error
        self.state.observer = None
        self.intake.give_up(error)
        self.cursors.end(error)
        for group in self.queues.values():
            group.end(error)
        self.sweeping.end()
        self.delaying.end()
        self.compacting.end()
        self.bell.ring()
        self.line.end()


def _head_of(rows: Rows, count: int) -> Rows:
    if isinstance(rows, RecordBatch):
        return slice_batch(rows, 0, count)
    head = rows.empty_like()
    head.extend(rows, 0, count)
    return head
