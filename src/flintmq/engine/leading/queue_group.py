"""A queue group of one topic: who gets which message, and everybody who waits for one.

`groups.Queue` decides; here is what it needs around it: the rows, the clock, the journal and those
who wait. Like everything in the engine it happens in single steps of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ...broker_api import Filter, Grant
from ...clock import Timer
from ...errors import FilterFailed, FlintError, LeaseLost
from ...group_model import GroupInfo, Lease, Ranges
from ...groups.lanes import END
from ...groups.offset_set import OffsetSet
from ...groups.ranges import count_in, without
from ...logs import limited
from ...pace import Allowance, pace
from ...rows import Rows, Run
from ..commands import Attempts
from ..expiry import end_of_life
from ..proposer import Done
from ..state.group import GroupState
from ..waiting import again, resolve
from .rows_of_groups import cut, each, key_hashes, merged, offsets_of, rows_of

if TYPE_CHECKING:
    from .topic import LeadingTopic

_log = logging.getLogger(__name__)

LOOKED_AT_MAX = 4096
"""How many rows one step looks at that nobody gets, so that a rare match does not hold up the
loop."""

_STEP_BYTES = 512 << 10
"""How much is selected at once for a filter to look at."""

_ALONE = 2
"""How many of its last deliveries a message gets alone, where processes have ended with it: with
whatever was taken beside it, the innocent would go to the dead letters too."""

_GIVEN_AGAIN_MAX = 4096
"""Of how many messages we know that they were given to another before they were settled."""

_BURY_AGAIN_SECONDS = 1.0
"""How soon dead letters that could not be moved are tried again for those who wait."""


class Dead(NamedTuple):
    """A message that goes to the dead letters."""

    offset: int
    reason: str
    deliveries: int


class _Handed(NamedTuple):
    grant: Grant
    ranges: Ranges
    done: Done


class Taker:
    """Somebody who waits for messages."""

    __slots__ = ("auto_ack", "handed", "holder", "in_turn", "lease_seconds", "max_rows", "woken")

    def __init__(
        self, holder: str, max_rows: int, lease_seconds: float, auto_ack: bool, in_turn: bool
    ) -> None:
        self.holder, self.max_rows = holder, max_rows
        self.lease_seconds, self.auto_ack, self.in_turn = lease_seconds, auto_ack, in_turn
        self.woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.handed: _Handed | None = None


class QueueGroup:
    def __init__(
        self,
        topic: LeadingTopic,
        state: GroupState,
        filter_of: Callable[[GroupState], Filter | None],
    ) -> None:
        self.topic, self.state, self.queue = topic, state, state.queue
        self.name, self.order = state.name, state.order
        self._filter_of = filter_of
        self.is_ending = False
        """The broker is about to stop: nothing is handed out any more, and who leaves keeps what it
        holds, so that it can settle that once the broker is back."""
        self._resets = 0  # decided, and not applied yet
        self.members: set[str] = set()
        self.ended: FlintError | None = None
        self.takers: deque[Taker] = deque()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_awake = False
        self._has_more_to_look_at = False
        self.counter: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self._at_work: set[asyncio.Task[None]] = set()
        self._suspects = OffsetSet()
        """What the process had out when it ended, time and again. One of these may be deadly."""
        self.oldest = (-1, 0)
        """An offset, and the time of the message there."""
        self._given_again: dict[int, int] = {}
        """Of late: messages that were handed out more than once, and the last token of each; END
        where they are dead letters."""
        self._recalled = OffsetSet()
        """What was taken from its holder, who may not know it, and was not handed out since."""
        self._void_before = 0
        """Tokens from before a reset are worth nothing."""
        self._alone: int | None = None
        """The suspect that was handed out last."""
        state.observer = self

    @cached_property
    def filter(self) -> Filter | None:
        """Made from its text when somebody needs it: a follower may not know the words."""
        return self._filter_of(self.state)

    @property
    def info(self) -> GroupInfo:
        return GroupInfo(
            name=self.name,
            topic=self.topic.name.partition("/")[0],
            kind="queue",
            order=self.order,
            filter=self.state.filter_text,
            start=self.state.start,
            paused=self.state.paused,
        )

    # --- taking

    def is_ready(self) -> bool:
        if self.ended is not None:
            return True
        if not self.look():
            return True  # it takes a look to know
        return not self._is_halted() and self.queue.has_ready()

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
        while taker.handed is None and wait == 0 and self._has_more_to_look_at:
            await asyncio.sleep(0)
            self.check_open()
            if not self.takers:  # else it is looked at for them first
                taker.handed = self._hand_out(taker)
        if taker.handed is None and wait != 0:
            await self._wait_for_turn(taker, wait)
        handed = taker.handed
        if handed is None:
            return None
        if handed.done is not None:
            try:
                await asyncio.shield(handed.done)
            except asyncio.CancelledError:
                if not taker.auto_ack:
                    self._take_back(taker)
                raise
        taker.handed = None
        return handed.grant

    async def _wait_for_turn(self, taker: Taker, wait: float | None) -> None:
        self.takers.append(taker)
        self.topic.bell.listeners.add(self.wake)
        self._arm()
        if self._has_more_to_look_at:
            self.wake()
        timer = None
        if wait is not None:
            timer = self.topic.clock.call_later(wait, lambda: resolve(taker.woken, False))
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
            self._release([(handed.grant.token, handed.ranges)])

    def wake(self) -> None:
        """There may be something for those who wait: serve them when this turn is over."""
        if not self._is_awake and self.takers and self.ended is None:
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self.topic.guarded(self._serve))

    def _serve(self) -> None:
        self._is_awake = False
        while self.takers and self.ended is None:
            taker = self.takers[0]
            if taker.woken.done():  # its time is up, or it was cancelled
                self.takers.popleft()
                continue
            try:
                taker.handed = self._hand_out(taker)
            except Exception as error:  # of the disk, mostly: whoever asks next hears it again
                self.takers.popleft()
                taker.woken.set_exception(error)
                continue
            if taker.handed is None:
                break
            self.takers.popleft()
            taker.woken.set_result(True)
        self._note_takers()
        if self.takers:
            if self._has_more_to_look_at:
                self.wake()
            self._arm()

    def _note_takers(self) -> None:
        if not self.takers:
            self.topic.bell.listeners.discard(self.wake)

    def _hand_out(self, taker: Taker) -> _Handed | None:
        """What this taker gets right now, decided and on its way to be written; None if nothing."""
        self._has_more_to_look_at = False
        if self._is_halted():
            return None
        topic, queue = self.topic, self.queue
        if not self.look():
            self._has_more_to_look_at = True  # the last of a backlog may be the first to go
            return None
        if not queue.has_ready():
            return None
        if self.filter is not None and not pace().may(self):
            self._has_more_to_look_at = True  # in the next turn
            return None
        now = topic.clock.monotonic()
        wanted = taker.max_rows
        bucket = topic.bucket
        if bucket is not None:
            wanted = bucket.take(wanted, now)
            if not wanted:
                return None
        try:
            if self._suspects and not taker.auto_ack:
                ranges, runs = self._pick_apart(wanted)
            else:
                ranges, runs = self._pick(wanted, taker.in_turn)
        except BaseException:  # of the disk, or of the filter: nobody got anything
            queue.put_back_all()
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
            return _Handed(Grant(0, Rows(runs), {}), ranges, self._settle_selected(ranges))
        token = queue.grant(ranges, taker.holder, now=now, seconds=taker.lease_seconds)
        counts = queue.counts(ranges)
        self.counter["redelivered"] += len(counts)
        self._arm()
        self._note_given_again(counts, token)
        done = self._note_attempts(ranges, counts, token) if not topic.proposer.is_instant else None
        return _Handed(Grant(token, Rows(runs), counts), ranges, done)

    def _pick_apart(self, wanted: int) -> tuple[Ranges, list[Run]]:
        """As `_pick`: one suspect if that comes first and no other is out, else others. Of a key
        one at a time: what is put back must have none of its key behind it that goes out."""
        suspects, queue = self._suspects, self.queue
        is_one_out = self._alone is not None and queue.places.is_out(self._alone)
        passed: Ranges = []
        try:
            while True:
                ranges, runs = self._pick(wanted, in_turn=False)
                offsets = list(each(ranges))
                others = [offset for offset in offsets if offset not in suspects]
                if len(others) == len(offsets):
                    return ranges, runs
                chosen = others
                if not is_one_out and not passed and offsets[0] in suspects:
                    self._alone = offsets[0]
                    chosen = [self._alone]
                passed += without(ranges, merged(sorted(chosen)))
                if chosen:
                    return merged(chosen), rows_of(self.topic, merged(chosen))
        finally:
            if passed:
                queue.put_back(passed)

    def _note_attempts(self, ranges: Ranges, counts: dict[int, int], token: int) -> Done:
        """A first delivery is handed out once this is written. One that somebody may have had
        before waits until it is as durable as the policy asks: else a power cut could make the
        token of the one before count again."""
        attempts = [(start, stop, 1) for start, stop in ranges]
        attempts += [(offset, offset + 1, count) for offset, count in counts.items()]
        command = Attempts(self.topic.id, self.name, attempts, [], token)
        proposer = self.topic.proposer
        had_before = bool(counts) or bool(self._recalled and self._recalled.take_ranges(ranges))
        return proposer.change(command) if had_before else proposer.attempts(command)

    def _note_given_again(self, offsets: Iterable[int], token: int) -> None:
        again = self._given_again
        for offset in offsets:
            again.pop(offset, None)
            again[offset] = token
        while len(again) > _GIVEN_AGAIN_MAX:
            del again[next(iter(again))]

    def look(self) -> bool:
        """Take note of what has come, and of what retention took; whether of all of it."""
        topic, queue = self.topic, self.queue
        is_all = queue.index.end >= topic.log.next_offset or topic.lanes.fill(queue.index)
        self._pass_dropped()
        return is_all

    def _pass_dropped(self) -> None:
        topic, queue = self.topic, self.queue
        first = topic.log.first_offset
        if queue.floor < first:
            floor = queue.floor
            queue.index.drop_before(first)
            self._suspects.discard_before(first)
            self._recalled.discard_before(first)
            lost = queue.drop_before(first)
            expired = min(lost, first - floor - topic.sweeping.missed_between(floor, first))
            self.drops["expired"] += expired
            self.drops["retention"] += lost - expired

    def _pick(self, wanted: int, in_turn: bool) -> tuple[Ranges, list[Run]]:
        """Up to `wanted` messages that may be delivered. What may not is settled or buried."""
        topic, queue = self.topic, self.queue
        ranges: Ranges = []
        runs: list[Run] = []
        left, budget = wanted, LOOKED_AT_MAX
        sifts = self.filter is not None or topic.may_expire
        allowance = None if self.filter is None else pace().begin()
        keys = self._key_hashes if self.order == "key" else None
        step = self._rows_in_a_step()
        while left and budget > 0:
            asked = left if self.filter is None else min(budget, step, max(64, 2 * left))
            selection = queue.select(
                asked,
                max_deliveries=topic.options.max_deliveries,
                key_hashes=keys,
                together=in_turn,
            )
            if selection.exhausted:
                queue.set_aside(merged(sorted(selection.exhausted)))
                self._bury_later(
                    self._exhausted(selection.exhausted, "not settled by any of its deliveries")
                )
            if not selection.ranges:
                if selection.exhausted:  # others may be ready behind them
                    budget -= len(selection.exhausted)
                    continue
                self._has_more_to_look_at = selection.is_cut
                return ranges, runs
            damaged: Ranges = []
            unreadable: Ranges = []
            picked = rows_of(topic, selection.ranges, damaged, unreadable)
            if unreadable:
                # The disk may read them again another time: they are set aside until the next
                # start, and nothing of that is written down.
                _tell_unreadable(self, unreadable)
                queue.set_aside(sorted(unreadable))
                budget -= count_in(unreadable)
            if damaged:
                _tell_damaged(self, damaged)
                self._settle_selected(sorted(damaged), "damaged")
                budget -= count_in(damaged)
            if (damaged or unreadable) and not picked:
                continue  # others may be ready behind them
            if not sifts:
                is_whole = not damaged and not unreadable
                return (selection.ranges if is_whole else offsets_of(picked)), picked
            budget -= sum(run.row_count for run in picked)
            picked, rest = self._sift(picked, allowance)
            over = cut(picked, left) + rest
            if over:
                queue.put_back(offsets_of(over))
            left -= sum(run.row_count for run in picked)
            runs += picked
            ranges += offsets_of(picked)
            if allowance is not None and allowance.is_over():
                break
        self._has_more_to_look_at = left > 0
        return ranges, runs

    def _key_hashes(self, start: int, stop: int) -> list[int]:
        return key_hashes(self.topic.log, start, stop)

    def _rows_in_a_step(self) -> int:
        """As many as a filter is likely to look at before the time is up: others would be read from
        the disk for nothing."""
        log = self.topic.log
        each = log.byte_count // max(1, log.next_offset - log.first_offset)
        return max(1, _STEP_BYTES // max(1, each))

    def _sift(self, runs: list[Run], allowance: Allowance | None) -> tuple[list[Run], list[Run]]:
        """What of these is alive and passes the filter, and what was not looked at as the time was
        up. Everything else is settled, and counted."""
        topic = self.topic
        now_ms = topic.clock.now_ms()
        kept: list[Run] = []
        for number, run in enumerate(runs):
            if number and allowance is not None and allowance.is_over():
                return kept, runs[number:]
            rows: Sequence[int] = run.rows()
            if topic.may_expire:
                source, ttl_ms = run.source, topic.ttl_ms
                alive = [row for row in rows if end_of_life(source, row, ttl_ms) > now_ms]
                self._settle_without_delivery(run, rows, alive, "expired")
                rows = alive
            if self.filter is not None and rows:
                passed, failed, looked = self._passing(run, rows, allowance)
                asked, rest = rows[:looked], rows[looked:]
                self._settle_without_delivery(run, asked, [*passed, *failed], "filtered")
                if passed:
                    kept.append(run._replace(picks=passed))
                if rest:
                    return kept, [run._replace(picks=rest), *runs[number + 1 :]]
            elif rows:
                kept.append(run._replace(picks=rows))
        return kept, []

    def _passing(
        self, run: Run, rows: Sequence[int], allowance: Allowance | None
    ) -> tuple[list[int], list[int], int]:
        """Rows that pass the filter, rows on which it raises, which go to the dead letters, and how
        many were looked at."""
        topic = self.topic
        assert self.filter is not None
        try:
            passed, looked = topic.sieve.look_through(
                self.filter, run.source, rows, None, allowance
            )
            return passed, [], looked
        except FilterFailed:
            if not callable(self.filter):
                # An expression does not raise, whatever the message: if it does, that is our fault,
                # and no reason to give messages up.
                raise
            # Some row is at fault: each is asked on its own.
        passed = []
        failed: list[int] = []
        for looked, row in enumerate(rows):
            if looked and allowance is not None and allowance.is_over():
                return passed, failed, looked
            try:
                passed += topic.sieve.pick(self.filter, run.source, [row])
            except FilterFailed as error:
                failed.append(row)
                offset = run.source.base_offset + row
                dead = Dead(offset, str(error), self.queue.count_of(offset))
                self.queue.set_aside([(offset, offset + 1)])
                self._bury_later([dead])
        return passed, failed, len(rows)

    def _settle_without_delivery(
        self, run: Run, rows: Sequence[int], kept: Sequence[int], reason: str
    ) -> None:
        if len(kept) < len(rows):
            base, known = run.source.base_offset, set(kept)
            gone = merged([base + row for row in rows if row not in known])
            self._settle_selected(gone, reason)

    def _settle_selected(self, ranges: Ranges, reason: str = "") -> Done:
        self.queue.set_aside(ranges)
        try:
            return self.topic.proposer.settle(self.topic.id, self.name, ranges, reason)
        except BaseException:  # the journal has stopped
            self._unfinish(ranges)
            raise

    def pass_damaged(self, ranges: Ranges) -> Done:
        """Nobody can be given these: the group is done with them, or it would wait for ever."""
        _tell_damaged(self, ranges)
        return self.topic.proposer.settle(self.topic.id, self.name, ranges, "damaged")

    # --- settling

    async def ack(self, leases: Sequence[Lease]) -> None:
        self.check_open()
        mine, lost = self._finish(leases)
        if mine:
            self.counter["acked"] += count_in(mine)
            done = self.topic.proposer.settle(self.topic.id, self.name, mine)
            if done is not None:
                await done
        if lost:
            self._raise_lost(await self._not_done(lost))

    async def _not_done(self, lost: Sequence[Lease]) -> Ranges:
        """What of these is not settled, or was by another. Whoever lost its connection, or us,
        while it acked something asks again, and hears that it is done."""
        if any(self.queue.places.is_in_limbo(ranges) for _, ranges in lost):
            # One that is behind it tells its fate.
            done = self.topic.proposer.settle(self.topic.id, self.name, [])
            if done is not None:
                await done
        again, is_settled = self._given_again, self.queue.places.is_settled
        return merged(
            [
                offset
                for token, ranges in lost
                for offset in each(ranges)
                if token < self._void_before
                or not is_settled(offset)
                or again.get(offset, 0) > token
            ]
        )

    async def settle_before(self, offset: int) -> None:
        """Everything before an offset is done, whoever holds it."""
        self.check_open()
        self.look()
        floor, stop = self.queue.floor, min(offset, self.topic.log.next_offset)
        if stop > floor:
            done = self.topic.proposer.settle(self.topic.id, self.name, [(floor, stop)])
            if done is not None:
                await done

    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        self.check_open()
        topic, queue = self.topic, self.queue
        due_ms = topic.clock.now_ms() + round(delay * 1000) if delay > 0 else None
        dead: list[Dead] = []
        all_lost: Ranges = []
        given_back: Ranges = []
        nacked = 0
        for token, ranges in leases:
            last, others = self._apart(ranges)
            if last:
                mine, lost = queue.finish(token, last)
                dead += self._exhausted(each(mine), "nacked once too often")
                all_lost += lost
            if others:
                mine, lost = queue.nack(token, others, due_ms)
                self._suspects.remove_ranges(mine)  # whoever nacks it has survived it
                given_back += mine
                nacked += count_in(mine)
                all_lost += lost
        self.counter["nacked"] += len(dead) + nacked
        self._note_recalled()
        self.wake()
        self._arm()
        if given_back and not topic.proposer.is_instant:
            await self._note_nacked(given_back, due_ms)
        if dead:
            await self._bury(dead)
        self._raise_lost(all_lost)

    async def _note_nacked(self, ranges: Ranges, due_ms: int | None) -> None:
        proposer = self.topic.proposer
        if due_ms is None:
            if proposer.failure is None:  # nobody waits for it
                proposer.attempts(Attempts(self.topic.id, self.name, [], [], 0, ranges))
            return
        delays = [(offset, due_ms) for offset in each(ranges)]
        done = proposer.attempts(Attempts(self.topic.id, self.name, [], delays))
        if done is not None:
            await done

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        self.check_open()
        mine, lost = self._finish(leases)
        if mine:
            count_of = self.queue.count_of
            await self._bury([Dead(offset, reason, count_of(offset)) for offset in each(mine)])
        self._raise_lost([run for _, ranges in lost for run in ranges])

    async def extend(self, leases: Sequence[Lease], seconds: float, holder: str) -> None:
        self.check_open()
        now = self.topic.clock.monotonic()
        all_lost: Ranges = []
        for token, ranges in leases:
            all_lost += self.queue.extend(token, ranges, holder, now=now, seconds=seconds)[1]
        self._arm()
        self._raise_lost(all_lost)

    async def release(self, leases: Sequence[Lease]) -> None:
        self.check_open()
        self._raise_lost(self._release(leases))

    def _release(self, leases: Sequence[Lease]) -> Ranges:
        queue = self.queue
        released: Ranges = []
        all_lost: Ranges = []
        for token, ranges in leases:
            mine, lost = queue.release(token, ranges)
            released += mine
            all_lost += lost
        self._note_uncounted(released)
        self._note_recalled()
        self.wake()
        return all_lost

    def _note_uncounted(self, ranges: Ranges) -> None:
        """These were given back unseen: write down that nobody has them, and how often they were
        delivered. Nobody waits for it."""
        proposer = self.topic.proposer
        if ranges and not proposer.is_instant and proposer.failure is None:
            count_of = self.queue.count_of
            attempts = [(offset, offset + 1, count_of(offset)) for offset in each(ranges)]
            proposer.attempts(Attempts(self.topic.id, self.name, attempts))

    def _note_recalled(self) -> None:
        """By key, what was handed out behind one that came back is its holder's no more."""
        if self.queue.recalled:
            recalled, self.queue.recalled = self.queue.recalled, []
            self._recalled.add_ranges(recalled)
            self._note_given_again(each(recalled), self.queue.next_token)
            self._note_uncounted(recalled)

    def _unfinish(self, ranges: Ranges) -> None:
        self.queue.unfinish(ranges)
        self._note_recalled()

    def is_worked_on(self) -> bool:
        """Whether a member has something that it has not settled."""
        return self.ended is None and any(map(self.queue.has_leases, self.members))

    def leave(self, holder: str) -> None:
        """A member closes: what it holds goes to the others."""
        self.members.discard(holder)
        if self.ended is None and not self.is_ending:
            self.queue.release_holder(holder)
            self._give_up_rest()

    def _give_up_rest(self) -> None:
        """What goes back is much: a little of it in each turn."""
        queue = self.queue
        while queue.is_giving_up and pace().may(self):
            queue.give_up()
        self._note_recalled()
        self.wake()
        if queue.is_giving_up and self.ended is None:
            asyncio.get_running_loop().call_soon(self.topic.guarded(self._give_up_rest))

    def _finish(self, leases: Sequence[Lease]) -> tuple[Ranges, list[Lease]]:
        finish = self.queue.finish
        all_mine: Ranges = []
        all_lost: list[Lease] = []
        for token, ranges in leases:
            mine, lost = finish(token, ranges)
            all_mine += mine
            if lost:
                all_lost.append((token, lost))
        return all_mine, all_lost

    def _raise_lost(self, lost: Ranges) -> None:
        if lost:
            raise LeaseLost(self.topic.name, self.name, list(each(lost)))

    # --- dead letters

    def _apart(self, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """Those that were delivered as often as they may be, and the others."""
        most = self.topic.options.max_deliveries
        if most is None:
            return [], ranges
        count_of = self.queue.count_of
        last = [offset for offset in each(ranges) if count_of(offset) >= most]
        if not last:
            return [], ranges
        known = set(last)
        return merged(last), merged([o for o in each(ranges) if o not in known])

    def _exhausted(self, offsets: Iterable[int], how: str) -> list[Dead]:
        most, count_of = self.topic.options.max_deliveries, self.queue.count_of
        return [
            Dead(offset, f"{how} (max_deliveries={most})", count_of(offset)) for offset in offsets
        ]

    def _bury_later(self, dead: list[Dead]) -> None:
        task = asyncio.get_running_loop().create_task(self._bury(dead))
        self._at_work.add(task)
        task.add_done_callback(self._buried)

    def _buried(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled():
            task.exception()  # it was told by the log; the messages are back

    async def _bury(self, dead: list[Dead]) -> None:
        try:
            await self.topic.bury(self, dead)
            self._note_given_again([one.offset for one in dead], END)
            self.counter["dead_lettered"] += len(dead)
        except BaseException:
            if self.ended is None:
                self._unfinish(merged([one.offset for one in dead]))
                # Not at once: whoever waits would have it tried again and again.
                self.topic.clock.call_later(_BURY_AGAIN_SECONDS, self.topic.guarded(self.wake))
            raise

    # --- time

    def add_due(self, due: Sequence[tuple[int, int]]) -> None:
        """Delayed messages whose time has come; what the index does not have yet comes with it."""
        known = self.queue.index.end
        self.queue.add_due([pair for pair in due if pair[0] < known])
        self.wake()

    def _arm(self) -> None:
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
        self._timer = None
        topic, queue = self.topic, self.queue
        expired = queue.expire(topic.clock.monotonic())
        self._note_recalled()
        if expired:
            self.counter["leases_expired"] += sum(stop - start for start, stop in expired)
            last, _ = self._apart(expired)
            if last:
                queue.set_aside(last)
                self._bury_later(
                    self._exhausted(each(last), "not settled by any of its deliveries")
                )
        self.wake()
        try:
            if not self.look():
                self._timer_at = topic.clock.monotonic()
                self._timer = topic.clock.call_later(0.0, topic.guarded(self._time_is_up))
                return
        except FlintError as error:  # of the disk: whoever asks next hears it again
            limited(
                _log,
                logging.WARNING,
                "group_stuck",
                f"{topic.name}/{self.name}",
                f"a group cannot look for what is due: {error}",
                topic=topic.name,
                group=self.name,
            )
            return
        queue.take_due(topic.clock.now_ms())
        self._arm()

    # --- changes that are applied

    def settled(self, ranges: Ranges, reason: str, count: int) -> None:
        for noted in (self._suspects, self._recalled):
            noted.remove_ranges(ranges)
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
        self._void_before = self.queue.next_token
        self.drops["reset"] += passed
        self._suspects.clear()
        self.wake()

    def take_up(self, reclaim_seconds: float) -> None:
        """The topic was recovered: what was handed out is kept for a while, and delays go on."""
        topic, queue = self.topic, self.queue
        if queue.floor < topic.log.first_offset:
            self.look()
        self._find_suspects()
        now = topic.clock.monotonic()
        queue.take_up(
            now=now,
            seconds=reclaim_seconds,
            key_hashes=self._key_hashes if self.order == "key" else None,
        )
        while not reclaim_seconds and queue.expire(now):
            queue.recalled.clear()  # it is so again after every start
        if self.queue.delayed_count:
            while not self.look():
                pass  # what is due comes by the lane of its priority, which the index knows
            self.queue.take_due(self.topic.clock.now_ms())
        self._arm()

    def _find_suspects(self) -> None:
        """What was delivered almost as often as it may be, and never came to an end."""
        most = self.topic.options.max_deliveries
        if most is not None:
            state = self.queue.snapshot()
            for start, stop, count in state.attempts:
                if count >= max(1, most - _ALONE):
                    self._suspects.add_range(start, stop)
            for offset, _ in state.delays:
                self._suspects.remove_range(offset, offset + 1)  # it was nacked

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
        self._pass_dropped()
        queue = self.queue
        return max(0, self.topic.log.next_offset - queue.floor - len(queue.settled))


def _tell_damaged(group: QueueGroup, ranges: Ranges) -> None:
    limited(
        _log,
        logging.ERROR,
        "group_passed_damage",
        f"{group.topic.name}/{group.name}",
        "a group passes over messages that are damaged on the disk; reset it to have them "
        "delivered once they are restored",
        amount=count_in(ranges),
        topic=group.topic.name,
        group=group.name,
        first_offset=ranges[0][0],
        count=count_in(ranges),
    )


def _tell_unreadable(group: QueueGroup, ranges: Ranges) -> None:
    limited(
        _log,
        logging.ERROR,
        "group_set_aside",
        f"{group.topic.name}/{group.name}",
        "a group sets messages aside that the disk cannot read; check the disk and start the "
        "broker again to have it try again",
        amount=count_in(ranges),
        topic=group.topic.name,
        group=group.name,
        first_offset=ranges[0][0],
        count=count_in(ranges),
    )
