"""One process of a node: a real ClusterNode on a simulated disk, until its power is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from flintmq.broker_api import BrokerApi
from flintmq.clock import Timer
from flintmq.cluster.node import ClusterNode
from flintmq.errors import Closed
from flintmq.testing import SimulatedFileSystem
from flintmq.testing.manual_clock import START_MS
from flintmq.testing.simulated_filesystem import Crashed
from tests.simulation.engine_network import RoughNetwork, RoughTransport

TICK_SECONDS = 0.1


class LifeClock:
    """The clock of one machine, a little fast or slow. Its timers end with the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float, ahead_ms: int) -> None:
        self._loop, self._rate, self._start_ms = loop, rate, START_MS + ahead_ms
        self.is_over = False

    def now_ms(self) -> int:
        return self._start_ms + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return self._loop.time() * self._rate

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(0.0, seconds) / self._rate, self._call, callback)

    def _call(self, callback: Callable[[], object]) -> None:
        if not self.is_over:
            callback()


class NodeLife:
    def __init__(
        self,
        id: int,
        disk: SimulatedFileSystem,
        network: RoughNetwork,
        clock: LifeClock,
        random: Random,
        *,
        founders: tuple[int, ...],
        sync_seconds: tuple[float, float],
        broker_of: Callable[[int], BrokerApi | None],
        on_applied: Callable[[NodeLife, int], None],
        on_power_gone: Callable[[NodeLife], None],
        **settings: Any,
    ) -> None:
        self.id, self.disk, self.clock = id, disk, clock
        self._network, self._random, self._sync_seconds = network, random, sync_seconds
        self._on_power_gone = on_power_gone
        self._loop = asyncio.get_running_loop()
        self._stops_at: int | None = None
        self.is_up = False
        self.slow = 1.0
        """How many times longer its disk takes."""
        self.node = ClusterNode(
            disk,
            RoughTransport(network, id),
            node=id,
            founders=founders,
            broker_of=broker_of,
            clock=clock,
            random=Random(random.random()),
            tick_seconds=TICK_SECONDS,
            **settings,
        )
        self.node._ticking = clock  # type: ignore[assignment]
        log = self.node._log
        applied = log.applied

        def tell(index: int, term: int, size: int, *, is_ours: bool) -> None:
            applied(index, term, size, is_ours=is_ours)
            on_applied(self, index)

        log.applied = tell  # type: ignore[method-assign]

    async def open(self) -> None:
        await self.node.open(threaded=False)
        self.is_up = True
        self._step_later()

    def _step_later(self) -> None:
        delay = self._random.uniform(*self._sync_seconds) * self.slow
        self._loop.call_later(delay, self._step)

    def _step(self) -> None:
        if not self.is_up:
            return
        with suppress(Crashed):
            self.node.local.host.step()
        if not self.look_for_power():
            self._step_later()

    # --- the end

    def cut_power_after(self, calls: int) -> None:
        """Of the changes that the disk is asked for, so many more happen."""
        self._stops_at = self.disk.call_count + calls
        self.disk.stop_after(calls)

    def keep_power(self) -> None:
        """What `cut_power_after` announced does not happen."""
        self._stops_at = self.disk._stop_after = None

    def look_for_power(self) -> bool:
        """Whether the power is gone; then it is over."""
        is_gone = self._stops_at is not None and self.disk.call_count > self._stops_at
        if is_gone and self.is_up:
            self._on_power_gone(self)
        return is_gone

    def end(self) -> None:
        """The process is gone; what still runs of it changes nothing any more."""
        self.is_up = False
        self.clock.is_over = True
        self.disk.end_process()
        self._network.leave(self.id)
        self.node.host.stop(Closed("the node"))
