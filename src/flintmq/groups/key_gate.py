"""One at a time and in order for each key: who owns a key, and who waits behind.

Keys are hashes; 0 is no key. The owner of a key is the one message of it that may be handed out, or
was; it owns the key until it is settled, however often it is delivered. Those that were looked at
while the key was owned are parked, 8 bytes each, and not looked at again before their turn.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable

COMPACT_AT = 1_024


class _Key:
    __slots__ = ("owner", "parked", "place")

    def __init__(self) -> None:
        self.owner: int | None = None
        self.parked = array("q")  # ascending
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
        if self.place == len(parked) or parked[-1] < offset:
            parked.append(offset)
            return
        at = bisect_left(parked, offset, self.place)
        if parked[at] != offset:
            parked.insert(at, offset)


class KeyGate:
    """Invariant: a key that nobody owns has promised its first parked message to be next, and the
    queue has that one among the ready."""

    def __init__(self) -> None:
        self._keys: dict[int, _Key] = {}
        self._key_of: dict[int, int] = {}  # of owners
        self._promised: dict[int, int] = {}  # likewise

    def __len__(self) -> int:
        """How many keys are owned or waited for."""
        return len(self._keys)

    def key_of(self, offset: int) -> int | None:
        """The key of a message that has its turn, if it was looked at before."""
        key = self._key_of.get(offset)
        return self._promised.get(offset) if key is None else key

    def owns(self, offset: int) -> bool:
        return offset in self._key_of

    def admit(self, offset: int, key: int) -> bool:
        """Whether a message may be handed out; if so it owns its key, if not it is parked."""
        if not key:
            return True
        row = self._keys.get(key)
        if row is None:
            row = self._keys[key] = _Key()
        elif row.owner is not None:
            if row.owner != offset:
                row.park(offset)
                self._promised.pop(offset, None)
                return False
            return True
        else:
            first = row.first()
            if first is not None and first < offset:
                row.park(offset)
                self._promised.pop(offset, None)
                return False
            if first == offset:
                row.pop()
        self._promised.pop(offset, None)
        row.owner = offset
        self._key_of[offset] = key
        return True

    def free(self, offset: int, is_gone: Callable[[int], bool]) -> int | None:
        """It is settled: who is next, if its key is free now and anybody waits."""
        key = self._key_of.pop(offset, None)
        if key is None:
            key = self._promised.pop(offset, None)
            if key is None:
                return None
        row = self._keys[key]
        if row.owner is not None and row.owner != offset:
            return None
        row.owner = None
        return self._promise(key, row, is_gone)

    def step_back(self, offset: int, is_gone: Callable[[int], bool]) -> int | None:
        """It was not delivered after all, and queues again: who is next."""
        key = self._key_of.pop(offset, None)
        if key is None:
            return None
        row = self._keys[key]
        row.owner = None
        row.park(offset)
        return self._promise(key, row, is_gone)

    def _promise(self, key: int, row: _Key, is_gone: Callable[[int], bool]) -> int | None:
        while (first := row.first()) is not None and is_gone(first):
            row.pop()
        if first is None:
            del self._keys[key]
        else:
            self._promised[first] = key
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
        """Those of a range that own a key or are next."""
        owners = [owner for owner in self._key_of if start <= owner < stop]
        return owners + [offset for offset in self._promised if start <= offset < stop]

    def clear(self) -> None:
        self._keys.clear()
        self._key_of.clear()
        self._promised.clear()
