"""Which offsets of a topic have which priority, for all its groups at once.

Each priority is a lane: its offsets ascending, cut into blocks that are only ever added to. A block
is a `range`, where offsets follow on one another, or an array of 8 bytes each; so a plain backlog
of ten million is one block. A ninth lane, LOG, has all of them in the order of the log. A group
holds a place in each lane (`LaneCursors`), and nothing else of the backlog.

Delayed messages are left out and come when they are due; `add_due` keeps them for groups that
begin later.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import compress
from typing import TypeAlias

from ..group_model import PRIORITIES, Ranges
from .offset_set import OffsetSet
from .ranges import append_offsets, append_range

LOG = PRIORITIES
"""The number of the lane that has everything in the order of the log."""

LANES = PRIORITIES + 1
END = 1 << 62
"""Behind every offset."""

RUN = 16
"""So many that follow on one another are worth a range."""

BLOCK_MAX = 4_096
"""How long an array grows; blocks are trimmed as a whole."""

TRIM_BLOCKS = 64

Block: TypeAlias = "range | array[int]"

# For each priority, a table for bytes.translate: 1 where a row has it.
SELECT = [bytes(int(byte == priority) for byte in range(256)) for priority in range(PRIORITIES)]
LEFT_OUT = 255
NOT_LEFT_OUT = bytes(int(byte != LEFT_OUT) for byte in range(256))


class _Lane:
    """Blocks are counted from the first there ever was; `trimmed` of them are gone."""

    __slots__ = ("blocks", "trimmed")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.trimmed = 0

    def add_range(self, start: int, stop: int) -> int:
        """Put a run behind; how many blocks that made."""
        blocks = self.blocks
        if blocks:
            last = blocks[-1]
            if type(last) is range:
                if last.stop == start:
                    blocks[-1] = range(last.start, stop)
                    return 0
            elif (
                stop - start < RUN
                and len(last) < BLOCK_MAX
                # A run that came in small pieces becomes a range as soon as it shows.
                and (len(last) < RUN or last[-RUN] != start - RUN)
            ):
                last.extend(range(start, stop))
                return 0
        if stop - start >= RUN or (
            blocks and type(blocks[-1]) is not range and blocks[-1][-1] == start - 1
        ):
            blocks.append(range(start, stop))
        else:
            blocks.append(array("q", range(start, stop)))
        return 1

    def add_offsets(self, offsets: array[int]) -> int:
        count = len(offsets)
        if not count:
            return 0
        if offsets[-1] - offsets[0] == count - 1:
            return self.add_range(offsets[0], offsets[-1] + 1)
        blocks = self.blocks
        if blocks:
            last = blocks[-1]
            if type(last) is not range and len(last) + count <= BLOCK_MAX:
                last.extend(offsets)
                return 0
        made = 0
        for place in range(0, count, BLOCK_MAX):
            blocks.append(offsets[place : place + BLOCK_MAX])
            made += 1
        return made

    def find(self, offset: int) -> tuple[int, int]:
        """The place of the first offset from this one on: its block, and its place in that."""
        at = bisect_right(self.blocks, offset, key=_first_of) - 1
        if at < 0:
            return self.trimmed, 0
        return self.trimmed + at, _place_in(self.blocks[at], offset)

    def count_from(self, at: int, place: int) -> int:
        return sum(len(block) for block in self.blocks[at - self.trimmed :]) - place

    def blocks_before(self, offset: int) -> int:
        """How many blocks lie wholly before an offset."""
        at, place = self.find(offset)
        at -= self.trimmed
        return at + 1 if at < len(self.blocks) and place == len(self.blocks[at]) else at

    def has(self, offset: int) -> bool:
        at, place = self.find(offset)
        at -= self.trimmed
        if at >= len(self.blocks):
            return False
        block = self.blocks[at]
        return place < len(block) and block[place] == offset


class LaneIndex:
    """The lanes of a topic, complete from the offset `first` on."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.end = first
        self.added = 0
        """How many offsets were ever added, but for the delayed."""
        self.used = 0
        """Which priorities there ever were, a bit for each."""
        self.lanes = [_Lane() for _ in range(LANES)]
        self._due: dict[int, OffsetSet] = {}
        self._cursors: list[LaneCursors] = []
        self._blocks = 0
        self._trim_at = TRIM_BLOCKS

    def add(
        self,
        base: int,
        count: int,
        priorities: bytes | None = None,
        left_out: Sequence[int] | None = None,
    ) -> None:
        """Rows that have arrived, each batch behind the one before it.

        `priorities` has a byte for each row; `left_out` has the numbers of rows that are delayed.
        """
        assert base >= self.end, "batches arrive in the order of their offsets"
        if not count:
            return
        stop = self.end = base + count
        lanes = self.lanes
        if not left_out:
            self.added += count
            made = lanes[LOG].add_range(base, stop)
            if priorities is None or priorities.count(priorities[:1]) == count:
                priority = priorities[0] if priorities else 0
                self.used |= 1 << priority
                made += lanes[priority].add_range(base, stop)
            else:
                made += self._add_each(base, priorities)
        else:
            rows = bytearray(priorities or bytes(count))
            for row in left_out:
                rows[row] = LEFT_OUT
            kept = array("q", compress(range(base, stop), rows.translate(NOT_LEFT_OUT)))
            self.added += len(kept)
            made = lanes[LOG].add_offsets(kept) + self._add_each(base, bytes(rows))
        self._blocks += made
        if self._blocks >= self._trim_at:
            self.trim()

    def _add_each(self, base: int, priorities: bytes) -> int:
        made, offsets = 0, range(base, base + len(priorities))
        for priority in set(priorities):
            if priority != LEFT_OUT:
                self.used |= 1 << priority
                mine = array("q", compress(offsets, priorities.translate(SELECT[priority])))
                made += self.lanes[priority].add_offsets(mine)
        return made

    def add_due(self, due: Sequence[tuple[int, int]]) -> None:
        """Delayed messages, (offset, priority), whose time has come: groups that begin from now on
        find them."""
        for offset, priority in due:
            if offset >= self.first:
                self._due.setdefault(priority, OffsetSet()).add_range(offset, offset + 1)

    def due_from(self, floor: int) -> list[tuple[int, Ranges]]:
        """Delayed messages whose time has come already, from an offset on, by priority."""
        found = [(priority, due.present(floor, self.end)) for priority, due in self._due.items()]
        return [(priority, ranges) for priority, ranges in found if ranges]

    def priority_of(self, offset: int) -> int:
        """As far as the lanes tell; 0 for what is not in them."""
        for priority in range(PRIORITIES - 1, 0, -1):
            if self.used >> priority & 1 and self.lanes[priority].has(offset):
                return priority
        for priority, due in self._due.items():
            if offset in due:
                return priority
        return 0

    def cursor(self, floor: int) -> LaneCursors:
        """A place in each lane: the first offset from `floor` on. It is kept until `leave`."""
        cursors = LaneCursors(self, floor)
        self._cursors.append(cursors)
        return cursors

    def leave(self, cursors: LaneCursors) -> None:
        """Nobody goes by this place any more: what lies behind it need not be kept."""
        self._cursors = [one for one in self._cursors if one is not cursors]

    def drop_before(self, offset: int) -> None:
        """The log has dropped these."""
        self.first = max(self.first, offset)
        self.drop_due_before(offset)
        for cursors in self._cursors:
            cursors.floor = max(cursors.floor, offset)

    def drop_due_before(self, offset: int) -> None:
        for due in self._due.values():
            due.discard_before(offset)

    def trim(self) -> None:
        """Let go of the blocks that every group has passed, or that the log has dropped."""
        for number, lane in enumerate(self.lanes):
            gone = lane.blocks_before(self.first)
            if self._cursors:
                passed = min(cursors.passed_blocks(number) for cursors in self._cursors)
                gone = passed - lane.trimmed
            if gone > 0:
                self.first = max(self.first, lane.blocks[gone - 1][-1] + 1)
                del lane.blocks[:gone]
                lane.trimmed += gone
        self._blocks = sum(len(lane.blocks) for lane in self.lanes)
        self._trim_at = 2 * self._blocks + TRIM_BLOCKS


class LaneCursors:
    """A group's place in the lanes: in those of the priorities, or in LOG, whichever it reads.

    `floor` is the group's own to move up: below it, nothing is asked for any more.
    """

    __slots__ = ("_index", "_passed_log", "_passed_priorities", "_places", "floor")

    def __init__(self, index: LaneIndex, floor: int) -> None:
        self._index = index
        self.floor = max(floor, index.first)
        self._places = [lane.find(self.floor) for lane in index.lanes]
        # What is in LOG is in one other lane, so one count does for both.
        ahead = index.lanes[LOG].count_from(*self._places[LOG])
        self._passed_log = self._passed_priorities = index.added - ahead

    def has_more(self, lane: int) -> bool:
        """Whether there is anything from here on; of the priorities, in any of their lanes."""
        passed = self._passed_log if lane == LOG else self._passed_priorities
        return passed < self._index.added

    def head(self, lane: int) -> int:
        """The next offset of a lane; END if there is none yet."""
        row = self._index.lanes[lane]
        at, place = self._places[lane]
        at -= row.trimmed
        blocks = row.blocks
        if at < len(blocks):
            block = blocks[at]
            if place < len(block):
                return block[place]
            if at + 1 < len(blocks):
                return blocks[at + 1][0]
        return END

    def take(self, lane: int, wanted: int, before: int = END) -> Ranges:
        """Pass up to `wanted` offsets that lie before an offset."""
        row = self._index.lanes[lane]
        blocks, trimmed = row.blocks, row.trimmed
        at, place = self._places[lane]
        at -= trimmed
        taken: Ranges = []
        passed = 0
        while passed < wanted and at < len(blocks):
            block = blocks[at]
            left = len(block) - place
            if not left:
                if at + 1 == len(blocks):
                    break  # it may grow
                at, place = at + 1, 0
                continue
            count = left if left < wanted - passed else wanted - passed
            if type(block) is range:
                first = block.start + place
                count = min(count, before - first)
                if count <= 0:
                    break
                append_range(taken, first, first + count)
            else:
                piece = block[place : place + count]
                if piece[-1] >= before:
                    piece = piece[: bisect_left(piece, before)]
                    count = len(piece)
                    if not count:
                        break
                append_offsets(taken, piece)
            place += count
            passed += count
        self._places[lane] = (at + trimmed, place)
        self._count_passed(lane, passed)
        return taken

    def peek(self, lane: int, wanted: int) -> list[int]:
        """The next offsets of a lane, which are not passed."""
        row = self._index.lanes[lane]
        at, place = self._places[lane]
        found: list[int] = []
        for block in row.blocks[at - row.trimmed : at - row.trimmed + wanted + 1]:
            found.extend(block[place : place + wanted - len(found)])
            place = 0
            if len(found) >= wanted:
                break
        return found

    def skip_to(self, lane: int, offset: int) -> None:
        """Pass everything before an offset."""
        row = self._index.lanes[lane]
        at, place = self._places[lane]
        at -= row.trimmed
        passed = 0
        while at < len(row.blocks):
            block = row.blocks[at]
            if place < len(block) and block[-1] >= offset:
                found = max(place, _place_in(block, offset))
                passed += found - place
                place = found
                break
            passed += len(block) - place
            place = len(block)
            if at + 1 == len(row.blocks):
                break
            at, place = at + 1, 0
        self._places[lane] = (at + row.trimmed, place)
        self._count_passed(lane, passed)

    def passed_blocks(self, lane: int) -> int:
        """How many blocks of a lane, of all there ever were, this group is done with."""
        if self.head(lane) < self.floor:
            self.skip_to(lane, self.floor)
        row = self._index.lanes[lane]
        at, place = self._places[lane]
        here = at - row.trimmed
        if here + 1 < len(row.blocks) and place >= len(row.blocks[here]):
            at, place = self._places[lane] = (at + 1, 0)  # it will not grow any more
        return at

    def _count_passed(self, lane: int, passed: int) -> None:
        if lane == LOG:
            self._passed_log += passed
        else:
            self._passed_priorities += passed


def _first_of(block: Block) -> int:
    return block[0]


def _place_in(block: Block, offset: int) -> int:
    if type(block) is range:
        return min(max(offset - block.start, 0), len(block))
    return bisect_left(block, offset)
