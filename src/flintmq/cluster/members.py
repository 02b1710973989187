"""Has who votes follow the catalog, while this node leads; and decides what is asked of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ..cluster_model import NodeEntry
from ..engine.broker import Broker
from ..engine.commands import Define, SetNodes
from ..errors import FlintError, InvalidRequest, NotLeader
from ..observe.logs import event, limited
from ..raft.leader import Leader
from ..raft.membership import MembershipChange
from .catalog import (
    ClusterCatalog,
    added,
    admitted,
    must_hand_over,
    named,
    next_step,
    removed,
    replaced,
)
from .levels import COMMANDS_UP_TO, KIND, LEVEL, NAME, level_in, raised
from .replicated_log import ReplicatedLog
from .shard_host import ShardHost

_log = logging.getLogger(__name__)

MARK_TICKS = 10
"""A learner has caught up when it holds what the log had so many ticks ago, or up to twice that."""
BUSY = "another change of the cluster is being made; try again"


class DrivenNode(Protocol):
    """A node, as far as this needs it."""

    id: int
    local: Broker

    @property
    def host(self) -> ShardHost: ...
    def is_leading(self) -> bool: ...
    def leader(self) -> int: ...
    def hand_over(self, to: int = 0) -> None: ...


class ClusterMembers:
    def __init__(self, node: DrivenNode, catalog: ClusterCatalog, log: ReplicatedLog) -> None:
        self._node, self.catalog, self._log = node, catalog, log
        self._changing: asyncio.Future[None] | None = None
        self._ticks = 0
        self._marks = (0, 0)
        """The last index of the log, a while ago and now."""
        self._told: str = ""

    def follow(self) -> None:
        """The shard is open: what is applied there is the catalog from now on."""
        state = self._node.local.shard.state
        state.on_nodes = lambda: self.catalog.applied(state.nodes)
        self.catalog.applied(state.nodes)
        state.definitions.on_change.append(self._defined)
        self._defined(KIND)

    def _defined(self, kind: str) -> None:
        if kind == KIND:
            found = self._node.local.shard.state.definitions.get(KIND, "", NAME)
            self.catalog.raised(level_in(found))
            self._log.level_max = COMMANDS_UP_TO[min(self.catalog.level, LEVEL)]

    # --- what is asked

    def admit(self, name: str, address: str, incarnation: int) -> NodeEntry | None:
        """The entry of a node that joins; None: not yet, ask again. Raises InvalidRequest."""
        self._check_leads()
        if self._is_busy() or not self._nodes:
            return None
        wish = admitted(self._nodes, name, address, incarnation)
        if isinstance(wish, NodeEntry):
            return wish
        self._propose(wish)
        return None

    async def add(self, name: str, address: str) -> None:
        await self._change(lambda: added(self._nodes, name, address))

    async def replace(self, name: str, address: str) -> None:
        await self._change(lambda: replaced(self._nodes, name, address))

    async def remove(self, name: str) -> None:
        await self._change(
            lambda: removed(self._nodes, name, self._node.host.raft.membership, self.live())
        )

    async def finalize(self, level: int) -> None:
        """From now on the cluster has that level: every node knows it."""
        if level > self.catalog.level:
            last = self._node.local.shard.state.definitions.last_version
            await self._change(lambda: raised(level, last + 1))

    def transfer(self, name: str) -> None:
        self._check_leads()
        entry = named(self._nodes, name)
        if entry is None or entry.id not in self._node.host.raft.membership.voters:
            raise InvalidRequest(f"{name} is not a voter of this cluster and cannot lead")
        if entry.id == self._node.id:
            return
        if entry.id not in self.live():
            raise InvalidRequest(f"node {name} is down, and cannot lead")
        self._node.hand_over(entry.id)

    async def _change(self, decide: Callable[[], SetNodes | Define]) -> None:
        self._check_leads()
        if self._is_busy() or not self._nodes:
            raise InvalidRequest(BUSY)
        await asyncio.shield(self._propose(decide()))

    def _check_leads(self) -> None:
        if not self._node.is_leading():
            raise NotLeader(self._node.id, self._node.leader())

    @property
    def _nodes(self) -> dict[int, NodeEntry]:
        return self._node.local.shard.state.nodes

    def _is_busy(self) -> bool:
        return self._changing is not None and not self._changing.done()

    def _propose(self, command: SetNodes | Define) -> asyncio.Future[None]:
        done = self._node.local.shard.proposer.change(command)
        assert done is not None, "a cluster's log is never instant"
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._changing = done
        return done

    # --- what follows

    def live(self) -> set[int]:
        """Who was heard of lately, this node too."""
        role = self._node.host.raft.role
        peers = role.progress.items() if isinstance(role, Leader) else ()
        return {self._node.id, *(peer for peer, progress in peers if progress.is_live())}

    def _has_caught_up(self, node: int) -> bool:
        role = self._node.host.raft.role
        progress = role.progress.get(node) if isinstance(role, Leader) else None
        return progress is not None and progress.is_live() and progress.match >= self._marks[0] > 0

    def look(self) -> None:
        """Now and then: do the next step, if there is one."""
        host = self._node.host
        self._ticks += 1
        if self._ticks % MARK_TICKS == 0:
            self._marks = (self._marks[1], host.raft.log.last_index())
        if not self._node.is_leading():
            self._marks = (0, 0)
            return
        if self._is_busy() or not self.catalog.nodes:
            return
        try:
            self._step(host)
        except FlintError as error:  # the core, or the lead, does not allow it now
            limited(
                _log,
                logging.WARNING,
                "cluster_change_waits",
                str(error),
                f"a membership change has to wait: {error}",
            )

    def _step(self, host: ShardHost) -> None:
        nodes, membership, own = self._nodes, host.raft.membership, self._node.id
        if not nodes:  # nobody has written them down yet: the founders are known by the node file
            self._propose(SetNodes(list(self.catalog.nodes.values())))
            return
        role = host.raft.role
        if isinstance(role, Leader) and role.pending_membership_index > host.raft.log.applied:
            return  # one after the other
        if must_hand_over(nodes, membership, own, self._has_caught_up):
            self._node.hand_over()
        step = next_step(nodes, membership, own, self._has_caught_up)
        if isinstance(step, SetNodes):
            self._propose(step)
        elif step is not None:
            self._change_members(host, step)
            event(
                _log,
                logging.INFO,
                "cluster_membership",
                f"the membership of group 0 changes: {describe(step, self.catalog)}",
            )

    def _change_members(self, host: ShardHost, change: MembershipChange) -> None:
        """Raises ProposalRefused where that cannot be now."""

        def propose() -> None:
            if self._log.gathered or not self._node.is_leading():
                raise NotLeader(self._node.id, self._node.leader())
            host.raft.propose_membership(change)
            self._log.others_entry()

        host.drive(propose)


def describe(step: object, catalog: ClusterCatalog) -> str:
    steps = getattr(step, "steps", ())
    words = [f"{one.action.name.lower()} {catalog.name_of(one.node)}" for one in steps]
    return ", ".join(words) or "the joint phase ends"
