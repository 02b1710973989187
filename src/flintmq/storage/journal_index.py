"""Where in the journal the records of each group are: sparse, exact, and small. Pure.

An entry says: from this frame and record on, the group's records follow each other from this index
up to the index of the next entry. There is one where a group first appears in a file, one where
a lower index replaces a suffix, and one for about every 64 KiB. Records that were replaced lie
before the entry that replaced them, which is how a reader knows them.

Beside that, runs of terms: the index at which each term begins. There are as many as there were
elections, not as there are records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import Corrupt
from .frames import RESTART, STATE, JournalFrame, Record, RecordRun, State

_STEP_BYTES = 64 * 1024


class RecordSpot(NamedTuple):
    """A record in the journal, in the order of writing."""

    frame: int
    ordinal: int
    """Which record of the frame, from 0 on."""
    generation: int
    offset: int
    """Where in the file of that generation the frame begins."""


@dataclass(frozen=True, slots=True)
class GroupRange:
    """What the journal has of one group. `next_index - first_index` records; perhaps none."""

    first_index: int
    next_index: int
    last_term: int


class GroupIndex:
    def __init__(self, first_index: int) -> None:
        self.next_index = first_index
        self.last_term = 0
        self._indexes: list[int] = []
        self._spots: list[RecordSpot] = []
        self._term_starts: list[int] = []
        self._terms: list[int] = []

    @property
    def first_index(self) -> int:
        return self._indexes[0] if self._indexes else self.next_index

    def add(self, run: RecordRun, spot: RecordSpot) -> None:
        """`run` was written at `spot`. Raises Corrupt where there is a gap before it."""
        if run.kind == RESTART:
            self._cut(0)
        else:
            if run.index > self.next_index:
                raise Corrupt(f"index {self.next_index} of group {run.group} is missing")
            if run.index < self.next_index:
                self._cut(run.index)
        last = self._spots[-1] if self._spots else None
        if (
            last is None
            or run.index < self.next_index
            or last.generation != spot.generation
            or spot.offset - last.offset >= _STEP_BYTES
        ):
            self._indexes.append(run.index)
            self._spots.append(spot)
        self.next_index = run.index + run.count
        self.last_term = run.term
        if not self._terms or self._terms[-1] != run.term:
            self._term_starts.append(run.index)
            self._terms.append(run.term)

    def _cut(self, index: int) -> None:
        keep = bisect_left(self._indexes, index)
        del self._indexes[keep:], self._spots[keep:]
        keep = bisect_left(self._term_starts, index)
        del self._term_starts[keep:], self._terms[keep:]

    def term(self, index: int) -> int | None:
        """The term of a record; None where there is none of that index (any more)."""
        if not self.first_index <= index < self.next_index:
            return None
        return self._terms[bisect_right(self._term_starts, index) - 1]

    def find(self, index: int) -> tuple[RecordSpot, int] | None:
        """Where to begin to look for a record, and the index at which to ask again."""
        at = bisect_right(self._indexes, index) - 1
        if at < 0 or index >= self.next_index:
            return None
        behind = self._indexes[at + 1] if at + 1 < len(self._indexes) else self.next_index
        return self._spots[at], behind

    def holds(self, index: int, frame: int, ordinal: int) -> bool:
        """Whether the record with this index in that place is in force, and not replaced later."""
        found = self.find(index)
        return found is not None and (frame, ordinal) >= found[0][:2]

    def forget_before(self, frame: int) -> None:
        """The files with the frames before this one are gone. Files begin with an entry."""
        keep = bisect_left(self._spots, (frame,))
        del self._indexes[:keep], self._spots[:keep]
        gone = max(0, bisect_right(self._term_starts, self.first_index) - 1)
        del self._term_starts[:gone], self._terms[:gone]


class JournalIndex:
    """All groups of a journal: where their records are, and the last hard state of each."""

    def __init__(self) -> None:
        self.groups: dict[int, GroupIndex] = {}
        self.states: dict[int, State] = {}
        self._has_replaced = False

    def add(self, runs: Sequence[RecordRun], number: int, generation: int, offset: int) -> None:
        """A frame was written or read. Raises Corrupt where there is a gap before it."""
        ordinal = 0
        for run in runs:
            if run.state is not None:
                self.states[run.group] = run.state
                ordinal += 1
                continue
            group = self.groups.get(run.group)
            if group is None:
                group = self.groups[run.group] = GroupIndex(run.index)
            elif run.kind == RESTART or run.index < group.next_index:
                self._has_replaced = True
            group.add(run, RecordSpot(number, ordinal, generation, offset))
            ordinal += run.count

    def in_force(self, frame: JournalFrame) -> list[Record]:
        """The entries of a frame, without those that were replaced later."""
        return [
            record
            for ordinal, record in enumerate(frame.records())
            if record.kind != STATE
            and (
                not self._has_replaced
                or self.groups[record.group].holds(record.index, frame.number, ordinal)
            )
        ]
