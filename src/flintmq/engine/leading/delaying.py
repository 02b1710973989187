"""Delayed messages of a topic: until they are due nobody gets them, and they may be cancelled.

`lanes.served_ms` is the time up to which they were taken from here: what is due by then comes by
the lanes, what is due later is in here, and nothing is in both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...batch import DELIVER_AT, BatchBuilder, RecordBatch
from ...clock import Timer
from ...errors import Corrupt, FlintError, QueueFull
from ...group_model import Ranges
from ...rows import Run
from ...storage.loading import NotLoaded
from .delays import Delays, Stored, Unstored

if TYPE_CHECKING:
    from .topic import LeadingTopic

UNSTORED_DELAYED_MAX = 100_000
"""How many delayed QoS 0 messages wait for their time; they are held in memory outside the log."""

_DELAYS_KEPT = 1024


class Delaying:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic, self._lanes, self._log = topic, topic.lanes, topic.log
        self.delays = Delays()
        self._due_while_cancelled: list[Stored] = []
        self._to_offer: deque[Stored | Unstored] = deque()
        """What is due, and waits for the disk before feeds can have it."""
        self._timer: Timer | None = None

    def take_up(self) -> None:
        """Find what the log has. Of what lies in segments, only the control columns are read."""
        now_ms, lanes = self._topic.clock.now_ms(), self._lanes
        lanes.served_ms = lanes.served_ms or now_ms  # else what came due since was not handed out
        for due_ms, offset, priority in self._log.delayed(lanes.served_ms):
            if offset not in lanes.cancelled:
                self.delays.add(due_ms, offset, priority)
        self._deliver_due(now_ms)
        self._arm(now_ms)

    def check_room(self, rows: BatchBuilder | RecordBatch) -> None:
        waiting = self.delays.unstored + rows.row_count
        if rows.columns & DELIVER_AT and waiting > UNSTORED_DELAYED_MAX:
            raise QueueFull(
                f"the waiting room of {self._topic.name!r} for delayed QoS 0 messages",
                UNSTORED_DELAYED_MAX,
                "publish them with qos=1, which stores them",
            )

    def add(self, rows: BatchBuilder | RecordBatch, now_ms: int, offset: int | None) -> list[int]:
        """Keep rows until they are due; those that are due now."""
        if offset is not None:
            self._deliver_due(now_ms)  # what comes with its time over is not delayed any more
            now_ms = self._lanes.served_ms
        due_now = []
        delays, log = self.delays, self._log
        for row in range(rows.row_count):
            due_ms = rows.deliver_at(row)
            if due_ms <= now_ms:
                due_now.append(row)
            elif offset is None:
                delays.add_unstored(due_ms, rows, row)
            else:
                delays.add(due_ms, offset + row, rows.priority(row))
        if delays.stored > max(_DELAYS_KEPT, 2 * (log.next_offset - log.first_offset)):
            delays.forget_before(log.first_offset)
        self._arm(now_ms)
        return due_now

    def _arm(self, now_ms: int) -> None:
        self.end()
        due_ms = self.delays.next_due_ms()
        topic = self._topic
        if due_ms is not None and topic.ended is None:
            seconds = max(0, due_ms - now_ms) / 1000
            self._timer = topic.clock.call_later(seconds, topic.guarded(self._time_is_up))

    def _time_is_up(self) -> None:
        clock = self._topic.clock
        self._deliver_due(clock.now_ms())
        self._arm(clock.now_ms())

    def _deliver_due(self, now_ms: int) -> None:
        """Hand what is due to the live feeds and to the groups that know of it as delayed."""
        self._lanes.served_ms = max(now_ms, self._lanes.served_ms)
        due = self.delays.take_due(now_ms)
        if self._lanes.cancelling:
            due = self._kept_back(due)
        self._hand_out(due)

    def _kept_back(self, due: list[Stored | Unstored]) -> list[Stored | Unstored]:
        """Without those that are being cancelled: they wait for what becomes of that."""
        rest: list[Stored | Unstored] = []
        for delayed in due:
            first, row = delayed
            if isinstance(first, int) and first in self._lanes.cancelling:
                self._due_while_cancelled.append((first, row))
            else:
                rest.append(delayed)
        return rest

    def _hand_out(self, due: Iterable[Stored | Unstored]) -> None:
        topic = self._topic
        stored: list[tuple[int, int]] = []
        for delayed in due:
            self._to_offer.append(delayed)
            first, row = delayed
            if isinstance(first, int) and first >= self._log.first_offset:
                stored.append((first, row))
        self._offer()
        if stored:
            self._lanes.add_due(stored)
            for group in topic.queues.values():
                group.add_due(stored)

    def _offer(self) -> None:
        """Hand what is due to the live feeds, in its order, as far as it is in memory."""
        topic, log, waiting = self._topic, self._log, self._to_offer
        while waiting and topic.ended is None:
            first, row = waiting[0]
            if isinstance(first, int):
                if first < log.first_offset:
                    topic.drops["feed"] += len(topic.feeds)  # retention was faster
                    waiting.popleft()
                    continue
                if not topic.feeds:
                    waiting.popleft()
                    continue
                try:
                    first, row, _ = log.locate_nowait(first)
                except NotLoaded as missing:
                    missing.load.then(topic.guarded(self._offer))
                    return
                except FlintError as error:  # also a disk that cannot be asked now: groups wait
                    reason = "damaged" if isinstance(error, Corrupt) else "feed"
                    topic.drops[reason] += len(topic.feeds)
                    waiting.popleft()
                    continue
            waiting.popleft()
            topic.fan_out.offer(Run(first, row, row + 1, topic.origin), was_let_in=False)

    # --- cancelling

    def waiting(self, ranges: Ranges) -> list[int]:
        """Which of these are not due yet, and not cancelled."""
        gone = (self._lanes.cancelled, self._lanes.cancelling)
        now_ms = self._topic.clock.now_ms()
        return [
            offset
            for start, stop in ranges
            for offset in self._due_after(start, stop, now_ms)
            if not any(offset in offsets for offsets in gone)
        ]

    def cancels(self, ranges: Ranges) -> None:
        """It is decided that these never become due; the command is on its way."""
        self._lanes.cancelling.add_ranges(ranges)

    def cancels_not(self, ranges: Ranges) -> None:
        """Nothing came of that. What has fallen due meanwhile is handed out now."""
        self._lanes.cancelling.remove_ranges(ranges)
        back, self._due_while_cancelled = self._due_while_cancelled, []
        self._hand_out(self._kept_back(list(back)))

    def cancelled(self, ranges: Ranges) -> None:
        """That is applied. Since it was decided, their time may have come."""
        self._lanes.cancelling.remove_ranges(ranges)
        self._due_while_cancelled = [
            pair
            for pair in self._due_while_cancelled
            if not any(start <= pair[0] < stop for start, stop in ranges)
        ]
        for start, stop in ranges:
            self.delays.discard(self._due_after(start, stop, self._lanes.served_ms))
        self._arm(self._topic.clock.now_ms())

    def _due_after(self, start: int, stop: int, time_ms: int) -> list[int]:
        """Which of these are due after a time. Of each batch the times are read once."""
        log = self._log
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

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
