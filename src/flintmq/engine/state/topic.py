"""A topic as it is applied: its log, its groups, the names of its readers, its producers.

Always true:

- offsets follow each other without a gap from `log.first_offset` to `log.next_offset`; the journal
  and every reader rely on it
- a topic that drops its oldest is within its limits after every append, but for what its groups
  keep (`keep_until_settled`): who publishes to one is never refused for want of room
- `names` has the reader names that were applied, and no others: who has one open is for who leads
  to know. A name belongs to a group or to readers, never to both

Apply reads no payload and no disk: the log knows the sizes of what it drops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...batch import PRODUCER, BatchBuilder, RecordBatch, RestingRows
from ...group_model import Ranges
from ...groups.lanes import LaneIndex
from ...groups.offset_set import SHIFT, Chunks, OffsetSet
from ...model import TopicOptions
from ..commands import (
    AdvanceFirstOffset,
    Attempts,
    Cancel,
    Compact,
    CreateGroup,
    DeleteGroup,
    PauseGroup,
    ResetGroup,
    SetCursor,
    Settle,
    TopicChange,
)
from ..expiry import FOREVER
from .constants import COUNT_MAX
from .group import COMPACTED, DISCARDED, GroupState
from .lanes import TopicLanes
from .memory_log import TopicLogApi
from .producers import Producers, Remembered


class TopicObserver(Protocol):
    """Who leads the topic hears what was applied, in the same step."""

    def appended(
        self, rows: BatchBuilder | RecordBatch, offset: int, count: int, size: int
    ) -> None: ...
    def appended_rows(
        self, offset: int, count: int, size: int, producer: str | None, sequence: int
    ) -> None: ...
    def appended_evenly(
        self, batches: Sequence[RecordBatch | RestingRows], offset: int, count: int, size: int
    ) -> None: ...
    def dropped(self, start: int, stop: int, reason: str) -> None: ...
    def settled(self) -> None:
        """A group has settled something, or is gone: there may be room."""
        ...

    def cancelled(self, ranges: Ranges) -> None: ...
    def configured(self) -> None: ...
    def group_made(self, group: GroupState) -> None: ...
    def group_gone(self, group: GroupState) -> None: ...
    def name_set(self, name: str) -> None: ...
    def name_gone(self, name: str) -> None: ...


class TopicState:
    def __init__(
        self, id: int, name: str, options: TopicOptions, log: TopicLogApi, remembered: Remembered
    ) -> None:
        self.id, self.name, self.log = id, name, log
        self.is_durable = options.storage != "memory"
        self.lanes = TopicLanes(log)
        self.groups: dict[str, GroupState] = {}
        self.names: dict[str, tuple[int, int | None]] = {}
        """Of readers: where each began, and what it has committed."""
        self.producers = Producers(remembered, id)
        self.discarded: OffsetSet | None = None
        """Dead letters that were let go for good, and what compaction has dropped; None while there
        is none."""
        self.observer: TopicObserver | None = None
        self._take(options)

    def _take(self, options: TopicOptions) -> None:
        self.options = options
        self.count_max = options.retention_count or COUNT_MAX
        self.bytes_max = FOREVER if options.retention_bytes is None else options.retention_bytes
        self.drops_oldest = options.overflow == "drop_oldest"

    def configure(self, options: TopicOptions) -> None:
        self._take(options)
        self.keep_limits()
        if self.observer is not None:
            self.observer.configured()

    # --- messages

    def append(self, rows: BatchBuilder | RecordBatch) -> int:
        """Add rows, which have their time; the offset of the first."""
        log, count = self.log, rows.row_count
        before = log.byte_count
        offset = log.append(rows, rows.append_time)
        size = log.byte_count - before
        if rows.columns & PRODUCER:
            assert isinstance(rows, RecordBatch)
            self.producers.add(
                rows.producer or "", rows.base_sequence, count, offset, rows.append_time
            )
        if log.next_offset - log.first_offset > self.count_max or log.byte_count > self.bytes_max:
            self.keep_limits()
        if self.observer is not None:
            self.observer.appended(rows, offset, count, size)
        return offset

    def append_evenly(self, batches: Sequence[RecordBatch | RestingRows]) -> None:
        """Add what a part of a large commit has for the topic. Its rows count for as much as each
        other: they may be in memory, or not."""
        log = self.log
        offset, before = log.next_offset, log.byte_count
        log.append_evenly(batches)
        count, size = log.next_offset - offset, log.byte_count - before
        for rows in batches:
            if isinstance(rows, RecordBatch) and rows.columns & PRODUCER:
                sequence, first = rows.base_sequence, rows.base_offset
                name = rows.producer or ""
                self.producers.add(name, sequence, rows.row_count, first, rows.append_time)
        if log.next_offset - log.first_offset > self.count_max or log.byte_count > self.bytes_max:
            self.keep_limits()
        if self.observer is not None:
            self.observer.appended_evenly(batches, offset, count, size)

    def append_rows(
        self,
        offset: int,
        values: list[bytes],
        content_type: str | None,
        time_ms: int,
        producer: str | None,
        sequence: int,
    ) -> None:
        """Add a few rows, which have their offset. They were published at that time, or when the
        last one was."""
        log, count = self.log, len(values)
        assert offset == log.next_offset, "offsets follow each other without a gap"
        before = log.byte_count
        log.append_values(values, time_ms, content_type)
        size = log.byte_count - before
        if producer is not None:
            self.producers.add(producer, sequence, count, offset, log.last_time)
        if log.next_offset - log.first_offset > self.count_max or log.byte_count > self.bytes_max:
            self.keep_limits()
        if self.observer is not None:
            self.observer.appended_rows(offset, count, size, producer, sequence)

    def advance(self, offset: int, reason: str) -> None:
        """Drop what lies before an offset; it may be gone already."""
        if reason == "purged" and self.log.first_offset < offset >= self.log.next_offset:
            self.producers.clear()
        self._drop(offset, reason)

    def keep_limits(self) -> None:
        """Drop the oldest until count and bytes are within their limits.

        Where publishers wait or are refused instead, nobody's messages are dropped for the dead
        letters and redriven ones that are taken in all the same: there is less room for the next.
        """
        if not self.drops_oldest:
            return
        log = self.log
        end = self.kept(log.next_offset)
        if end <= log.first_offset:
            return  # not one may go: how many should is of no interest
        surplus = log.next_offset - log.first_offset - self.count_max
        if surplus > 0:
            self._drop(min(end, log.first_offset + surplus), "count")
        if log.byte_count > self.bytes_max:
            self._drop(log.offset_freeing(log.byte_count - self.bytes_max, end), "bytes")

    def kept(self, offset: int) -> int:
        """How far one may drop, of what lies before `offset`: groups may keep what they have not
        settled."""
        if not self.options.keep_until_settled or not self.groups:
            return offset
        return min(offset, min(group.floor for group in self.groups.values()))

    def _drop(self, offset: int, reason: str) -> None:
        log = self.log
        start = log.first_offset
        log.drop_to(offset)
        self.lanes.drop_before(log.first_offset)
        if self.discarded is not None:
            self.discarded.discard_before(log.first_offset)
        if self.observer is not None:
            self.observer.dropped(start, log.first_offset, reason)

    def discard(self, ranges: Ranges) -> None:
        """Nobody gets these any more, in whatever way they read."""
        if self.discarded is None:
            self.discarded = OffsetSet()
        self.discarded.add_ranges(ranges)
        for group in self.groups.values():
            group.settle(ranges, DISCARDED)

    def _compact(self, dropped: Chunks) -> None:
        """Drop these where they are; at the front, for good."""
        gone, log = self.discarded, self.log
        if gone is None:
            gone = self.discarded = OffsetSet()
        gone.add_chunks(dropped)
        first, behind = dropped[0][0] << SHIFT, (dropped[-1][0] + 1) << SHIFT
        late = [group for group in self.groups.values() if group.floor < behind]
        if late:  # it was decided by those that were there; one may have come since
            ranges = OffsetSet.from_chunks(dropped).ranges()
            for group in late:
                group.settle(ranges, COMPACTED)
        log.compacted(gone, first, behind)
        first = min(gone.first_missing(log.first_offset), log.next_offset)
        if first > log.first_offset:
            self._drop(first, COMPACTED)

    def only_for(self, name: str | None, start: int, stop: int) -> None:
        """These were appended for one group alone: the others are done with them."""
        if name is not None:
            for group in self.groups.values():
                if group.name != name:
                    group.settle([(start, stop)], "redriven")

    # --- groups and names

    def apply(self, command: TopicChange) -> None:
        """What is gone since it was decided is passed over."""
        match command:
            case Settle(_, name, ranges, reason):
                self.settle(name, ranges, reason)
            case AdvanceFirstOffset(_, offset, reason):
                self.advance(offset, reason)
            case SetCursor(_, name, began, committed):
                self.set_name(name, began, committed)
            case Attempts():
                if (group := self.groups.get(command.group)) is not None:
                    group.attempts(command)
            case CreateGroup():
                self.create_group(command)
            case DeleteGroup(_, name):
                self._delete_group(name)
            case ResetGroup(_, name, floor, term):
                if (group := self.groups.get(name)) is not None:
                    group.reset(floor, term)
                    self._settled()
            case PauseGroup(_, name, paused):
                if (group := self.groups.get(name)) is not None:
                    group.pause(paused)
            case Cancel(_, ranges):
                self._cancel(ranges)
            case Compact(_, _, dropped):
                self._compact(dropped)

    def settle(self, name: str, ranges: Ranges, reason: str = "") -> None:
        group = self.groups.get(name)
        if group is not None:
            group.settle(ranges, reason)
            if reason == DISCARDED:
                self.discard(ranges)
            self._settled()

    def create_group(self, command: CreateGroup) -> None:
        if command.group not in self.groups and command.group not in self.names:
            group = self.groups[command.group] = GroupState(self, command)
            if self.observer is not None:
                self.observer.group_made(group)
            group.pass_gone()

    def _delete_group(self, name: str) -> None:
        group = self.groups.pop(name, None)
        if group is not None:
            group.queue.leave_lanes()
            self.forget_index(group.queue.index)
            if self.observer is not None:
                self.observer.group_gone(group)
            self._settled()
        if self.names.pop(name, None) is not None and self.observer is not None:
            self.observer.name_gone(name)

    def _cancel(self, ranges: Ranges) -> None:
        for start, stop in ranges:
            self.lanes.cancelled.add_range(start, stop)
        for group in self.groups.values():
            group.settle(ranges, "cancelled")
        if self.observer is not None:
            self.observer.cancelled(ranges)

    def set_name(self, name: str, began: int, committed: int | None) -> None:
        if name not in self.groups:  # else a group was faster
            self.names[name] = (began, committed)
            if self.observer is not None:
                self.observer.name_set(name)

    def follow(self) -> None:
        """Nobody leads here any more. What was being decided is not."""
        self.lanes.cancelling.clear()
        for group in self.groups.values():
            group.follow()

    def _settled(self) -> None:
        if self.options.keep_until_settled:
            self.keep_limits()
        if self.observer is not None:
            self.observer.settled()

    def forget_index(self, index: LaneIndex) -> None:
        if all(group.queue.index is not index for group in self.groups.values()):
            self.lanes.release(index)
