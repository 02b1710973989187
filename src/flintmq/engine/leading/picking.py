"""Which messages a group hands out next: those that are alive and pass its filter.

What is not is settled at once, and counted; what was delivered too often is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import FilterFailed
from ...group_model import Ranges
from ...groups.offset_set import OffsetSet
from ...groups.ranges import count_in, offsets_in, ranges_of, ranges_of_runs, without
from ...loop.pace import Allowance, pace
from ...observe.logs import limited
from ...rows import Run
from ...storage.loading import NotLoaded
from ..expiry import alive
from ..proposer import Done
from .burying import Dead
from .rows_of_groups import cut, key_hashes, rows_of

if TYPE_CHECKING:
    from .queue_group import QueueGroup

_log = logging.getLogger(__name__)

LOOKED_AT_MAX = 4096
"""How many rows one step looks at that nobody gets, so that a rare match does not hold up the
loop."""

_STEP_BYTES = 512 << 10
"""How much is selected at once for a filter to look at."""

_ALONE = 2
"""How many of its last deliveries a message gets alone, where members or processes have ended with
it: with whatever was taken beside it, the innocent would go to the dead letters too."""


_PASSED = (
    "a group passes over messages that are damaged on the disk; reset it to have them delivered "
    "once they are restored"
)
_SET_ASIDE = (
    "a group sets messages aside that the disk cannot read; check the disk and start the broker "
    "again to have it try again"
)


class Picking:
    def __init__(self, group: QueueGroup) -> None:
        self._group, self._topic, self._queue = group, group.topic, group.queue
        self.has_more = False
        """Whether there is more to look at than there was time for."""
        self.suspects = OffsetSet()
        """What was out when its holder or this process ended, time and again. One of these may be
        deadly."""
        self._alone: int | None = None
        """The suspect that was handed out last."""

    def pick(self, wanted: int, in_turn: bool) -> tuple[Ranges, list[Run]]:
        """Up to `wanted` messages that may be delivered. What may not is settled or buried."""
        topic, queue = self._topic, self._queue
        ranges: Ranges = []
        runs: list[Run] = []
        left, budget = wanted, LOOKED_AT_MAX
        sifts = self._group.filter is not None or topic.may_expire
        allowance = None if self._group.filter is None else pace().begin()
        keys = self.key_hashes if self._group.order == "key" else None
        step = self._rows_in_a_step()
        while left and budget > 0:
            asked = left if self._group.filter is None else min(budget, step, max(64, 2 * left))
            selection = queue.select(
                asked,
                max_deliveries=topic.options.max_deliveries,
                key_hashes=keys,
                together=in_turn,
            )
            if selection.exhausted:
                queue.set_aside(ranges_of(sorted(selection.exhausted)))
                burying = self._group.burying
                how = "not settled by any of its deliveries"
                burying.later(burying.exhausted(selection.exhausted, how))
            if not selection.ranges:
                if selection.exhausted:  # others may be ready behind them
                    budget -= len(selection.exhausted)
                    continue
                self.has_more = selection.is_cut
                return ranges, runs
            damaged: Ranges = []
            unreadable: Ranges = []
            unloaded: Ranges = []
            try:
                picked = rows_of(topic, selection.ranges, damaged, unreadable, unloaded)
            except NotLoaded:
                if not runs:
                    raise
                queue.put_back(selection.ranges)
                break
            if unloaded:
                queue.put_back(unloaded)
            if unreadable:
                # The disk may read them again another time: they are set aside until the next
                # start, and nothing of that is written down.
                _record(self._group, logging.ERROR, "group_set_aside", _SET_ASIDE, unreadable)
                queue.set_aside(sorted(unreadable))
                budget -= count_in(unreadable)
            if damaged:
                _record(self._group, logging.ERROR, "group_passed_damage", _PASSED, damaged)
                self.settle_selected(sorted(damaged), "damaged")
                budget -= count_in(damaged)
            if (damaged or unreadable) and not picked:
                continue  # others may be ready behind them
            if not sifts:
                is_whole = not damaged and not unreadable and not unloaded
                return (selection.ranges if is_whole else ranges_of_runs(picked)), picked
            budget -= sum(run.row_count for run in picked)
            picked, rest = self._sift(picked, allowance)
            over = cut(picked, left) + rest
            if over:
                queue.put_back(ranges_of_runs(over))
            left -= sum(run.row_count for run in picked)
            runs += picked
            ranges += ranges_of_runs(picked)
            if allowance is not None and allowance.is_over():
                break
        self.has_more = left > 0
        return ranges, runs

    def pick_apart(self, wanted: int) -> tuple[Ranges, list[Run]]:
        """As `pick`: one suspect if that comes first and no other is out, else others. Of a key
        one at a time: what is put back must have none of its key behind it that goes out."""
        suspects, queue = self.suspects, self._queue
        is_one_out = self._alone is not None and queue.places.is_out(self._alone)
        passed: Ranges = []
        try:
            while True:
                ranges, runs = self.pick(wanted, in_turn=False)
                offsets = list(offsets_in(ranges))
                others = [offset for offset in offsets if offset not in suspects]
                if len(others) == len(offsets):
                    return ranges, runs
                chosen = others
                if not is_one_out and not passed and offsets[0] in suspects:
                    self._alone = offsets[0]
                    chosen = [self._alone]
                passed += without(ranges, ranges_of(sorted(chosen)))
                if chosen:
                    return ranges_of(chosen), rows_of(self._topic, ranges_of(chosen))
        finally:
            if passed:
                queue.put_back(passed)

    def pass_dropped(self) -> None:
        """What retention took is not for us any more."""
        topic, queue, drops = self._topic, self._queue, self._group.drops
        floor, first = queue.floor, topic.log.first_offset
        if floor < first:
            queue.index.drop_before(first)
            self.suspects.discard_before(first)
            lost = queue.drop_before(first)
            expired = min(lost, first - floor - topic.sweeping.missed_between(floor, first))
            drops["expired"] += expired
            drops["retention"] += lost - expired

    def key_hashes(self, start: int, stop: int) -> list[int]:
        return key_hashes(self._topic.log, start, stop)

    def _rows_in_a_step(self) -> int:
        """As many as a filter is likely to look at before the time is up: others would be read from
        the disk for nothing."""
        log = self._topic.log
        each = log.byte_count // max(1, log.next_offset - log.first_offset)
        return max(1, _STEP_BYTES // max(1, each))

    def _sift(self, runs: list[Run], allowance: Allowance | None) -> tuple[list[Run], list[Run]]:
        """What of these is alive and passes the filter, and what was not looked at as the time was
        up. Everything else is settled, and counted."""
        topic = self._topic
        now_ms = topic.clock.now_ms()
        kept: list[Run] = []
        for number, run in enumerate(runs):
            if number and allowance is not None and allowance.is_over():
                return kept, runs[number:]
            if topic.may_expire and not (run := self._living(run, now_ms)).row_count:
                continue
            if self._group.filter is None:
                kept.append(run)
                continue
            rows = run.rows()
            passed, failed, looked = self._passing(run, rows, allowance)
            self._settle_without_delivery(run, rows[:looked], passed, failed, "filtered")
            if passed:
                kept.append(run._replace(picks=passed))
            if looked < len(rows):
                return kept, [run._replace(picks=rows[looked:]), *runs[number + 1 :]]
        return kept, []

    def _living(self, run: Run, now_ms: int) -> Run:
        """What of a run has not expired."""
        living = alive(run.source, run.start, run.stop, self._topic.ttl_ms, now_ms)
        if living is None:
            return run
        rows, known = run.rows(), set(living)
        living = [row for row in rows if row in known]
        self._settle_without_delivery(run, rows, living, (), "expired")
        return run._replace(picks=living)

    def _passing(
        self, run: Run, rows: Sequence[int], allowance: Allowance | None
    ) -> tuple[list[int], list[int], int]:
        """Rows that pass the filter, rows on which it raises, which go to the dead letters, and how
        many were looked at."""
        topic = self._topic
        assert self._group.filter is not None
        try:
            passed, looked = topic.sieve.look_through(
                self._group.filter, run.source, rows, None, allowance
            )
            return passed, [], looked
        except FilterFailed:
            if not callable(self._group.filter):
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
                passed += topic.sieve.pick(self._group.filter, run.source, [row])
            except FilterFailed as error:
                failed.append(row)
                offset = run.source.base_offset + row
                dead = Dead(offset, str(error), self._queue.count_of(offset))
                self._queue.set_aside([(offset, offset + 1)])
                self._group.burying.later([dead])
        return passed, failed, len(rows)

    def _settle_without_delivery(
        self,
        run: Run,
        rows: Sequence[int],
        kept: Sequence[int],
        others: Sequence[int],
        reason: str,
    ) -> None:
        """Settle those of `rows` that are neither `kept` nor among the `others`."""
        if len(kept) + len(others) < len(rows):
            base = run.source.base_offset
            if isinstance(rows, range):
                # What lies between those that are kept: mostly these are few.
                left = ranges_of([base + row for row in sorted([*kept, *others])])
                gone = without([(base + rows.start, base + rows.stop)], left)
            else:
                known = {*kept, *others}
                gone = ranges_of([base + row for row in rows if row not in known])
            self.settle_selected(gone, reason)

    def settle_selected(self, ranges: Ranges, reason: str = "", future: Done = None) -> Done:
        self._queue.set_aside(ranges)
        topic = self._topic
        try:
            return topic.proposer.settle(topic.id, self._group.name, ranges, reason, future)
        except BaseException:  # the journal has stopped
            self._group.settling.unfinish(ranges)
            raise

    def pass_damaged(self, ranges: Ranges) -> Done:
        """Nobody can be given these: the group is done with them, or it would wait for ever."""
        _record(self._group, logging.ERROR, "group_passed_damage", _PASSED, ranges)
        return self._topic.proposer.settle(self._topic.id, self._group.name, ranges, "damaged")

    def find_suspects(self) -> None:
        """What was delivered almost as often as it may be, and never came to an end."""
        most = self._topic.options.max_deliveries
        if most is not None:
            state = self._queue.snapshot()
            for start, stop, count in state.attempts:
                if count >= max(1, most - _ALONE):
                    self.suspects.add_range(start, stop)
            for offset, _ in state.delays:
                self.suspects.remove_range(offset, offset + 1)  # it was nacked

    def suspect(self, ranges: Ranges) -> None:
        """Whoever had these is gone, or hangs. One of them may be why."""
        most, count_of = self._topic.options.max_deliveries, self._queue.count_of
        if most is not None:
            # Members come and go for many reasons: once is no reason to slow a group down.
            least = max(2, most - _ALONE)
            deadly = [offset for offset in offsets_in(ranges) if count_of(offset) >= least]
            self.suspects.add_ranges(ranges_of(deadly))


def _record(group: QueueGroup, level: int, name: str, text: str, ranges: Ranges) -> None:
    topic, count = group.topic.name, count_in(ranges)
    limited(
        _log,
        level,
        name,
        f"{topic}/{group.name}",
        text,
        amount=count,
        topic=topic,
        group=group.name,
        first_offset=ranges[0][0],
        count=count,
    )
