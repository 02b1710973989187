"""Whether this node leads at this moment, by its lease or by a round of heartbeats.

With the lease nothing is sent: most nodes have promised to elect nobody else for a while. Ticks
that were missed while the loop was held up are made good before it is asked: a lease that ran out
meanwhile is not taken for one that lasts. Without it, one round confirms everybody who asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..clock import steady_seconds
from ..errors import FlintError
from ..storage.loading import Load, NotLoaded

ROUND_SECONDS = 0.05
"""How long what a round has confirmed counts, where there is no lease: while the lead is being
handed over, until the next term."""


class LeadConfirmation:
    """Implements `engine.leading.lead_check.LeadCheck`."""

    def __init__(
        self,
        has_lease: Callable[[], bool],
        ask: Callable[[], Awaitable[None]],
        make_good: Callable[[], None],
    ) -> None:
        """`ask` waits for a round, or raises NotLeader."""
        self._has_lease, self._ask, self._make_good = has_lease, ask, make_good
        self._load: Load | None = None
        self._asking: asyncio.Task[None] | None = None
        self._confirmed_until = 0.0

    def check(self) -> None:
        self._make_good()
        if self._has_lease() or steady_seconds() < self._confirmed_until:
            return
        if self._load is None:
            self._load = Load()
            self._asking = asyncio.get_running_loop().create_task(self._round(self._load))
        raise NotLoaded(self._load)

    async def confirm(self) -> None:
        self._make_good()
        if not self._has_lease():
            await self._ask()

    async def _round(self, load: Load) -> None:
        try:
            await self._ask()
            self._confirmed_until = steady_seconds() + ROUND_SECONDS
        except FlintError:
            pass  # those who wait are told by what ends their group
        finally:
            self._load = None
            load.done()
