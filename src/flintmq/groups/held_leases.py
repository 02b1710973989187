"""What a member of a group holds, as it knows that itself, for who leads next to confirm."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..group_model import Lease, Ranges
from .leases import Lease as Running
from .offset_set import OffsetSet
from .ranges import offsets_in

_LOOK_AT = 64
"""From how many grants on it is looked which of them have run out."""


class HeldLeases:
    def __init__(self) -> None:
        self._held: dict[int, Running] = {}
        self._look_at = _LOOK_AT

    def hold(self, token: int, ranges: Ranges, now: float, seconds: float) -> None:
        held = self._held
        if len(held) >= self._look_at:  # nobody reports leases that run out
            for one in [one for one in held.values() if one.deadline <= now]:
                del held[one.token]
            self._look_at = max(_LOOK_AT, 2 * len(held))
        held[token] = Running(token, "", now, now + seconds, ranges)

    def let_go(self, leases: Sequence[Lease]) -> None:
        for token, ranges in leases:
            lease = self._held.get(token)
            if lease is not None:
                lease.take(ranges)
                if not lease:
                    del self._held[token]

    def lose(self, offsets: Collection[int]) -> None:
        """These are another's, whatever they were held under."""
        gone = [(offset, offset + 1) for offset in sorted(offsets)]
        self.let_go([(token, gone) for token in list(self._held)])

    def extended(self, leases: Sequence[Lease], now: float, seconds: float) -> None:
        for token, _ in leases:
            lease = self._held.get(token)
            if lease is not None:
                lease.granted_at, lease.deadline = now, max(lease.deadline, now + seconds)

    def to_confirm(self, since: float) -> dict[float, list[Lease]]:
        """What is held and did not run out before that time, by how long it was leased for. Of what
        was granted twice, the last token counts."""
        newest = OffsetSet()
        by_seconds: dict[float, list[Lease]] = {}
        for lease in reversed(self._held.values()):
            if lease.deadline <= since:
                continue
            ranges = [run for mine in lease.outstanding() for run in newest.missing(*mine)]
            newest.add_ranges(ranges)
            by_seconds.setdefault(lease.deadline - lease.granted_at, []).append(
                (lease.token, ranges)
            )
        return by_seconds

    def offsets(self) -> set[int]:
        held = self._held.values()
        return {offset for lease in held for offset in offsets_in(lease.outstanding())}
