"""A topic whose messages go through the journal before anybody sees them.

Deciding looks at the view: what is stored, and what was proposed and is still on its way. Applying
looks at nothing but the command and what was applied before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ..batch import EXPIRY, PRODUCER, BatchBuilder, RecordBatch
from ..errors import FlintError, QueueFull
from ..group_model import Ranges
from ..metrics import PUBLISH_SECONDS, Histogram, Meter
from ..model import Receipt
from ..storage.manifest import GroupState
from ..storage.topic_log import TopicLog
from .commands import AdvanceFirstOffset, Append, Attempts, CreateGroup, SetCursor
from .dedup import Flying
from .expiry import end_of_life
from .feeds import Feed
from .keeping import Done, Journaled
from .log import CHUNK_BYTES, CHUNK_ROWS, JOIN_ROWS_MAX
from .pending import Pending
from .proposer import Proposer
from .queue_group import QueueGroup
from .readers import Cursor
from .topic import SWEEP_ROWS, Topic
from .waiting import again


class DurableTopic(Topic):
    log: TopicLog

    def __init__(self, *args: Any, log: TopicLog, proposer: Proposer, **keywords: Any) -> None:
        super().__init__(*args, log=log, **keywords)
        self.keeper = Journaled(self.id, proposer)
        self._proposer = proposer
        self._next = log.next_offset
        self._first = log.first_offset
        self._last_time = log.last_time
        self._flying_bytes = 0
        self._expected: deque[tuple[int, int, Feed]] = deque()  # offset, count, who expects them
        self._lasting: dict[str, tuple[int, int | None]] = {}
        """The reader names that are applied: where they began, and what they committed. Open are
        those in `_cursors`, which may be on their way still."""
        self._flying_sequences: Flying[Pending] = Flying()
        self._gathered: BatchBuilder | None = None
        self._gatherers: list[Pending] = []

    def publish_value(self, value: bytes) -> Pending | None:
        proposer = self._proposer
        if (
            self._is_involved
            or self._publishers
            or self.feeds
            or len(value) > self._bytes_max
            or proposer.failure is not None
            or proposer.is_full()
        ):
            return None
        offset, time = self._next, max(self.clock.now_ms(), self._last_time)
        self._next, self._last_time = offset + 1, time
        receipt = Receipt(self._base, offset, 1, self._partition, durability=proposer.durability)
        pending = Pending(receipt, asyncio.get_running_loop())
        gathered = self._gathered or self._begin_gathering(offset)
        gathered.append_at(value, time)
        self._gatherers.append(pending)
        if gathered.row_count >= CHUNK_ROWS or gathered.byte_count >= CHUNK_BYTES:
            self._propose_gathered()
        return pending

    def take_up(self, reclaim_seconds: float) -> None:
        """The log was restored or replayed: the view begins with what is there. What was handed
        out is kept for those who come back within that time."""
        self._next, self._first = self.log.next_offset, self.log.first_offset
        self._last_time = self.log.last_time
        self.log.sizes.bound()
        self.published = Meter()  # the figures are those of this run, whatever was replayed
        self._drops.clear()
        if any(section.columns & EXPIRY for section in self.log.sections):
            self.may_expire = self._expiry_seen = self._is_involved = True
        if self.may_expire or self._age_ms is not None:
            self._rearm_sweep()
        if self.lanes.cancelled:
            self._delays.discard_those_in(self.lanes.cancelled)
        now_ms = self.clock.now_ms()
        self._deliver_due(now_ms)
        for due_ms, offset, priority in self.log.delayed(now_ms):
            # what the journal still holds was added by replay
            if offset not in self.lanes.cancelled:
                self._delays.add(due_ms, offset, priority)
        self._arm_delays(now_ms)
        for group in self.queues.values():
            group.take_up(reclaim_seconds)

    # --- deciding

    def publish(
        self, rows: BatchBuilder | RecordBatch, qos: int, *, first_in_line: bool = False
    ) -> Receipt | Pending | None:
        if qos and self._proposer.failure is not None:
            raise again(self._proposer.failure)
        if qos and self._proposer.is_full():
            self._proposer.when_room(self._wake_publisher)
            self._held_by = "disk"
            return None
        return super().publish(rows, qos, first_in_line=first_in_line)

    def _why_waiting(self, timeout: float | None, count: int) -> FlintError:
        if self._proposer.is_full():
            return QueueFull(
                "the queue of the journal",
                self._proposer.queue_bytes_max,
                f"the disk is slower than the publishers, for {timeout:g} s at least",
            )
        return super()._why_waiting(timeout, count)

    def _known_sequences(self, batch: RecordBatch) -> Receipt | Pending | None:
        flying = self._flying_sequences.find(
            batch.producer or "", batch.base_sequence, batch.row_count
        )
        if flying is not None:
            return flying.repeated()
        known = super()._known_sequences(batch)
        if isinstance(known, Receipt):
            return msgspec.structs.replace(known, durability=self._proposer.durability)
        return known

    def _take_in(
        self, rows: BatchBuilder | RecordBatch, count: int, now_ms: int, dropped: int
    ) -> Receipt | Pending:
        offset, time = self._next, max(now_ms, self._last_time)
        self._next, self._last_time = offset + count, time
        for feed in self.feeds:
            if feed.refuses:
                feed.expect(count)
                self._expected.append((offset, count, feed))
        receipt = Receipt(self._base, offset, count, self._partition, dropped)
        pending = Pending(receipt, asyncio.get_running_loop())
        if isinstance(rows, BatchBuilder) and count < JOIN_ROWS_MAX:
            self._gather(rows, offset, time, pending)
            return pending
        self._propose_gathered()
        batch = rows.seal() if isinstance(rows, BatchBuilder) else rows
        batch.stamp(offset, time)
        if batch.columns & PRODUCER:
            self._flying_sequences.add(batch.producer or "", batch.base_sequence, count, pending)
        self._propose(batch, [pending])
        return pending

    def _gather(self, rows: BatchBuilder, offset: int, time: int, pending: Pending) -> None:
        """Publishes of one turn of the event loop share a batch."""
        gathered = self._gathered or self._begin_gathering(offset)
        gathered.extend_at(rows, time)
        self._gatherers.append(pending)
        if gathered.row_count >= CHUNK_ROWS or gathered.byte_count >= CHUNK_BYTES:
            self._propose_gathered()

    def _begin_gathering(self, offset: int) -> BatchBuilder:
        gathered = self._gathered = BatchBuilder(offset)
        self._proposer.at_end_of_turn(self._propose_gathered)
        return gathered

    def _propose_gathered(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._propose(gathered.seal(), self._gatherers)
            self._gatherers = []

    def _propose(self, batch: RecordBatch, pending: list[Pending]) -> None:
        self._flying_bytes += batch.size(0, batch.row_count)
        try:
            if self.publish_seconds is None:
                self.publish_seconds = Histogram(PUBLISH_SECONDS)
            self._proposer.propose(Append(self.id, batch), pending, measure=self.publish_seconds)
        except FlintError as error:  # the journal has stopped; this never went in
            for publish in pending:
                publish.failed(error)

    def place(self, batches: Sequence[RecordBatch], now_ms: int) -> tuple[int, int]:
        self._propose_gathered()  # it has its place before these
        offset, time = self._next, max(now_ms, self._last_time)
        self._next = offset + sum(batch.row_count for batch in batches)
        self._last_time = time
        self._flying_bytes += sum(batch.size(0, batch.row_count) for batch in batches)
        return offset, time

    def _occupied(self) -> tuple[int, int]:
        log = self.log
        stored = log.byte_count + self._flying_bytes
        if self._gathered is not None:
            stored += self._gathered.byte_count
        first = log.first_offset
        if self._first > first:  # a drop is on its way
            stored -= log.size_between(first, self._first)
            first = self._first
        return self._next - first, stored

    def _pass_over(self, offset: int, reason: str) -> None:
        if offset > self._first and self._proposer.failure is None:
            self._first = offset
            self._proposer.propose(AdvanceFirstOffset(self.id, offset, reason))

    def purge(self, before: int | None) -> tuple[int, Done]:
        count, done = super().purge(before)
        self._first = self._first_decided() + count
        return count, done

    def _first_decided(self) -> int:
        return max(self.log.first_offset, self._first)

    def _drop_due(self, now_ms: int) -> None:
        log = self.log
        offset = max(log.first_offset, self._first)
        enough = min(log.next_offset, offset + SWEEP_ROWS)
        passed, why = 0, ""
        while offset < enough:
            source, row, stop = log.outline(offset)
            due_ms, reason = self._due_ms(source, row)
            is_held = reason == "age" and self._is_held(offset)
            if is_held:
                due_ms, reason = end_of_life(source, row, self.ttl_ms), "expired"
            if due_ms > now_ms:
                break
            offset += self._rows_due(source, row, stop, now_ms, reason, is_held)
            if reason != why:
                self._pass_over(passed, why)
            passed, why = self._kept(offset) if reason == "age" else offset, reason
        self._pass_over(passed, why)

    def _arm_sweep(self) -> None:
        # A drop that is on its way arms it again, and so does the end of recovery.
        if self._first <= self.log.first_offset and not self._proposer.is_recovering:
            super()._arm_sweep()

    def _arm_delays(self, now_ms: int) -> None:
        if not self._proposer.is_recovering:
            super()._arm_delays(now_ms)

    async def commit_cursor(self, cursor: Cursor, offset: int) -> None:
        await self._proposer.carry_out(SetCursor(self.id, cursor.label, cursor.began, offset))

    async def begin_cursor(self, cursor: Cursor) -> None:
        await self._proposer.carry_out(
            SetCursor(self.id, cursor.label, cursor.began, cursor.committed)
        )

    def damaged_ranges(self) -> Ranges:
        first = self.log.first_offset
        return [(max(first, damage.first), damage.next) for damage in self.log.damaged]

    # --- applying

    def apply_append(self, batch: RecordBatch) -> None:
        count = batch.row_count
        self._flying_bytes = max(0, self._flying_bytes - batch.size(0, count))
        if batch.columns & PRODUCER:
            self._flying_sequences.remove(batch.producer or "", batch.base_sequence)
        self._append(batch, count, batch.append_time)
        self._have_come(batch.base_offset + count)

    def _have_come(self, before: int) -> None:
        """What was expected before an offset is in the queues of the live feeds, or never will."""
        while self._expected and self._expected[0][0] < before:
            _, count, feed = self._expected.popleft()
            feed.have_come(count)

    def end(self, error: FlintError) -> None:
        super().end(error)
        self._have_come(self._next)

    def give_up(self, error: FlintError) -> None:
        """What was gathered and not proposed never will be: whoever waits for it hears so."""
        self._gathered = None
        for publish in self._gatherers:
            publish.failed(again(error))
        self._gatherers = []
        self.keeper.give_up(error)

    def _apply_attempts(self, group: QueueGroup, command: Attempts) -> None:
        if self._proposer.is_recovering:
            group.queue.apply_attempts(command.counts, command.token)
            group.queue.apply_delays(command.delays)
            if command.ended:
                group.queue.apply_ended(command.ended)

    def _forget_delays(self, start: int, stop: int) -> None:
        if not self._proposer.is_recovering:  # else those that a checkpoint wrote are not held yet
            super()._forget_delays(start, stop)

    def _apply_delete_group(self, name: str) -> None:
        super()._apply_delete_group(name)
        self._lasting.pop(name, None)

    def group_states(self) -> list[GroupState]:
        return [
            GroupState(
                group.name,
                group.order,
                group.filter_text,
                group.start,
                group.paused,
                group.snapshot(),
            )
            for group in self.queues.values()
        ]

    def restore_groups(
        self, states: list[GroupState], cancelled: Ranges, discarded: Ranges
    ) -> None:
        """Take up the groups that a manifest has."""
        if discarded:
            self.discard(discarded)
        for start, stop in cancelled:
            self.lanes.cancelled.add_range(start, stop)
        for state in sorted(states, key=lambda state: state.queue.floor):
            self._apply_create_group(
                CreateGroup(
                    self.id, state.name, state.order, state.filter, state.start, state.queue.floor
                )
            )
            group = self.queues[state.name]
            group.paused = state.paused
            group.queue.restore(state.queue)
            group.pass_cancelled()  # else one that is of an earlier version waits for them

    def has_cursor(self, name: str) -> bool:
        return name in self._lasting

    def cursor_states(self) -> list[tuple[str, int, int | None]]:
        """Names, where they began, and what they committed, as far as that is applied."""
        return [(name, *state) for name, state in self._lasting.items()]

    def apply_cursor(self, name: str, began: int, committed: int | None) -> None:
        if name in self.queues:
            return  # a group was faster
        self._lasting[name] = (began, committed)
        cursor = self._cursors.get(name)
        if cursor is None:
            cursor = self._cursors[name] = Cursor(name, name, began, None)
        cursor.began, cursor.committed = began, committed
        if not cursor.members:
            cursor.rest(self.log.first_offset)
