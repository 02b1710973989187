"""Leases that are over, and what can still be settled under them.

Always true: what is late is returned (or, after a restart, ahead of the cursors), and under one
token only. It is so until it is granted again; whoever settles it before that has done the work,
and nobody else has begun it. What is picked is not late for the moment, and is late again if it is
put back: a settle may come between `select` and `grant`.

Relied on by `Queue.finish` and its kin, which ask `take_from` whose an offset is.
"""

from __future__ import annotations

from ..group_model import Ranges
from .leases import Lease, LeaseTable
from .offset_set import OffsetSet
from .ranges import both, count_in, offsets_in, ranges_of, without


class LateLeases:
    """Over the table of a queue, which keeps leases that are over as long as they are late."""

    __slots__ = ("_table", "late", "picked")

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self.late: dict[int, Lease] = {}
        self.picked: dict[int, Lease] = {}
        """Of those that were late when they were selected."""

    def add(self, lease: Lease) -> list[int]:
        """A lease is over: which offsets can be settled late."""
        offsets = list(offsets_in(lease.outstanding()))
        self.late.update(dict.fromkeys(offsets, lease))
        return offsets

    def take_from(self, token: int, ranges: Ranges) -> tuple[Ranges, Ranges, Ranges]:
        """Take offsets from a token: those that were leased, those that were late, and the rest."""
        table = self._table
        leases = table.of_token(token)
        if len(leases) == 1 and not leases[0].is_over:
            lease = leases[0]
            mine = lease.take(ranges)
            table.forget_if_done(lease)
            return mine, [], [] if mine == ranges else without(ranges, mine)
        running: list[int] = []
        over: list[int] = []
        for lease in list(leases):
            if lease.is_over:
                picked = [offset for offset, who in self.picked.items() if who is lease]
                taken = lease.take(without(ranges, ranges_of(sorted(picked))))
                for offset in offsets_in(taken):
                    del self.late[offset]
                    over.append(offset)
            else:
                running.extend(offsets_in(lease.take(ranges)))
            table.forget_if_done(lease)
        mine, late = ranges_of(sorted(running)), ranges_of(sorted(over))
        return mine, late, without(ranges, both(mine, late))

    def forget(self, leased: Ranges) -> None:
        """These were leased, and are so no more, whoever held them. Goes through all leases."""
        for lease, held in self._table.holding(leased) if leased else ():
            lease.take(held)
            self._table.forget_if_done(lease)

    def pick(self, ranges: Ranges) -> None:
        """These are selected."""
        if self.late:
            _move(self.late, self.picked, ranges)

    def put_back(self, ranges: Ranges) -> None:
        """These were selected, and are ready again."""
        if self.picked:
            _move(self.picked, self.late, ranges)

    def lose(self, ranges: Ranges) -> None:
        """From now on these cannot be settled under a token whose lease is over."""
        if self.late:
            self._lose(self.late, ranges)

    def lose_picked(self, ranges: Ranges) -> None:
        """These were selected, and are granted to another or done with."""
        if self.picked:
            self._lose(self.picked, ranges)

    def _lose(self, late: dict[int, Lease], ranges: Ranges) -> None:
        for offset, lease in _among(late, ranges):
            del late[offset]
            lease.take([(offset, offset + 1)])
            self._table.forget_if_done(lease)

    def clear(self) -> None:
        self.late.clear()
        self.picked.clear()


def _move(here: dict[int, Lease], there: dict[int, Lease], ranges: Ranges) -> None:
    for offset, lease in _among(here, ranges):
        del here[offset]
        there[offset] = lease


def _among(late: dict[int, Lease], ranges: Ranges) -> list[tuple[int, Lease]]:
    if count_in(ranges) < len(late):
        return [(offset, late[offset]) for offset in offsets_in(ranges) if offset in late]
    wanted = OffsetSet()
    wanted.add_ranges(ranges)
    return [(offset, lease) for offset, lease in late.items() if offset in wanted]
