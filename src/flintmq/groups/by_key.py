"""Order "key": the messages of a key in the order of the log, by one holder at a time; keys in
parallel.

Whose turn it is, and who waits behind, is the gate's (`key_gate.py`). A delayed message takes its
place in the line of its key all the same, and has its turn until it is settled: it stands among the
ready, and is not picked before it is due. So does one whose settling is under way.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..group_model import Lease, Ranges
from .by_log import ByLog
from .deliveries import DeliveryTable
from .key_gate import ALONE, LEADS, WAITS, KeyTurns
from .lanes import END, LOG
from .offset_set import OffsetSet
from .orders import Drawn, Due, KeyHashes
from .places import Places
from .ranges import both, count_in, offsets_in, ranges_of
from .ready import ReadyOffsets

KEY_BUDGET = 8_192
"""How many rows one draw looks at for their keys."""


class ByKey:
    def __init__(self, ready: ReadyOffsets, places: Places, deliveries: DeliveryTable) -> None:
        self.ready = ready
        self._places, self._deliveries = places, deliveries
        self._gate = KeyTurns()
        self._draws = 0
        # Like any order that knows no priorities.
        log = ByLog(ready, places, deliveries)
        self.has_more, self.lanes, self.is_ahead = log.has_more, log.lanes, log.is_ahead
        self.add, self.withdraw = log.add, log.withdraw
        self.forget, self.priority_of = log.forget, log.priority_of

    # --- drawing

    def draw(
        self, wanted: int, poll: int, key_hashes: KeyHashes | None, until: int, together: bool
    ) -> Drawn:
        """From the log, what no other message of its key is in the way of."""
        assert key_hashes is not None, "order by key needs to know the keys"
        picked: list[int] = []
        looked = 0
        gate, counts = self._gate, self._deliveries.counts
        delayed, limbo, is_gone = self._places.delayed, self._places.limbo, self._places.is_settled
        is_any_done, is_any_delayed, is_any_tried = bool(limbo), bool(delayed), bool(counts)
        admit = gate.admit
        self._draws += 1
        draw = self._draws if together else ALONE
        cursors, returned = self.ready.cursors, self.ready.returned[LOG]
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
            elif head < until:
                return ranges_of(picked), True  # more was parked than was looked at before
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
                    self.add(ranges[number:])
                    self.add(self.come_back(ranges_of(picked))[0])
                    raise
                for offset, key in zip(range(start, stop), keys, strict=True):
                    is_done = is_any_done and offset in limbo
                    is_fresh = not is_done and not (is_any_tried and counts[offset])
                    joins = draw if is_fresh else ALONE
                    turn = admit(offset, key, joins)
                    if turn and not is_done and not (is_any_delayed and offset in delayed):
                        picked.append(offset)
                    if turn == LEADS and joins:
                        follower = gate.follower(key, is_gone)
                        if follower is not None:
                            returned.add_range(follower, follower + 1)
        return ranges_of(picked), False

    # --- coming and going

    def come_back(self, ranges: Ranges) -> tuple[Ranges, Ranges]:
        behind: set[int] = set()
        ready: list[int] = []
        for offset in offsets_in(ranges):
            if offset not in behind:
                is_fresh = not self._deliveries.of(offset)  # who was never delivered queues again
                parked, first = self._gate.come_back(offset, is_fresh, self._places.is_settled)
                behind.update(parked)
                if first is not None:
                    ready.append(first)
        return ranges_of(sorted(ready)), ranges_of(sorted(behind))

    def add_due(self, due: Due) -> None:
        self.add(ranges_of(sorted(offset for offset, _ in due)))

    def stage(self, lane: int, ready: Ranges, out: Ranges, delayed: Ranges) -> None:
        self.add(both(ready, delayed))

    def settled(self, ranges: Ranges) -> None:
        self.withdraw(ranges)  # what was being settled may stand in line all the same
        if count_in(ranges) < 4 * len(self._gate):
            for offset in offsets_in(ranges):
                self._free(offset)
        else:
            for start, stop in ranges:
                for turn in self._gate.turns_in(start, stop):
                    self._free(turn)

    def _free(self, offset: int) -> None:
        following = self._gate.free(offset, self._places.is_settled)
        if following is not None:
            self.add([(following, following + 1)])

    def clear(self) -> None:
        self._gate.clear()

    # --- what it remembers

    def take_up(self, granted: Sequence[Lease], key_hashes: KeyHashes | None) -> OffsetSet:
        """What was tried before has its key still, however long it waits: an older one that came
        due since has to wait for it, as it would have without the restart. What was granted with
        it is out with it. One that was given back has lost its turn; what is behind it was drawn
        with it or after it, and has none before it."""
        assert key_hashes is not None, "order by key needs to know the keys"
        waiting = OffsetSet()
        given_back, behind = self._deliveries.given_back, set[int]()
        token_of = {o: token for token, ranges in granted for o in offsets_in(ranges)}
        for start, stop in self._deliveries.seen():
            for offset, key in zip(range(start, stop), key_hashes(start, stop), strict=True):
                if offset in given_back:
                    behind.add(key)
                elif (key and key in behind) or not self._gate.admit(
                    offset, key, -token_of.get(offset, ALONE)
                ):
                    waiting.add_range(offset, offset + 1)
        return waiting

    def claim(self, token: int, offset: int, key_hashes: KeyHashes | None) -> bool:
        """It has its turn, if no other of its key has it."""
        assert key_hashes is not None, "order by key needs to know the keys"
        (key,) = key_hashes(offset, offset + 1)
        return self._gate.admit(offset, key, -token) != WAITS

    def parked(self) -> Ranges:
        """For tests: what waits behind another."""
        returned = self.ready.returned[LOG]
        return [(start, stop) for start, stop in self._gate.parked() if start not in returned]
