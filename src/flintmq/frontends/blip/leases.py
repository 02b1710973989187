"""What is out of a subscription's group and not acknowledged, and how it is acknowledged.

A tag is the message's offset plus one: the same at every delivery, and the place to go on from.
Of a topic with partitions, offsets here are those of `row.place_of`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from ...broker_api import Grant, MemberApi
from ...clock import Clock
from ...errors import FlintError, LeaseLost
from ...group_model import LEASE_SECONDS_MAX, Lease
from ...net.server.leases_by_id import LeasedTogether, LeasesById, leases_of
from ...observe.logs import limited
from .row import place_of

if TYPE_CHECKING:
    from .server import BlipServer

_log = logging.getLogger(__name__)

KEPT_MAX = 131_072
"""Of messages that were never acknowledged, the tokens of so many are kept for late answers."""


class Leases:
    """What is out of a group, by offset, in the order the messages went out."""

    def __init__(self, member: MemberApi, lease_seconds: float, clock: Clock) -> None:
        self.member = member
        self._clock = clock
        self.lease_seconds = lease_seconds
        self._out = LeasesById[None](kept_max=KEPT_MAX)
        self._due: list[tuple[float, int]] = []
        """When those that were polled come again, soonest first; some are settled since."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._out)

    async def note(self, grant: Grant) -> None:
        """Remember what was handed out; what was out before stays longer each time."""
        now, token = self._clock.monotonic(), grant.token
        handed = LeasedTogether(token, None, now + self.lease_seconds)
        for run in grant.rows.runs:
            base = place_of(run)
            self._out.note([base + row for row in run.rows()], handed)
        for offset, count in grant.counts.items():
            seconds = self._seconds(count)
            self._out.note([offset], LeasedTogether(token, None, now + seconds))
            with contextlib.suppress(LeaseLost):  # somebody moves the group this very moment
                await self.member.extend([(token, [(offset, offset + 1)])], seconds)

    async def note_one(self, grant: Grant, offset: int) -> None:
        """As `note`, for one of those that were leased together; its time begins now."""
        seconds = self._seconds(grant.counts.get(offset, 1))
        until = self._clock.monotonic() + seconds
        self._out.note([offset], LeasedTogether(grant.token, None, until))
        heappush(self._due, (until, offset))
        await self.member.extend([(grant.token, [(offset, offset + 1)])], seconds)

    def _seconds(self, count: int) -> float:
        return min(LEASE_SECONDS_MAX, self.lease_seconds * 2.0 ** min(count - 1, 64))

    def has_overdue(self) -> bool:
        """Whether something that was polled is there to be polled again; told once of each."""
        now, found = self._clock.monotonic(), False
        while self._due and self._due[0][0] <= now:
            until, offset = heappop(self._due)
            handed = self._out.find(offset)  # None: it is settled; another time: polled again
            found = found or (handed is not None and handed.until == until)
        return found

    def settle(self, tag: int) -> int | None:
        """The token of a message that is acknowledged; None if it is not known to be out."""
        handed = self._out.forget(tag - 1)
        self._changed.set()
        return None if handed is None else handed.token

    async def room(self, window: int) -> None:
        """Wait until fewer than `window` are out, or leases that nobody cares for have ended."""
        while len(self._out) >= window:
            oldest, handed = self._out.oldest()
            seconds = handed.until - self._clock.monotonic()
            if seconds <= 0:
                self._out.forget(oldest)
                continue
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)


class Acks:
    """Acknowledgements of one connection, gathered within one read."""

    def __init__(self, server: BlipServer, refuse: Callable[[int], None]) -> None:
        self._server, self._refuse = server, refuse
        self.gathered: dict[Leases, list[tuple[int, int]]] = {}
        """Tokens and offsets."""
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def are_under_way(self) -> bool:
        return bool(self._under_way)

    def add(self, leases: Leases, tag: int) -> None:
        token = leases.settle(tag)
        if token is None:
            self._refuse(tag)
        else:
            self.gathered.setdefault(leases, []).append((token, tag - 1))

    def flush(self) -> None:
        gathered, self.gathered = self.gathered, {}
        for leases, settled in gathered.items():
            task = self._server.spawn(self._settle(leases.member, leases_of(settled)))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _settle(self, member: MemberApi, settled: list[Lease]) -> None:
        try:
            await member.ack(settled)
        except LeaseLost as error:  # somebody else has them by now
            for offset in error.offsets:
                self._refuse(offset + 1)
        except FlintError as error:
            # They are delivered again; to say so would be the answer to something else.
            limited(
                _log,
                logging.WARNING,
                "blip_ack_failed",
                type(error).__name__,
                f"acknowledgements could not be stored: {error}",
            )

    async def settled(self) -> None:
        """Wait until everything acknowledged so far is."""
        self.flush()
        if self._under_way:
            await asyncio.wait(list(self._under_way))
