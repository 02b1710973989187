"""What HermesMQ's clients hear of the node: its stats, and how it is bootstrapped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...config.between import hermes_node_name
from ...engine.figures import Measured
from ...errors import FlintError
from . import codec as hermes
from .settings import id_in

if TYPE_CHECKING:
    from ..cluster_view import ClusterView
    from .server import HermesServer

TOPICS_SUMMED = 1000
KEPT_SECONDS = 1.0
"""The stats of more topics than that are kept for this time."""
STEP_TOPICS = 32
"""Topics that are summed up before others have their turn."""
TERM = 1
"""A single node was elected once."""
BOOTSTRAP_SECONDS = 8.0
"""How long a Bootstrap may wait for other nodes: their clients wait 10 s for an answer."""


class HermesNode:
    def __init__(self, server: HermesServer, id: int) -> None:
        self._server, self.id = server, id
        self._is_bootstrapped = False
        self.figures = hermes.StatsResult()
        """As they were last summed up."""
        self._kept_until = 0.0
        self._summing: asyncio.Task[bytes] | None = None

    def bootstrap(self, nodes: Iterable[hermes.Node]) -> bytes | Awaitable[bytes]:
        if self._server.cluster is not None:
            addresses = {node.id: node.peer_addr for node in nodes}  # the last of an id counts
            return self._server.spawn(self._founded(self._server.cluster, addresses))
        if self._is_bootstrapped:
            return hermes.OK
        ids = {node.id for node in nodes}
        if self.id not in ids:
            return hermes.error(
                "bootstrap_failed", f"this is node {self.id}, which is not in the list"
            )
        if len(ids) > 1:
            return hermes.error(
                "bootstrap_failed",
                f"node {self.id} runs alone, as it has no --peer-addr or has data from before it "
                "had one; give all nodes of a cluster a --peer-addr and an empty data directory",
            )
        self._is_bootstrapped = True
        return hermes.OK

    async def _founded(self, cluster: ClusterView, addresses: dict[int, str]) -> bytes:
        members = [(hermes_node_name(id), address) for id, address in addresses.items()]
        try:
            await cluster.found(members, BOOTSTRAP_SECONDS)
        except FlintError as error:
            return hermes.error("bootstrap_failed", str(error))
        return hermes.OK

    def stats(self) -> bytes | Awaitable[bytes]:
        """The frame with the stats. Those of many topics are summed up in steps, for all who ask
        meanwhile, and kept for a moment."""
        server = self._server
        if server.broker.clock.monotonic() < self._kept_until:
            return hermes.stats(self.figures)
        if len(server.topics) <= TOPICS_SUMMED:
            for _ in self.sum_up():
                pass
            return hermes.stats(self.figures)
        if self._summing is None:
            self._summing = server.spawn(self._sum_up_later())
        return asyncio.shield(self._summing)

    async def _sum_up_later(self) -> bytes:
        try:
            for _ in self.sum_up():
                await asyncio.sleep(0)
            self._kept_until = self._server.broker.clock.monotonic() + KEPT_SECONDS
            return hermes.stats(self.figures)
        finally:
            self._summing = None

    def sum_up(self) -> Iterator[None]:
        """Renew `figures`. Yields where others may have their turn."""
        broker = self._server.broker
        topics = messages = in_flight = last = applied = 0
        if isinstance(broker, Measured):
            for number, name in enumerate(broker.plain_topics(), 1):
                if not number % STEP_TOPICS:
                    yield
                figures = broker.topic_figures(name)
                if figures is None:
                    continue
                topics += 1
                queues = [group for group in figures.groups if group.kind == "queue"]
                # What every group is done with is gone as far as they know.
                messages += max((q.lag for q in queues), default=figures.messages)
                in_flight += sum(q.in_flight for q in queues)
            journal = broker.journal_figures()
            if journal is not None:
                last, applied = journal.last_index, journal.applied_index
        else:
            topics = len(self._server.topics)
        term, leads = TERM, not self._server.is_draining
        leader = self.id if leads else 0
        cluster = self._server.cluster
        if cluster is not None:
            leads = self._server.is_leading
            who = cluster.leader() or ""
            leader = self.id if who == cluster.name else id_in(who)
            term, last, applied = cluster.standing()
        self.figures = hermes.StatsResult(
            last_applied=applied,
            current_leader=leader,
            current_term=term,
            last_log_index=last,
            is_leader=leads,
            topics=topics,
            messages=messages,
            in_flight=in_flight,
        )
