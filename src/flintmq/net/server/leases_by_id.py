"""Leases by id: what the clients of a front end hold, by the numbers their protocol knows.

The engine has one token for a grant of many messages, and offsets. Other protocols have a number
for each message (a delivery tag) or for each delivery of it (a lease id). Here is which offset and
token a number stands for. Pure: the caller brings the time and tells the engine.

    out        handed to an owner; every number it got names it
      noted for the same owner again    out, by the newest token; earlier numbers name it, too
      noted for another owner           out there; the numbers of the one before name nothing
      settled, or forgotten             gone: its numbers name nothing
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Generic, NamedTuple, TypeVar

from ...group_model import Lease
from ...groups.ranges import sorted_ranges

Owner = TypeVar("Owner")

NUMBERS_MAX = 8
"""Numbers of one message in the hands of one owner that all name it."""


class LeasedTogether(NamedTuple, Generic[Owner]):
    """What messages that were handed out together have in common."""

    token: int
    owner: Owner
    until: float
    """From then on it is of no use to know."""


class LeasesById(Generic[Owner]):
    """What is out of one group by offset, in the order it was noted.

    With `kept_max`, the oldest beyond that are forgotten. `gone` is called for whatever is out no
    more. A protocol that numbers messages, not deliveries, needs no `name` and `named`: there a
    number is an offset by another name.
    """

    def __init__(
        self,
        *,
        kept_max: int | None = None,
        gone: Callable[[int, LeasedTogether[Owner]], object] | None = None,
    ) -> None:
        self._out: dict[int, LeasedTogether[Owner]] = {}
        self._offsets: dict[int, int] = {}
        """By number."""
        self._numbers: dict[int, list[int]] = {}
        """By offset, the oldest first."""
        self._kept_max = kept_max
        self._gone = gone

    def __len__(self) -> int:
        return len(self._out)

    def note(self, offsets: Collection[int], handed: LeasedTogether[Owner]) -> None:
        out = self._out
        if not out.keys().isdisjoint(offsets):
            for offset in offsets:
                known = out.get(offset)
                if known is not None and known.owner is not handed.owner:
                    self.forget(offset)  # it is another's now: a late word on it means nothing
                out.pop(offset, None)  # it goes to the end
        out.update(dict.fromkeys(offsets, handed))
        if self._kept_max is not None:
            while len(out) > self._kept_max:
                self.forget(next(iter(out)))

    def name(self, offset: int, number: int) -> None:
        """Its client knows it by this number."""
        numbers = self._numbers.setdefault(offset, [])
        numbers.append(number)
        self._offsets[number] = offset
        if len(numbers) > NUMBERS_MAX:
            del self._offsets[numbers.pop(0)]

    def named(self, number: int) -> int | None:
        return self._offsets.get(number)

    def find(self, offset: int) -> LeasedTogether[Owner] | None:
        return self._out.get(offset)

    def oldest(self) -> tuple[int, LeasedTogether[Owner]]:
        """Of what is out, and something is."""
        return next(iter(self._out.items()))

    # --- the end

    def forget(self, offset: int) -> LeasedTogether[Owner] | None:
        """It was settled, or is lost; what was known of it."""
        handed = self._out.pop(offset, None)
        if handed is not None:
            if self._numbers:
                for number in self._numbers.pop(offset, ()):
                    del self._offsets[number]
            if self._gone is not None:
                self._gone(offset, handed)
        return handed

    def forget_before(self, offset: int) -> None:
        for one in [at for at in self._out if at < offset]:
            self.forget(one)

    def forget_old(self, now: float) -> None:
        """What is never settled or delivered again: retention took it, or the group was reset."""
        for one in [at for at, handed in self._out.items() if handed.until < now]:
            self.forget(one)

    def forget_all(self) -> None:
        for one in list(self._out):
            self.forget(one)


def leases_of(tokens_and_offsets: Iterable[tuple[int, int]]) -> list[Lease]:
    """The same as the engine takes them."""
    by_token: dict[int, list[int]] = {}
    for token, offset in tokens_and_offsets:
        by_token.setdefault(token, []).append(offset)
    return [(token, sorted_ranges(offsets)) for token, offsets in by_token.items()]
