"""A queue: one group over one plain topic. Who gets which message next, and what is settled.

Pure state. What lasts is `floor`, `settled`, delivery counts, the tokens of what was granted and
not given back, and nack delays: `apply_*` change them, deterministically and as often as they are
told. How long leases run is in memory only.

From `floor` on, an offset is in one of these places:

    ahead       in the lanes, not passed by this queue's cursors; costs nothing
    returned    ready again (or for the first time, if it was delayed), in a set per priority
    selected    picked by `select`, until it is granted, set aside or put back: within one step
    leased      granted
    limbo       finished, until `apply_settle` says that this is durable
    delayed     nacked with a delay
    parked      behind another message of its key (order "key" only)
    settled

An offset whose lease ran out, or whose holder left, is returned, and can still be settled under
its token until it is granted again: it is then `late` as well.

After a restart the cursors stand before offsets that are settled, delayed or leased.
`_unknown_until` bounds them: what the lanes have below it is looked at first, and what is ready
goes to `returned`. What was granted and not given back is leased on to nobody (`take_up`): its
holder may come back and extend it, and whoever has its token may settle it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ..group_model import Order, Ranges
from .delay_wheel import DelayWheel
from .delivery_counts import DeliveryCounts
from .key_gate import KeyGate
from .lanes import END, LOG, LaneIndex
from .leases import Lease, LeaseTable
from .offset_set import OffsetSet
from .ranges import append_range, count_in, joined, offsets_in, ranges_of, without
from .ready import Ready
from .tokens import Tokens

KEY_BUDGET = 8_192
"""How many rows one select looks at for their keys."""

STEP = 1_024
UNKNOWN_BUDGET = 16_384
"""How many rows one select looks at to find out what a restart left open."""

KeyHashes = Callable[[int, int], Sequence[int]]


class Selection(NamedTuple):
    """What `select` picked."""

    ranges: Ranges
    """In the order of delivery."""
    exhausted: list[int]
    """Picked too, but delivered as often as allowed: to be dead-lettered."""
    is_cut: bool
    """There may be more: it looked at as much as it does in one go. Call again."""


class QueueState(msgspec.Struct, array_like=True):
    """What lasts of a queue."""

    floor: int
    settled: list[tuple[int, bytes]] = []
    attempts: list[tuple[int, int, int]] = []
    delays: list[tuple[int, int]] = []
    tokens: list[tuple[int, Ranges]] = []


NOBODY = ""
"""Holds what was granted before a restart, until its holder comes back."""


class LeaseInfo(NamedTuple):
    token: int
    holder: str
    granted_at: float
    deadline: float
    ranges: Ranges


class Queue:
    """See the top of this file for the places of an offset.

    The caller's turns: `select`, then `grant`, `set_aside` or `put_back` for all that was selected,
    within the same step; `finish`, then `apply_settle`, or `unfinish` if that came to nothing.
    After anything that gives back or settles, `has_ready` may have become true.
    """

    def __init__(self, index: LaneIndex, *, order: Order, floor: int, first_token: int = 1) -> None:
        self.order = order
        self.floor = floor
        self.settled = OffsetSet()
        self.next_token = first_token
        self.poll_count = 0
        """How many selects found something."""
        self._counts = DeliveryCounts()
        self._selected = OffsetSet()
        self._leased = OffsetSet()
        self._limbo = OffsetSet()
        self._delayed = OffsetSet()
        self._wheel = DelayWheel()
        self._replayed_delays: dict[int, int] = {}
        self._priority_of: dict[int, int] = {}  # of what is out, where it is not 0
        self._late: dict[int, Lease] = {}
        self._late_selected: dict[int, Lease] = {}
        self._table = LeaseTable()
        self._granted = Tokens(self._open_in)
        """Of replay: what is to be leased on."""
        self._finishing = Tokens(self._limbo.present)
        self._doubted = OffsetSet()
        """What was leased on, until the cursors have come to it."""
        self._gate = KeyGate() if order == "key" else None
        self._unknown_until = 0
        self._ready = Ready(index, floor, is_by_priority=order == "priority")
        self._add_due_before()

    def _begin(self, index: LaneIndex) -> None:
        self._ready.begin(index, self.floor)
        self._add_due_before()

    def _add_due_before(self) -> None:
        """Messages that were delayed, and due before this queue began."""
        index = self._ready.index
        if index.end < self.floor:  # what the lanes are yet to take in lies before it in part
            self._unknown_until = max(self._unknown_until, self.floor)
        for priority, ranges in index.due_from(self.floor):
            self.add_due([(offset, priority) for offset in offsets_in(ranges)])

    # --- what lasts

    def apply_settle(self, ranges: Ranges) -> int:
        """These are settled; how many were not before."""
        floor = self.floor
        unfinished = count_in(ranges) - self._limbo.remove_ranges(ranges)
        if unfinished:
            self._settle_unfinished(ranges, unfinished)
        if not self._limbo:
            self._finishing.clear()
        if self._doubted:
            self._doubted.remove_ranges(ranges)
        if self._counts:
            self._counts.forget_all(ranges)
        if self._priority_of:
            self._forget_priorities(ranges)
        if len(ranges) == 1 and ranges[0][0] <= floor and not self.settled:
            stop = ranges[0][1]
            newly = max(0, stop - floor)
            floor = max(stop, floor)
        else:
            newly = self.settled.add_ranges(ranges)
            newly -= self.settled.discard_before(floor)
            if floor in self.settled:
                floor = self.settled.first_missing(floor)
                self.settled.discard_before(floor)
        self.floor = self._ready.cursors.floor = floor
        if self._gate is not None:
            self._free_keys(ranges)
        return newly

    def _settle_unfinished(self, ranges: Ranges, unfinished: int) -> None:
        """Settled without having been finished: by a filter, by expiry, by a restart's replay."""
        selected = self._selected.remove_ranges(ranges)
        if self._late_selected:
            self._lose_late(self._late_selected, ranges)
        if selected < unfinished:
            self._forget_leases(ranges)
            self._withdraw(ranges)
            self._forget_delays(ranges)
            self._unknown_until = max(self._unknown_until, max(stop for _, stop in ranges))

    def apply_attempts(self, attempts: Iterable[tuple[int, int, int]], token: int = 0) -> None:
        """Delivery counts, (start, stop, count), as they were journaled, and the token they were
        granted under; 0 where they were given back.

        For replay and for followers. Who granted them has counted already, and may have counted on.
        """
        attempts = list(attempts)
        self._apply_counts(attempts)
        if attempts:
            self._granted.note(token, [(start, stop) for start, stop, _ in attempts])

    def apply_ended(self, ranges: Ranges) -> None:
        """These were nacked, as it was journaled: nobody has them any more."""
        self._granted.note(0, ranges)

    def _apply_counts(self, attempts: Iterable[tuple[int, int, int]]) -> None:
        for start, stop, count in attempts:
            for first, last in self.settled.missing(max(start, self.floor), stop):
                self._counts.set(first, last, count)
                if count and (self._leased or self._limbo):
                    self._counts.take_one(self._leased.present(first, last))
                    self._counts.take_one(self._limbo.present(first, last))

    def apply_delays(self, delays: Iterable[tuple[int, int]]) -> None:
        """Nack delays, (offset, due_ms), as they were journaled. The last one counts.

        For replay and for followers, like the counts.
        """
        again: list[int] = []
        for offset, due_ms in delays:
            if self.is_settled(offset) or self.is_out(offset):
                continue
            if offset in self._delayed and offset not in self._replayed_delays:
                again.append(offset)
            self._withdraw([(offset, offset + 1)])
            self._delayed.add_range(offset, offset + 1)
            self._replayed_delays[offset] = due_ms
            self._unknown_until = max(self._unknown_until, offset + 1)
            self._granted.note(0, [(offset, offset + 1)])
        if again:
            self._wheel.discard(again)

    def apply_reset(self, floor: int, index: LaneIndex) -> None:
        """Begin anew at an offset."""
        self._clear()
        self.floor = floor
        self._begin(index)

    def floor_from(self, first: int) -> int:
        """What the floor is once everything before `first` is dropped; nothing changes."""
        if first <= self.floor:
            return self.floor
        return self.settled.first_missing(first) if self.settled else first

    def drop_before(self, offset: int) -> int:
        """The log has dropped these; how many of them were not settled."""
        floor = self.floor
        if offset <= floor:
            return 0
        gone = [(floor, offset)]
        lost = offset - floor - self.settled.discard_before(offset)
        for places in (self._limbo, self._selected, self._doubted):
            places.discard_before(offset)
        self._forget_leases(gone)
        self._withdraw(gone)
        self._forget_delays(gone)
        self._wheel.forget_before(offset)
        if self._late_selected:
            self._lose_late(self._late_selected, gone)
        if self._counts:
            self._counts.forget(floor, offset)
        if self._priority_of:
            self._forget_priorities(gone)
        self.floor = self.floor_from(offset)
        self.settled.discard_before(self.floor)
        self._ready.cursors.floor = self.floor
        self._unknown_until = max(self._unknown_until, self.floor)
        if self._gate is not None:
            self._free_keys(gone)
        return lost

    def snapshot(self) -> QueueState:
        counts = self._counts.copy()
        counts.add_one(self._leased.ranges())
        counts.add_one(self._limbo.ranges())
        delays = [(offset, due_ms) for due_ms, offset, _ in self._wheel.items()]
        delays += self._replayed_delays.items()
        return QueueState(
            self.floor,
            self.settled.to_chunks(),
            list(counts.runs()),
            sorted(delay for delay in delays if delay[0] in self._delayed),
            [
                *self._granted.standing(),
                *self._finishing.standing(),
                *self._table.standing(),
            ],
        )

    def restore(self, state: QueueState) -> None:
        """Be as the state says, over the same lanes; nothing is leased before `take_up`."""
        self._clear()
        self.floor = state.floor
        self.settled = OffsetSet.from_chunks(state.settled)
        self._apply_counts(state.attempts)
        self.apply_delays(state.delays)
        for token, ranges in state.tokens:
            self._granted.note(token, ranges)
        self._unknown_until = max(self._unknown_until, self.settled.end())
        self._begin(self._ready.index)

    def _clear(self) -> None:
        for places in (self._selected, self._leased, self._limbo, self._delayed, self.settled):
            places.clear()
        self._counts.clear()
        self._wheel.clear()
        self._replayed_delays.clear()
        self._priority_of.clear()
        self._late.clear()
        self._late_selected.clear()
        self._table.clear()
        if self._gate is not None:
            self._gate.clear()
        for tokens in (self._granted, self._finishing):
            tokens.clear()
        self._doubted.clear()
        self._unknown_until = 0

    # --- what was granted before a restart

    def take_up(self, *, now: float, seconds: float, key_hashes: KeyHashes | None = None) -> None:
        """Lease on what was granted and not given back, for those who come back.

        By key, what was tried before has its key still, however long it waits: an older one that
        came due since has to wait for it, as it would have without the restart.
        """
        owners = None if self._gate is None else self._own_keys(self._gate, key_hashes)
        for token, ranges in self._granted.standing():
            held = ranges
            if owners is not None:
                held = [run for start, stop in ranges for run in owners.present(start, stop)]
            if held:
                self._withdraw(held)
                self._counts.take_one(held)
                self._leased.add_ranges(held)
                self._doubted.add_ranges(held)
                self._unknown_until = max(self._unknown_until, max(stop for _, stop in held))
                self._table.add(Lease(token, NOBODY, now, now + seconds, held))
        self._granted.clear()

    def _own_keys(self, gate: KeyGate, key_hashes: KeyHashes | None) -> OffsetSet:
        """Have what was delivered before own its key; those that do."""
        assert key_hashes is not None, "order by key needs to know the keys"
        owners = OffsetSet()
        for start, stop, _ in self._counts.runs():
            for offset, key in zip(range(start, stop), key_hashes(start, stop), strict=True):
                if gate.admit(offset, key):
                    owners.add_range(offset, offset + 1)
        return owners

    def _open_in(self, start: int, stop: int) -> Ranges:
        return self.settled.missing(max(start, self.floor), stop)

    # --- handing out

    def has_ready(self) -> bool:
        """Whether `select` is worth a try. It may find that everything left is settled."""
        return bool(self._ready)

    def select(
        self,
        wanted: int,
        *,
        max_deliveries: int | None = None,
        key_hashes: KeyHashes | None = None,
    ) -> Selection:
        """Pick up to `wanted` that are ready: the caller grants, settles or puts them back."""
        if wanted <= 0:
            return Selection([], [], False)
        if self._unknown_until and not self._pass_unknown(wanted):
            return Selection([], [], True)
        is_cut = False
        if self.order == "priority":
            ranges = self._draw_by_priority(wanted)
        elif self._gate is None:
            ranges = self._ready.draw(LOG, wanted)
        else:
            assert key_hashes is not None, "order by key needs to know the keys"
            ranges, is_cut = self._draw_by_key(wanted, self._gate, key_hashes)
        if not ranges:
            return Selection(ranges, [], is_cut)
        self.poll_count += 1
        self._selected.add_ranges(ranges)
        if self._late:
            self._move_late(self._late, self._late_selected, ranges)
        exhausted: list[int] = []
        if max_deliveries is not None and self._counts:
            counts = self._counts.counted(ranges)
            exhausted = [offset for offset, count in counts.items() if count >= max_deliveries]
            if exhausted:
                ranges = without(ranges, ranges_of(sorted(exhausted)))
        return Selection(ranges, exhausted, is_cut)

    def put_back_all(self) -> None:
        """Something went wrong behind `select`: whatever is selected still is ready again."""
        self.put_back(self._selected.ranges())

    def put_back(self, ranges: Ranges) -> None:
        """What was selected and not granted is ready again, in its place."""
        ranges = self._selected.take_ranges(ranges)
        if self._late_selected:
            self._move_late(self._late_selected, self._late, ranges)
        self._return(ranges)

    def grant(self, ranges: Ranges, holder: str, *, now: float, seconds: float) -> int:
        """Lease what was selected: the token. Each one's delivery count grows by one."""
        token = self.next_token
        self.next_token = token + 1
        ranges = self._selected.take_ranges(ranges)
        if self._late_selected:
            self._lose_late(self._late_selected, ranges)
        if ranges:
            self._leased.add_ranges(ranges)
            self._table.add(Lease(token, holder, now, now + seconds, ranges))
        return token

    def counts(self, ranges: Ranges) -> dict[int, int]:
        """How often what was just granted has been delivered, where that is not once."""
        if not self._counts:
            return {}
        return {offset: count + 1 for offset, count in self._counts.counted(ranges).items()}

    def count_of(self, offset: int) -> int:
        """How often a message was delivered, with the delivery it is in."""
        return self._counts[offset] + (offset in self._leased or offset in self._limbo)

    def peek(self, wanted: int) -> Ranges:
        """What is ready, highest priority first; nothing changes.

        Nobody's share is reserved here, and keys are not asked for.
        """
        while self._unknown_until and not self._pass_unknown(wanted):
            pass
        parts: list[Ranges] = []
        for lane in self._ready.lanes():
            offsets = self._ready.lowest(lane, wanted)
            parts.append(ranges_of(offsets))
            wanted -= len(offsets)
            if wanted <= 0:
                break
        return joined(parts)

    # --- drawing from the lanes

    def _draw_by_priority(self, wanted: int) -> Ranges:
        """A quarter is reserved for the oldest, and one more in every fourth poll."""
        reserved = min(wanted // 4 + ((self.poll_count + 1) % 4 == 0), wanted)
        drawn = self._ready.draw_by_priority(wanted, reserved)
        for lane, ranges in drawn:
            if lane:
                self._priority_of.update(dict.fromkeys(offsets_in(ranges), lane))
        return joined([ranges for _, ranges in drawn])

    def _draw_by_key(
        self, wanted: int, gate: KeyGate, key_hashes: KeyHashes
    ) -> tuple[Ranges, bool]:
        """From the log, what no other message of its key is in the way of."""
        picked: list[int] = []
        looked = 0
        cursors, returned = self._ready.cursors, self._ready.returned[LOG]
        while len(picked) < wanted:
            if looked >= KEY_BUDGET:
                return ranges_of(picked), True
            head = cursors.head(LOG)
            first = returned.first()
            # As many as are wanted are looked at in one go: were it more, those that turn out to
            # be free would have to wait somewhere.
            room = min(wanted - len(picked), KEY_BUDGET - looked)
            if first is not None and first < head:
                ranges = returned.take_lowest(1)
            elif head < self._unknown_until:
                return ranges_of(picked), True  # more was parked than was looked at beforehand
            elif head != END:
                ranges = cursors.take(LOG, room, END if first is None else first)
            else:
                break
            for number, (start, stop) in enumerate(ranges):
                looked += stop - start
                known = gate.key_of(start) if stop - start == 1 else None
                try:
                    keys = key_hashes(start, stop) if known is None else (known,)
                except BaseException:  # of the disk: nothing was drawn
                    self._ready.add(LOG, ranges[number:])
                    self._selected.add_many(picked)
                    self.put_back_all()
                    raise
                for offset, key in zip(range(start, stop), keys, strict=True):
                    if gate.admit(offset, key) and offset not in self._delayed:
                        picked.append(offset)
        return ranges_of(picked), False

    def _pass_unknown(self, wanted: int) -> bool:
        """Look at what a restart left open, as far as is needed; whether that is done.

        Ready ones go to `returned`: at least `wanted` for each lane, if there are as many.
        """
        until, budget, is_over = self._unknown_until, UNKNOWN_BUDGET, True
        if self._replayed_delays:
            self._load_delays()
        cursors = self._ready.cursors
        for lane in self._ready.lanes():
            returned = self._ready.returned[lane]
            while (head := cursors.head(lane)) < until:
                if len(returned) >= wanted and returned.count_before(head) >= wanted:
                    is_over = False
                    break
                if budget <= 0:
                    return False
                # A long stretch that is settled is passed in one step.
                open_at = self.settled.first_missing(max(head, self.floor))
                if open_at > head:
                    cursors.skip_to(lane, open_at)
                self._stage(lane, cursors.take(lane, STEP, until))
                budget -= STEP
        if is_over:
            self._unknown_until = 0
        return True

    def _stage(self, lane: int, ranges: Ranges) -> None:
        """These were passed in a lane: those that are not settled are ready."""
        missing, settled = self.settled.missing, self.settled
        ready: Ranges = []
        for start, stop in ranges:
            if stop - start > 1:
                ready += missing(start, stop)
            elif start not in settled:
                ready.append((start, stop))
        for places in (self._leased, self._limbo, self._selected):
            if places:
                if lane and lane != LOG:  # the lane will not tell for ever: it is trimmed
                    for start, stop in ready:
                        out = offsets_in(places.present(start, stop))
                        self._priority_of.update(dict.fromkeys(out, lane))
                ready = [run for start, stop in ready for run in places.missing(start, stop)]
        if self._doubted:
            self._doubted.remove_ranges(ranges)
        if self._delayed and self._gate is None:  # with keys, a delayed one must own its key
            not_delayed = self._delayed.missing
            ready = [run for start, stop in ready for run in not_delayed(start, stop)]
        if ready:
            self._ready.add(lane, ready)

    # --- coming back

    def _return(self, ranges: Ranges) -> None:
        """These are ready again."""
        if self._doubted:
            ranges = self._passed(ranges)
        if self.order != "priority":
            if self._gate is None:
                self._ready.add(LOG, ranges)
            else:
                for offset in offsets_in(ranges):
                    first: int | None = offset
                    if not self.count_of(offset) and self._gate.owns(offset):
                        first = self._gate.step_back(offset, self.is_settled)
                    if first is not None:
                        self._ready.add(LOG, [(first, first + 1)])
        elif not self._priority_of:
            self._ready.add(0, ranges)
        else:
            lanes: dict[int, Ranges] = {}
            known = self._priority_of
            for offset in offsets_in(ranges):
                append_range(lanes.setdefault(known.pop(offset, 0), []), offset, offset + 1)
            for lane, mine in lanes.items():
                self._ready.add(lane, mine)

    def _passed(self, ranges: Ranges) -> Ranges:
        """Those that the cursors have passed. What was leased on they may be yet to come to."""
        passed: Ranges = []
        index = self._ready.index
        for offset in offsets_in(ranges):
            if offset in self._doubted:
                if offset >= index.end:
                    continue
                priority = self._priority_of.get(offset) or index.priority_of(offset)
                if self._ready.is_ahead(self._ready.lane_of(priority), offset):
                    continue
                if priority and self.order == "priority":
                    self._priority_of[offset] = priority
            append_range(passed, offset, offset + 1)
        return passed

    def _withdraw(self, ranges: Ranges) -> None:
        """These are not ready any more; their priority is remembered."""
        for lane, mine in self._ready.withdraw(ranges):
            self._priority_of.update(dict.fromkeys(offsets_in(mine), lane))

    def add_due(self, due: Sequence[tuple[int, int]]) -> None:
        """Messages published with a delay, (offset, priority), whose time has come."""
        lanes: dict[int, list[int]] = {}
        for offset, priority in due:
            if self.is_settled(offset) or self.is_out(offset):
                continue
            lane = self._ready.lane_of(priority)
            if self._gate is None and offset in self._delayed:
                if lane and lane != LOG:
                    self._priority_of[offset] = priority
            else:
                lanes.setdefault(lane, []).append(offset)
        for lane, offsets in lanes.items():
            self._ready.add(lane, ranges_of(sorted(offsets)))

    def take_due(self, now_ms: int) -> int:
        """Nack delays that are over make their messages ready; how many.

        After a restart the lanes have to have these messages: they tell the priority.
        """
        if self._replayed_delays:
            self._load_delays()
        due: list[int] = []
        count = 0
        for offset, priority in self._wheel.take_due(now_ms):
            if not self._delayed.remove_range(offset, offset + 1):
                continue
            count += 1
            lane = self._ready.lane_of(priority)
            if self._ready.is_ahead(lane, offset):
                continue  # after a restart: the cursor has yet to come to it
            if priority and self.order == "priority":
                self._priority_of[offset] = priority
            due.append(offset)
        if due:
            self._return(ranges_of(due))
        return count

    def next_due_ms(self) -> int | None:
        due_ms = self._wheel.next_due_ms()
        if self._replayed_delays:
            first = min(self._replayed_delays.values())
            due_ms = first if due_ms is None else min(first, due_ms)
        return due_ms

    def _load_delays(self) -> None:
        """Replayed delays go into the wheel when it is first asked: the last one counted."""
        for offset, due_ms in self._replayed_delays.items():
            priority = self._priority_of.pop(offset, None)
            if priority is None:
                priority = self._ready.index.priority_of(offset)
            self._wheel.add(due_ms, offset, priority)
        self._replayed_delays.clear()

    # --- settling

    # Each of these says which of the ranges were the token's, and which are lost to it: someone
    # else has them or had them since.

    def finish(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """It is decided that these are done: in limbo, until `apply_settle` carries that out."""
        mine, late, lost = self._take_from(token, ranges)
        if late:
            self._withdraw(late)
            self._counts.take_one(late)
            self._limbo.add_ranges(late)
        if mine:
            self._leased.remove_ranges(mine)
            self._limbo.add_ranges(mine)
        done = _both(mine, late)
        if done:
            self._finishing.note(token, done)
        return done, lost

    def set_aside(self, ranges: Ranges) -> None:
        """It is decided without a token that these are done: what was selected or is ready goes to
        limbo, and who had it before has lost it."""
        self._selected.remove_ranges(ranges)
        if self._late_selected:
            self._lose_late(self._late_selected, ranges)
        if self._late:
            self._lose_late(self._late, ranges)
        self._withdraw(ranges)
        self._counts.take_one(ranges)
        self._limbo.add_ranges(ranges)

    def unfinish(self, ranges: Ranges) -> None:
        """What was finished is not done after all: it is ready again."""
        ranges = self._limbo.take_ranges(ranges)
        self._counts.add_one(ranges)
        self._return(ranges)

    def nack(self, token: int, ranges: Ranges, due_ms: int | None) -> tuple[Ranges, Ranges]:
        """Not done: ready again, at once or when its time has come."""
        mine, late, lost = self._take_from(token, ranges)
        if mine:
            self._leased.remove_ranges(mine)
            self._counts.add_one(mine)
            if due_ms is None:
                self._return(mine)
        if due_ms is not None:
            if late:
                self._withdraw(late)
            for start, stop in _both(mine, late):
                self._delayed.add_range(start, stop)
                for offset in range(start, stop):
                    if offset in self._doubted:  # the lanes may have to be asked for its priority
                        self._replayed_delays[offset] = due_ms
                    else:
                        self._wheel.add(due_ms, offset, self._priority_of.pop(offset, 0))
        return _both(mine, late), lost

    def release(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """Nobody looked at these: ready again, and the delivery does not count."""
        mine, late, lost = self._take_from(token, ranges)
        if late:
            self._withdraw(late)
            self._counts.take_one(late)
            self._return(late)
        if mine:
            self._leased.remove_ranges(mine)
            self._return(mine)
        return _both(mine, late), lost

    def extend(
        self, token: int, ranges: Ranges, holder: str, *, now: float, seconds: float
    ) -> tuple[Ranges, Ranges]:
        """Have the lease of these end `seconds` from now; one that ran out begins again.

        Whoever has the token is its holder from now on: it may have come back under another name.
        """
        for lease in self._table.of_token(token):
            is_whole = lease.offsets is None and lease.ranges == ranges
            if is_whole and not lease.is_over and lease.holder == holder:
                self._table.extend(lease, now + seconds)
                return list(ranges), []
        granted = [lease.granted_at for lease in self._table.of_token(token)]
        mine, late, lost = self._take_from(token, ranges)
        if late:
            self._withdraw(late)
            self._counts.take_one(late)
            self._leased.add_ranges(late)
        held = _both(mine, late)
        if held:
            self._table.add(Lease(token, holder, granted[0], now + seconds, held))
        return held, lost

    def release_holder(self, holder: str) -> Ranges:
        """It left: what it holds is ready at once, though a late settle counts."""
        leases = self._table.of_holder(holder)
        for lease in leases:
            self._table.end(lease)
        return self._give_up(leases)

    def expire(self, now: float) -> Ranges:
        """Leases that ran out: what they held is ready again, though a late settle counts."""
        return self._give_up(self._table.take_over(now))

    def _give_up(self, leases: list[Lease]) -> Ranges:
        given: list[int] = []
        for lease in leases:
            offsets = list(offsets_in(lease.outstanding()))
            self._late.update(dict.fromkeys(offsets, lease))
            given.extend(offsets)
        ranges = ranges_of(sorted(given))
        if ranges:
            self._leased.remove_ranges(ranges)
            self._counts.add_one(ranges)
            self._return(ranges)
        return ranges

    def end_leases(self) -> None:
        """A reset is decided: nobody settles anything any more that was handed out before it."""
        self._table.clear()
        self._late.clear()
        self._late_selected.clear()

    def next_deadline(self) -> float | None:
        return self._table.next_deadline()

    def leases(self) -> Iterator[LeaseInfo]:
        for lease in self._table:
            yield LeaseInfo(
                lease.token, lease.holder, lease.granted_at, lease.deadline, lease.outstanding()
            )

    @property
    def index(self) -> LaneIndex:
        return self._ready.index

    def begin_tokens(self, first: int) -> None:
        """Let no token from now on be below this one."""
        self.next_token = max(self.next_token, first)

    @property
    def settled_above(self) -> int:
        """How many are settled behind the floor."""
        return len(self.settled)

    @property
    def in_flight_count(self) -> int:
        return len(self._leased)

    @property
    def delayed_count(self) -> int:
        """How many wait because of a nack with a delay."""
        return len(self._delayed)

    @property
    def returned(self) -> int:
        """How many are ready that were passed in the log before."""
        return sum([len(returned) for returned in self._ready.returned])

    @property
    def limbo_count(self) -> int:
        return len(self._limbo)

    def _take_from(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges, Ranges]:
        """Take offsets from a token: those that were leased, those that were late, and the rest."""
        leases = self._table.of_token(token)
        if len(leases) == 1 and not leases[0].is_over:
            lease = leases[0]
            mine = lease.take(ranges)
            self._table.forget_if_done(lease)
            return mine, [], [] if mine == ranges else without(ranges, mine)
        running: list[int] = []
        over: list[int] = []
        for lease in list(leases):
            if lease.is_over:
                selected = [offset for offset, who in self._late_selected.items() if who is lease]
                taken = lease.take(without(ranges, ranges_of(sorted(selected))))
                for offset in offsets_in(taken):
                    del self._late[offset]
                    over.append(offset)
            else:
                running.extend(offsets_in(lease.take(ranges)))
            self._table.forget_if_done(lease)
        mine, late = ranges_of(sorted(running)), ranges_of(sorted(over))
        return mine, late, without(ranges, _both(mine, late))

    # --- for tests

    def check(self, scheduled: Collection[int] = ()) -> None:
        """Assert that every offset from the floor on is in exactly one place, and that leases and
        delays are of what is there. It looks at each of them, so only tests call it.

        `scheduled` are those that were published with a delay and are not due.
        """
        lanes = self._ready.lanes()
        parked = OffsetSet() if self._gate is None else OffsetSet(self._gate.parked())
        for offset in range(self.floor, self._ready.index.end):
            is_known = offset in self.settled or offset in self._delayed
            ahead = any(self._ready.is_ahead(lane, offset) for lane in lanes)
            if offset < self._unknown_until and (is_known or self.is_out(offset)):
                ahead = False  # it will be found out when it is looked at
            returned = sum(offset in self._ready.returned[lane] for lane in lanes)
            is_parked = offset in parked
            if self._gate is not None and is_known:
                # A delayed one takes its place in the line of its key as well, and one that is
                # settled leaves it when its turn comes.
                returned, is_parked = 0, False
            places = {
                "ahead": ahead,
                "returned": returned,
                "selected": offset in self._selected,
                "leased": offset in self._leased,
                "limbo": offset in self._limbo,
                "delayed": offset in self._delayed,
                "parked": is_parked,
                "settled": offset in self.settled,
            }
            found = {place: count for place, count in places.items() if count}
            is_due_later = not found and offset in scheduled
            assert sum(found.values()) == 1 or is_due_later, f"offset {offset} is in {found}"
        held = [offset for lease in self._table for offset in offsets_in(lease.outstanding())]
        assert sorted(held) == list(offsets_in(self._leased.ranges())), "leases are of the leased"
        waiting = {offset for _, offset, _ in self._wheel.items()} | self._replayed_delays.keys()
        assert waiting >= set(offsets_in(self._delayed.ranges())), "a delay that never ends"
        for offset in self._late:
            is_returned = any(offset in returned for returned in self._ready.returned)
            assert is_returned or offset in self._doubted, f"{offset} is late"
        assert all(offset in self._selected for offset in self._late_selected)

    # --- forgetting

    def _forget_leases(self, ranges: Ranges) -> None:
        if self._leased:
            for start, stop in ranges:
                if self._leased.remove_range(start, stop):
                    for lease, held in self._table.holding([(start, stop)]):
                        lease.take(held)
                        self._table.forget_if_done(lease)
        if self._late:
            self._lose_late(self._late, ranges)

    def _lose_late(self, late: dict[int, Lease], ranges: Ranges) -> None:
        """From now on these cannot be settled under the token whose lease ran out."""
        for offset, lease in self._late_among(late, ranges):
            del late[offset]
            lease.take([(offset, offset + 1)])
            self._table.forget_if_done(lease)

    def _move_late(self, here: dict[int, Lease], there: dict[int, Lease], ranges: Ranges) -> None:
        for offset, lease in self._late_among(here, ranges):
            del here[offset]
            there[offset] = lease

    def _late_among(self, late: dict[int, Lease], ranges: Ranges) -> list[tuple[int, Lease]]:
        if count_in(ranges) < len(late):
            return [(offset, late[offset]) for offset in offsets_in(ranges) if offset in late]
        wanted = OffsetSet()
        wanted.add_ranges(ranges)
        return [(offset, lease) for offset, lease in late.items() if offset in wanted]

    def _forget_delays(self, ranges: Ranges) -> None:
        if self._delayed:
            for start, stop in ranges:
                for first, last in self._delayed.present(start, stop):
                    self._delayed.remove_range(first, last)
                    offsets = range(first, last)
                    waiting = [offset for offset in offsets if offset not in self._replayed_delays]
                    self._wheel.discard(waiting)
                    for offset in offsets:
                        self._replayed_delays.pop(offset, None)

    def _forget_priorities(self, ranges: Ranges) -> None:
        known = self._priority_of
        if count_in(ranges) < 4 * len(known):
            for offset in offsets_in(ranges):
                known.pop(offset, None)
        else:
            gone = OffsetSet(ranges)
            self._priority_of = {offset: p for offset, p in known.items() if offset not in gone}

    def _free_keys(self, ranges: Ranges) -> None:
        assert self._gate is not None
        if count_in(ranges) < 4 * len(self._gate):
            for offset in offsets_in(ranges):
                self._free_key(offset)
        else:
            for start, stop in ranges:
                for turn in self._gate.turns_in(start, stop):
                    self._free_key(turn)

    def _free_key(self, offset: int) -> None:
        assert self._gate is not None
        following = self._gate.free(offset, self.is_settled)
        if following is not None:
            self._ready.add(LOG, [(following, following + 1)])

    def has_leases(self, holder: str) -> bool:
        return bool(self._table.of_holder(holder))

    def is_out(self, offset: int) -> bool:
        """Whether somebody has it, or it is being settled."""
        return offset in self._leased or offset in self._limbo or offset in self._selected

    def is_in_limbo(self, ranges: Ranges) -> bool:
        """Whether any of these is being settled."""
        return bool(self._limbo) and any(self._limbo.present(*run) for run in ranges)

    def is_settled(self, offset: int) -> bool:
        """Whether this queue is done with it: also where it was dropped."""
        return offset < self.floor or offset in self.settled


def _both(some: Ranges, others: Ranges) -> Ranges:
    """Ascending ranges together."""
    if not others:
        return some
    return sorted(some + others) if some else others
