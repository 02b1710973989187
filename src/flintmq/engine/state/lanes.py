"""The lane indexes of a topic: filled from its log when a group looks, shared by its groups.

Publishing does nothing for groups but wake those that wait: what has come since is taken into the
index by ranges, from the control columns alone.

Always true: a message between the first offset of an index and its `end` is in a lane of it, or is
left out because it is cancelled, or its time has not come by `served_ms`: then it is in the topic's
wheel (`leading/delays.py`). Groups rely on that: they never look before `end` again, and get each
once. An index follows from the log, `cancelled` and `served_ms`; nothing of it is stored.
`cancelled` is applied; `cancelling` and `served_ms` are for who leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...batch import DELIVER_AT, PRIORITY, RecordBatch, RowSource
from ...groups.lanes import LaneIndex
from ...groups.offset_set import OffsetSet

FILL_ROWS = 16_384
"""How many rows that are not plain are taken in at once: some ten milliseconds."""


class ControlLog(Protocol):
    """A log that tells what its messages ask for, without their payloads."""

    @property
    def first_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def control_at(self, offset: int, *, waits: bool = True) -> tuple[RowSource | None, int, int]:
        """What holds the control columns of `offset`, its row there, and the row behind the last
        one; None as the first where all of these are plain. Raises if they are not in memory and
        it does not wait for the disk."""
        ...


class TopicLanes:
    """All lane indexes of a topic: one, and more only where a group begins before the others did.

    Delayed messages are left out while their time has not come: `served_ms` is the time up to which
    they were taken from the topic's wheel, so that each comes by exactly one of the two ways.
    """

    def __init__(self, log: ControlLog) -> None:
        self._log = log
        self._indexes: list[LaneIndex] = []
        self.cancelled = OffsetSet()
        self.cancelling = OffsetSet()
        """Decided, and on its way through the journal: if their time comes now, they stay back."""
        self.served_ms = 0

    def index_from(self, offset: int) -> LaneIndex:
        """An index that has everything from `offset` on."""
        for index in self._indexes:
            if index.first <= offset:
                return index
        index = LaneIndex(offset)
        self._indexes.append(index)
        return index

    def release(self, index: LaneIndex) -> None:
        """Forget an index nobody goes by any more."""
        if index in self._indexes:
            self._indexes.remove(index)

    def drop_before(self, offset: int) -> None:
        """The log has dropped these."""
        self.cancelled.discard_before(offset)
        for index in self._indexes:
            index.drop_due_before(offset)

    def fill(self, index: LaneIndex) -> bool:
        """Take in what has been appended since, and is still there; whether that is all.

        What is not plain costs something for each row, and a backlog may have millions of them:
        so many are looked at in one go, and the caller comes again. Also where what is next is
        being read from the disk: then this raises, and what came before it is taken in.
        """
        log, left = self._log, FILL_ROWS
        index.end = max(index.end, log.first_offset)
        while index.end < log.next_offset:
            control, row, stop = log.control_at(index.end, waits=False)
            count = min(stop - row, log.next_offset - index.end)
            priorities: bytes | None = None
            left_out: Sequence[int] | None = None
            if control is not None:
                if not left:
                    return False
                count = min(count, left)
                left -= count
                columns = control.columns
                if columns & PRIORITY:
                    priorities = _priorities(control, row, row + count)
                if columns & DELIVER_AT:
                    left_out = self._left_out(control, row, row + count)
            index.add(index.end, count, priorities, left_out)
        return True

    def add_due(self, due: Sequence[tuple[int, int]]) -> None:
        """Delayed messages (offset, priority) whose time has come: for groups that begin later."""
        for index in self._indexes:
            index.add_due([pair for pair in due if index.first <= pair[0] < index.end])

    def _left_out(self, control: RowSource, start: int, stop: int) -> list[int]:
        served_ms, base = self.served_ms, control.base_offset
        gone = [offsets for offsets in (self.cancelled, self.cancelling) if offsets]
        return [
            row - start
            for row in range(start, stop)
            if (due_ms := control.deliver_at(row))
            and (due_ms > served_ms or any(base + row in offsets for offsets in gone))
        ]


def _priorities(control: RowSource, start: int, stop: int) -> bytes:
    if isinstance(control, RecordBatch):
        return bytes(control.control_column(PRIORITY)[start:stop])
    return bytes(map(control.priority, range(start, stop)))
