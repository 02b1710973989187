"""What the front ends of a node hear of its cluster, also while it belongs to none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..cluster.bootstrap import ClusterFounder, address_of
from ..cluster.catalog import ClusterCatalog
from ..cluster.identity import Members, NodeRecord, members_of
from ..cluster.node import ClusterNode
from ..config.kinds import UnfitValue
from ..errors import InvalidRequest
from ..frontends.cluster_view import LogStanding


class NodeView:
    """Implements ClusterView. `record` is set once the node is a founder."""

    def __init__(self, founder: ClusterFounder, catalog: ClusterCatalog) -> None:
        self._founder, self._catalog = founder, catalog
        self.record: NodeRecord | None = None
        self._node: ClusterNode | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        """Whoever has named members, and wants to know what came of it."""

    def serve(self, node: ClusterNode) -> None:
        self._node = node
        node.on_leader_changed(self._changed)

    @property
    def name(self) -> str:
        return self._founder.node.name

    def addresses(self) -> dict[str, str]:
        return {node.name: node.address for node in self._catalog.present()}

    def leader(self) -> str | None:
        """Also this node, if it is about to lead."""
        leader = 0 if self._node is None else self._node.leader()
        return self._catalog.name_of(leader) if leader else None

    def is_leading(self) -> bool:
        return self._node is not None and self._node.is_leading()

    def standing(self) -> LogStanding:
        if self._node is None or not self._node.is_open:
            return LogStanding()
        status = self._node.status()
        return LogStanding(status.term, status.last_index, status.applied)

    def on_leader_changed(self, callback: Callable[[], None]) -> None:
        assert self._node is not None, "front ends are made behind the node"
        self._node.on_leader_changed(lambda leader, term: callback())

    # --- founding

    async def found(self, members: Sequence[tuple[str, str]], seconds: float) -> None:
        wanted = checked(members)
        if self.record is not None:
            self._check_same(self.record.members, wanted)
        else:
            if self.name not in [member.name for member in wanted]:
                raise InvalidRequest(f"this is {self.name}, which is not in the list")
            self._founder.want(wanted)
        if self.is_led():
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            if self.record is not None:
                self._check_same(self.record.members, wanted)
                raise InvalidRequest("the cluster has formed, but has no leader yet") from None
            if self._founder.node.record is None:
                self._founder.forget()
            raise InvalidRequest(
                f"not all nodes have agreed yet; waiting for {self._founder.waits_for}. Start all "
                "nodes, then bootstrap again"
            ) from None
        finally:
            self._waiting.discard(waiting)
        # Another client may have named others meanwhile, and this node belongs to those now.
        if self.record is not None:
            self._check_same(self.record.members, wanted)

    def is_led(self) -> bool:
        """Whether somebody is known to lead; of this node, once its verbs are decided."""
        leader = self.leader()
        return self.is_leading() if leader == self.name else leader is not None

    def refused(self, error: InvalidRequest) -> None:
        """Another node refuses for good."""
        if self._founder.node.record is None:
            self._founder.forget(str(error))
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(InvalidRequest(str(error)))

    def _check_same(self, ours: Members, wanted: Members) -> None:
        """By name: how a client spells an address may differ from how another one did."""
        names = [sorted(member.name for member in members) for members in (ours, wanted)]
        if names[0] != names[1]:
            raise InvalidRequest(
                f"this is {self.name} of a cluster of {', '.join(names[0])} already; start a new "
                "cluster with empty data directories"
            )

    def _changed(self, leader: int, term: int) -> None:
        if self.is_led():
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)


def checked(members: Sequence[tuple[str, str]]) -> Members:
    """Raises InvalidRequest where a name or address is there twice, or is none."""
    found = members_of(list(members))
    for member in found:
        try:
            address_of(member)
        except UnfitValue:
            raise InvalidRequest(
                f"{member.address!r} of {member.name} is not an address HOST:PORT"
            ) from None
    return found
