"""In order for each key: whose turn it is, and who waits behind.

Keys are hashes; 0 is no key. Of a key one *run* of messages may be out: those that were drawn in
one go, and so are granted to one holder under one token. They have their turn until they are
settled, however often they are delivered. Those that were looked at meanwhile are parked, 8 bytes
each, and not looked at again before their turn.

Always true, and what the promise "in order, by one member at a time" stands on:

- A run is ascending, and nothing of its key that is older is parked or ready.
- What was delivered before is a run of its own: it is handed out alone.
- When one of a run comes back, it ends there: those behind it are parked, and the queue takes them
  from whoever has them. So only the first of a run is ever ready or delayed.
- A key without a run has promised its first parked message to be next, and the queue has that one
  among the ready. (It may also have one there whose key has a run: it is parked when it is drawn.)
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable

COMPACT_AT = 1_024

RUN_MAX = 1_024
"""How many messages of a key are out at once."""

ALONE = 0
"""The draw of a run that nobody may join."""


WAITS, GOES, LEADS = range(3)
"""What a message that is looked at does: it waits, it has its turn, or it has it and others wait
behind."""

NOBODY = array("q")
"""Shared by the keys that nobody waits for; never changed."""


class _KeyTurn:
    __slots__ = ("draw", "parked", "place", "run")

    def __init__(self) -> None:
        self.run: list[int] = []
        self.draw = ALONE
        self.parked = NOBODY  # ascending
        self.place = 0  # those before it are gone

    def first(self) -> int | None:
        return self.parked[self.place] if self.place < len(self.parked) else None

    def pop(self) -> None:
        self.place += 1
        if self.place >= COMPACT_AT and 2 * self.place >= len(self.parked):
            del self.parked[: self.place]
            self.place = 0

    def park(self, offset: int) -> None:
        parked = self.parked
        if parked is NOBODY:
            self.parked = array("q", (offset,))
            return
        if self.place == len(parked) or parked[-1] < offset:
            parked.append(offset)
            return
        at = bisect_left(parked, offset, self.place)
        if parked[at] != offset:
            parked.insert(at, offset)


class KeyTurns:
    def __init__(self) -> None:
        self._keys: dict[int, _KeyTurn] = {}
        self._key_of: dict[int, int] = {}  # of those in runs
        self._promised: dict[int, int] = {}  # of those that may be next

    def __len__(self) -> int:
        """How many messages have their turn or are next."""
        return len(self._key_of) + len(self._promised)

    def key_of(self, offset: int) -> int | None:
        """The key of a message that has its turn, if it was looked at before."""
        key = self._key_of.get(offset)
        return self._promised.get(offset) if key is None else key

    def admit(self, offset: int, key: int, draw: int = ALONE) -> int:
        """Whether a message has its turn, in a run of its own or in that of this draw; if not, it
        is parked."""
        if not key:
            return GOES
        row = self._keys.get(key)
        if row is None:
            row = self._keys[key] = _KeyTurn()
            row.run.append(offset)
            row.draw = draw
            self._key_of[offset] = key
            return GOES
        self._promised.pop(offset, None)
        first = row.first()
        run = row.run
        if run:
            if offset in self._key_of:
                return GOES
            may_join = draw == row.draw != ALONE and run[-1] < offset and len(run) < RUN_MAX
        else:
            may_join = True
            row.draw = draw
        if not may_join or (first is not None and first < offset):
            row.park(offset)
            if not run and first is not None:
                self._promised[first] = key
            return WAITS
        if first == offset:
            row.pop()
        run.append(offset)
        self._key_of[offset] = key
        return LEADS if row.place < len(row.parked) else GOES

    def follower(self, key: int, is_gone: Callable[[int], bool]) -> int | None:
        """Who was parked first, and so may join the run: it is ready to be drawn."""
        return self._promise(key, self._keys[key], is_gone)

    def free(self, offset: int, is_gone: Callable[[int], bool]) -> int | None:
        """It is settled: who is next, if its key is free now and anybody waits."""
        key = self._key_of.pop(offset, None)
        if key is None:
            key = self._promised.pop(offset, None)
            if key is None:
                return None
            row = self._keys[key]
        else:
            row = self._keys[key]
            row.run.remove(offset)
            if not row.run and row.parked is NOBODY:
                del self._keys[key]
                return None
        return None if row.run else self._promise(key, row, is_gone)

    def come_back(
        self, offset: int, is_fresh: bool, is_gone: Callable[[int], bool]
    ) -> tuple[list[int], int | None]:
        """It is not out any more, and ends its run: who has lost its turn, and is parked; and who
        is ready to be drawn. That is the message itself if it has its turn still, or had none."""
        key = self._key_of.get(offset)
        if key is None:
            return [], offset
        row = self._keys[key]
        at = row.run.index(offset)
        cut = at if at or is_fresh else 1  # who was delivered before keeps its turn
        parked, row.run[cut:] = row.run[cut:], []
        row.draw = ALONE
        for one in parked:
            del self._key_of[one]
            row.park(one)
        if at:
            return parked, None
        return parked, offset if row.run else self._promise(key, row, is_gone)

    def _promise(self, key: int, row: _KeyTurn, is_gone: Callable[[int], bool]) -> int | None:
        while (first := row.first()) is not None and is_gone(first):
            row.pop()
            self._promised.pop(first, None)
        if first is not None:
            self._promised[first] = key
        elif not row.run:
            del self._keys[key]
        return first

    def parked(self) -> list[tuple[int, int]]:
        """Those that wait behind another of their key, as ranges of one each."""
        return [
            (offset, offset + 1)
            for row in self._keys.values()
            for offset in row.parked[row.place :]
            if offset not in self._promised
        ]

    def turns_in(self, start: int, stop: int) -> list[int]:
        """Those of a range that have their turn or are next."""
        turns = [offset for offset in self._key_of if start <= offset < stop]
        return turns + [offset for offset in self._promised if start <= offset < stop]

    def clear(self) -> None:
        self._keys.clear()
        self._key_of.clear()
        self._promised.clear()
