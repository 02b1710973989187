"""A queue group of one topic: who gets which message, and everybody who waits for one.

`groups.Queue` decides; here is what it needs around it: the rows, the clock, the journal and those
who wait. Like everything in the engine it happens in single steps of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...broker_api import Filter, Grant, TakeMode
from ...clock import Timer
from ...errors import FlintError, ObjectStorageFailed
from ...group_model import GroupInfo, Order, Ranges
from ...groups.ranges import offsets_in
from ...loop.pace import pace
from ...observe.logs import limited
from ...rows import Rows
from ...storage.loading import Load, NotLoaded
from ..proposer import Done
from ..state.group import GroupState
from ..waiting import again, fail, resolve
from .burying import Burying
from .lead_check import check_lead, confirmed
from .picking import Picking
from .settling import Settling

if TYPE_CHECKING:
    from .topic import LeadingTopic

_log = logging.getLogger(__name__)

_IN_VAIN = 32
"""How often nothing could be handed out as something was not in memory, before it is read at once:
an order by key may have to know more messages than are held in memory."""


class _Given(NamedTuple):
    grant: Grant
    ranges: Ranges
    done: Done


class Taker:
    """Somebody who waits for messages."""

    __slots__ = (
        "auto_ack", "committed", "handed", "holder", "in_turn", "lease_seconds", "max_rows",
        "woken",
    )  # fmt: skip

    def __init__(self, holder: str, max_rows: int, lease_seconds: float, mode: TakeMode) -> None:
        self.holder, self.max_rows, self.lease_seconds = holder, max_rows, lease_seconds
        self.auto_ack, self.in_turn, self.committed = mode
        self.woken: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Done once there is nothing to wait for: what is handed out is written, or time is up."""
        self.handed: _Given | None = None

    def time_is_up(self) -> None:
        if self.handed is None:
            resolve(self.woken, False)


class QueueGroup:
    def __init__(
        self,
        topic: LeadingTopic,
        state: GroupState,
        filter_of: Callable[[GroupState], Filter | None],
    ) -> None:
        self.topic, self.state, self.queue = topic, state, state.queue
        self.name, self._filter_of = state.name, filter_of
        self.order: Order = state.order
        self.is_ending = False
        """The broker is about to stop: nothing is handed out any more, and who leaves keeps what it
        holds, so that it can settle that once the broker is back."""
        self._resets = 0  # decided, and not applied yet
        self.members: set[str] = set()
        self.ended: FlintError | None = None
        self.takers: deque[Taker] = deque()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_awake, self._serve_guarded = False, topic.guarded(self._serve)
        self._loading: Load | None = None
        """What has to be read from the disk before anything can be handed out."""
        self._loads_in_vain = 0
        self.counter: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.oldest: tuple[int, int] = (-1, 0)
        """An offset, and the time of the message there."""
        self.picking, self.settling, self.burying = Picking(self), Settling(self), Burying(self)
        state.observer = self

    @cached_property
    def filter(self) -> Filter | None:
        """Made from its text when somebody needs it: a follower may not know the words."""
        return self._filter_of(self.state)

    @property
    def info(self) -> GroupInfo:
        return _info(self)

    # --- taking

    def is_ready(self) -> bool:
        if self.ended is not None:
            return True
        try:
            is_known = self.look()
        except NotLoaded:
            return True  # it takes a look to know
        return not is_known or (not self._is_halted() and self.queue.has_ready())

    def _is_halted(self) -> bool:
        return self.state.paused or self.is_ending or bool(self._resets)

    def seconds_until_token(self) -> float:
        """What the rate limit of the topic says, if it has one."""
        bucket = self.topic.bucket
        return 0.0 if bucket is None else bucket.seconds_until(1, self.topic.clock.monotonic())

    async def take(self, taker: Taker, wait: float | None) -> Grant | None:
        """Wait for messages. Cancelled, nothing was taken; but what was settled beforehand stays
        with the taker, for whoever asks next on its behalf."""
        self.check_open()
        if self._is_awake:
            self._serve()  # those who came before are first
        if taker.handed is None and not self.takers:
            taker.handed = self._hand_out(taker)
        while taker.handed is None and wait == 0 and (self.picking.has_more or self._loading):
            await (asyncio.sleep(0) if self._loading is None else self._loading.wait())
            self.check_open()
            if not self.takers:  # else it is looked at for them first
                taker.handed = self._hand_out(taker)
        if taker.handed is None and wait != 0:
            await self._wait_for_turn(taker, wait)
        if (handed := taker.handed) is None:
            return None
        done = handed.done
        if done is not None and done.cancelled():  # by who asked before: it is settled all the same
            done = self.settling.behind_all()
        if done is not None:
            try:
                await confirmed(done, self.topic.lead)
            except asyncio.CancelledError:
                if not taker.auto_ack:
                    self._take_back(taker)
                raise
        taker.handed = None
        return handed.grant

    async def _wait_for_turn(self, taker: Taker, wait: float | None) -> None:
        self.takers.append(taker)
        self.topic.bell.listeners.add(self.wake)
        self.arm()
        if self.picking.has_more:
            self.wake()
        timer = None
        if wait is not None:
            timer = self.topic.clock.call_later(wait, taker.time_is_up)
        try:
            await taker.woken
            if self.ended is not None and taker.handed is None:
                raise again(self.ended)
        except asyncio.CancelledError:
            if not taker.auto_ack:
                self._take_back(taker)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if taker.handed is None:
                if taker in self.takers:
                    self.takers.remove(taker)
                self._note_takers()

    def recall(self) -> None:
        """Have those who wait come back with nothing: there is something new to join."""
        for taker in self.takers:
            resolve(taker.woken, False)

    def _take_back(self, taker: Taker) -> None:
        """Whoever was to get these has left before they were handed out."""
        handed, taker.handed = taker.handed, None
        if handed is not None and self.ended is None:
            self.settling.give_back([(handed.grant.token, handed.ranges)])

    def wake(self) -> None:
        """There may be something for those who wait: serve them when this turn is over."""
        if not self._is_awake and self.takers and self.ended is None:
            self._is_awake = True
            self.topic.proposer.serve_soon(self._serve_guarded)

    def _serve(self) -> None:
        self._is_awake = False
        while self.takers and self.ended is None:
            taker = self.takers[0]
            if taker.woken.done():  # its time is up, or it was cancelled
                self.takers.popleft()
                continue
            try:
                handed = self._hand_out(taker)
            except Exception as error:  # of the disk, mostly: whoever asks next hears it again
                fail(taker.woken, error)
                continue
            if taker.woken.done():  # the lead was lost while that was decided: all were told
                continue
            if handed is None:
                break
            self.takers.popleft().handed = handed
            if handed.done is None:
                taker.woken.set_result(True)
        self._note_takers()
        if self.takers:
            if self.picking.has_more:
                self.wake()
            self.arm()

    def _note_takers(self) -> None:
        if not self.takers:
            self.topic.bell.listeners.discard(self.wake)

    def _hand_out(self, taker: Taker) -> _Given | None:
        """What this taker gets right now, decided and on its way to be written; None if nothing, or
        if that has to be read from the disk first."""
        self._loading = None
        try:
            is_in_vain = self._loads_in_vain > _IN_VAIN
            with self.topic.log.at_once() if is_in_vain else nullcontext():
                handed = self._hand_out_loaded(taker)
        except NotLoaded as missing:
            self._loading = missing.load
            missing.load.then(self.wake)
            return None
        self._loads_in_vain = 0
        return handed

    def _hand_out_loaded(self, taker: Taker) -> _Given | None:
        self.picking.has_more = False
        if self._is_halted():
            return None
        topic, queue = self.topic, self.queue
        if not self.look():
            self.picking.has_more = True  # the last of a backlog may be the first to go
            return None
        if not queue.has_ready():
            return None
        check_lead(topic.lead)
        self.check_open()  # that may have ended it: the queue is a follower's then
        if self.filter is not None and not pace().may(self):
            self.picking.has_more = True  # in the next turn
            return None
        now = topic.clock.monotonic()
        wanted = taker.max_rows
        bucket = topic.bucket
        if bucket is not None and not (wanted := bucket.take(wanted, now)):
            return None
        try:
            if self.picking.suspects and not taker.auto_ack:
                ranges, runs = self.picking.pick_apart(wanted)
            else:
                ranges, runs = self.picking.pick(wanted, taker.in_turn)
        except BaseException as error:  # of the disk, or of the filter: nobody got anything
            self._loads_in_vain += isinstance(error, NotLoaded)
            queue.put_back(queue.places.selected.ranges())
            if bucket is not None:
                bucket.refund(wanted)
            raise
        count = sum(run.row_count for run in runs)
        if bucket is not None and count < wanted:
            bucket.refund(wanted - count)
        if not ranges:
            return None
        self.counter["delivered"] += count
        topic.was_read(count)
        if taker.auto_ack:
            self.counter["acked"] += count
            done = self.picking.settle_selected(ranges, future=taker.woken)
            return _Given(Grant(0, Rows(runs), {}), ranges, done)
        was_given_back = queue.was_given_back(ranges)
        token = queue.grant(ranges, taker.holder, now=now, seconds=taker.lease_seconds)
        counts = queue.counts(ranges)
        self.counter["redelivered"] += len(counts)
        self.arm()
        self.settling.note_given_again(counts, token)
        done = None
        if not topic.proposer.is_instant:
            is_first = not (counts or was_given_back or taker.committed)
            done = self.settling.note_attempts(
                ranges, counts, token, taker.woken, is_first=is_first
            )
        return _Given(Grant(token, Rows(runs), counts), ranges, done)

    def look(self) -> bool:
        """Take note of what has come, and of what retention took; whether of all of it. Raises
        NotLoaded where the disk has to be asked first."""
        topic, queue = self.topic, self.queue
        try:
            return queue.index.end >= topic.log.next_offset or topic.lanes.fill(queue.index)
        finally:
            if queue.floor < topic.log.first_offset:
                self.picking.pass_dropped()

    def is_worked_on(self) -> bool:
        """Whether a member has something that it has not settled."""
        return self.ended is None and any(map(self.queue.leases_of, self.members))

    def leave(self, holder: str) -> None:
        """A member closes: what it holds goes to the others."""
        self.members.discard(holder)
        if self.ended is None and not self.is_ending:
            self.picking.suspect(self.queue.release_holder(holder))
            self._give_up_rest()

    def _give_up_rest(self) -> None:
        """What goes back is much: a little of it in each turn."""
        queue = self.queue
        while queue.is_giving_up and pace().may(self):
            self.picking.suspect(queue.give_up())
        self.settling.note_recalled()
        self.wake()
        if queue.is_giving_up and self.ended is None:
            asyncio.get_running_loop().call_soon(self.topic.guarded(self._give_up_rest))

    # --- time

    def add_due(self, due: Sequence[tuple[int, int]]) -> None:
        """Delayed messages whose time has come; what the index does not have yet comes with it."""
        known = self.queue.index.end
        self.queue.add_due([pair for pair in due if pair[0] < known])
        self.wake()

    def arm(self) -> None:
        """Set the alarm for what time brings about next: a lease that ends, a delay that is over, a
        token of the rate limit."""
        if self.ended is not None:
            return
        clock, queue = self.topic.clock, self.queue
        now = clock.monotonic()
        at = queue.next_deadline()
        due_ms = queue.next_due_ms()
        if due_ms is not None:
            due_at = now + max(0, due_ms - clock.now_ms()) / 1000
            at = due_at if at is None else min(at, due_at)
        bucket = self.topic.bucket
        if self.takers and bucket is not None and not self.state.paused and queue.has_ready():
            token_at = now + bucket.seconds_until(1, now)
            at = token_at if at is None else min(at, token_at)
        if at is None:
            return
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = clock.call_later(max(0.0, at - now), self.topic.guarded(self._time_is_up))

    def _time_is_up(self) -> None:
        if self.ended is not None:
            return
        self._timer = None
        topic, queue = self.topic, self.queue
        expired = queue.expire(topic.clock.monotonic())
        self.settling.note_recalled()
        if expired:
            self.counter["leases_expired"] += sum(stop - start for start, stop in expired)
            last, rest = self.burying.apart(expired)
            if last:
                queue.set_aside(last)
                self.burying.later(
                    self.burying.exhausted(offsets_in(last), "not settled by any of its deliveries")
                )
            self.picking.suspect(rest)
        self.wake()
        try:
            if not self.look():
                self._timer_at = topic.clock.monotonic()
                self._timer = topic.clock.call_later(0.0, topic.guarded(self._time_is_up))
                return
        except NotLoaded as missing:
            missing.load.then(topic.guarded(self._time_is_up))
            return
        except FlintError as error:  # of the disk: whoever asks next hears it again
            limited(
                _log,
                logging.WARNING,
                "group_stuck",
                f"{topic.name}/{self.name}",
                f"a group cannot read due messages: {error}",
                topic=topic.name,
                group=self.name,
            )
            return
        queue.take_due(topic.clock.now_ms())
        self.arm()

    # --- changes that are applied

    def settled(self, ranges: Ranges, reason: str, count: int) -> None:
        self.picking.suspects.remove_ranges(ranges)
        if reason:
            self.drops[reason] += count
        else:
            self.counter["settled"] += count
        self.wake()

    def begin_reset(self) -> None:
        """A reset is on its way: what is settled from now on would come behind it."""
        self._resets += 1
        self.queue.end_leases()

    def was_reset(self, passed: int) -> None:
        self._resets = max(0, self._resets - 1)
        self.settling.void_before = self.queue.next_token
        self.drops["reset"] += passed
        self.picking.suspects.clear()
        self.wake()

    def take_up(self, reclaim_seconds: float, last_term: int) -> None:
        """The topic was recovered: what was handed out is kept for a while, and delays go on."""
        topic, queue = self.topic, self.queue
        if queue.floor < topic.log.first_offset:
            self.picking.pass_dropped()
        self.picking.find_suspects()
        now = topic.clock.monotonic()
        queue.take_up(
            now=now,
            seconds=reclaim_seconds,
            last_term=last_term,
            end=topic.log.next_offset,
            key_hashes=self.picking.key_hashes if self.order == "key" else None,
        )
        while not reclaim_seconds and queue.expire(now):
            queue.recalled.clear()  # it is so again after every start
        if len(self.queue.places.delayed):
            with suppress(ObjectStorageFailed):  # the alarm does it again
                while not self.look():
                    pass  # what is due comes by the lane of its priority, which the index knows
                self.queue.take_due(self.topic.clock.now_ms())
        self.arm()

    def end(self, error: FlintError) -> None:
        self.ended = error
        self.state.observer = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for taker in self.takers:
            resolve(taker.woken, False)
        self.topic.bell.listeners.discard(self.wake)

    def check_open(self) -> None:
        if self.ended is not None:
            raise again(self.ended)

    # --- figures

    def unsettled(self) -> int:
        """How many messages are not settled yet."""
        self.picking.pass_dropped()
        queue = self.queue
        return max(0, self.topic.log.next_offset - queue.floor - len(queue.settled))


def _info(group: QueueGroup) -> GroupInfo:
    return GroupInfo(
        name=group.name,
        topic=group.topic.name.partition("/")[0],
        kind="queue",
        order=group.order,
        filter=group.state.filter_text,
        start=group.state.start,
        paused=group.state.paused,
    )
