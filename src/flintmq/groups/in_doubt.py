"""What was in work when another began to lead, at a restart too: whose is it?

Who leads next does not know who is still at work; those who are come back with their token. So it
goes by the last attempt of each message that is applied, k its token (0: none):

    its attempt, as applied      for who leads next          what comes with a token s
    ---------------------------  --------------------------  ----------------------------------
    none                         ready at once               counts if s is of the leader before
    not settled, not given back  in doubt: leased to nobody  counts if s = k, also when that time
                                 for the grace time          is over, until it is granted again
    given back                   ready, or delayed           lost
    settled                      settled                     an ack is done, the others are lost

A first grant is handed out before it is applied, so a power cut or a change of leader may lose it:
k is 0 then, and whoever has it is believed. Every later grant is applied before it is handed out:
where k is not 0, there is no token above it. Nobody but the leader before us can have granted what
we do not know of: one in between would have granted it anew.

Always true: what is in doubt is leased to NOBODY, under its token. What was decided in the term
`since_term` or before it says nothing: it may be of a group of that name that is gone, or from
before a reset. Where that is 0, the group is older than that was written down, and so it is.
"""

from __future__ import annotations

from ..group_model import Lease as Held
from ..group_model import Ranges
from .catching_up import CatchingUp
from .deliveries import DeliveryTable
from .leases import Lease, LeaseTable
from .nack_delays import NackDelays
from .orders import KeyHashes, ReadyOrder
from .places import Places
from .ranges import offsets_in, ranges_of
from .tokens import Tokens

NOBODY = ""
"""Holds what is in doubt, until its holder comes back."""

TERM_BITS = 40
"""A token is (term << 40) + counter."""


class InDoubt:
    __slots__ = (
        "_catching_up", "_delays", "_deliveries", "_end", "_key_hashes", "_last_term", "_order",
        "_places", "_table", "claimed", "granted", "led_from", "since_term",
    )  # fmt: skip

    def __init__(
        self,
        places: Places,
        order: ReadyOrder,
        deliveries: DeliveryTable,
        catching_up: CatchingUp,
        table: LeaseTable,
        delays: NackDelays,
    ) -> None:
        self._places, self._order, self._deliveries = places, order, deliveries
        self._catching_up, self._table, self._delays = catching_up, table, delays
        self.granted = Tokens(places.open_in)
        """As it is applied; who leads has it in its leases."""
        self.claimed: list[Held] = []
        """What was believed since the caller looked (and cleared it): to be written down."""
        self.since_term = 0
        self.led_from = 0
        """Tokens before this one were given by who led before us."""
        self._last_term = self._end = 0
        self._key_hashes: KeyHashes | None = None

    def take_up(
        self, now: float, seconds: float, last_term: int, end: int, key_hashes: KeyHashes | None
    ) -> None:
        """Begin to lead, after somebody who led under `last_term`, with a log up to `end`."""
        self.led_from = (last_term + 1) << TERM_BITS
        self._last_term = last_term if last_term > self.since_term > 0 else 0
        self._end = end
        self._key_hashes = key_hashes
        granted = self.granted.standing()
        for _, ranges in granted:
            self._delays.forget(ranges)  # granted since: by another's clock they were due
        waiting = self._order.take_up(granted, key_hashes)
        # The cursors have yet to come to what is leased on or, by key, parked.
        elsewhere = [*waiting.ranges(), *(run for _, ranges in granted for run in ranges)]
        self._catching_up.reaches(max((stop for _, stop in elsewhere), default=0))
        for token, ranges in granted:
            if held := [run for start, stop in ranges for run in waiting.missing(start, stop)]:
                self._deliveries.counts.take_one(held)
                self._take_out(held)
                self._places.leased.add_ranges(held)
                self._table.add(Lease(token, NOBODY, now, now + seconds, held))
        self.granted.clear()

    def claim(self, token: int, ranges: Ranges) -> Ranges:
        """Take those of what no token is known of out of their place, if the leader before us may
        have granted them under this one."""
        if not self._last_term or token >> TERM_BITS != self._last_term:
            return []
        mine = ranges_of(
            [offset for offset in offsets_in(ranges) if self._may_claim(token, offset)]
        )
        if mine:
            self._take_out(mine)
            self.claimed.append((token, mine))
        return mine

    def _may_claim(self, token: int, offset: int) -> bool:
        places, deliveries = self._places, self._deliveries
        if offset >= self._end or places.found(offset):
            return False
        if deliveries.counts[offset] or offset in deliveries.given_back:
            return False
        ready = self._order.ready
        is_ahead = offset >= ready.index.end or self._order.is_ahead(offset)
        if not is_ahead and not any(offset in lane for lane in ready.returned):
            return False
        # The cursors may have yet to come to it, whether it is claimed or, by key, parked.
        self._catching_up.reaches(offset + 1)
        return self._order.claim(token, offset, self._key_hashes)

    def _take_out(self, ranges: Ranges) -> None:
        self._order.withdraw(ranges)
        self._catching_up.doubted.add_ranges(ranges)

    def __len__(self) -> int:
        """Messages whose holder has not come back yet."""
        return sum(map(len, self._table.of_holder(NOBODY)))

    def clear(self) -> None:
        self.granted.clear()
        self.claimed.clear()
        self._last_term = 0
