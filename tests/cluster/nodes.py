"""Three nodes in one process: real engines, journals in directories, lines inside the loop.

Time passes for all of them in step, and quickly: a loop that is held up holds all of them up alike,
so nobody is elected because a machine is busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from flintmq.batch import BatchBuilder
from flintmq.broker_api import BrokerApi, Fetch
from flintmq.clock import Clock
from flintmq.cluster.catalog import ClusterCatalog
from flintmq.cluster.node import ClusterNode
from flintmq.cluster.transport import LocalNetwork
from flintmq.cluster_model import NodeEntry
from flintmq.model import Receipt
from flintmq.storage.filesystem import LocalFileSystem

TICK_SECONDS = 0.01


class Cluster:
    def __init__(
        self, directory: Path, count: int = 3, *, clock: Clock | None = None, **settings: Any
    ) -> None:
        self.directory, self.clock = directory, clock
        self.settings = {"stalled_ticks": 0, **settings}  # ticks are short: no disk is as quick
        self.network = LocalNetwork()
        self.ids = tuple(range(1, count + 1))
        self.nodes: dict[int, ClusterNode] = {}
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Cluster:
        await self.open()
        return self

    async def open(self, *ids: int) -> None:
        """These nodes, or all."""
        for id in ids or self.ids:
            node = self.nodes.get(id) or self.make(id)
            await node.open()
            self.nodes[id] = node
        self._ticking = asyncio.get_running_loop().create_task(self._tick())
        await self.led()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for id in list(self.nodes):
            await self.nodes.pop(id).close()
        if self._ticking is not None:
            self._ticking.cancel()

    async def stop(self) -> None:
        """Close all, and have none lead in place of another first."""
        if (leader := self.leader()) is not None:
            await leader.drained()
        for node in self.nodes.values():
            await node.stop()
        await self.close()

    async def start(self, id: int) -> ClusterNode:
        node = self.make(id)
        await node.open()
        self.nodes[id] = node
        return node

    def make(self, id: int) -> ClusterNode:
        path = self.directory / str(id)
        path.mkdir(parents=True, exist_ok=True)
        return ClusterNode(
            LocalFileSystem(path),
            self.network.transport(id),
            node=id,
            founders=self.ids if id in self.ids else (),
            begins_blank=id not in self.ids,
            catalog=ClusterCatalog(entry_of(one) for one in self.ids),
            broker_of=lambda leader: self.nodes[leader].for_peers if leader in self.nodes else None,
            clock=self.clock,
            random=Random(id),
            tick_seconds=0,
            **self.settings,
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for node in list(self.nodes.values()):
                if not node.host.is_stopped:
                    node.tick()

    def stop_time(self) -> None:
        """No tick any more: no heartbeat, no election."""
        if self._ticking is not None:
            self._ticking.cancel()

    # --- waiting

    async def until(self, holds: Callable[[], bool], what: str = "") -> None:
        for _ in range(3000):
            if holds():
                return
            await asyncio.sleep(TICK_SECONDS)
        states = [(node.id, node.host.standing, node.status()) for node in self.nodes.values()]
        raise AssertionError(f"{what or holds} never held: {states}")

    def leader(self) -> ClusterNode | None:
        """The one that leads, in the highest term."""
        leading = [node for node in self.nodes.values() if node.is_leading()]
        return max(leading, key=lambda node: node.host.term, default=None)

    async def led(self) -> ClusterNode:
        await self.until(lambda: self.leader() is not None, "somebody leads")
        leader = self.leader()
        assert leader is not None
        return leader

    async def agreed(self) -> None:
        """Wait until all nodes have applied the same."""

        def is_agreed() -> bool:
            ends = {node.host.raft.log.last_index() for node in self.nodes.values()}
            applied = {node.host.shard.proposer.applied for node in self.nodes.values()}
            return len(ends | applied) == 1

        await self.until(is_agreed, "all have applied the same")

    # --- faults

    async def kill(self, id: int) -> None:
        """End a node at once: no hand-over, no checkpoint; what it had written stays."""
        node = self.nodes.pop(id)
        await node.stop()
        kept = node.local.host.kept[0]
        kept.checkpoints.checkpoint = _no_checkpoint  # type: ignore[method-assign]
        await node.local.close()

    async def kill_leader(self) -> int:
        leader = await self.led()
        await self.kill(leader.id)
        return leader.id


def entry_of(id: int) -> NodeEntry:
    """A node as the catalog has it."""
    return NodeEntry(id, f"n{id}", f"n{id}.example:7602", 100 + id)


async def _no_checkpoint() -> None: ...


async def publish(broker: BrokerApi, *values: bytes, topic: str = "orders") -> Receipt:
    rows = BatchBuilder.of(list(values))
    return await broker.publish(topic, rows, qos=1, auto_create=True, timeout=None)


async def values(broker: BrokerApi, topic: str = "orders") -> list[bytes]:
    fetched = await broker.fetch(Fetch(topic, 0))
    return fetched.rows.values
