"""Retention by time: what has reached its age, or the end of its life, is dropped from the front.

Time is the leader's; what comes of it is a command (`AdvanceFirstOffset`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from ...batch import EXPIRY, RowSource
from ...clock import Timer
from ...storage.loading import NotLoaded
from ..commands import AdvanceFirstOffset
from ..expiry import FOREVER, end_of_life
from ..state.group import COMPACTED

if TYPE_CHECKING:
    from .topic import LeadingTopic

SWEEP_MS_MIN = 10
"""Retention by time looks at a topic at most this often."""

SWEEP_ROWS = 16_384
"""How many messages it drops in one go, or a batch more: after a long stop all of them are due."""

_GAPS_MAX = 64


class Sweeping:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic, self._log = topic, topic.log
        self.expired: deque[list[int]] = deque()
        """What was dropped as its life was over, or as there is newer: nobody has missed it."""
        self.is_armed = False
        self._timer: Timer | None = None
        self._due_ms = 0

    def pass_over(self, offset: int, reason: str) -> None:
        """Decide to drop everything before `offset`."""
        topic = self._topic
        if offset > topic.view.first_offset and topic.proposer.failure is None:
            topic.view.pass_over(offset)
            topic.proposer.propose(AdvanceFirstOffset(topic.id, offset, reason))

    def dropped(self, start: int, stop: int, reason: str) -> None:
        if reason in ("expired", COMPACTED):
            if self.expired and self.expired[-1][1] == start:
                self.expired[-1][1] = stop
            elif stop > start:
                self.expired.append([start, stop])
                if len(self.expired) > _GAPS_MAX:
                    self.expired.popleft()
        elif self.is_armed and (
            self._log.first_offset == self._log.next_offset or self._is_due_earlier()
        ):
            self.rearm()  # who set the alarm is gone, and may not have been first to expire

    def _is_due_earlier(self) -> bool:
        try:
            return self._topic.expiry_seen and self._front_due_ms()[0] < self._due_ms
        except NotLoaded:
            return True  # it is told once it is known

    def missed_between(self, start: int, stop: int) -> int:
        """How many of these offsets were dropped unread; what expired was not missed."""
        expired = sum(max(0, min(stop, last) - max(start, first)) for first, last in self.expired)
        return stop - start - expired

    def arm(self) -> None:
        topic = self._topic
        if topic.view.is_passing_over() or topic.ended is not None:
            return  # a drop that is on its way arms it again
        try:
            due_ms = self._front_due_ms()[0]
        except NotLoaded as missing:
            self.is_armed = True
            missing.load.then(topic.guarded(self.rearm))
            return
        if due_ms < FOREVER:
            wait_ms = max(SWEEP_MS_MIN, due_ms - topic.clock.now_ms())
            self._due_ms, self.is_armed = due_ms, True
            self._timer = topic.clock.call_later(wait_ms / 1000, topic.guarded(self._sweep))

    def rearm(self) -> None:
        self.end()
        self.arm()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_armed = False

    def _sweep(self) -> None:
        """Drop what time has ended, from the front; then sleep until the next is due."""
        self._timer = None  # it counts as armed meanwhile: one alarm at the end is enough
        self.drop_due(self._topic.clock.now_ms())
        self.rearm()
        self._topic.wake_publisher()

    def drop_due(self, now_ms: int) -> None:
        log = self._log
        offset = self._topic.view.first_offset
        enough = min(log.next_offset, offset + SWEEP_ROWS)
        passed, why = 0, ""
        while offset < enough:
            try:
                source, row, stop = log.outline(offset, waits=False)
            except NotLoaded:
                break  # the alarm comes again for the rest
            due_ms, reason = self._due(source, row)
            is_held = reason == "age" and self._is_held(offset)
            if is_held:
                due_ms, reason = end_of_life(source, row, self._topic.ttl_ms), "expired"
            if due_ms > now_ms:
                break
            offset += self._rows_due(source, row, stop, now_ms, reason, is_held)
            if reason != why:
                self.pass_over(passed, why)
            passed, why = self._topic.state.kept(offset) if reason == "age" else offset, reason
        self.pass_over(passed, why)

    def _front_due_ms(self) -> tuple[int, str]:
        """When the first message's time is up, and why."""
        log, topic = self._log, self._topic
        has_limit = topic.may_expire or topic.age_ms is not None
        if not has_limit or log.first_offset == log.next_offset:
            return FOREVER, ""
        source, row, _ = log.outline(log.first_offset, waits=False)
        due_ms, reason = self._due(source, row)
        if reason == "age" and self._is_held(log.first_offset):
            return end_of_life(source, row, topic.ttl_ms), "expired"
        return due_ms, reason

    def _is_held(self, offset: int) -> bool:
        """Whether a group keeps this one from retention."""
        return self._topic.state.kept(offset + 1) <= offset

    def _due(self, source: RowSource, row: int) -> tuple[int, str]:
        topic = self._topic
        due_ms, reason = end_of_life(source, row, topic.ttl_ms), "expired"
        if topic.age_ms is not None and source.time(row) + topic.age_ms < due_ms:
            due_ms, reason = source.time(row) + topic.age_ms, "age"
        return due_ms, reason

    def _rows_due(
        self, source: RowSource, row: int, stop: int, now_ms: int, reason: str, is_held: bool
    ) -> int:
        """How many rows from `row` on are due for the same reason as the first one. Those that a
        group holds are not due by their age."""
        topic = self._topic
        age_ms = topic.age_ms if topic.age_ms is not None and not is_held else FOREVER
        if not source.columns & EXPIRY:
            # All have the same time to live, and times never go back.
            life_ms = age_ms if topic.ttl_ms is None else min(topic.ttl_ms, age_ms)
            rows = range(row + 1, stop)
            return 1 + bisect_right(rows, now_ms - life_ms, key=source.time)
        end = row + 1
        while end < stop:
            life, age = end_of_life(source, end, topic.ttl_ms), source.time(end) + age_ms
            if min(life, age) > now_ms or (reason == "age") != (age < life):
                break
            end += 1
        return end - row
