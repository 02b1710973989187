"""The leases that a subscription keeps alive until its messages are settled.

One timer renews what is unsettled, whole grants at a time; with nothing unsettled there is none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from ..broker_api import MemberApi
from ..clock import Clock, Timer
from ..errors import Disconnected, LeaseLost, OutcomeUnknown
from ..group_model import Lease
from ..groups.ranges import sorted_ranges
from ..observe.logs import event
from .errands import Errands
from .grips import Grip, log


@dataclass(slots=True)
class Renewal:
    """When the leases of one grip end, and when they are looked at next."""

    offsets: list[int]
    unsettled: int
    since: float
    ends: float
    due: float = 0.0
    longer: dict[int, float] = field(default_factory=dict)
    """Until when leases hold that their owner has extended."""

    def unsettled_of(self, grip: Grip, until: float = inf) -> list[int]:
        """The unsettled messages whose leases end before `until`."""
        return [
            offset
            for offset in self.offsets
            if grip.fate(offset) is None and self.longer.get(offset, 0.0) < until
        ]


class RenewalOwner(Protocol):
    """What holds the messages: an intake."""

    def lose(self, lost: Mapping[Grip, Collection[int]]) -> None:
        """Other consumers have these offsets now."""
        ...

    def run_out(self, grip: Grip) -> list[int]:
        """Its leases are not renewed any more: give back what was not handed out, and say what."""
        ...


class LeaseRenewals:
    """Renews the leases of grips by `lease` seconds, up to `lease_max` seconds in all."""

    def __init__(
        self, clock: Clock, owner: RenewalOwner, errands: Errands, lease: float, lease_max: float
    ) -> None:
        self._clock = clock
        self._owner = owner
        self._errands = errands
        self._lease, self._lease_max = lease, lease_max
        self._held: dict[Grip, Renewal] = {}
        self._timer: Timer | None = None
        self._is_over = False
        self.unsettled = 0

    def add(self, grip: Grip, offsets: list[int]) -> None:
        now = self._clock.monotonic()
        renewal = Renewal(offsets, len(offsets), now, now + self._lease)
        renewal.due = self._next_look(renewal)
        self._held[grip] = renewal
        self.unsettled += len(offsets)
        self._arm()

    def of_member(self, member: MemberApi, offsets: Iterable[int]) -> dict[Grip, set[int]]:
        """These offsets, by the grip of this member that holds them."""
        chosen = set(offsets)
        return {
            grip: chosen.intersection(renewal.offsets)
            for grip, renewal in self._held.items()
            if grip.member is member
        }

    def settled(self, grip: Grip, count: int) -> bool:
        """Messages of a grip are settled or lost; whether it was one of ours."""
        renewal = self._held.get(grip)
        if renewal is None:
            return False
        renewal.unsettled -= count
        self.unsettled -= count
        if not renewal.unsettled:
            self.drop(grip)
        return True

    def extended(self, grip: Grip, offset: int, lease_seconds: float) -> None:
        if grip in self._held:
            self._held[grip].longer[offset] = self._clock.monotonic() + lease_seconds

    def drop(self, grip: Grip) -> None:
        """Renew it no longer."""
        renewal = self._held.pop(grip, None)
        if renewal is not None:
            self.unsettled -= renewal.unsettled
            if not self._held:
                self._disarm()

    def drop_all(self) -> None:
        for grip in list(self._held):
            self.drop(grip)

    def close(self) -> None:
        self._is_over = True
        self._disarm()

    def _next_look(self, renewal: Renewal) -> float:
        """Half a lease before its end; at its end, where it may not be renewed any more."""
        may_be_renewed = renewal.ends < renewal.since + self._lease_max
        return renewal.ends - self._lease / 2 if may_be_renewed else renewal.ends

    def _arm(self) -> None:
        if self._timer is None and self._held and not self._is_over:
            due = min(renewal.due for renewal in self._held.values())
            self._timer = self._clock.call_later(
                max(0.0, due - self._clock.monotonic()), self._renew
            )

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _renew(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        # What falls due soon goes along: members are asked once, not grant by grant.
        soon = now + self._lease / 8
        renewed: dict[tuple[MemberApi, float], dict[Grip, Renewal]] = {}
        for grip, renewal in list(self._held.items()):
            may_end = renewal.since + self._lease_max
            if renewal.ends >= may_end:
                if renewal.ends <= now:
                    self.drop(grip)
                    unseen = self._owner.run_out(grip)
                    self._warn(grip, sorted(set(renewal.unsettled_of(grip)).difference(unseen)))
            elif renewal.due <= soon:
                lease = min(self._lease, may_end - now)
                renewal.ends = now + lease
                renewal.due = self._next_look(renewal)
                renewed.setdefault((grip.member, lease), {})[grip] = renewal
        for (member, lease), held in renewed.items():
            self._errands.send_off(self._extend(member, held, lease))
        self._arm()

    def _warn(self, grip: Grip, out: list[int]) -> None:
        if out:
            named = ", ".join(map(str, out))
            event(
                log,
                logging.WARNING,
                "lease_ends",
                f"{grip.topic} offset {named}: the lease of group {grip.group!r} is not "
                f"renewed any more, after lease_max={self._lease_max:g} seconds; the "
                "message will be delivered again unless it is settled first",
                topic=grip.topic,
                group=grip.group,
                count=len(out),
            )

    async def _extend(self, member: MemberApi, held: dict[Grip, Renewal], lease: float) -> None:
        until = self._clock.monotonic() + lease
        leases: list[Lease] = [
            (grip.token, sorted_ranges(offsets))
            for grip, renewal in held.items()
            if (offsets := renewal.unsettled_of(grip, until))
        ]
        if not leases:
            return
        try:
            await member.extend(leases, lease)
        except LeaseLost as error:
            lost = set(error.offsets)
            self._owner.lose({grip: lost.intersection(r.offsets) for grip, r in held.items()})
        except (Disconnected, OutcomeUnknown):
            again_at = self._clock.monotonic() + lease / 8
            for renewal in held.values():
                renewal.due = min(renewal.due, again_at)
            self._disarm()
            self._arm()
