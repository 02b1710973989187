"""How long the answer to a failed login is kept back. Pure: the time is an argument.

The wait grows with the failures of an address and is forgotten as time passes. It only ever
concerns wrong answers: a right key is let in at once, wherever it comes from, as else one bad
client could lock out all others behind the same address. That reveals nothing, as the answer
itself says the same; and against 256 random bits, guessing faster is no help.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter, OrderedDict

FIRST_SECONDS = 0.5
MOST_SECONDS = 5.0
"""Less than our client waits for an answer: it has to hear why."""

HALF_LIFE_SECONDS = 30.0
ADDRESSES_MAX = 4096
KEPT_MAX = 256
KEPT_PER_ADDRESS_MAX = 10


class Slowing:
    """Invariant: the number of known addresses and of kept answers is bounded."""

    def __init__(
        self,
        *,
        first_seconds: float = FIRST_SECONDS,
        most_seconds: float = MOST_SECONDS,
        kept_max: int = KEPT_MAX,
        kept_per_address_max: int = KEPT_PER_ADDRESS_MAX,
    ) -> None:
        self.set(first_seconds, most_seconds, kept_per_address_max)
        self._kept_max = kept_max
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many, when
        self._kept: Counter[str] = Counter()
        self.kept = 0

    def set(self, first_seconds: float, most_seconds: float, kept_per_address_max: int) -> None:
        self.first_seconds, self.most_seconds = first_seconds, most_seconds
        self.kept_per_address_max = kept_per_address_max

    def failed(self, address: str, now: float) -> None:
        """Count a failure. The address that has failed least recently is forgotten first."""
        self._failures[address] = (self._recent(address, now) + 1, now)
        self._failures.move_to_end(address)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def _recent(self, address: str, now: float) -> float:
        known = self._failures.get(address)
        if known is None:
            return 0.0
        count, at = known
        return count * math.pow(0.5, max(0.0, now - at) / HALF_LIFE_SECONDS)

    def seconds(self, address: str, now: float) -> float:
        recent = self._recent(address, now)
        if recent <= 0:
            return 0.0
        return min(self.most_seconds, self.first_seconds * math.pow(2, min(recent - 1, 30.0)))

    def keep(self, address: str, now: float) -> float | None:
        """Keep an answer back: for how long. None where too many are kept already."""
        if self.kept >= self._kept_max or self._kept[address] >= self.kept_per_address_max:
            return None
        self.kept += 1
        self._kept[address] += 1
        return self.seconds(address, now)

    def let_go(self, address: str) -> None:
        self.kept -= 1
        self._kept[address] -= 1
        if not self._kept[address]:
            del self._kept[address]

    @property
    def addresses(self) -> int:
        return len(self._failures)


def address_of(peer: str) -> str:
    """Who is counted together: an IPv4 address, or a network of IPv6, where one has as many
    addresses as one likes."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer[:64]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
