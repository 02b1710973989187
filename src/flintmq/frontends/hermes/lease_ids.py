"""Lease ids: a number for each delivery, from which its token and offset are found again. Pure.

     0                        24                   52               64
     +------------------------+--------------------+----------------+
     | offset, lowest 24 bits | counter, lowest 28 | term, lowest 12|   of the token
     +------------------------+--------------------+----------------+
                                     all of it xor a digest of topic id and group

Whoever leads next knows the tokens of what is out, and the offsets under each: together with these
bits that is the delivery. So an ack counts after a fail-over and after a restart. Within a group an
id comes again after 2^28 grants of a term at the earliest, and then of the same offset only.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from ...group_model import Lease

OFFSET_BITS, COUNTER_BITS, TERM_BITS = 24, 28, 12
_OFFSETS = (1 << OFFSET_BITS) - 1
_COUNTERS = (1 << COUNTER_BITS) - 1
_TERMS = (1 << TERM_BITS) - 1
_TOKEN_TERM = 40
"""A token is (term << 40) + counter."""


def bits_of(token: int) -> int:
    """What of an id says which token it is of."""
    term = token >> _TOKEN_TERM & _TERMS
    return (term << COUNTER_BITS | token & _COUNTERS) << OFFSET_BITS


class LeaseIds:
    """Those of one group."""

    __slots__ = ("_digest", "_known")

    def __init__(self, topic_id: int, group: str) -> None:
        """A topic that is deleted and made anew has another id, and its tokens begin anew."""
        data = f"{topic_id} {group}".encode()
        self._digest = int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
        self._known: dict[int, Lease] | None = None

    def of(self, token: int, offset: int) -> int:
        return (bits_of(token) | offset & _OFFSETS) ^ self._digest

    @property
    def has_learned(self) -> bool:
        return self._known is not None

    def learn(self, leases: Iterable[Lease]) -> None:
        """What is out, and was handed out by others."""
        self._known = {bits_of(token): (token, ranges) for token, ranges in leases}

    def find(self, id: int) -> tuple[int, int] | None:
        """Token and offset, of what was learned. None also where several offsets fit."""
        bits = id ^ self._digest
        token, ranges = (self._known or {}).get(bits & ~_OFFSETS, (0, []))
        low = bits & _OFFSETS
        found: list[int] = []
        for start, stop in ranges:
            first = start + ((low - start) & _OFFSETS)
            found += range(first, stop, 1 << OFFSET_BITS)
        return (token, found[0]) if len(found) == 1 else None
