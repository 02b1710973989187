"""A queue: one group over one plain topic. Who gets which message next, and what is settled.

Pure state. What lasts is `floor`, `settled`, delivery counts, the tokens of what was granted and
not given back, and nack delays: `apply_*` change them, deterministically and as often as they are
told. How long leases run is in memory only.

A queue is put together of parts, each with a duty and a file of its own:

    places        where an offset can be, what moves it, and those places that are sets
    order         what is ready, and who is first: by_priority, by_key, by_log
    deliveries    how often each was delivered
    leases        who holds what, under which token, until when; late_leases: what is over
    nack_delays   what was nacked with a delay
    in_doubt      what was in work when somebody began to lead
    catching_up   what a restart left open

Here are the verbs: each moves offsets from place to place, as `places.MOVES` says, and tells the
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..group_model import Order, Ranges
from .by_key import ByKey
from .by_log import ByLog
from .by_priority import ByPriority
from .catching_up import CatchingUp
from .deliveries import DeliveryTable
from .in_doubt import InDoubt
from .lanes import LaneIndex
from .late_leases import LateLeases
from .leases import GIVE_UP_MAX, Lease, LeaseTable
from .nack_delays import NackDelays
from .offset_set import OffsetSet
from .orders import KeyHashes, ReadyOrder
from .places import Places
from .queue_state import QueueState
from .ranges import both, count_in, offsets_in, ranges_of, without
from .ready import ReadyOffsets
from .tokens import Tokens

ORDERS: dict[Order, Callable[[ReadyOffsets, Places, DeliveryTable], ReadyOrder]] = {
    "priority": ByPriority,
    "key": ByKey,
    "log": ByLog,
}


class Selection(NamedTuple):
    """What `select` picked."""

    ranges: Ranges
    """In the order of delivery."""
    exhausted: list[int]
    """Picked too, but delivered as often as allowed: to be dead-lettered."""
    is_cut: bool
    """There may be more: it looked at as much as it does in one go. Call again."""


class Queue:
    """The caller's turns: `select`, then `grant`, `set_aside` or `put_back` for all that was
    selected, within the same step; `finish`, then `apply_settle`, or `unfinish` if that failed.
    After anything that gives back or settles, `has_ready` may have become true."""

    def __init__(self, index: LaneIndex, *, order: Order, floor: int, first_token: int = 1) -> None:
        self.next_token = first_token
        self.poll_count = 0
        """How many selects found something."""
        self.recalled: Ranges = []
        """What was taken from its holders since the caller looked (and cleared it): by key, what
        was granted behind one that came back."""
        self.places = Places(floor)
        self._deliveries = DeliveryTable(self.places)
        self._ready = ReadyOffsets(index, floor)
        self._order = ORDERS[order](self._ready, self.places, self._deliveries)
        self._catching_up = CatchingUp(self.places, self._order)
        self._delays = NackDelays(self.places.delayed, self._order)
        self._table = LeaseTable()
        self._late = LateLeases(self._table)
        self.in_doubt = InDoubt(
            self.places, self._order, self._deliveries, self._catching_up, self._table, self._delays
        )
        self._finishing = Tokens(self.places.limbo.present)
        self.leave_lanes = self._ready.leave  # what a part knows by itself
        self.counts, self.count_of = self._deliveries.of_granted, self._deliveries.of
        self.has_ready, self.was_given_back = self._order.has_more, self._deliveries.was_given_back
        self.next_due_ms, self.next_deadline = self._delays.next_due_ms, self._table.next_deadline
        self.leases, self.leases_of = self._table.infos, self._table.of_holder
        self.standing = self._table.standing
        self._begin(index)

    def _begin(self, index: LaneIndex) -> None:
        """At the floor. Messages that were delayed, and due before, are there too."""
        self._ready.begin(index, self.floor)
        if index.end < self.floor:  # what the lanes are yet to take in lies before it in part
            self._catching_up.reaches(self.floor)
        for priority, ranges in index.due_from(self.floor):
            self.add_due([(offset, priority) for offset in offsets_in(ranges)])

    # --- what lasts

    def apply_settle(self, ranges: Ranges) -> int:
        """These are settled; how many were not before."""
        places = self.places
        unfinished = count_in(ranges) - places.limbo.remove_ranges(ranges)
        if unfinished:
            self._settle_unfinished(ranges, unfinished)
        if not places.limbo:
            self._finishing.clear()
        if self._catching_up.doubted:
            self._catching_up.doubted.remove_ranges(ranges)
        self._deliveries.forget(ranges)
        newly = places.settle(ranges)
        self._ready.cursors.floor = places.floor
        self._order.settled(ranges)
        return newly

    def _settle_unfinished(self, ranges: Ranges, unfinished: int) -> None:
        """Settled without having been finished: by a filter, by expiry, by a restart's replay."""
        selected = self.places.selected.remove_ranges(ranges)
        self._late.lose_picked(ranges)
        if selected < unfinished:
            self._take_from_all(ranges)
            self._catching_up.reaches(max(stop for _, stop in ranges))

    def _take_from_all(self, ranges: Ranges) -> None:
        self._late.forget(self.places.leased.take_ranges(ranges))
        self._late.lose(ranges)
        self._order.withdraw(ranges)
        self._delays.forget(ranges)

    def apply_attempts(
        self, attempts: Iterable[tuple[int, int, int]], token: int = 0, nacked: Ranges | None = None
    ) -> None:
        """Delivery counts, (start, stop, count), as they were journaled, and the token they were
        granted under; 0 where they were given back. Nobody has those that were `nacked`.

        For replay and for followers. Who granted them has counted already, and may have counted on.
        """
        attempts = list(attempts)
        self._deliveries.apply(attempts)
        if attempts:
            self.in_doubt.granted.note(token, [(start, stop) for start, stop, _ in attempts])
        if nacked:
            self.in_doubt.granted.note(0, nacked)

    def apply_delays(self, delays: Iterable[tuple[int, int]]) -> None:
        """The same for nack delays, (offset, due_ms). The last one counts."""
        for offset, due_ms in delays:
            if self.places.is_settled(offset) or self.places.is_out(offset):
                continue
            one = [(offset, offset + 1)]
            self._order.withdraw(one)
            self._delays.replay(offset, due_ms)
            self._catching_up.reaches(offset + 1)
            self.in_doubt.granted.note(0, one)

    def apply_reset(self, floor: int, index: LaneIndex, term: int = 0) -> None:
        """Begin anew at an offset: tokens of this term and of earlier ones may be from before."""
        self._clear()
        self.in_doubt.since_term = max(self.in_doubt.since_term, term)
        self.places.restore(floor)
        self._begin(index)

    def drop_before(self, offset: int) -> int:
        """The log has dropped these; how many of them were not settled."""
        places, floor = self.places, self.floor
        if offset <= floor:
            return 0
        gone = [(floor, offset)]
        self._take_from_all(gone)
        self._delays.forget_before(offset)
        self._late.lose_picked(gone)
        self._catching_up.doubted.discard_before(offset)
        self._deliveries.forget(gone)
        lost = places.drop_before(offset)
        self._ready.cursors.floor = places.floor
        self._catching_up.reaches(places.floor)
        self._order.settled(gone)
        return lost

    def snapshot(self) -> QueueState:
        return QueueState(
            self.floor,
            self.settled.to_chunks(),
            self._deliveries.runs(),
            sorted(self._delays.items()),
            [
                *self.in_doubt.granted.standing(),
                *self._finishing.standing(),
                *self._table.standing(),
            ],
            self._deliveries.given_back.to_chunks(),
            self.in_doubt.since_term,
        )

    def restore(self, state: QueueState) -> None:
        """Be as the state says, over the same lanes; nothing is leased before `take_up`."""
        self._clear()
        self.places.restore(state.floor, state.settled)
        self._deliveries.apply(state.attempts)
        self._deliveries.given_back = OffsetSet.from_chunks(state.given_back)
        self.apply_delays(state.delays)
        for token, ranges in state.tokens:
            self.in_doubt.granted.note(token, ranges)
        self.in_doubt.since_term = state.since_term
        self._catching_up.reaches(self.settled.end())
        self._begin(self._ready.index)

    def _clear(self) -> None:
        self._deliveries.clear()
        self._delays.clear()
        self._late.clear()
        self._table.clear()
        self._order.clear()
        self.in_doubt.clear()
        self._finishing.clear()
        self._catching_up.clear()

    def take_up(
        self,
        *,
        now: float,
        seconds: float,
        last_term: int = 0,
        end: int = 0,
        key_hashes: KeyHashes | None = None,
    ) -> None:
        """Begin to lead: lease on what was granted before, for those who come back."""
        self.in_doubt.take_up(now, seconds, last_term, end, key_hashes)

    # --- handing out

    def select(
        self,
        wanted: int,
        *,
        max_deliveries: int | None = None,
        key_hashes: KeyHashes | None = None,
        together: bool = False,
    ) -> Selection:
        """Pick up to `wanted` that are ready: the caller grants, settles or puts them back.
        `together`: the taker works on those of a key one after the other, in their order."""
        if wanted <= 0:
            return Selection([], [], False)
        if self._catching_up.until and not self._look(wanted):
            return Selection([], [], True)
        until = self._catching_up.until
        ranges, is_cut = self._order.draw(wanted, self.poll_count, key_hashes, until, together)
        if not ranges:
            return Selection(ranges, [], is_cut)
        self.poll_count += 1
        self.places.selected.add_ranges(ranges)
        self._late.pick(ranges)
        exhausted: list[int] = []
        if max_deliveries is not None and self._deliveries.counts:
            exhausted = self._deliveries.exhausted(ranges, max_deliveries)
            ranges = without(ranges, ranges_of(sorted(exhausted)))
        return Selection(ranges, exhausted, is_cut)

    def _look(self, wanted: int) -> bool:
        self._delays.load()
        return self._catching_up.look(wanted)

    def put_back(self, ranges: Ranges) -> None:
        """What was selected and not granted is ready again, in its place."""
        ranges = self.places.selected.take_ranges(ranges)
        self._late.put_back(ranges)
        self._return(ranges)

    def grant(self, ranges: Ranges, holder: str, *, now: float, seconds: float) -> int:
        """Lease what was selected: the token. Each one's delivery count grows by one."""
        token = self.next_token
        self.next_token = token + 1
        ranges = self.places.selected.take_ranges(ranges)
        self._late.lose_picked(ranges)
        if self._deliveries.given_back:
            self._deliveries.given_back.remove_ranges(ranges)
        if ranges:
            self.places.leased.add_ranges(ranges)
            self._table.add(Lease(token, holder, now, now + seconds, ranges))
        return token

    def peek(self, wanted: int) -> Ranges:
        """What is ready, highest priority first; keys are not asked for, and nothing changes."""
        while self._catching_up.until and not self._look(wanted):
            pass
        return self._ready.first_of(self._order.lanes(), wanted)

    # --- coming back

    def _return(self, ranges: Ranges) -> Ranges:
        """These are ready again; what was granted behind them is not out any more either."""
        ready, behind = self._order.come_back(ranges)
        self._order.add(self._catching_up.passed(ready))
        return behind

    def add_due(self, due: Sequence[tuple[int, int]]) -> None:
        """Messages published with a delay, (offset, priority), whose time has come."""
        is_settled, is_out = self.places.is_settled, self.places.is_out
        self._order.add_due([one for one in due if not (is_settled(one[0]) or is_out(one[0]))])

    def take_due(self, now_ms: int) -> int:
        """Nack delays that are over make their messages ready; how many.

        After a restart the lanes have to have these messages: they tell the priority.
        """
        due = self._delays.take_due(now_ms)
        if due:
            is_ahead = self._order.is_ahead  # after a restart: the cursor has yet to come to it
            self._return(ranges_of([offset for offset, p in due if not is_ahead(offset, p)]))
        return len(due)

    # --- settling

    # Each of these says which of the ranges were the token's, and which are lost to it: someone
    # else has them or had them since.

    def finish(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """It is decided that these are done: in limbo, until `apply_settle` carries that out."""
        mine, lost = self._take(token, ranges)
        if mine:
            self.places.limbo.add_ranges(mine)
            self._finishing.note(token, mine)
        return mine, lost

    def nack(self, token: int, ranges: Ranges, due_ms: int | None) -> tuple[Ranges, Ranges]:
        """Not done: ready again, at once or when its time has come."""
        mine, lost = self._take(token, ranges)
        self._deliveries.counts.add_one(mine)
        if due_ms is None:
            behind = self._return(mine)
        else:
            _, behind = self._order.come_back(mine)
            self._delays.add(mine, due_ms, self._catching_up.doubted)
        self._recall([token], without(behind, mine))
        return mine, lost

    def release(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """Nobody looked at these: ready again, and the delivery does not count."""
        mine, lost = self._take(token, ranges)
        self._deliveries.not_counted(mine)
        self._recall([token], without(self._return(mine), mine))
        return mine, lost

    def extend(
        self, token: int, ranges: Ranges, holder: str, *, now: float, seconds: float
    ) -> tuple[Ranges, Ranges]:
        """Have the lease of these end `seconds` from now; one that ran out begins again.

        Whoever has the token is its holder from now on: it may have come back under another name.
        """
        if self._table.extend_whole(token, ranges, holder, now + seconds):
            return list(ranges), []
        granted_at = next((lease.granted_at for lease in self._table.of_token(token)), now)
        mine, lost = self._take(token, ranges)
        if mine:
            self.places.leased.add_ranges(mine)
            self._table.add(Lease(token, holder, granted_at, now + seconds, mine))
        return mine, lost

    def _take(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges]:
        """Take what is a token's out of its place, to be put into another; and what is not."""
        mine, lost = self._take_known(token, ranges)
        if lost and (claimed := self.in_doubt.claim(token, lost)):
            return both(mine, claimed), without(lost, claimed)
        return mine, lost

    def _take_known(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges]:
        mine, late, lost = self._late.take_from(token, ranges)
        if mine:
            self.places.leased.remove_ranges(mine)
        if late:
            self._order.withdraw(late)  # it is in its delivery still, which was thought to be over
            self._deliveries.counts.take_one(late)
            mine = both(mine, late)
        return mine, lost

    def set_aside(self, ranges: Ranges) -> None:
        """It is decided without a token that these are done: what was selected or is ready goes to
        limbo, and who had it before has lost it."""
        self.places.selected.remove_ranges(ranges)
        self._late.lose_picked(ranges)
        self._late.lose(ranges)
        self._order.withdraw(ranges)
        self._deliveries.counts.take_one(ranges)
        self.places.limbo.add_ranges(ranges)

    def unfinish(self, ranges: Ranges) -> None:
        """What was finished is not done after all: it is ready again."""
        ranges = self.places.limbo.take_ranges(ranges)
        self._deliveries.counts.add_one(ranges)
        behind = self._return(ranges)
        self._recall([lease.token for lease, _ in self._table.holding(behind)], behind)

    def release_holder(self, holder: str) -> Ranges:
        """It left: what it holds is ready again, though a late settle counts. Where that is much,
        it is a piece, and `give_up` goes on with it while the queue `is_giving_up`."""
        self._table.leave(holder)
        return self.give_up()

    def give_up(self) -> Ranges:
        return self._end(self._table.take_left(GIVE_UP_MAX))

    @property
    def is_giving_up(self) -> bool:
        return self._table.has_left

    def expire(self, now: float) -> Ranges:
        """Leases that ran out: what they held is ready again, though a late settle counts. It is a
        piece of that, if `next_deadline` is not after `now` still."""
        return self._end(self._table.take_over(now, GIVE_UP_MAX))

    def _end(self, leases: list[Lease]) -> Ranges:
        given: list[int] = []
        for lease in leases:
            given.extend(self._late.add(lease))
        ranges = ranges_of(sorted(given))
        if ranges:
            self.places.leased.remove_ranges(ranges)
            self._deliveries.counts.add_one(ranges)
            behind = self._return(ranges)
            recalled = self._recall([lease.token for lease in leases], behind)
            ranges = both(ranges, without(recalled, ranges))
        return ranges

    def _recall(self, tokens: Iterable[int], behind: Ranges) -> Ranges:
        """One before these has come back: nobody has looked at them, and they wait for it. Those
        of them that were out; who has finished one has finished it."""
        recalled: Ranges = []
        for token in dict.fromkeys(tokens) if behind else ():
            recalled += self._take_known(token, behind)[0]
        self._deliveries.not_counted(recalled)
        self.recalled += recalled
        return recalled

    def end_leases(self) -> None:
        """A reset is decided: nobody settles anything any more that was handed out before it."""
        self._table.clear()
        self._late.clear()
        self.in_doubt.clear()

    def begin_tokens(self, first: int) -> None:
        """Let no token from now on be below this one."""
        self.next_token = max(self.next_token, first)

    # --- figures

    @property
    def floor(self) -> int:
        return self.places.floor

    @property
    def settled(self) -> OffsetSet:
        return self.places.settled

    @property
    def index(self) -> LaneIndex:
        return self._ready.index
