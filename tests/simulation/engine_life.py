"""One process of a node: a real ClusterNode on a simulated disk, until its power is cut."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from random import Random
from threading import RLock
from typing import Any

from flintmq.broker_api import BrokerApi
from flintmq.clock import Timer
from flintmq.cluster.node import ClusterNode
from flintmq.cluster.shard_host import ShardHost
from flintmq.errors import Closed, StorageFailed
from flintmq.raft.leader import Leader
from flintmq.testing import SimulatedFileSystem
from flintmq.testing.manual_clock import START_MS
from flintmq.testing.simulated_filesystem import Crashed
from tests.simulation.engine_network import RoughNetwork, RoughTransport

TICK_SECONDS = 0.1
IDLE_SECONDS = 0.1
CHECK_TICKS = 20
"""Between two comparisons of what the nodes have applied."""


class LifeClock:
    """The clock of one machine, a little fast or slow. Its timers end with the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float, ahead_ms: int) -> None:
        self._loop, self._rate, self._start_ms = loop, rate, START_MS + ahead_ms
        self.is_over = False
        self.held_until = 0.0
        """Until when the process of this clock does nothing by itself, by the loop's time."""

    def now_ms(self) -> int:
        return self._start_ms + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return self._loop.time() * self._rate

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(0.0, seconds) / self._rate, self._call, callback)

    def _call(self, callback: Callable[[], object]) -> None:
        if self._loop.time() < self.held_until:
            self._loop.call_at(self.held_until, self._call, callback)
        elif not self.is_over:
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
        self._may_fail = False
        self._next_step: asyncio.TimerHandle | None = None
        self._is_idle = False
        self.is_up = False
        self.opened = asyncio.Event()
        """It was opened, or that has failed."""
        self.on_failed: Callable[[NodeLife], None]
        """Its disk has failed, and it has stopped: the process is to be ended."""
        self.installed = 0
        """How many checkpoints of others it has taken."""
        self.slow = 1.0
        """How many times longer its disk takes."""
        self._transport = RoughTransport(network, id)
        self.node = ClusterNode(
            disk,
            self._transport,
            node=id,
            founders=founders,
            broker_of=broker_of,
            clock=clock,
            random=Random(random.random()),
            tick_seconds=TICK_SECONDS,
            check_ticks=CHECK_TICKS,
            **settings,
        )
        self.node._ticking = clock  # type: ignore[assignment]
        log = self.node._log
        applied = log.applied

        def tell(index: int, term: int, size: int, *, is_ours: bool) -> None:
            applied(index, term, size, is_ours=is_ours)
            on_applied(self, index)

        log.applied = tell  # type: ignore[method-assign]
        drive_anew = self.node.drive_anew

        def installed() -> ShardHost:
            self.installed += 1
            return drive_anew()

        self.node.drive_anew = installed  # type: ignore[method-assign]

    @property
    def is_starting(self) -> bool:
        return not self.opened.is_set()

    async def open(self) -> None:
        await self.node.open(threaded=False)
        self.is_up = True
        self.opened.set()
        commit = self.node._log.commit
        submit = commit.submit

        def submitted(*args: Any, **options: Any) -> int:
            if self._is_idle:
                self._step_later()
            return submit(*args, **options)

        commit.submit = submitted  # type: ignore[method-assign]
        self._step_later()

    def _step_later(self, *, is_idle: bool = False) -> None:
        """The disk takes its time for what waits; while nothing does it is looked after rarely."""
        self._is_idle = is_idle
        delay = IDLE_SECONDS if is_idle else self._random.uniform(*self._sync_seconds) * self.slow
        if self._next_step is not None:
            self._next_step.cancel()
        self._next_step = self._loop.call_later(delay, self._step)

    def _step(self) -> None:
        if not self.is_up:
            return
        done = True
        with suppress(Crashed):
            done = self.node.local.host.step()
        if self.look_for_power():
            return
        if self._may_fail and isinstance(self.node.local.shard.proposer.failure, StorageFailed):
            self.on_failed(self)
        else:
            self._step_later(is_idle=not done)

    def has_lease(self) -> bool:
        """Whether it would hand out messages now, with all ticks that are due."""
        role = self.node.host.raft.role
        if not isinstance(role, Leader):
            return False
        made = role._clock
        role._clock += int((self.clock.monotonic() - self.node._ticked_at) / TICK_SECONDS)
        try:
            return self.node.host.raft.has_lease()
        finally:
            role._clock = made

    # --- the end

    def cut_power_after(self, calls: int) -> None:
        """Of the changes that the disk is asked for, so many more happen."""
        self._stops_at = self.disk.call_count + calls
        self.disk.stop_after(calls)

    def fail_disk(self, operation: str, on_call: int) -> None:
        """A call of the disk fails, and the node has to stop by itself."""
        self._may_fail = True
        self.disk.fail(operation, on_call=on_call, error=errno.EIO)

    def be_calm(self) -> None:
        """What was announced and has not happened does not happen."""
        self._stops_at = self.disk._stop_after = None
        self.disk.heal()
        self.slow, self.clock.held_until = 1.0, 0.0

    def look_for_power(self) -> bool:
        """Whether the power is gone; then it is over."""
        is_gone = self._stops_at is not None and self.disk.call_count > self._stops_at
        if is_gone and self.is_up:
            self._on_power_gone(self)
        return is_gone

    def end(self) -> None:
        """The process is gone; what still runs of it changes nothing any more."""
        self.is_up = False
        self.opened.set()
        self.clock.is_over = self._transport.is_over = True
        self.disk.end_process()
        self._network.leave(self.id)
        if self.node._host is not None:
            self.node.host.stop(Closed("the node"))


def copy_of(disk: SimulatedFileSystem) -> SimulatedFileSystem:
    """As the next process finds it, which what is left of this one does not change any more."""
    after = deepcopy(disk, {id(disk._lock): RLock(), id(disk.calls): []})
    after.heal()
    after.end_process()
    return after
